//! The way back of a protected path: what a command left there is moved away, and what was there stands again.
//!
//! What a command left is never read further than what it replaced, so that no size, number, depth or permission of it
//! stops the way back.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Write},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    time::SystemTime,
};

use entourage_core::Error;
use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, StatxFlags},
    io::Errno,
};

use super::tree::{self, Found, Kept, Tree, failed};

/// New entries of one directory that are moved away one by one. If there are more, the whole directory is.
const NEW: usize = 16;

/// Most characters of a name that the place of what was moved away repeats.
const NAME: usize = 60;

/// Numbers that are tried for a place before the clock is asked for one.
const NUMBERS: u32 = 64;

/// What its owner needs to work in a directory.
const WORK: u32 = 0o700;

pub(super) struct Restore<'a> {
    root: &'a OwnedFd,
    pub(super) changed: BTreeSet<PathBuf>,
    pub(super) failure: Option<Error>,
}

impl<'a> Restore<'a> {
    pub(super) fn below(root: &'a OwnedFd) -> Self {
        Self { root, changed: BTreeSet::new(), failure: None }
    }

    /// Calls `work` while the owner of the root can work in it, whatever a command did to its permissions.
    pub(super) fn with_open_root(&mut self, work: impl FnOnce(&mut Self)) {
        let mode = rustix::fs::fstat(self.root).map(|found| found.st_mode & 0o7777);
        let closed = mode.ok().filter(|mode| mode & WORK != WORK);
        if let Some(mode) = closed {
            // The first step that needs it tells if this is refused.
            let _ = rustix::fs::fchmod(self.root, Mode::from_raw_mode(mode | WORK));
        }
        work(self);
        if let Some(mode) = closed {
            let _ = rustix::fs::fchmod(self.root, Mode::from_raw_mode(mode));
        }
    }

    /// Brings back what was at and below `path`, which may have been nothing. What fails is left out.
    pub(super) fn bring_back(&mut self, path: &Path, before: &Tree) {
        if let Err(error) = self.open_parents(path, !before.is_empty()) {
            self.fail(path, error);
        }
        if before.is_empty() {
            self.remove(path).unwrap_or_else(|error| self.fail(path, error));
        }
        for (at, was) in before {
            self.one(at, was, before).unwrap_or_else(|error| self.fail(at, error));
        }
        // A directory that nobody may write to could not take back what belongs into it, so this comes last.
        for (at, was) in before.iter().rev() {
            if let Kept::Directory { mode, .. } = was
                && let Ok(Some((FileType::Directory, is, _))) = tree::stat(self.root, at)
                && is != *mode
            {
                self.changed.insert(at.clone());
                self.set_mode(at, *mode).unwrap_or_else(|error| self.fail(at, error));
            }
        }
    }

    /// Lets the owner of the root work in the directories above a path, whatever a command did to their permissions.
    pub(super) fn reach(&mut self, path: &Path) {
        // The step that needs it tells if this is refused.
        let _ = self.open_parents(path, false);
    }

    fn fail(&mut self, path: &Path, error: io::Error) {
        self.failure.get_or_insert_with(|| failed(path, error));
    }

    /// Makes sure that each part above a path is a directory in which its owner can work. One that is missing is made
    /// if it is `needed`.
    fn open_parents(&mut self, path: &Path, needed: bool) -> io::Result<()> {
        let mut at = PathBuf::new();
        for part in path.parent().into_iter().flat_map(Path::components) {
            at.push(part);
            match tree::stat(self.root, &at)? {
                Some((FileType::Directory, mode, _)) => self.open_up(&at, mode)?,
                None if !needed => return Ok(()),
                is => {
                    self.changed.insert(at.clone());
                    self.put(&at, &Kept::Directory { mode: 0o755, is_git: false }, is.is_some())?;
                }
            }
        }
        Ok(())
    }

    fn open_up(&self, at: &Path, mode: u32) -> io::Result<()> {
        if mode & WORK == WORK { Ok(()) } else { self.set_mode(at, mode | WORK) }
    }

    /// Moves away what is at a path where nothing was.
    fn remove(&mut self, path: &Path) -> io::Result<()> {
        if tree::look(self.root, path)? != Found::Nothing {
            self.changed.insert(path.to_owned());
            self.move_away(path)?;
        }
        Ok(())
    }

