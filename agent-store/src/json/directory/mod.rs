//! The directory of sessions: its inventory, and all operations that concern more than one file. Blocking; the store
//! runs it on threads for that.

use std::{
    collections::{HashMap, HashSet},
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use entourage_core::{
    Error, ErrorKind, SessionId,
    session::{SessionInfo, SessionRecord},
};

use super::{
    error::{Failure, FileProblem, FileProblemKind},
    file::{self, End, SessionFile},
    label::Label,
    line::State,
    name::{self, Name},
};
use crate::{Durability, listing::below};

/// Age up to which a file's stamp is not trusted and the file is read again: clocks of file systems are that coarse.
const SETTLED: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    pub(super) durability: Durability,
    pub(super) patience: Duration,
    /// Proves that the directory is still at its path.
    label: Label,
    /// Cache of listings by file name. An entry is valid while the file has the same stamp.
    known: Mutex<HashMap<String, (Stamp, Arc<Known>)>>,
    /// Problems noticed since the directory was opened, mended ones included.
    noticed: Mutex<Vec<FileProblem>>,
    /// Number of files that were read to learn of a session.
    #[cfg(test)]
    pub(super) reads: std::sync::atomic::AtomicUsize,
}

/// The data of a session that lists need.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) info: SessionInfo,
    pub(super) sealed: bool,
}

impl Known {
    fn new(record: SessionRecord, State { head, lease, sealed }: State) -> Self {
        Self { info: SessionInfo::new(record, head).leased(lease), sealed }
    }
}

/// Metadata of a file that changes with its content.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stamp {
    len: u64,
    modified: Option<SystemTime>,
    #[cfg(unix)]
    inode: u64,
}

/// Contents of the directory.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    pub(super) sessions: HashMap<SessionId, Arc<Known>>,
    pub(super) problems: Vec<FileProblem>,
    /// File names of the notes.
    #[cfg(feature = "hybrid")]
    pub(super) notes: Vec<String>,
}

impl Directory {
    /// Creates the directory if there is none, deletes unfinished files of dead processes, and sets torn lines aside.
    pub(super) fn open(path: PathBuf, durability: Durability, patience: Duration) -> Result<Self, Failure> {
        make_directory(&path)?;
        let locked = file::lock_file(&path.join(name::LOCK), patience)
            .map_err(|failure| failure.at(&path.join(name::LOCK)))?;
        let label = Label::open(&path, durability)?;
        let (known, noticed) = (Mutex::default(), Mutex::default());
        let directory = Self {
            path,
            durability,
            patience,
            label,
            known,
            noticed,
            #[cfg(test)]
            reads: Default::default(),
        };
        directory.flush()?;
        directory.remove_unfinished()?;
        drop(locked);
        directory.mend()?;
        Ok(directory)
    }

    pub(super) fn path_of(&self, session: &SessionId) -> PathBuf {
        self.path.join(name::file_name(session))
    }

    /// Takes the directory's lock: nobody else creates or deletes sessions while it is held.
    pub(super) fn lock(&self) -> Result<File, Failure> {
        self.lock_with(file::lock_file, name::LOCK)
    }

    /// Takes a lock of the whole directory. While it is held, nobody unmounts the directory's disk.
    pub(super) fn lock_with(
        &self,
        lock: fn(&Path, Duration) -> Result<File, Failure>,
        name: &str,
    ) -> Result<File, Failure> {
        let path = self.path.join(name);
        let file = lock(&path, self.patience).map_err(|failure| failure.at(&path))?;
        self.label.check()?;
        Ok(file)
    }

    /// Runs `work` on the directory, and fails unless the directory is at its path before and after: a file that is
    /// missing from another directory proves nothing.
    pub(super) fn here<T>(&self, work: impl FnOnce(&Self) -> Result<T, Failure>) -> Result<T, Failure> {
        self.label.check()?;
        let done = work(self);
        if done.as_ref().map_or_else(Failure::is_absence, |_| true) {
            self.label.check()?;
        }
        done
    }

    /// Deletes sessions that were never given their name. Needs the lock, under which nobody can be creating one.
    fn remove_unfinished(&self) -> Result<(), Failure> {
        for name in self.names()? {
            if name.ends_with(name::NEW) && name::judge(&name) == Name::Own {
                fs::remove_file(self.path.join(name))?;
            }
        }
        Ok(())
    }

