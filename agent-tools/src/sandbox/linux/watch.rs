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
use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use super::{
    git::Elsewhere,
    keeper,
    restore::Restore,
    tree::{self, Found, Tree, failed},
};

/// Permissions of an empty directory on which bubblewrap mounts, by which every program knows it. The group's bit may
/// be added by the directory above.
const PLACEHOLDER: u32 = 0o1700;
const GROUP_OF_PARENT: u32 = 0o2000;

/// Looks at a path that others change, before that is an error.
const LOOKS: usize = 8;

/// Most entries of a root among which the places of other sandboxes' mounts are looked for.
const ENTRIES: usize = 4_096;

/// The state that the commands of a sandbox share while one of them runs.
///
/// What was there before the first of them is what each of them brings back: the second could otherwise take for its
/// own beginning what the first one has changed.
#[derive(Debug, Default)]
pub(in crate::sandbox) struct Shared(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    running: usize,
    mounts: bool,
    /// Empty directories on which bubblewrap mounts.
    placeholders: BTreeSet<PathBuf>,
    before: BTreeMap<PathBuf, Arc<Tree>>,
    /// Directories of Git elsewhere and links to them, of the first command too.
    elsewhere: Elsewhere,
    lock: Option<Lock>,
}

impl State {
    /// Removes the places of mounts, if no command of any sandbox but the one that ends needs them.
    fn remove_placeholders(&self, root: &OwnedFd) {
        let Some(lock) = self.lock.as_ref().filter(|_| self.mounts && self.running <= 1) else { return };
        // Another sandbox, with other protected paths, may have ended before this one.
        let places: BTreeSet<PathBuf> = self.placeholders.iter().cloned().chain(self.others(root)).collect();
        // Only an empty directory goes; anything else is for the comparison.
        lock.alone(|| places.iter().for_each(|path| drop(remove_directory(root, path))));
    }

    /// The places of mounts in the root itself, whoever made them.
    fn others(&self, root: &OwnedFd) -> Vec<PathBuf> {
        let names = tree::names(root, Path::new("."), ENTRIES).ok().flatten().unwrap_or_default();
        let names = names.into_iter().filter_map(|path| path.file_name().map(PathBuf::from));
        names.filter(|path| self.is_placeholder(root, path)).collect()
    }

    /// True for an empty directory that was made to be mounted on, by this program or another one.
    fn is_placeholder(&self, root: &OwnedFd, path: &Path) -> bool {
        let is_marked = || {
            matches!(tree::stat(root, path), Ok(Some((FileType::Directory, mode, _)))
                if mode & !GROUP_OF_PARENT == PLACEHOLDER)
        };
        (self.placeholders.contains(path) || is_marked()) && tree::is_empty(root, path).unwrap_or(false)
    }
}

/// A lock on the root, which ends with this value.
///
/// A command of bubblewrap shares the root with those of other sandboxes, in other programs too. Where a command can
/// change what is protected, it has the root for its sandbox alone.
#[derive(Debug)]
struct Lock(File);

impl Lock {
    /// Takes the lock, and calls `clean` if nobody else has it; `None` if another one has it, or `clean` says that the
    /// root is not free yet.
    fn take(
        root: &OwnedFd,
        shares: bool,
        clean: impl FnOnce() -> io::Result<bool>,
    ) -> io::Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let lock = Self(File::from(rustix::fs::openat(root, ".", flags, Mode::empty())?));
        if is_free(&lock.0.try_lock()) {
            let clean = clean()?;
            return Ok((clean && (!shares || is_free(&lock.0.try_lock_shared()))).then_some(lock));
        }
        Ok((shares && is_free(&lock.0.try_lock_shared())).then_some(lock))
    }

    /// Calls `work` if nobody shares the lock. Meanwhile nobody can begin to.
    fn alone(&self, work: impl FnOnce()) {
        if is_free(&self.0.try_lock()) {
            work();
        }
        // What cannot be had back has been taken by one who waits until it is the only one, and then begins.
        let _ = self.0.try_lock_shared();
    }
}

/// True where a lock was had. Some file systems have none: then nobody is known to be there.
fn is_free(tried: &Result<(), TryLockError>) -> bool {
    !matches!(tried, Err(TryLockError::WouldBlock))
}

