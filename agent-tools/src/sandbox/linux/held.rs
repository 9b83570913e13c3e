//! The mounts of bubblewrap on protected paths: that they are where they should be, and that they stay.
//!
//! `bwrap` follows links in the names at which it mounts, and another program takes a mount away by what it does to the
//! place below: an editor that saves a file puts another one there. Neither is known before it has happened.

use std::{
    fs, io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use entourage_core::{Error, ErrorKind};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{OFlags, inotify},
    process::Pid,
};

use super::{keeper::Keeper, tree, watch::Plan};
use crate::sandbox::enforced::Replaced;

/// Time between two looks, where the system tells of no change.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Room for what the system tells of changes, which is not read.
const EVENTS: usize = 4_096;

/// The mounts on protected paths of one command.
#[derive(Debug)]
pub(super) struct Held {
    root: PathBuf,
    opened: OwnedFd,
    mounts: Vec<Mount>,
    /// Tells of changes; `None` where the system has no more of these.
    changes: Option<OwnedFd>,
}

#[derive(Debug)]
struct Mount {
    /// Below the root.
    path: PathBuf,
    /// The file or directory there, if it is one that others may replace.
    file: Option<OwnedFd>,
    is_read_only: bool,
}

impl Held {
    /// The mounts of a plan on the root; `None` if it has none.
    pub(super) fn of(root: &Path, plan: &Plan) -> Result<Option<Self>, Error> {
        let Some(opened) = plan.root() else { return Ok(None) };
        let mount = |path: &Path, file: Option<&OwnedFd>, is_read_only| {
            let file = file.map(OwnedFd::try_clone).transpose()?;
            Ok::<_, io::Error>(Mount { path: path.to_owned(), file, is_read_only })
        };
        let above = plan.above.iter().map(|(path, file)| mount(path, Some(file), false));
        let mounted = plan.mounted.iter().map(|(path, file)| mount(path, Some(file), true));
        // What appears below a mask is taken back.
        let masked = plan.masked.iter().map(|path| mount(path, None, true));
        let mounts = above.chain(mounted).chain(masked).collect::<Result<Vec<_>, _>>()?;
        if mounts.is_empty() {
            return Ok(None);
        }
        let changes = changes(&mounts);
        Ok(Some(Self { root: root.to_owned(), opened: opened.try_clone()?, mounts, changes }))
    }

    /// Checks that each of them is where it should be, in the name space of a process.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if one is not.
    pub(super) fn check(&self, of: Pid) -> Result<(), Error> {
        let table = table(of)?;
        let mounts: Vec<_> = listed(&table).collect();
        let is_held = |mount: &&Mount| {
            let at = escaped(&self.root.join(&mount.path));
            // The last one lies above the others.
            let found = mounts.iter().rev().find(|listed| listed.at == at);
            found.is_some_and(|listed| listed.is_read_only || !mount.is_read_only)
        };
        let lost = self.mounts.iter().find(|mount| !is_held(mount)).map(|mount| &mount.path);
        lost.or(self.replaced().first()).map_or(Ok(()), |path| Err(moved(path)))
    }

    /// The paths at which something else is by now.
    fn replaced(&self) -> Vec<PathBuf> {
        let is_there = |path: &Path, file: &OwnedFd| {
            let now = tree::open(&self.opened, path, OFlags::PATH | OFlags::NOFOLLOW).ok()?;
            let (now, then) = (rustix::fs::fstat(&now).ok()?, rustix::fs::fstat(file).ok()?);
            Some((now.st_dev, now.st_ino) == (then.st_dev, then.st_ino))
        };
        let is_gone = |mount: &&Mount| {
            mount.file.as_ref().is_some_and(|file| is_there(&mount.path, file) != Some(true))
        };
        self.mounts.iter().filter(is_gone).map(|mount| mount.path.clone()).collect()
    }

    /// Waits until a command has ended, and ends it when a mount is lost: what it did then would be the change of a
    /// protected path.
    pub(super) fn guard(&self, command: &OwnedFd, keeper: &Keeper, replaced: &Replaced) {
        let (mut room, pause) = ([0; EVENTS], self.changes.is_none().then_some(&PAUSE));
        loop {
            let lost = self.replaced();
            if !lost.is_empty() {
                keeper.order_end();
                return replaced.note(lost);
            }
            let mut polled = vec![PollFd::new(command, PollFlags::IN)];
            polled.extend(self.changes.iter().map(|changes| PollFd::new(changes, PollFlags::IN)));
            match poll(&mut polled, pause) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
            if polled.first().is_some_and(|command| !command.revents().is_empty()) {
                return;
            }
            if let Some(changes) = &self.changes {
                // It tells that there was one; which one shows by itself.
                let _ = rustix::io::read(changes, &mut room);
            }
        }
    }
}

/// Tells of what happens to the files and directories of these mounts.
fn changes(mounts: &[Mount]) -> Option<OwnedFd> {
    use inotify::{CreateFlags, WatchFlags};
    let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
    // A name less is a change of the attributes.
    let flags = WatchFlags::MOVE_SELF | WatchFlags::DELETE_SELF | WatchFlags::ATTRIB;
    for file in mounts.iter().filter_map(|mount| mount.file.as_ref()) {
        inotify::add_watch(&changes, format!("/proc/self/fd/{}", file.as_raw_fd()), flags).ok()?;
    }
    Some(changes)
}

/// A process's list of mounts.
pub(super) fn table(of: Pid) -> io::Result<Vec<u8>> {
    fs::read(format!("/proc/{}/mountinfo", of.as_raw_nonzero()))
}

/// The mounts of such a list.
pub(super) fn listed(table: &[u8]) -> impl Iterator<Item = Listed<'_>> {
    table.split(|byte| *byte == b'\n').filter_map(Listed::parse)
}

/// A line of such a list.
pub(super) struct Listed<'a> {
    /// The place, [`escaped`].
    pub(super) at: &'a [u8],
    is_read_only: bool,
}

impl<'a> Listed<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut words = line.split(|byte| *byte == b' ').skip(4);
        let (at, options) = (words.next()?, words.next()?);
        Some(Self { at, is_read_only: options.split(|byte| *byte == b',').any(|it| it == b"ro") })
    }
}

/// A path as the list of mounts has it.
pub(super) fn escaped(path: &Path) -> Vec<u8> {
    let mut text = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'\\' => text.extend(b"\\134"),
            b' ' => text.extend(b"\\040"),
            b'\t' => text.extend(b"\\011"),
            b'\n' => text.extend(b"\\012"),
            other => text.push(*other),
        }
    }
    text
}

fn moved(path: &Path) -> Error {
    let shown = path.to_string_lossy();
    let message = format!(
        "the protected path `{}`, or a directory above it, was moved or became a link while the sandbox was set up; look \
         at it, and start the command again",
        shown.escape_debug()
    );
    Error::new(ErrorKind::Conflict, message).during("sandbox.spawn")
}
