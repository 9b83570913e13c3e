//! Bubblewrap: the program `bwrap`, and the arguments that make it a sandbox.

use std::{
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use entourage_core::{Error, ErrorKind};

use super::{
    listener::OPENERS,
    places::{self, Closed, Open},
};
use crate::sandbox::settings::{Level, Network, Settings};

/// The most bytes of what `bwrap` says that an error repeats.
const SAID: usize = 300;

/// The program and its arguments, up to what differs between commands.
#[derive(Debug)]
pub(super) struct Bubblewrap {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<OsString>,
    /// The beginning of each command, where it needs a listener.
    pub(super) opener: Vec<&'static str>,
    /// Places of `/etc` that are hidden.
    closed: Vec<Closed>,
}

impl Bubblewrap {
    /// The arguments that hide the secrets of `/etc`, those that are gone left out.
    pub(super) fn masks(&self) -> Vec<OsString> {
        let mut made = Made::default();
        for Closed { path, is_directory } in
            self.closed.iter().filter(|one| one.path.symlink_metadata().is_ok())
        {
            if *is_directory {
                made.empty(path);
            } else {
                made.three("--ro-bind", Path::new("/dev/null"), path);
            }
        }
        made.0
    }

    /// Runs a command under bubblewrap that has to succeed.
    fn tries(&self, command: &[&str]) -> Result<(), Error> {
        let tried = Command::new(&self.program)
            .args(&self.arguments)
            .args(self.masks())
            .arg("--")
            .args(command)
            .stdin(Stdio::null())
            .current_dir("/")
            .output()
            .map_err(|error| unsupported("bubblewrap does not start").caused_by(error))?;
        if tried.status.success() {
            return Ok(());
        }
        let said: String = String::from_utf8_lossy(&tried.stderr).chars().take(SAID).collect();
        Err(unsupported(format!(
            "bubblewrap does not work here: {}; allow user namespaces, or use another backend",
            said.trim()
        )))
    }
}

/// Finds bubblewrap and tries it.
pub(super) fn find(settings: &Settings, temp: &Path) -> Result<Bubblewrap, Error> {
    let program = settings.bubblewrap.clone().or_else(|| in_path(settings)).ok_or_else(|| {
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
    let mut found = Bubblewrap { arguments: arguments(settings, temp)?, opener: Vec::new(), program, closed };
    found.tries(&["/bin/sh", "-c", ":"])?;
    if let Network::Hosts(_) = settings.network {
        let opener = OPENERS
            .iter()
            .find(|opener| found.tries(&[opener.program, &[opener.trial]].concat()).is_ok())
            .ok_or_else(|| {
                unsupported("`hosts` of a sandbox need /usr/bin/perl or /usr/bin/python3; install one")
            })?;
        found.opener = [opener.program, &[opener.script]].concat();
    }
    Ok(found)
}

fn unsupported(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Unsupported, message).during("sandbox.prepare")
}

/// The first `bwrap` in `PATH`, places that commands can write to left out.
fn in_path(settings: &Settings) -> Option<PathBuf> {
    let writable = |directory: &Path| {
        settings
            .level
            .root()
            .into_iter()
            .chain(settings.writing.iter().map(PathBuf::as_path))
            .any(|path| fs::canonicalize(directory).is_ok_and(|directory| directory.starts_with(path)))
    };
    std::env::split_paths(&std::env::var_os("PATH")?)
        .filter(|directory| directory.is_absolute() && !writable(directory))
        .map(|directory| directory.join("bwrap"))
        .find(|program| program.is_file())
}

fn arguments(settings: &Settings, temp: &Path) -> Result<Vec<OsString>, Error> {
    let mut made = Made::default();
    // Without `--new-session`: until the process in the name space dies with its parent, it is ended by its group. The
    // filter refuses typing into the terminal.
    made.flags(&["--unshare-all", "--die-with-parent", "--cap-drop", "ALL"]);
    if settings.network == Network::All {
        made.flags(&["--share-net"]);
    }
    let Some(root) = settings.level.root() else {
        made.flags(&["--dev-bind", "/", "/", "--proc", "/proc"]);
        close_machine(&mut made);
        return Ok(made.0);
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
    made.three("--bind", temp, Path::new("/tmp"));
    for path in &settings.reading {
        made.bind("--ro-bind", &known(path)?);
    }
    let writes = matches!(settings.level, Level::WorkspaceWrite(_));
    made.bind(if writes { "--bind" } else { "--ro-bind" }, root);
    for path in &settings.writing {
        made.bind("--bind", &known(path)?);
    }
    // What bubblewrap itself made lies in memory, and could be written.
    made.flags(&["--remount-ro", "/dev", "--remount-ro", "/"]);
    Ok(made.0)
}

/// Makes what is set for the whole machine read-only, where the user root could write, and hides the terminal.
fn close_machine(made: &mut Made) {
    for path in ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"] {
        made.bind("--ro-bind-try", Path::new(path));
    }
    // A command must not write to the person's terminal, nor read from it.
    made.three("--dev-bind-try", Path::new("/dev/null"), Path::new("/dev/tty"));
}

/// A path of the settings with its name as an absolute one.
fn known(path: &Path) -> Result<PathBuf, Error> {
    let missing = |error| {
        let message = format!(
            "`{}` of the sandbox's settings cannot be opened; create it, or leave it out",
            path.display()
        );
        Error::new(ErrorKind::NotFound, message).caused_by(error)
    };
    path.metadata().map_err(missing)?;
    std::path::absolute(path).map_err(missing)
}

/// Arguments in the making.
#[derive(Default)]
struct Made(Vec<OsString>);

impl Made {
    fn flags(&mut self, flags: &[&str]) {
        self.0.extend(flags.iter().map(OsString::from));
    }

    fn three(&mut self, flag: &str, from: &Path, to: &Path) {
        self.0.extend([OsStr::new(flag), from.as_os_str(), to.as_os_str()].map(OsStr::to_owned));
    }

    /// Mounts an empty directory that stays so.
    fn empty(&mut self, path: &Path) {
        for flag in ["--tmpfs", "--remount-ro"] {
            self.0.extend([OsStr::new(flag), path.as_os_str()].map(OsStr::to_owned));
        }
    }

    fn bind(&mut self, flag: &str, path: &Path) {
        self.three(flag, path, path);
    }
}

/// The arguments that keep protected paths as they are: those that exist, and those that do not.
pub(super) fn protect(root: &Path, mounted: &[PathBuf], masked: &[PathBuf]) -> Vec<OsString> {
    let mut made = Made::default();
    mounted.iter().for_each(|path| made.bind("--ro-bind", &root.join(path)));
    masked.iter().for_each(|path| made.empty(&root.join(path)));
    made.0
}
