//! Protected paths that a command could change: what they hold before it, and their way back after it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{File, TryLockError},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use entourage_core::Error;
use rustix::fs::{AtFlags, Mode, OFlags};

use super::{
    git,
    restore::Restore,
    tree::{self, Found, Tree, failed},
};

/// The state that the commands of a sandbox share while one of them runs.
///
/// What was there before the first of them is what each of them brings back: the second could otherwise take for its
/// own beginning what the first one has changed.
#[derive(Debug, Default)]
pub(super) struct Shared(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    running: usize,
    /// Empty directories on which bubblewrap mounts.
    placeholders: BTreeSet<PathBuf>,
    before: BTreeMap<PathBuf, Arc<Tree>>,
    /// Directories of Git elsewhere, of the first command too.
    elsewhere: Vec<PathBuf>,
    /// Keeps the commands of other sandboxes out of the root, where commands can change what is protected.
    _lock: Option<Lock>,
}

/// A lock on the root, which ends with this value, whoever else has the directory open.
#[derive(Debug)]
struct Lock(File);

impl Lock {
    /// Takes the lock; `None` if another one has it.
    fn take(root: &OwnedFd) -> io::Result<Option<Self>> {
        let root = File::from(root.try_clone()?);
        match root.try_lock() {
            Err(TryLockError::WouldBlock) => Ok(None),
            // Some file systems have no locks.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Some(Self(root))),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Where there are no locks there is none to give back.
        let _ = self.0.unlock();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The earlier content of one command's protected paths.
pub(in crate::sandbox) struct Watch {
    root: OwnedFd,
    watched: Vec<(PathBuf, Arc<Tree>)>,
    mounts: bool,
    shared: Arc<Shared>,
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
            watch.leave();
        }
    }
}

/// Looks at the protected paths. With `mounts`, those that can be mounted are not watched. `None` if a command of
/// another sandbox runs in the root.
pub(super) fn plan(
    root: &Path,
    protected: &[PathBuf],
    mounts: bool,
    shared: &Arc<Shared>,
) -> Result<Option<Plan>, Error> {
    protected.iter().try_for_each(|path| tree::check(path))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(root, flags, Mode::empty()).map_err(|error| failed(root, error.into()))?;
    let mut state = shared.state();
    if state.running == 0 {
        let lock = if mounts { None } else { Lock::take(&opened).map_err(|error| failed(root, error))? };
        if lock.is_none() && !mounts {
            return Ok(None);
        }
        let watches_git = protected.iter().any(|path| path == Path::new(".git"));
        let elsewhere = if watches_git { git::elsewhere(root, &opened) } else { Vec::new() };
        *state = State { _lock: lock, elsewhere, ..State::default() };
    }
    let paths = protected.iter().chain(&state.elsewhere).cloned().collect::<Vec<_>>();
    let mut plan = match look(&opened, &paths, mounts, &mut state) {
        Ok(plan) => plan,
        Err(error) => {
            if state.running == 0 {
                *state = State::default();
            }
            return Err(error);
        }
    };
    // What a command before this one could change is brought back after this one too.
    let watched = state.before.iter().map(|(at, tree)| (at.clone(), Arc::clone(tree))).collect();
    state.running += 1;
    state.placeholders.extend(plan.masked.iter().cloned());
    drop(state);
    plan.watch = Some(Watch {
        root: opened,
        watched,
        mounts,
        shared: Arc::clone(shared),
        over: AtomicBool::new(false),
    });
    Ok(Some(plan))
}

/// Sorts the paths by what protects them, and keeps what those hold that a command can change.
fn look(root: &OwnedFd, paths: &[PathBuf], mounts: bool, state: &mut State) -> Result<Plan, Error> {
    let mut plan = Plan { watch: None, mounted: Vec::new(), masked: Vec::new(), open: Vec::new() };
    let mut bounds = tree::Bounds::default();
    for path in paths {
        let (at, found) = first_missing(root, path).map_err(|error| failed(path, error))?;
        let ours = state.placeholders.contains(&at);
        match found {
            Found::Nothing if mounts => plan.masked.push(at.clone()),
            Found::Directory if mounts && ours => plan.masked.push(at.clone()),
            Found::Directory | Found::File if mounts => plan.mounted.push(at.clone()),
            _ => plan.open.push(path.clone()),
        }
        // A directory above a mount can be renamed, and the mount goes with it. What is empty may be the place where
        // another sandbox mounts, which takes it away.
        let is_fixed = plan.mounted.contains(&at) && at.components().nth(1).is_none();
        let is_empty = || found == Found::Directory && tree::is_empty(root, &at).unwrap_or(true);
        if is_fixed && !is_empty() {
            continue;
        }
        let is_known = state.before.keys().any(|known| at.starts_with(known));
        if !is_known {
            let is_git = state.elsewhere.contains(&at);
            let before = if ours { Tree::new() } else { tree::read(root, &at, is_git, &mut bounds)? };
            state.before.insert(at.clone(), Arc::new(before));
        }
    }
    Ok(plan)
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
        let mut restore = Restore::below(&self.root, self.mounts);
        restore.with_open_root(|restore| {
            for (path, before) in &self.watched {
                if !(before.is_empty() && self.is_placeholder(path)) {
                    restore.bring_back(path, before);
                }
            }
        });
        // Only now may others look at what is there.
        self.leave();
        match restore.failure {
            None => Ok(restore.changed.into_iter().collect()),
            Some(error) => Err(error),
        }
    }

    /// Removes the places of mounts, if no other command needs them.
    fn remove_placeholders(&self) {
        let mut state = self.shared.state();
        if state.running > 1 {
            return;
        }
        for path in std::mem::take(&mut state.placeholders) {
            // Only an empty directory goes; anything else is for the comparison.
            let _ = tree::parent(&self.root, &path).and_then(|(parent, name)| {
                rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR).map_err(io::Error::from)
            });
        }
    }

    fn is_placeholder(&self, path: &Path) -> bool {
        self.shared.state().placeholders.contains(path) && tree::is_empty(&self.root, path).unwrap_or(false)
    }

    fn leave(&self) {
        self.remove_placeholders();
        let mut state = self.shared.state();
        state.running = state.running.saturating_sub(1);
        if state.running == 0 {
            *state = State::default();
        }
    }
}
