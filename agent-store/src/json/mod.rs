//! Sessions as files that people can read: one file for each session, one line for each batch.
//!
//! This module runs blocking work on threads for it; `turns` queues racing callers, `session` and `directory` do the
//! work, `file` handles locks and line ends, `line` encodes lines, and `name` names files.

mod directory;
mod error;
mod file;
mod label;
mod line;
#[cfg(feature = "hybrid")]
mod moving;
mod name;
mod session;
mod turns;

use std::{
    collections::HashSet,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    session::{Batch, Lease, ReadRange, Row, SessionFilter, SessionInfo, SessionStore},
};
use tokio::{
    sync::{OwnedRwLockWriteGuard, RwLock},
    task,
};

use crate::{
    Durability,
    listing::{below, page},
    owned::{LONGEST_WAIT, owned},
};
use directory::Directory;
use error::Failure;
pub use error::{FileProblem, FileProblemKind};
use turns::Turns;

/// Keeps each session in a file of JSON lines in one directory.
///
/// The first line of a file is the session's record; each further line is one batch with its events, the lease and the
/// head after it. Bodies are read back byte for byte; one with line breaks, or space around it, is stored as a JSON
/// string.
///
/// Several stores, in one process or in several, may use the same directory: each append compares and writes under the
/// file's lock, so of writers that race one wins. Readers of a session take no lock and see whole batches; lists wait
/// for sessions that are being created or deleted. The directory must be on a file system with locks, and hold nothing
/// else.
///
/// # Crashes and damage
/// A line counts once it is complete. The next `open` or append moves a torn line to `<file>.torn-<offset>`, and
/// [`JsonStore::problems`] reports it. A file that is damaged, of a newer format or no regular file is a typed error
/// for its session, which lists leave out and `problems` names; all others load. A changed byte that leaves valid lines
/// is not noticed.
///
/// The directory has a label, the file `.store`. While the directory that was opened is not at its path (its disk is
/// not mounted, or another one is in its place), every operation fails with [`ErrorKind::Store`]; the store continues
/// once the directory is back.
///
/// # Costs
/// An operation on one session costs the same, however many sessions there are. Lists look at every file, and read
/// those that changed since the last list. So does `delete`, which has to find the session's descendants.
///
/// # Cancel safety
/// Once polled, an operation completes by itself, whether its future is dropped, kept or polled; operations on the same
/// session wait for it. It runs on the tokio runtime that polled it, which must be kept running. If the process dies,
/// deleting a tree may stop between two sessions; a repeated call continues.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use entourage_core::session::{SessionFilter, SessionStore};
/// use entourage_store::JsonStore;
///
/// let directory = tempfile::tempdir().unwrap();
/// let store = JsonStore::open(directory.path().join("sessions")).await.unwrap();
/// assert!(store.query(&SessionFilter::roots()).await.unwrap().is_empty());
/// assert!(store.problems().await.unwrap().is_empty());
/// # });
/// ```
#[derive(Clone)]
pub struct JsonStore(Arc<Inner>);

struct Inner {
    directory: Arc<Directory>,
    turns: Turns,
    /// Write-locked by operations that create or delete, read-locked by those that list.
    whole: Arc<RwLock<()>>,
}

/// Options of a [`JsonStore`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `open`"]
pub struct JsonBuilder {
    path: PathBuf,
    lock_timeout: Duration,
    durability: Durability,
}

impl JsonBuilder {
    /// Sets how long an operation waits for another process that holds a lock. Default 5 seconds, at most a day.
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout.min(LONGEST_WAIT);
        self
    }

    /// Sets the failures that a returned append survives. Default [`Durability::PowerLoss`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Opens the directory, creating it (not the one above it) when there is none, and sets torn lines aside.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] for a path that is a link, no directory or not accessible, and for a lock that stays (the
    /// last is worth a retry). Damaged sessions are no error here: see [`JsonStore::problems`].
    pub async fn build(self) -> Result<JsonStore> {
        const OPERATION: &str = "store.open";
        let path = std::path::absolute(&self.path).map_err(|error| {
            Error::new(ErrorKind::InvalidInput, "this is no path; name a directory")
                .during(OPERATION)
                .caused_by(error)
        })?;
        let opened = aside(move || {
            Directory::open(path.clone(), self.durability, self.lock_timeout)
                .map_err(|failure| failure.into_error(OPERATION, &path))
        });
        Ok(JsonStore(Arc::new(Inner {
            directory: Arc::new(opened.await?),
            turns: Turns::default(),
            whole: Arc::default(),
        })))
    }
}