    fn one(&mut self, at: &Path, was: &Kept, before: &Tree) -> io::Result<()> {
        let is = tree::stat(self.root, at)?;
        if !self.is_kept(at, was, is)? {
            self.changed.insert(at.to_owned());
            return self.put(at, was, is.is_some());
        }
        let (Kept::Directory { is_git, .. }, Some((_, mode, _))) = (was, is) else { return Ok(()) };
        if mode & WORK != WORK {
            self.changed.insert(at.to_owned());
            self.set_mode(at, mode | WORK)?;
        }
        let known = before.range(at.to_owned()..).take_while(|(path, _)| path.starts_with(at));
        let known = known.filter(|(path, _)| path.parent() == Some(at)).count();
        let found = match is_git {
            true => Some(tree::RUNS.iter().map(|name| at.join(name)).collect()),
            false => tree::names(self.root, at, known.saturating_add(NEW))?,
        };
        let Some(found) = found else {
            self.changed.insert(at.to_owned());
            return self.put(at, was, true);
        };
        for path in found.iter().filter(|path| !before.contains_key(*path)) {
            self.remove(path)?;
        }
        Ok(())
    }

    /// True if there is what was there. Of a directory this looks at the kind alone.
    fn is_kept(&self, at: &Path, was: &Kept, is: Option<(FileType, u32, u64)>) -> io::Result<bool> {
        let Some((kind, mode, size)) = is else { return Ok(false) };
        Ok(match was {
            Kept::Directory { .. } => kind == FileType::Directory,
            Kept::File { content, mode: before, names } => {
                let length = content.len() as u64;
                kind == FileType::RegularFile
                    && (mode, size) == (*before, length)
                    && tree::content(self.root, at, length)? == *content
                    // What has fewer than before is as safe as it was.
                    && tree::names_of(self.root, at)? <= *names
            }
            Kept::Link(target) => kind == FileType::Symlink && tree::link(self.root, at)? == *target,
            Kept::Other => ![FileType::Directory, FileType::RegularFile, FileType::Symlink].contains(&kind),
        })
    }

    /// Sets the permissions of a directory, also of one that cannot be read.
    fn set_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        let opened = tree::open(self.root, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW)?;
        let (name, mode) = (format!("/proc/self/fd/{}", opened.as_raw_fd()), Mode::from_raw_mode(mode));
        Ok(rustix::fs::chmodat(CWD, name, mode, AtFlags::empty())?)
    }

    fn move_away(&self, path: &Path) -> io::Result<()> {
        self.let_go(path);
        let (parent, name) = tree::parent(self.root, path)?;
        let home = self.home(&parent, path)?;
        Self::at_free_place(name, |place| {
            Ok(rustix::fs::renameat_with(&parent, name, &home, place, RenameFlags::NOREPLACE)?)
        })
        .map(drop)
    }

    /// The directory into which things move from `parent`, that of `path`, and in which they are made anew: the root,
    /// or where something else is mounted below it, the highest of that mount: nothing moves between two mounts.
    fn home(&self, parent: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
        let mount = mount_of(parent);
        if mount_of(self.root) == mount {
            return self.root.try_clone();
        }
        let above: Vec<_> = path.ancestors().skip(2).filter(|at| !at.as_os_str().is_empty()).collect();
        for at in above.into_iter().rev() {
            let dir = tree::open(self.root, at, OFlags::PATH | OFlags::DIRECTORY)?;
            if mount_of(&dir) == mount {
                return Ok(dir);
            }
        }
        parent.try_clone()
    }

    /// Who moves a directory must be able to write to it.
    fn let_go(&self, path: &Path) {
        if let Ok(Some((FileType::Directory, mode, _))) = tree::stat(self.root, path) {
            // The move tells if it is missing.
            let _ = self.open_up(path, mode);
        }
    }

    /// Calls `put` with a name until one is free, and returns it.
    fn at_free_place(name: &Path, mut put: impl FnMut(&Path) -> io::Result<()>) -> io::Result<PathBuf> {
        // No program takes a name by its end for one of its own.
        let known = |char: char| match char {
            '.' => Some('-'),
            '_' | '-' => Some(char),
            _ => Some(char).filter(|char| char.is_alphanumeric()),
        };
        let name: String = name.to_string_lossy().chars().filter_map(known).take(NAME).collect();
        let name = name.trim_start_matches('-');
        let mut number = 0_u128;
        loop {
            number = number.saturating_add(1);
            if number == u128::from(NUMBERS) {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                number = now.as_nanos();
            }
            let place = PathBuf::from(format!("removed-by-sandbox-{number}-{name}"));
            match put(&place) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                other => return other.map(|()| place),
            }
        }
    }

    /// Puts what was there in the place of what `is` there, which moves away in the same step.
    fn put(&self, at: &Path, was: &Kept, is: bool) -> io::Result<()> {
        if matches!(was, Kept::Other) {
            // Pipes, sockets and devices hold nothing to put back.
            return if is { self.move_away(at) } else { Ok(()) };
        }
        self.let_go(at);
        let (parent, name) = tree::parent(self.root, at)?;
        let home = self.home(&parent, at)?;
        let place = Self::at_free_place(name, |place| Self::make(&home, place, was))?;
        let swapped = match is {
            true => rustix::fs::renameat_with(&home, &place, &parent, name, RenameFlags::EXCHANGE),
            false => Err(Errno::NOSYS),
        };
        match swapped {
            // There is nothing at it, or the file system swaps nothing.
            Err(Errno::NOSYS | Errno::INVAL | Errno::NOENT | Errno::OPNOTSUPP) => {}
            other => return Ok(other?),
        }
        if is {
            self.move_away(at)?;
        }
        Ok(rustix::fs::renameat_with(&home, &place, &parent, name, RenameFlags::NOREPLACE)?)
    }

    /// Makes it at a place in a directory.
    fn make(home: &OwnedFd, place: &Path, kept: &Kept) -> io::Result<()> {
        match kept {
            Kept::Directory { .. } => Ok(rustix::fs::mkdirat(home, place, Mode::RWXU)?),
            Kept::Link(target) => Ok(rustix::fs::symlinkat(target, home, place)?),
            Kept::File { content, mode, .. } => {
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let made = rustix::fs::openat(home, place, flags, Mode::RUSR | Mode::WUSR)?;
                let mut file = File::from(made);
                let written = file
                    .write_all(content)
                    .and_then(|()| Ok(rustix::fs::fchmod(file.as_fd(), Mode::from_raw_mode(*mode))?));
                written.inspect_err(|_| {
                    let _ = rustix::fs::unlinkat(home, place, AtFlags::empty());
                })
            }
            Kept::Other => Ok(()),
        }
    }
}

