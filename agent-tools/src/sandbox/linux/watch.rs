//! Protected paths that a command could change: what they hold before it, and their way back after it.

use std::{
    collections::BTreeSet,
    fs::File,
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use entourage_core::{Error, ErrorKind};
use rustix::{
    fs::{AtFlags, Mode, OFlags, RenameFlags, ResolveFlags},
    io::Errno,
};

use super::tree::{self, Found, Kept, Tree};

/// Empty directories on which bubblewrap mounts, for all commands of a sandbox that run.
#[derive(Debug, Default)]
pub(super) struct Placeholders {
    running: usize,
    paths: BTreeSet<PathBuf>,
}

/// The earlier content of one command's protected paths.
pub(in crate::sandbox) struct Watch {
    root: OwnedFd,
    watched: Vec<(PathBuf, Tree)>,
    placeholders: Arc<Mutex<Placeholders>>,
    over: AtomicBool,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The contents may be secret.
        f.debug_struct("Watch").field("over", &self.over).finish_non_exhaustive()
    }
}

/// The protection of paths for one command.
#[derive(Debug)]
pub(super) struct Plan {
    watch: Option<Watch>,
    /// Paths that are mounted read-only as they are.
    pub(super) mounted: Vec<PathBuf>,
    /// Paths on which an empty directory is mounted.
    pub(super) masked: Vec<PathBuf>,
    /// Paths that the command can change.
    open: Vec<PathBuf>,
}

impl Plan {
    /// The paths that the command cannot change, those that it can, and the watch over them.
    pub(super) fn split(mut self) -> (Vec<PathBuf>, Vec<PathBuf>, Option<Arc<Watch>>) {
        let closed = [std::mem::take(&mut self.mounted), std::mem::take(&mut self.masked)].concat();
        (closed, std::mem::take(&mut self.open), self.watch.take().map(Arc::new))
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // No command was started by it.
        if let Some(watch) = self.watch.take() {
            watch.remove_placeholders();
        }
    }
}

/// Looks at the protected paths. With `mounts`, those that can be mounted are not watched.
pub(super) fn plan(
    root: &Path,
    protected: &[PathBuf],
    mounts: bool,
    placeholders: &Arc<Mutex<Placeholders>>,
) -> Result<Plan, Error> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(root, flags, Mode::empty()).map_err(|error| failed(root, error.into()))?;
    let shared = placeholders;
    let mut placeholders = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut watched, mut mounted, mut masked, mut open) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut bounds = tree::Bounds::default();
    for path in protected {
        tree::check(path)?;
        let (at, found) = first_missing(&root, path).map_err(|error| failed(path, error))?;
        let ours = placeholders.paths.contains(&at);
        match found {
            Found::Nothing if mounts => masked.push(at.clone()),
            Found::Directory if mounts && ours => masked.push(at.clone()),
            Found::Directory | Found::File if mounts => mounted.push(at.clone()),
            _ => open.push(path.clone()),
        }
        // A directory above a mount can be renamed, and the mount goes with it.
        if !mounted.contains(&at) || at.components().nth(1).is_some() {
            let before = if ours { Tree::new() } else { tree::read(&root, &at, &mut bounds)? };
            watched.push((at, before));
        }
    }
    placeholders.running += 1;
    placeholders.paths.extend(masked.iter().cloned());
    drop(placeholders);
    let watch = Watch { root, watched, placeholders: Arc::clone(shared), over: AtomicBool::new(false) };
    Ok(Plan { watch: Some(watch), mounted, masked, open })
}

/// The first part of a path at which nothing, or a link, is; otherwise the whole path.
fn first_missing(root: &OwnedFd, path: &Path) -> io::Result<(PathBuf, Found)> {
    let mut at = PathBuf::new();
    let mut found = Found::Directory;
    for part in path.components() {
        at.push(part);
        found = tree::look(root, &at)?;
        if matches!(found, Found::Nothing | Found::Other) {
            break;
        }
    }
    Ok((at, found))
}

impl Watch {
    /// Puts everything back, once.
    pub(in crate::sandbox) fn restore(&self) -> Result<Vec<PathBuf>, Error> {
        if self.over.swap(true, Ordering::AcqRel) {
            return Ok(Vec::new());
        }
        self.remove_placeholders();
        let (mut changed, mut failure) = (BTreeSet::new(), None);
        for (path, before) in &self.watched {
            if let Err(error) = self.restore_one(path, before, &mut changed) {
                failure.get_or_insert(error);
            }
        }
        match failure {
            None => Ok(changed.into_iter().collect()),
            Some(error) => Err(error),
        }
    }

