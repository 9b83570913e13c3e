//! The arguments of `bwrap`. Places of the settings and of the workspace are mounted by descriptor: `bwrap` follows the
//! links in a name, and commands can put links there.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use entourage_core::{Error, ErrorKind};
use rustix::{
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

/// Arguments of one command, and the descriptors that they name.
#[derive(Debug, Default)]
pub(super) struct Ready {
    pub(super) words: Vec<OsString>,
    pub(super) files: Vec<OwnedFd>,
}

impl Ready {
    fn file(&mut self, file: OwnedFd) {
        self.words.push(file.as_raw_fd().to_string().into());
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
        self.words.extend(
            [OsStr::new("--ro-bind"), OsStr::new("/dev/null"), path.as_os_str()].map(OsStr::to_owned),
        );
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

    /// Hands a filter over, from its start: each reader needs a position of its own.
    pub(super) fn filter(&mut self, filter: &File) -> io::Result<()> {
        self.words.push("--seccomp".into());
        self.file(File::open(format!("/proc/self/fd/{}", filter.as_fd().as_raw_fd()))?.into());
        Ok(())
    }
}