    /// Sets torn lines aside in files that nobody is writing.
    fn mend(&self) -> Result<(), Failure> {
        for name in self.names()? {
            let path = self.path.join(&name);
            if !matches!(name::judge(&name), Name::Session(_)) {
                continue;
            }
            let torn = SessionFile::open(&path).and_then(|file| file.end()).is_ok_and(|end| end.torn > 0);
            if torn && let Ok(file) = SessionFile::lock(&path, Duration::ZERO) {
                // A record that cannot be read makes the file a damaged one, which stays as it is.
                if let Ok(record) = file.record() {
                    self.whole_end(&file, &path, &record.id)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the end of a locked file, after setting torn bytes aside.
    pub(super) fn whole_end(
        &self,
        file: &SessionFile,
        path: &Path,
        session: &SessionId,
    ) -> Result<End, Failure> {
        let mut end = file.end()?;
        if end.torn > 0 {
            let aside = file.set_torn_aside(&end, self.durability)?;
            let detail = format!(
                "a write was cut short after event {}; the {} bytes it left are in {}",
                end.state.head.seq,
                end.torn,
                aside.display()
            );
            let kind = FileProblemKind::Torn { aside, bytes: end.torn };
            self.notice(FileProblem::new(path.to_owned(), Some(session.clone()), kind, detail));
            end.torn = 0;
        }
        Ok(end)
    }

    pub(super) fn notice(&self, problem: FileProblem) {
        let mut noticed = lock(&self.noticed);
        if !noticed.contains(&problem) {
            noticed.push(problem);
        }
    }

    /// Returns the problems noticed so far and those that exist now, sorted by path.
    pub(super) fn problems(&self) -> Result<Vec<FileProblem>, Failure> {
        let mut problems = self.steady_inventory()?.problems;
        let noticed = lock(&self.noticed).clone();
        problems.retain(|problem| !noticed.contains(problem));
        problems.extend(noticed);
        problems.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(problems)
    }

    fn names(&self) -> Result<Vec<String>, Failure> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // No name of this store is anything but ASCII, so a lossy one is as foreign as the true one.
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }

    /// Takes the [`Directory::inventory`] while nobody creates or deletes a session, so that no tree is seen in part.
    pub(super) fn steady_inventory(&self) -> Result<Inventory, Failure> {
        let _lock = self.lock_with(file::lock_file_shared, name::LOCK)?;
        self.inventory()
    }

    /// Lists every file, and reads those that changed since the last time.
    fn inventory(&self) -> Result<Inventory, Failure> {
        let mut inventory = Inventory::default();
        let mut there = HashSet::new();
        for name in self.names()? {
            let path = self.path.join(&name);
            let session = match name::judge(&name) {
                Name::Session(session) => session,
                Name::Own => {
                    #[cfg(feature = "hybrid")]
                    if name.ends_with(name::COPIED) {
                        inventory.notes.push(name);
                    }
                    continue;
                }
                Name::Foreign => {
                    let detail =
                        "this is no file of the store and is left alone; keep the directory for sessions";
                    inventory.problems.push(FileProblem::new(path, None, FileProblemKind::Foreign, detail));
                    continue;
                }
            };
            match self.known(&name) {
                Ok(known) => {
                    inventory.sessions.insert(known.info.record.id.clone(), known);
                    there.insert(name);
                }
                // Deleted since it was listed.
                Err(Failure::Missing) => {}
                Err(failure) => inventory.problems.push(FileProblem::of_failure(path, session, failure)),
            }
        }
        lock(&self.known).retain(|name, _| there.contains(name));
        Ok(inventory)
    }

    fn known(&self, name: &str) -> Result<Arc<Known>, Failure> {
        let path = self.path.join(name);
        let stamp = Stamp::of(&path)?;
        if let Some((old, known)) = lock(&self.known).get(name)
            && *old == stamp
        {
            return Ok(Arc::clone(known));
        }
        let known = Arc::new(self.read_known(&path)?);
        if stamp.is_settled() {
            lock(&self.known).insert(name.to_owned(), (stamp, Arc::clone(&known)));
        }
        Ok(known)
    }

    fn read_known(&self, path: &Path) -> Result<Known, Failure> {
        #[cfg(test)]
        self.reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let file = SessionFile::open(path)?;
        let known = file.steadily(self.patience, || Ok(Known::new(file.record()?, file.end()?.state)))?;
        let record = &known.info.record;
        let named = path.file_name().is_some_and(|name| name == name::file_name(&record.id).as_str());
        if named { Ok(known) } else { Err(Failure::misplaced(record)) }
    }

    /// Reads one session, sealed or not; [`Failure::Missing`] if its file is not there.
    pub(super) fn look_up(&self, session: &SessionId) -> Result<Known, Failure> {
        // The file's record was checked against its name, so this is the session.
        self.read_known(&self.path_of(session))
    }

    /// Creates the file of a new session; returns false if there is one already.
    pub(super) fn create(&self, record: &SessionRecord, lines: &[u8]) -> Result<bool, Failure> {
        let _lock = self.lock()?;
        let path = self.path_of(&record.id);
        if path.symlink_metadata().is_ok() {
            return Ok(false);
        }
        if let Some(parent) = &record.parent {
            match self.look_up(parent) {
                Ok(known) if !known.sealed => {}
                Ok(_) | Err(Failure::Missing) => return Err(no_parent(&record.id).into()),
                Err(failure) => return Err(failure),
            }
        }
        let mut new = path.clone().into_os_string();
        new.push(name::NEW);
        file::create(&path, Path::new(&new), lines, self.durability)?;
        self.flush()?;
        Ok(true)
    }

    /// Deletes a session and its descendants, and returns the number of those that were not sealed.
    ///
    /// The deepest go first: if this is cut short, the rest is still connected, and the next call finds it.
    pub(super) fn delete(&self, root: &SessionId) -> Result<u64, Failure> {
        let _lock = self.lock()?;
        let inventory = self.inventory()?;
        let mut deleted = 0;
        let records = inventory.sessions.values().map(|known| &known.info.record);
        for session in below(records, root).iter().rev() {
            let sealed = inventory.sessions.get(session).is_some_and(|known| known.sealed);
            match SessionFile::lock(&self.path_of(session), self.patience).and_then(SessionFile::remove) {
                Ok(()) => deleted += u64::from(!sealed),
                Err(Failure::Missing) => {}
                // A link or a directory in place of a session's file is not the store's to delete.
                Err(failure) => return Err(failure),
            }
            #[cfg(feature = "hybrid")]
            self.remove_note(session)?;
        }
        self.flush()?;
        Ok(deleted)
    }

    /// Makes created, renamed and deleted names survive a power cut, where the durability asks for it.
    pub(super) fn flush(&self) -> Result<(), Failure> {
        if cfg!(unix) && self.durability == Durability::PowerLoss {
            File::open(&self.path)?.sync_all()?;
        }
        Ok(())
    }

    /// Moves a session's file to another name and reports it, after the files of its descendants: a new session of its
    /// id must not find the children of the one before. Sealed descendants stay for their mover.
    pub(super) fn set_tree_aside(&self, root: &SessionId) -> Result<PathBuf, Failure> {
        let _lock = self.lock()?;
        let inventory = self.inventory()?;
        let records = inventory.sessions.values().map(|known| &known.info.record);
        for session in below(records, root).iter().skip(1).rev() {
            if inventory.sessions.get(session).is_some_and(|known| known.sealed) {
                continue;
            }
            match self.move_aside(session) {
                Ok(_) | Err(Failure::Missing) => {}
                Err(failure) => return Err(failure),
            }
        }
        self.move_aside(root)
    }

    /// Moves a session's file aside as `set_tree_aside` does, without those of its descendants.
    #[cfg(feature = "hybrid")]
    pub(super) fn set_one_aside(&self, session: &SessionId) -> Result<PathBuf, Failure> {
        let _lock = self.lock()?;
        self.move_aside(session)
    }

    /// Moves a session's file to another name and reports it. Needs the directory's lock.
    fn move_aside(&self, session: &SessionId) -> Result<PathBuf, Failure> {
        let path = self.path_of(session);
        let aside = SessionFile::lock(&path, self.patience)?.rename_beside(&format!("{}0", name::DAMAGED))?;
        self.flush()?;
        let detail =
            format!("the file was set aside as {}; mend it and give it its name back", aside.display());
        let kind = FileProblemKind::SetAside { aside: aside.clone() };
        self.notice(FileProblem::new(path, Some(session.clone()), kind, detail));
        Ok(aside)
    }
}

impl Stamp {
    pub(super) fn of(path: &Path) -> Result<Self, Failure> {
        let metadata = path.symlink_metadata()?;
        Ok(Self {
            len: metadata.len(),
            modified: metadata.modified().ok(),
            #[cfg(unix)]
            inode: std::os::unix::fs::MetadataExt::ino(&metadata),
        })
    }

    /// Returns true if any later change will show in the stamp, by another time. A time in the future comes from a
    /// clock that was set back since, and counts as settled: else every list would read the file until the clock
    /// catches up.
    fn is_settled(&self) -> bool {
        let now = SystemTime::now();
        let apart = |modified| now.duration_since(modified).unwrap_or_else(|error| error.duration());
        self.modified.is_some_and(|modified| apart(modified) > SETTLED)
    }
}

fn no_parent(session: &SessionId) -> Error {
    Error::new(
        ErrorKind::NotFound,
        "the parent session does not exist; create it first, or start the session as a root",
    )
    .with("session", session.as_str())
}

fn make_directory(path: &Path) -> Result<(), Failure> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(path) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(refused("the directory above the store's does not exist; create it first"));
        }
        Err(error) => return Err(Failure::Io(error)),
    }
    let metadata = path.symlink_metadata()?;
    if metadata.is_symlink() {
        return Err(refused("the path is a link; name the directory itself"));
    }
    if metadata.is_dir() { Ok(()) } else { Err(refused("the path is no directory; choose another one")) }
}

fn refused(text: &'static str) -> Failure {
    Failure::Refused(Error::new(ErrorKind::Store, text))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A poisoned lock is harmless: every change under it is one infallible step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