/// Removes places of mounts that a killed program left. Returns false if processes of it still have something mounted
/// there, which would lose it.
fn clean(root: &Path, opened: &OwnedFd, protected: &[PathBuf]) -> io::Result<bool> {
    let state = State::default();
    let mut left = state.others(opened);
    for path in protected {
        if let (at, Kind::Placeholder) = first_missing(opened, path, &state)?
            && !left.contains(&at)
        {
            left.push(at);
        }
    }
    if keeper::are_mounted_on(&left.iter().map(|path| root.join(path)).collect::<Vec<_>>()) {
        return Ok(false);
    }
    left.iter().for_each(|path| drop(remove_directory(opened, path)));
    Ok(true)
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
#[derive(Debug, Default)]
pub(super) struct Plan {
    watch: Option<Watch>,
    /// Directories above them, below the root. They are mounted as they are, so that no command can move them, and with
    /// them the mounts below.
    pub(super) above: Vec<(PathBuf, OwnedFd)>,
    /// Paths that are mounted read-only as they are.
    pub(super) mounted: Vec<(PathBuf, OwnedFd)>,
    /// Paths on which an empty directory is mounted.
    pub(super) masked: Vec<PathBuf>,
    /// Paths that the command can change.
    open: Vec<PathBuf>,
}

impl Plan {
    /// Notes the directories above a mount.
    fn fix(&mut self, root: &OwnedFd, at: &Path) -> io::Result<()> {
        let mut above: Vec<&Path> =
            at.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()).collect();
        above.reverse();
        for path in above {
            if !self.above.iter().any(|(known, _)| known == path) {
                self.above.push((path.to_owned(), tree::open(root, path, OFlags::PATH | OFlags::DIRECTORY)?));
            }
        }
        Ok(())
    }

    /// The root that it is about.
    pub(super) fn root(&self) -> Option<&OwnedFd> {
        self.watch.as_ref().map(|watch| &watch.root)
    }

    fn mask(&mut self, at: &Path, state: &mut State) {
        if !self.masked.iter().any(|masked| masked == at) {
            self.masked.push(at.to_owned());
        }
        state.placeholders.insert(at.to_owned());
    }

    /// The paths that the command cannot change, those that it can, and the watch over them.
    pub(super) fn split(mut self) -> (Vec<PathBuf>, Vec<PathBuf>, Option<Arc<Watch>>) {
        let mounted = std::mem::take(&mut self.mounted).into_iter().map(|(path, _)| path);
        let closed = mounted.chain(std::mem::take(&mut self.masked)).collect();
        (closed, std::mem::take(&mut self.open), self.watch.take().map(Arc::new))
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // Where too many files are open, the places of mounts could not be removed while these are.
        self.above.clear();
        self.mounted.clear();
        // No command was started by it.
        if let Some(watch) = self.watch.take() {
            watch.give_up();
        }
    }
}

/// Looks at the protected paths below the directory `opened`. With `mounts`, those that can be mounted are not watched.
/// `None` if a command of another sandbox runs in the root.
pub(super) fn plan(
    root: &Path,
    opened: OwnedFd,
    protected: &[PathBuf],
    mounts: bool,
    shared: &Arc<Shared>,
) -> Result<Option<Plan>, Error> {
    protected.iter().try_for_each(|path| tree::check(path))?;
    let mut state = shared.state();
    if state.running == 0 {
        let clean = || clean(root, &opened, protected);
        let Some(lock) = Lock::take(&opened, mounts, clean).map_err(|error| failed(root, error))? else {
            return Ok(None);
        };
        let watches_git = protected.iter().any(|path| path == Path::new(".git"));
        let elsewhere = if watches_git { Elsewhere::of(root, &opened) } else { Elsewhere::default() };
        *state = State { lock: Some(lock), mounts, elsewhere, ..State::default() };
    }
    let Elsewhere { directories, links } = &state.elsewhere;
    let paths = protected.iter().chain(directories).chain(links).cloned().collect::<Vec<_>>();
    state.running += 1;
    let mut plan = Plan::default();
    let looked = look(&opened, &paths, mounts, &mut state, &mut plan);
    // What a command before this one could change is brought back after this one too.
    let watched = state.before.iter().map(|(at, tree)| (at.clone(), Arc::clone(tree))).collect();
    drop(state);
    let over = AtomicBool::new(false);
    plan.watch = Some(Watch { root: opened, watched, mounts, shared: Arc::clone(shared), over });
    looked.map(|()| Some(plan))
}