impl JsonStore {
    /// Opens the directory at `path` with the default options; see [`JsonBuilder::build`].
    ///
    /// # Errors
    /// As [`JsonBuilder::build`].
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder(path).build().await
    }

    /// Returns the options for the directory at `path`.
    pub fn builder(path: impl AsRef<Path>) -> JsonBuilder {
        JsonBuilder {
            path: path.as_ref().to_owned(),
            lock_timeout: Duration::from_secs(5),
            durability: Durability::default(),
        }
    }

    /// Returns the absolute path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.directory.path
    }

    /// Returns the path of a session's file, which need not exist.
    #[must_use]
    pub fn path_of(&self, session: &SessionId) -> PathBuf {
        self.0.directory.path_of(session)
    }

    /// Returns the problems of the directory, sorted by path: those that this store mended, set aside or found since it
    /// was opened, and those that a listing finds now.
    ///
    /// # Errors
    /// [`ErrorKind::Store`] when the directory cannot be read.
    pub async fn problems(&self) -> Result<Vec<FileProblem>> {
        self.look("store.problems", Directory::problems).await
    }

    /// Moves a session's file to `<file>.damaged-0` (with `-1` and so on appended if that name is taken) after the
    /// files of its descendants, and returns its new path. They are then gone from here, and others may take their ids.
    /// Meant for files that cannot be read; nothing is deleted. If the process dies meanwhile, a repeated call
    /// continues.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when there is no such file, [`ErrorKind::Store`] when it cannot be moved.
    pub async fn set_aside(&self, session: &SessionId) -> Result<PathBuf> {
        let (store, id) = (self.clone(), session.clone());
        owned(async move {
            let turn = store.whole_turn().await;
            store
                .on("store.set_aside", id.clone(), turn, move |directory| directory.set_tree_aside(&id))
                .await
        })
        .await
    }

    /// Waits until no other operation of this process creates, deletes or lists sessions.
    async fn whole_turn(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.0.whole).write_owned().await
    }

    /// Runs `work` where it may block. `turn` is held until it is done, also if the caller is gone by then. A caller
    /// that waits for a turn first does so in a task of its own.
    async fn on<T: Send + 'static>(
        &self,
        operation: &'static str,
        session: SessionId,
        turn: impl Send + 'static,
        work: impl FnOnce(&Directory) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T> {
        let directory = Arc::clone(&self.0.directory);
        aside(move || {
            let done = directory.here(work).map_err(|failure| {
                failure.into_session_error(operation, &directory.path_of(&session), &session)
            });
            drop(turn);
            done
        })
        .await
    }

    async fn look<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&Directory) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T> {
        let (directory, whole) = (Arc::clone(&self.0.directory), Arc::clone(&self.0.whole));
        owned(async move {
            let turn = whole.read_owned().await;
            aside(move || {
                let done =
                    directory.here(work).map_err(|failure| failure.into_error(operation, &directory.path));
                drop(turn);
                done
            })
            .await
        })
        .await
    }
}

#[async_trait]
impl SessionStore for JsonStore {
    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        batch.check(session, expected)?;
        let (store, id) = (self.clone(), session.clone());
        owned(async move {
            let creator = match batch.create {
                Some(_) => Some(store.whole_turn().await),
                None => None,
            };
            let turns = (creator, store.0.turns.of(&id).await);
            let of = id.clone();
            let work = move |directory: &Directory, patience| {
                session::append(directory, &of, expected, &batch, patience)
            };
            store.write("store.append", id, turns, work).await
        })
        .await
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        let id = session.clone();
        self.on("store.read", session.clone(), (), move |directory| session::read(directory, &id, range))
            .await
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        let filter = filter.clone();
        let Some(id) = filter.id.clone() else {
            return self.look("store.query", move |directory| list(directory, &filter)).await;
        };
        let of = id.clone();
        self.on("store.query", id, (), move |directory| one(directory, &of, &filter)).await
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        let (store, id) = (self.clone(), session.clone());
        owned(async move {
            let turn = store.0.turns.of(&id).await;
            let of = id.clone();
            let work = move |directory: &Directory, patience| session::lease(directory, &of, lease, patience);
            store.write("store.lease", id, turn, work).await
        })
        .await
    }

    async fn delete(&self, session: &SessionId) -> Result<u64> {
        let (store, id) = (self.clone(), session.clone());
        owned(async move {
            let turn = store.whole_turn().await;
            let of = id.clone();
            store.on("store.delete", id, turn, move |directory| directory.delete(&of)).await
        })
        .await
    }
}

impl fmt::Debug for JsonStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonStore").field("path", &self.path()).finish_non_exhaustive()
    }
}

fn list(directory: &Directory, filter: &SessionFilter) -> Result<Vec<SessionInfo>, Failure> {
    let sessions = directory.steady_inventory()?.sessions;
    let records = || sessions.values().map(|known| &known.info.record);
    let tree = filter.tree.as_ref().map(|root| below(records(), root).into_iter().collect::<HashSet<_>>());
    let inside = |id: &SessionId| tree.as_ref().is_none_or(|tree| tree.contains(id));
    let listed = sessions.values().filter(|known| !known.sealed).map(|known| &known.info);
    Ok(page(listed.filter(|info| inside(&info.record.id) && filter.admits(info)), filter))
}

fn one(directory: &Directory, id: &SessionId, filter: &SessionFilter) -> Result<Vec<SessionInfo>, Failure> {
    if filter.tree.is_some() {
        return list(directory, filter);
    }
    match directory.look_up(id) {
        Ok(known) if known.sealed => Ok(Vec::new()),
        Ok(known) => Ok(page(Some(&known.info).into_iter().filter(|info| filter.admits(info)), filter)),
        Err(Failure::Missing) => Ok(Vec::new()),
        Err(failure) => Err(failure),
    }
}

async fn aside<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    task::spawn_blocking(work).await.map_err(|error| {
        Error::new(ErrorKind::Internal, "the runtime stopped while a file was in use").caused_by(error)
    })?
}
