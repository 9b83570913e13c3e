//! The arguments of `bwrap`. Places of the settings and of the workspace are mounted by descriptor: `bwrap` follows the
//! links in a name, and commands can put links there.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, PipeReader, PipeWriter, Read, Write},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use command_fds::{CommandFdExt, FdMapping};
use entourage_core::{Error, ErrorKind};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{CWD, Mode, OFlags, ResolveFlags},
    io::Errno,
};

use crate::sandbox::resolved::{Place, missing};

impl Place {
    /// Opens what is there now, without following a link.
    pub(super) fn open(&self, flags: OFlags) -> Result<OwnedFd, Error> {
        let opened = rustix::fs::openat2(
            CWD,
            &self.at,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::NO_SYMLINKS,
        );
        opened.map_err(|error| match error {
            Errno::LOOP => Error::new(
                ErrorKind::Conflict,
                format!(
                    "a link has appeared in the path `{}` of the sandbox's settings; look where it leads, and make a new \
                     `Sandbox`",
                    self.at.display()
                ),
            ),
            error => missing(&self.at, error.into()),
        })
    }
}

/// Arguments in the making.
#[derive(Debug, Default)]
pub(super) struct Arguments(Vec<Word>);

#[derive(Debug)]
enum Word {
    Text(OsString),
    /// A descriptor of a place, which is opened for each command.
    Place(Place),
}

impl Arguments {
    pub(super) fn flags(&mut self, flags: &[&str]) {
        self.0.extend(flags.iter().map(|flag| Word::Text(flag.into())));
    }

    pub(super) fn three(&mut self, flag: &str, from: &Path, to: &Path) {
        self.0
            .extend([OsStr::new(flag), from.as_os_str(), to.as_os_str()].map(|it| Word::Text(it.to_owned())));
    }

    /// Mounts what has the same name outside. For places of the system alone, which no command can change.
    pub(super) fn bind(&mut self, flag: &str, path: &Path) {
        self.three(flag, path, path);
    }

    /// Mounts a place at a name, with one of the flags that take a descriptor.
    pub(super) fn place(&mut self, flag: &str, place: Place, to: &Path) {
        self.0.extend([Word::Text(flag.into()), Word::Place(place), Word::Text(to.into())]);
    }

    /// The arguments for one command.
    pub(super) fn ready(&self) -> Result<Ready, Error> {
        let mut ready = Ready::default();
        for word in &self.0 {
            match word {
                Word::Text(text) => ready.words.push(text.clone()),
                Word::Place(place) => ready.file(place.open(OFlags::PATH)?),
            }
        }
        Ok(ready)
    }
}

/// Time for `bwrap` to set a sandbox up.
const PATIENCE: Duration = Duration::from_secs(30);

/// The descriptors by which a command of bubblewrap tells that it is ready, and learns that it may begin. A shell
/// closes them, which knows one digit.
const READY: i32 = 8;
const GATE: i32 = 9;

/// The program that does that, and then becomes the command. If this program is killed before, nothing runs: until
/// `bwrap` is ready, it would not end with this program.
pub(super) const GATED: [&str; 4] =
    ["/bin/sh", "-c", "echo>&8;exec 8>&-;read -r _ <&9||exit 126;exec 9<&-;exec \"$@\"", "sh"];

/// Arguments of one command, and the descriptors that they name.
#[derive(Debug, Default)]
pub(super) struct Ready {
    pub(super) words: Vec<OsString>,
    files: Vec<OwnedFd>,
    gate: Option<Pipes>,
}

/// The pipes of a command that waits: its own ends, and those of this program.
#[derive(Debug)]
struct Pipes {
    ready: PipeWriter,
    begin: PipeReader,
    gate: Gate,
}

/// The ends of a command's pipes that this program keeps.
#[derive(Debug)]
pub(super) struct Gate {
    ready: PipeReader,
    begin: PipeWriter,
}

impl Gate {
    /// Waits until the command is ready. Returns false if it ended before. Blocks.
    pub(super) fn wait(&mut self) -> Result<bool, Error> {
        let patience = Timespec::try_from(PATIENCE).ok();
        let mut polled = [PollFd::new(&self.ready, PollFlags::IN)];
        match rustix::io::retry_on_intr(|| poll(&mut polled, patience.as_ref())) {
            Ok(0) => {
                let message =
                    "bubblewrap did not get ready in time; is a place of the sandbox on a slow file system?";
                Err(Error::new(ErrorKind::Timeout, message).during("sandbox.spawn"))
            }
            Ok(_) => Ok(self.ready.read(&mut [0])? > 0),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    /// Lets the command begin.
    pub(super) fn open(mut self) {
        // One that has ended meanwhile tells by its status.
        let _ = self.begin.write_all(b"\n");
    }
}

impl Ready {
    fn file(&mut self, file: OwnedFd) {
        let number = GATE + 1 + i32::try_from(self.files.len()).unwrap_or(i32::MAX - GATE - 1);
        self.words.push(number.to_string().into());
        self.files.push(file);
    }

    /// Mounts an empty directory that stays so.
    pub(super) fn empty(&mut self, path: &Path) {
        for flag in ["--tmpfs", "--remount-ro"] {
            self.words.extend([OsStr::new(flag), path.as_os_str()].map(OsStr::to_owned));
        }
    }

    /// Mounts what nobody can read anything from.
    pub(super) fn nothing(&mut self, path: &Path) {
        let words = [OsStr::new("--ro-bind"), OsStr::new("/dev/null"), path.as_os_str()];
        self.words.extend(words.map(OsStr::to_owned));
    }

    /// Mounts what was opened below the root at its name there.
    pub(super) fn mount(&mut self, flag: &str, root: &Path, opened: &[(PathBuf, OwnedFd)]) -> io::Result<()> {
        for (path, file) in opened {
            self.words.push(flag.into());
            self.file(file.try_clone()?);
            self.words.push(root.join(path).into());
        }
        Ok(())
    }

    /// Has the command wait until it may begin; what it starts by is [`GATED`].
    pub(super) fn waiting(&mut self) -> io::Result<()> {
        let ((ready, their_ready), (their_begin, begin)) = (io::pipe()?, io::pipe()?);
        self.gate = Some(Pipes { ready: their_ready, begin: their_begin, gate: Gate { ready, begin } });
        Ok(())
    }

    /// Hands a filter over, from its start: each reader needs a position of its own.
    pub(super) fn filter(&mut self, filter: &File) -> io::Result<()> {
        self.words.push("--seccomp".into());
        self.file(File::open(format!("/proc/self/fd/{}", filter.as_fd().as_raw_fd()))?.into());
        Ok(())
    }

    /// Adds the arguments to a command, with their descriptors. Returns the command's gate, if it has one.
    pub(super) fn give(self, command: &mut Command) -> Result<Option<Gate>, Error> {
        let mut numbered: Vec<(i32, OwnedFd)> = (GATE + 1..).zip(self.files).collect();
        let gate = self.gate.map(|Pipes { ready, begin, gate }| {
            numbered.extend([(READY, ready.into()), (GATE, begin.into())]);
            gate
        });
        let mappings =
            numbered.into_iter().map(|(child_fd, parent_fd)| FdMapping { parent_fd, child_fd }).collect();
        command.args(self.words).fd_mappings(mappings).map_err(|error| {
            Error::new(ErrorKind::Internal, "two descriptors have one number; report this").caused_by(error)
        })?;
        Ok(gate)
    }
}