/// Sorts the paths by what protects them, and keeps what those hold that a command can change.
fn look(
    root: &OwnedFd,
    paths: &[PathBuf],
    mounts: bool,
    state: &mut State,
    plan: &mut Plan,
) -> Result<(), Error> {
    let mut bounds = tree::Bounds::default();
    for path in paths {
        let fails = |error| failed(path, error);
        let (at, found) = settle(root, path, mounts, state).map_err(fails)?;
        // Another program can take a mount away by what it does to the place below; what a command then makes where
        // nothing was is taken back. A file with a second name can be changed by that one.
        let mut is_watched = true;
        match found {
            Kind::Placeholder => {
                plan.fix(root, &at).map_err(fails)?;
                plan.mask(&at, state);
            }
            Kind::Is(Found::Directory | Found::File) if mounts => {
                plan.fix(root, &at).map_err(fails)?;
                plan.mounted.push((at.clone(), tree::open(root, &at, OFlags::PATH).map_err(fails)?));
                is_watched =
                    matches!(found, Kind::Is(Found::File)) && tree::names_of(root, &at).map_err(fails)? > 1;
            }
            Kind::Is(_) => plan.open.push(path.clone()),
        }
        if !is_watched {
            continue;
        }
        let is_known = state.before.keys().any(|known| at.starts_with(known));
        if !is_known {
            let is_git = state.elsewhere.directories.contains(&at);
            let is_nothing = matches!(found, Kind::Placeholder);
            let before = if is_nothing { Tree::new() } else { tree::read(root, &at, is_git, &mut bounds)? };
            state.before.insert(at, Arc::new(before));
        }
    }
    Ok(())
}

enum Kind {
    /// An empty directory to mount on.
    Placeholder,
    Is(Found),
}

/// Looks at a path. With `mounts` a placeholder is made where nothing is.
fn settle(root: &OwnedFd, path: &Path, mounts: bool, state: &State) -> io::Result<(PathBuf, Kind)> {
    for _ in 0..LOOKS {
        let (at, kind) = first_missing(root, path, state)?;
        let done = match kind {
            Kind::Is(Found::Nothing) if mounts => make_placeholder(root, &at),
            // Nobody else has this root.
            Kind::Placeholder if !mounts => remove_directory(root, &at),
            kind => return Ok((at, kind)),
        };
        match done {
            Ok(()) if mounts => return Ok((at, Kind::Placeholder)),
            // A command of another sandbox may begin as well.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn make_placeholder(root: &OwnedFd, at: &Path) -> io::Result<()> {
    let (parent, name) = tree::parent(root, at)?;
    Ok(rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(PLACEHOLDER))?)
}

/// Removes an empty directory.
fn remove_directory(root: &OwnedFd, at: &Path) -> io::Result<()> {
    let (parent, name) = tree::parent(root, at)?;
    Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}

/// The first part of a path at which nothing, a placeholder or a link is; otherwise the whole path.
fn first_missing(root: &OwnedFd, path: &Path, state: &State) -> io::Result<(PathBuf, Kind)> {
    let mut at = PathBuf::new();
    let mut found = Found::Directory;
    for part in path.components() {
        at.push(part);
        found = tree::look(root, &at)?;
        if found == Found::Directory && state.is_placeholder(root, &at) {
            return Ok((at, Kind::Placeholder));
        }
        if matches!(found, Found::Nothing | Found::Other) {
            break;
        }
    }
    Ok((at, Kind::Is(found)))
}

impl Watch {
    /// Puts everything back, once.
    pub(in crate::sandbox) fn restore(&self) -> Result<Vec<PathBuf>, Error> {
        if self.over.swap(true, Ordering::AcqRel) {
            return Ok(Vec::new());
        }
        let mut restore = Restore::below(&self.root);
        restore.with_open_root(|restore| {
            for (path, before) in &self.watched {
                let is_placeholder = || self.shared.state().is_placeholder(&self.root, path);
                if !(before.is_empty() && self.mounts && is_placeholder()) {
                    restore.bring_back(path, before);
                }
            }
            let placeholders = self.shared.state().placeholders.clone();
            placeholders.iter().for_each(|path| restore.reach(path));
            // Only now may others look at what is there.
            self.leave();
        });
        match restore.failure {
            None => Ok(restore.changed.into_iter().collect()),
            Some(error) => Err(error),
        }
    }

    /// Ends the watch over a command that was not started.
    pub(super) fn give_up(&self) {
        if !self.over.swap(true, Ordering::AcqRel) {
            self.leave();
        }
    }

    fn leave(&self) {
        let mut state = self.shared.state();
        state.remove_placeholders(&self.root);
        state.running = state.running.saturating_sub(1);
        if state.running == 0 {
            *state = State::default();
        }
    }
}