    fn remove_placeholders(&self) {
        let mut placeholders = self.placeholders.lock().unwrap_or_else(PoisonError::into_inner);
        placeholders.running = placeholders.running.saturating_sub(1);
        if placeholders.running == 0 {
            for path in std::mem::take(&mut placeholders.paths) {
                // Only an empty directory goes; anything else is for the comparison.
                let _ = self.parent(&path).and_then(|(parent, name)| {
                    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR).map_err(io::Error::from)
                });
            }
        }
    }

    fn is_placeholder(&self, path: &Path) -> bool {
        self.placeholders.lock().unwrap_or_else(PoisonError::into_inner).paths.contains(path)
    }

    fn restore_one(&self, path: &Path, before: &Tree, changed: &mut BTreeSet<PathBuf>) -> Result<(), Error> {
        if before.is_empty() {
            return self.remove_new(path, changed).map_err(|error| failed(path, error));
        }
        let mut after = tree::read(&self.root, path, &mut tree::Bounds::after())?;
        let all: BTreeSet<PathBuf> = before.keys().chain(after.keys()).cloned().collect();
        for at in all {
            let (was, is) = (before.get(&at), after.get(&at));
            if was == is {
                continue;
            }
            let shown = |error| failed(&at, error);
            changed.insert(at.clone());
            if let (Some(Kept::Directory(mode)), Some(Kept::Directory(_))) = (was, is) {
                self.set_mode(&at, *mode).map_err(shown)?;
                continue;
            }
            if is.is_some() {
                self.move_away(&at).map_err(shown)?;
                after.retain(|below, _| !below.starts_with(&at));
            }
            if let Some(was) = was {
                self.make(&at, was).map_err(shown)?;
            }
        }
        Ok(())
    }

    /// Moves away what is at a path where nothing was.
    fn remove_new(&self, path: &Path, changed: &mut BTreeSet<PathBuf>) -> io::Result<()> {
        let found = tree::look(&self.root, path)?;
        let waits =
            found == Found::Directory && self.is_placeholder(path) && tree::is_empty(&self.root, path)?;
        if found != Found::Nothing && !waits {
            changed.insert(path.to_owned());
            self.move_away(path)?;
        }
        Ok(())
    }

    fn parent<'p>(&self, path: &'p Path) -> io::Result<(OwnedFd, &'p Path)> {
        let name = path.file_name().map(Path::new).ok_or(io::ErrorKind::InvalidInput)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok((tree::open(&self.root, parent, OFlags::PATH | OFlags::DIRECTORY)?, name))
    }

    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        let opened = tree::open(&self.root, path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(rustix::fs::fchmod(opened, Mode::from_raw_mode(mode))?)
    }

    fn move_away(&self, path: &Path) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        for number in 1_u32.. {
            let target =
                format!("removed-by-sandbox-{number}-{}", name.to_string_lossy().trim_start_matches('.'));
            let moved =
                rustix::fs::renameat_with(&parent, name, &self.root, &*target, RenameFlags::NOREPLACE);
            match moved {
                Err(Errno::EXIST) => {}
                other => return Ok(other?),
            }
        }
        Ok(())
    }

    fn make(&self, path: &Path, kept: &Kept) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        match kept {
            Kept::Directory(mode) => {
                rustix::fs::mkdirat(&parent, name, Mode::RWXU)?;
                self.set_mode(path, *mode)
            }
            Kept::Link(target) => Ok(rustix::fs::symlinkat(target, parent, name)?),
            Kept::File { content, mode } => {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let made = rustix::fs::openat(parent, name, flags, Mode::RUSR | Mode::WUSR)?;
                let mut made = File::from(made);
                io::Write::write_all(&mut made, content)?;
                Ok(rustix::fs::fchmod(made.as_fd(), Mode::from_raw_mode(*mode))?)
            }
            // Pipes, sockets and devices hold nothing to put back.
            Kept::Other => Ok(()),
        }
    }
}

pub(super) fn failed(path: &Path, error: io::Error) -> Error {
    let message = format!("the protected path `{}` cannot be compared or restored", path.display());
    Error::new(ErrorKind::Io, message).caused_by(error)
}

/// The one way to resolve a path here: without links, so that none leads out of the root.
pub(super) const BELOW: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
