//! Bubblewrap: the program `bwrap`, and the arguments that make it a sandbox.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use entourage_core::{Error, ErrorKind};

use super::{
    arguments::{Arguments, Ready},
    listener::OPENERS,
    places::{self, Closed, Open},
};
use crate::sandbox::{
    resolved::{Place, Places},
    settings::{Level, Network, Settings},
};

/// The name of the private directory in a command.
const TEMP: &str = "/tmp";

/// Messages of programs that lack descriptors, processes, memory or space.
const SHORT: [&str; 5] = [
    "Too many open files",
    "Resource temporarily unavailable",
    "Cannot allocate memory",
    "No space left on device",
    "Quota exceeded",
];

/// A command that needs nothing but a sandbox that works.
const PROBE: &[&str] = &["/bin/sh", "-c", ":"];

/// The most bytes of what `bwrap` says that an error repeats.
const SAID: usize = 300;

/// The program and its arguments, up to what differs between commands.
#[derive(Debug)]
pub(super) struct Bubblewrap {
    pub(super) program: PathBuf,
    arguments: Arguments,
    /// The beginning of each command, where it needs a listener.
    pub(super) opener: Vec<&'static str>,
    /// Places of `/etc` that are hidden.
    closed: Vec<Closed>,
}

impl Bubblewrap {
    /// The arguments for one command, but for protected paths and the filter.
    pub(super) fn ready(&self) -> Result<Ready, Error> {
        let mut ready = self.arguments.ready()?;
        for Closed { path, is_directory } in
            self.closed.iter().filter(|one| one.path.symlink_metadata().is_ok())
        {
            if *is_directory { ready.empty(path) } else { ready.nothing(path) }
        }
        Ok(ready)
    }

    /// Runs a command under bubblewrap that has to succeed.
    fn tries(&self, command: &[&str]) -> Result<(), Error> {
        let mut tried = Command::new(&self.program);
        self.ready()?.give(&mut tried)?;
        let tried = tried.arg("--").args(command).stdin(Stdio::null()).current_dir("/").output().map_err(
            |error| match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
                    unsupported("bubblewrap does not start").caused_by(error)
                }
                _ => Error::new(ErrorKind::Io, "bubblewrap could not be started").caused_by(error),
            },
        )?;
        if tried.status.success() {
            return Ok(());
        }
        let said: String = String::from_utf8_lossy(&tried.stderr).chars().take(SAID).collect();
        // A machine that is short of something for a moment is no reason for another backend.
        if SHORT.iter().any(|short| said.contains(short)) {
            let message = format!("bubblewrap could not be tried: {}; try again", said.trim());
            return Err(Error::new(ErrorKind::Io, message).during("sandbox.prepare"));
        }
        let hint = if said.contains("bind-fd") {
            "update it to one that has `--bind-fd` (0.10, or 0.8 with the fixes of a distribution)"
        } else {
            "allow user namespaces"
        };
        Err(unsupported(format!(
            "bubblewrap does not work here: {}; {hint}, or use another backend",
            said.trim()
        )))
    }
}

/// Finds bubblewrap and tries it, by one start where it works.
pub(super) fn find(settings: &Settings, places: &Places, temp: &Place) -> Result<Bubblewrap, Error> {
    let program = settings
        .bubblewrap
        .clone()
        .or_else(|| std::env::var_os("PATH").and_then(|path| in_path(places, &path)))
        .ok_or_else(|| {
            unsupported(
                "bubblewrap is not installed; install it (the program is `bwrap`), or use another backend",
            )
        })?;
    if !program.is_absolute() || !program.is_file() {
        let shown = program.display();
        return Err(unsupported(format!(
            "there is no bubblewrap at `{shown}`; name it by its absolute path"
        )));
    }
    let closed = if settings.level == Level::Full { Vec::new() } else { Open::etc().closed };
    let mut found =
        Bubblewrap { arguments: arguments(settings, places, temp)?, opener: Vec::new(), program, closed };
    let Network::Hosts(_) = settings.network else {
        found.tries(PROBE)?;
        return Ok(found);
    };
    let tried = OPENERS.iter().find(|it| found.tries(&[it.program, &[it.trial]].concat()).is_ok());
    let Some(opener) = tried else {
        // Either bubblewrap does not work, which this tells, or there is no interpreter.
        found.tries(PROBE)?;
        return Err(unsupported("`hosts` of a sandbox need /usr/bin/perl or /usr/bin/python3; install one"));
    };
    found.opener = [opener.program, &[opener.script]].concat();
    Ok(found)
}

fn unsupported(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Unsupported, message).during("sandbox.prepare")
}