/// The mount that a directory is on; 0 where the system does not tell.
fn mount_of(dir: &OwnedFd) -> u64 {
    let told = rustix::fs::statx(dir, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
    told.map_or(0, |told| told.stx_mnt_id)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
        sync::Arc,
    };

    use proptest::prelude::*;

    use super::{
        super::watch::{self, Shared},
        *,
    };

    const PROTECTED: &[&str] = &[".git", ".vscode", "d/key", "d/e"];
    const PATHS: &[&str] = &[
        ".git",
        ".git/hooks",
        ".git/hooks/a",
        ".git/hooks/b",
        ".git/info",
        ".git/info/x",
        ".git/info/x/y",
        ".git/config",
        ".git/modules/m/HEAD",
        ".git/modules/m/objects",
        ".git/modules/m/config",
        ".git/modules/objects/config",
        ".vscode",
        ".vscode/s",
        "d",
        "d/key",
        "d/e/f",
        "free",
        "free/x",
    ];

    /// What a person or a command does; contents tell who wrote them.
    #[derive(Debug, Clone)]
    enum Step {
        Write(usize),
        Directory(usize),
        Link(usize, usize),
        Move(usize, usize),
        Remove(usize),
        Mode(usize, u32),
        Fill(usize, usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let path = 0..PATHS.len();
        let mode = prop::sample::select(vec![0o000, 0o400, 0o500, 0o644, 0o755, 0o777]);
        let step = prop_oneof![
            4 => path.clone().prop_map(Step::Write),
            2 => path.clone().prop_map(Step::Directory),
            1 => (path.clone(), path.clone()).prop_map(|(at, to)| Step::Link(at, to)),
            2 => (path.clone(), path.clone()).prop_map(|(at, to)| Step::Move(at, to)),
            1 => path.clone().prop_map(Step::Remove),
            1 => (path.clone(), mode).prop_map(|(at, mode)| Step::Mode(at, mode)),
            1 => (path, 1_usize..40).prop_map(|(at, count)| Step::Fill(at, count)),
        ];
        prop::collection::vec(step, 0..14)
    }

    /// Performs the steps that the system allows.
    fn perform(root: &Path, steps: &[Step], who: &str) {
        for (number, step) in steps.iter().enumerate() {
            let at = |index: &usize| root.join(PATHS[*index]);
            let within = |path: PathBuf| {
                // A link that leads out of the root, or to itself, is not followed here.
                fs::canonicalize(path.parent().unwrap()).is_ok_and(|parent| parent.starts_with(root))
            };
            let _ = match step {
                Step::Write(path) => {
                    let _ = fs::create_dir_all(at(path).parent().unwrap());
                    match within(at(path)) {
                        true => fs::write(at(path), format!("{who} {number}")),
                        false => Ok(()),
                    }
                }
                Step::Directory(path) => fs::create_dir_all(at(path)),
                Step::Link(path, target) => symlink(at(target), at(path)),
                Step::Move(from, to) => fs::rename(at(from), at(to)),
                Step::Remove(path) => fs::remove_dir_all(at(path)).or_else(|_| fs::remove_file(at(path))),
                Step::Mode(path, mode) => match at(path).is_symlink() {
                    true => Ok(()),
                    false => fs::set_permissions(at(path), PermissionsExt::from_mode(*mode)),
                },
                Step::Fill(path, count) => {
                    (0..*count).try_for_each(|entry| fs::write(at(path).join(format!("new{entry}")), who))
                }
            };
        }
    }

    /// The contents of all files below a directory, once it can be read.
    fn contents(dir: &Path) -> BTreeSet<String> {
        let mut contents = BTreeSet::new();
        let mut left = vec![dir.to_owned()];
        while let Some(at) = left.pop() {
            if at.is_symlink() {
                continue;
            }
            fs::set_permissions(&at, PermissionsExt::from_mode(0o755)).unwrap();
            if at.is_dir() {
                left.extend(fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().path()));
            } else {
                contents.insert(fs::read_to_string(&at).unwrap());
            }
        }
        contents
    }

    /// What stands at the protected paths.
    fn shown(root: &Path) -> Vec<Tree> {
        let opened = rustix::fs::open(root, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let mut bounds = tree::Bounds::default();
        // Through a link nothing is read: then nothing is there.
        let read = |path: &&str| tree::read(&opened, Path::new(path), false, &mut bounds).unwrap_or_default();
        PROTECTED.iter().map(read).collect()
    }

    /// The places at which something else is that makes a program run something.
    fn differ(before: &Tree, after: &Tree) -> Vec<PathBuf> {
        let mode = |kept: &Kept| if let Kept::Directory { mode, .. } = kept { Some(*mode) } else { None };
        let changed = before.iter().filter(|(at, was)| {
            let is = after.get(*at);
            !is_same(is, was) && (mode(was).is_none() || is.and_then(mode) != mode(was))
        });
        let new = after.keys().filter(|at| !before.contains_key(*at)).filter(|at| {
            let above = at.ancestors().find_map(|above| before.get(above).map(|kept| (above, kept)));
            match above {
                Some((above, Kept::Directory { is_git: true, .. })) => {
                    let name = at.strip_prefix(above).unwrap().iter().next().unwrap();
                    tree::RUNS.iter().any(|runs| name == *runs)
                }
                _ => true,
            }
        });
        changed.map(|(at, _)| at).chain(new).cloned().collect()
    }

    /// True for the same content; a file may have lost a name that was not protected.
    fn is_same(is: Option<&Kept>, was: &Kept) -> bool {
        match (is, was) {
            (
                Some(Kept::File { content, mode, names }),
                Kept::File { content: before, mode: mode_before, names: most },
            ) => (content, mode) == (before, mode_before) && names <= most,
            (is, was) => is == Some(was),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

        #[test]
        fn attack_22_whatever_a_command_does_the_protected_paths_are_as_before(
            person in steps(),
            command in steps(),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let root = fs::canonicalize(dir.path()).unwrap();
            perform(&root, &person, "person");
            let protected: Vec<_> = PROTECTED.iter().map(PathBuf::from).collect();
            let shared = Arc::new(Shared::default());
            // What cannot be read or kept before it keeps the command from its start.
            let opened = rustix::fs::open(&root, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
            let Ok(plan) = watch::plan(&root, opened, &protected, false, &shared) else { return Ok(()) };
            let before = shown(&root);
            let (_, _, watch) = plan.unwrap().split();
            perform(&root, &command, "command");
            let own = contents_of_copy(&root);
            watch.unwrap().restore().unwrap();
            for (before, after) in before.iter().zip(&shown(&root)) {
                let differ = differ(before, after);
                prop_assert!(differ.is_empty(), "{:?} {:?} {:?}", differ, before, after);
            }
            let left = contents(&root);
            let lost: Vec<_> = own.difference(&left).collect();
            prop_assert!(lost.is_empty(), "{:?}", lost);
        }
    }

    /// The contents below a directory whose permissions stay as they are.
    fn contents_of_copy(root: &Path) -> BTreeSet<String> {
        let copy = tempfile::tempdir().unwrap();
        let copied = std::process::Command::new("cp").arg("-a").arg(root).arg(copy.path()).status();
        // A user who is not root cannot copy what is closed.
        if copied.unwrap().success() { contents(copy.path()) } else { BTreeSet::new() }
    }
}