/// The first `bwrap` in `PATH`, places that commands can write to left out, whatever their names are.
fn in_path(found: &Places, path: &OsStr) -> Option<PathBuf> {
    let is_writable =
        |path: &Path| found.root.iter().chain(&found.writing).any(|place| path.starts_with(&place.at));
    std::env::split_paths(path)
        .filter(|directory| directory.is_absolute())
        .filter_map(|directory| fs::canonicalize(directory.join("bwrap")).ok())
        .find(|program| program.is_file() && !is_writable(program))
}

fn arguments(settings: &Settings, found: &Places, temp: &Place) -> Result<Arguments, Error> {
    let mut made = Arguments::default();
    // Without `--new-session`: until the process in the name space dies with its parent, it is ended by its group. The
    // filter refuses typing into the terminal.
    made.flags(&["--unshare-all", "--die-with-parent", "--cap-drop", "ALL"]);
    if settings.network == Network::All {
        made.flags(&["--share-net"]);
    }
    let Some(root) = &found.root else {
        made.flags(&["--dev-bind", "/", "/", "--proc", "/proc"]);
        close_machine(&mut made);
        return Ok(made);
    };
    for path in places::PROGRAMS.iter().map(Path::new) {
        match fs::read_link(path) {
            Ok(target) => made.three("--symlink", &target, path),
            Err(_) if path.exists() => made.bind("--ro-bind", path),
            Err(_) => {}
        }
    }
    // Mounts of all places that are open take tens of milliseconds; there are fewer closed ones.
    made.bind("--ro-bind-try", Path::new("/etc"));
    places::MACHINE.iter().for_each(|path| made.bind("--ro-bind-try", Path::new(path)));
    if settings.network == Network::All {
        places::resolver().for_each(|path| made.bind("--ro-bind-try", &path));
    }
    made.flags(&["--proc", "/proc", "--dev", "/dev"]);
    close_machine(&mut made);
    made.place("--bind-fd", temp.clone(), Path::new(TEMP));
    for (directory, at) in below_temp(found, temp)? {
        made.place("--bind-fd", directory, &at);
    }
    let mut place = |flag, place: &Place| made.place(flag, place.clone(), &place.name);
    found.reading.iter().for_each(|it| place("--ro-bind-fd", it));
    let writes = matches!(settings.level, Level::WorkspaceWrite(_));
    place(if writes { "--bind-fd" } else { "--ro-bind-fd" }, root);
    found.writing.iter().for_each(|it| place("--bind-fd", it));
    // What bubblewrap itself made lies in memory, and could be written.
    made.flags(&["--remount-ro", "/dev", "--remount-ro", "/"]);
    Ok(made)
}

/// Directories of the private one in which places are mounted, with their names. They are mounts of their own, which no
/// command can move away.
fn below_temp(found: &Places, temp: &Place) -> Result<Vec<(Place, PathBuf)>, Error> {
    let mut names = BTreeSet::new();
    for place in found.root.iter().chain(&found.reading).chain(&found.writing) {
        let above = place.name.ancestors().skip(1);
        names.extend(above.filter(|path| path.starts_with(TEMP) && *path != Path::new(TEMP)));
    }
    let made = names.into_iter().map(|name| {
        let at = temp.at.join(name.strip_prefix(TEMP).unwrap_or(name));
        fs::create_dir_all(&at)?;
        Ok((Place { name: name.to_owned(), at }, name.to_owned()))
    });
    made.collect::<io::Result<_>>().map_err(|error| {
        Error::new(ErrorKind::Io, "the sandbox's temporary directory cannot be prepared").caused_by(error)
    })
}

/// Makes what is set for the whole machine read-only, where the user root could write, and hides the terminal.
fn close_machine(made: &mut Arguments) {
    for path in ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"] {
        made.bind("--ro-bind-try", Path::new(path));
    }
    // A command must not write to the person's terminal, nor read from it.
    made.three("--dev-bind-try", Path::new("/dev/null"), Path::new("/dev/tty"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_31_a_bwrap_that_commands_could_have_put_there_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(dir.path()).unwrap();
        let at = |name: &str| base.join(name);
        for name in ["real/bin", "root/bin", "else", "links"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        for name in ["real/bin/bwrap", "root/bin/bwrap", "else/bwrap"] {
            fs::write(at(name), "").unwrap();
        }
        std::os::unix::fs::symlink(at("real"), at("alias")).unwrap();
        std::os::unix::fs::symlink(at("root/bin/bwrap"), at("links/bwrap")).unwrap();
        let place = |name: &str| Place { name: at(name), at: fs::canonicalize(at(name)).unwrap() };
        let places = Places { root: Some(place("root")), reading: vec![], writing: vec![place("alias")] };
        for (directories, found) in [
            (vec!["real/bin", "alias/bin", "root/bin", "links"], None),
            (vec!["real/bin", "else"], Some("else/bwrap")),
        ] {
            let path = std::env::join_paths(directories.iter().map(|name| at(name))).unwrap();
            assert_eq!(in_path(&places, &path), found.map(at), "{directories:?}");
        }
    }
}
