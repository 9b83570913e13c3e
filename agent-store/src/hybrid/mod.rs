//! One store out of two: active sessions in one, completed ones in the other.
//!
//! This module decides which of the two answers; `archive` moves sessions, `check` reads copies back, `delete` deletes
//! from both. Nothing here knows how either keeps its data.

mod archive;
mod check;
mod delete;

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::{Arc, PoisonError},
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, ErrorRecord, Result, RetryStatus, SessionId,
    session::{Batch, Lease, ReadRange, Row, SessionFilter, SessionInfo, SessionStore},
};
use tokio::sync::Mutex;

use crate::{
    FileProblemKind, JsonStore, SqliteStore,
    listing::page,
    owned::owned,
    sql::says_closed,
    tiers::{ActiveStore, ArchiveStore, Held, Holdings},
};

/// Keeps active sessions in files of JSON lines and moves completed ones to an SQLite archive.
///
/// New sessions are files. [`HybridStore::archive`] and [`HybridStore::archive_idle`] move whole trees to the archive;
/// nothing moves by itself. An archived session stays usable: appends continue in the archive, and children created
/// below it are stored there too.
///
/// # How a tree moves
/// The mover copies the batches to the archive with their writers (so appending one of them again still stores nothing)
/// and with their leases, reads the copies back as the next process would, seals the files, reads back again, and
/// deletes them. It takes nothing from a run: a file is sealed only if its newest event and its lease are still those
/// that were copied, so a run that began meanwhile continues undisturbed, and the move fails with
/// [`ErrorKind::Conflict`]. A run that begins after the seal continues in the archive.
///
/// Until a file is sealed it alone counts, from then on the archive does; so each session is in one place at any
/// moment, is listed once, and no append is lost. The copy of a failed move is never served; the next move completes or
/// replaces it. A move that was cut short at any point is finished by calling it again; from its first seal on, also by
/// [`HybridStore::recover`], which `open` calls.
///
/// # When one side is damaged
/// A damaged file is an error of its session, as in [`JsonStore`]. While the archive cannot be read, active sessions
/// and new ones work as ever and lists show the active ones only: [`HybridStore::archive_error`] says so. An operation
/// that needs the archive (on a session that is not active, a delete, a move) fails with the archive's error. A new
/// session whose id is in the unreadable archive hides the archived one; such a session is not moved.
///
/// Several of these stores may use the same directory and database, in one process or in several. One at a time moves
/// or deletes; another one waits for the directory's lock timeout at most, and then fails with [`ErrorKind::Busy`].
/// Appends, reads and lists wait for neither.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use entourage_core::{Timestamp, session::{SessionFilter, SessionStore}};
/// use entourage_store::HybridStore;
///
/// let directory = tempfile::tempdir().unwrap();
/// let (active, archive) = (directory.path().join("active"), directory.path().join("archive.db"));
/// let store = HybridStore::open(active, archive).await.unwrap();
/// assert!(store.query(&SessionFilter::roots()).await.unwrap().is_empty());
/// // Everything that nothing happened in during the last week.
/// let week = Timestamp::from_micros(Timestamp::now().as_micros() - 7 * 86_400_000_000);
/// assert!(store.archive_idle(week).await.unwrap().is_empty());
/// # });
/// ```
#[derive(Debug)]
pub struct HybridStore<A = JsonStore, B = SqliteStore> {
    active: Arc<A>,
    archive: Arc<B>,
    /// Held while sessions are moved or deleted.
    moving: Arc<Mutex<()>>,
    /// The reason why the newest list is incomplete.
    trouble: Arc<std::sync::Mutex<Option<ErrorRecord>>>,
}

impl<A, B> Clone for HybridStore<A, B> {
    fn clone(&self) -> Self {
        Self {
            active: Arc::clone(&self.active),
            archive: Arc::clone(&self.archive),
            moving: Arc::clone(&self.moving),
            trouble: Arc::clone(&self.trouble),
        }
    }
}

impl HybridStore {
    /// Opens the directory of active sessions and the archive, creating what is missing (but not the directories
    /// above), and finishes moves that were cut short. A damaged file of a session that was moved before is set aside;
    /// any other stays, as an error of its session. `store.active().problems()` names both. A move that cannot be
    /// finished is left as it is; [`HybridStore::recover`] returns the error.
    ///
    /// # Errors
    /// As [`JsonStore::open`] and [`SqliteStore::open`]. A directory that had an archive before, which its file
    /// `.archive` says, opens without it too: while the archive is gone or cannot be read, the store works without it,
    /// and [`HybridStore::archive_error`] returns the reason. The archive is never replaced by an empty one.
    pub async fn open(directory: impl AsRef<Path>, database: impl AsRef<Path>) -> Result<Self> {
        let (active, archive) = (JsonStore::open(directory).await?, SqliteStore::builder(database));
        let store = if active.has_archive().await? {
            let store = Self::new(active, archive.open_later()?);
            store.look_for_archive().await?;
            store
        } else {
            let archive = archive.build().await?;
            active.note_archive().await?;
            Self::new(active, archive)
        };
        for problem in store.active.problems().await? {
            if let (FileProblemKind::Damaged, Some(session)) = (&problem.kind, &problem.session)
                && store.is_archived(session).await.or_else(not_while_unreadable)?
            {
                // A link or a directory cannot be set aside, and stays reported.
                store.active.set_one_aside(session).await.ok();
            }
        }
        // One session whose move cannot be finished must not keep all others away.
        store.recover().await.ok();
        Ok(store)
    }

    /// Opens an archive that must exist, and notes its error if it cannot be read.
    async fn look_for_archive(&self) -> Result<()> {
        match self.archive.query(&SessionFilter::all().page(0, 1)).await {
            Err(error) if is_unreadable(&error) => self.note_trouble(Some(&error)),
            found => drop(found?),
        }
        self.active.note_archive().await
    }
}

impl<A: ActiveStore + 'static, B: ArchiveStore + 'static> HybridStore<A, B> {
    /// Joins two stores of any kind. Call [`HybridStore::recover`] when a process that used them may have died.
    #[must_use]
    pub fn new(active: A, archive: B) -> Self {
        Self {
            active: Arc::new(active),
            archive: Arc::new(archive),
            moving: Arc::default(),
            trouble: Arc::default(),
        }
    }

    /// Returns the store of active sessions.
    #[must_use]
    pub fn active(&self) -> &A {
        &self.active
    }

    /// Returns the store of archived sessions. It also has the copies of failed moves, which the hybrid store does not
    /// show.
    #[must_use]
    pub fn archived(&self) -> &B {
        &self.archive
    }

    /// Returns the error for which the newest list has none of the archive's sessions, or lacks one that was moved
    /// there; `None` if it has them.
    #[must_use]
    pub fn archive_error(&self) -> Option<Error> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.as_ref().map(ErrorRecord::to_error)
    }

    fn note_trouble(&self, error: Option<&Error>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = error.map(Error::record);
    }

    async fn is_active(&self, session: &SessionId) -> Result<bool> {
        Ok(!self.active.query(&SessionFilter::id(session.clone())).await?.is_empty())
    }

    /// Returns true if the archive has the session, and not a mere copy.
    async fn is_archived(&self, session: &SessionId) -> Result<bool> {
        let found = self.archive.query(&SessionFilter::id(session.clone())).await?;
        Ok(!found.is_empty() && !self.active.is_copy(session).await?)
    }

    /// Returns the archive, for a session that is not active; an error if it has a mere copy.
    async fn archive_of(&self, session: &SessionId) -> Result<&B> {
        if self.active.is_copy(session).await? { Err(Error::no_session(session)) } else { Ok(&self.archive) }
    }

    /// Returns true if a new session belongs in the archive: it is there already, or its parent is not active.
    async fn is_born_archived(&self, batch: &Batch) -> Result<bool> {
        let Some(record) = &batch.create else { return Ok(false) };
        if self.is_active(&record.id).await? {
            return Ok(false);
        }
        match self.is_archived(&record.id).await {
            Ok(true) => return Ok(true),
            // An unreadable archive must not stop new sessions.
            Err(error) if !is_unreadable(&error) => return Err(error),
            Ok(false) | Err(_) => {}
        }
        match &record.parent {
            Some(parent) => Ok(!self.is_active(parent).await?),
            None => Ok(false),
        }
    }

    async fn append_where_it_is(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        if self.is_born_archived(&batch).await? {
            return self.append_archived(session, expected, batch).await;
        }
        match self.active.append(session, expected, batch.clone()).await {
            Err(error) if is_missing(&error) => self.append_archived(session, expected, batch).await,
            appended => appended,
        }
    }

    async fn append_archived(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        if let Some(record) = &batch.create {
            if let Some(parent) = &record.parent {
                self.archive_of(parent).await?;
            }
            self.check_born(session).await?;
        }
        self.archive_of(session).await?.append(session, expected, batch).await
    }

    /// Returns the archive's matches of `filter` up to the end of its page, without active sessions.
    async fn query_archive(&self, filter: &SessionFilter, known: &Known) -> Result<Vec<SessionInfo>> {
        let wanted = filter.limit.map(|limit| filter.offset.saturating_add(limit));
        let mut filter = filter.clone();
        (filter.offset, filter.limit) = (0, wanted);
        loop {
            let mut found = self.archive.query(&filter).await?;
            let full = Some(found.len()) == filter.limit;
            found.retain(|info| !known.hides(&info.record.id));
            match (wanted, filter.limit) {
                // Copies of active sessions took the place of others: ask for as many more.
                (Some(wanted), Some(limit)) if full && found.len() < wanted => {
                    filter.limit = Some(limit.saturating_add(wanted - found.len()));
                }
                _ => return Ok(found),
            }
        }
    }

    async fn query_both(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        // The active ones first: a session that moves meanwhile is then found in both, never in neither.
        let known = Known::new(self.active.held().await?);
        let tree = filter.tree.as_ref().map(|root| known.tree(root).into_iter().collect::<HashSet<_>>());
        let active = known.sessions.values().filter(|held| !held.sealed).map(|held| &held.info);
        let inside = |info: &SessionInfo| tree.as_ref().is_none_or(|tree| tree.contains(&info.record.id));
        let archived = match self.query_archive(filter, &known).await {
            Err(error) if is_unreadable(&error) => {
                self.note_trouble(Some(&error));
                Vec::new()
            }
            found => {
                let found = found?;
                self.note_trouble(self.lost_move(&known, &found).await?.as_ref());
                found
            }
        };
        Ok(page(active.filter(|info| filter.admits(info) && inside(info)).chain(&archived), filter))
    }
}

#[async_trait]
impl<A: ActiveStore + 'static, B: ArchiveStore + 'static> SessionStore for HybridStore<A, B> {
    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        batch.check(session, expected)?;
        let (store, id) = (self.clone(), session.clone());
        owned(async move { store.append_where_it_is(&id, expected, batch).await }).await
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        match self.active.read(session, range).await {
            Err(error) if is_missing(&error) => self.archive_of(session).await?.read(session, range).await,
            read => read,
        }
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        let (Some(id), None) = (&filter.id, &filter.tree) else { return self.query_both(filter).await };
        if self.is_active(id).await? {
            self.active.query(filter).await
        } else if self.active.is_copy(id).await? {
            Ok(Vec::new())
        } else {
            self.archive.query(filter).await
        }
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        let (store, id) = (self.clone(), session.clone());
        owned(async move {
            match store.active.lease(&id, lease).await {
                Err(error) if is_missing(&error) => store.archive_of(&id).await?.lease(&id, lease).await,
                leased => leased,
            }
        })
        .await
    }

    async fn delete(&self, session: &SessionId) -> Result<u64> {
        let (store, id) = (self.clone(), session.clone());
        owned(async move { store.delete_both(&id).await }).await
    }
}

/// Returns false for the error of an unreadable store, of which nothing is known, and any other error as it is.
fn not_while_unreadable(error: Error) -> Result<bool> {
    if is_unreadable(&error) { Ok(false) } else { Err(error) }
}

fn is_missing(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

/// Returns true if the store cannot be used until somebody repairs it.
fn is_unreadable(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Store | ErrorKind::Corrupt | ErrorKind::NewerVersion)
        && error.retry() != RetryStatus::Temporary
        && !says_closed(error)
}

/// [`Holdings`], indexed for lookups.
struct Known {
    sessions: HashMap<SessionId, Held>,
    copies: HashSet<SessionId>,
    children: HashMap<SessionId, Vec<SessionId>>,
}

impl Known {
    fn new(held: Holdings) -> Self {
        let mut children: HashMap<_, Vec<_>> = HashMap::new();
        for record in held.sessions.iter().map(|held| &held.info.record) {
            if let Some(parent) = &record.parent {
                children.entry(parent.clone()).or_default().push(record.id.clone());
            }
        }
        let by_id = |held: Held| (held.info.record.id.clone(), held);
        let sessions = held.sessions.into_iter().map(by_id).collect();
        Self { sessions, copies: held.copies.into_iter().collect(), children }
    }

    /// Returns true if the archive's data of the session does not count.
    fn hides(&self, session: &SessionId) -> bool {
        match self.sessions.get(session) {
            Some(held) => !held.sealed,
            None => self.copies.contains(session),
        }
    }

    /// Returns a session and its held descendants, parents before children; the session itself also if it is not held.
    fn tree(&self, root: &SessionId) -> Vec<SessionId> {
        let (mut found, mut seen, mut next) = (vec![root.clone()], HashSet::from([root.clone()]), 0);
        while let Some(id) = found.get(next) {
            // Each once: parents may form a cycle in files that somebody edited.
            let below = self.children.get(id).into_iter().flatten();
            let below: Vec<_> = below.filter(|id| seen.insert((*id).clone())).cloned().collect();
            found.extend(below);
            next += 1;
        }
        found
    }

    /// Returns the held sessions of a tree.
    fn members<'a>(&'a self, tree: &'a [SessionId]) -> impl Iterator<Item = &'a Held> {
        tree.iter().filter_map(|id| self.sessions.get(id))
    }

    /// Returns the sessions without a held parent, sorted.
    fn roots(&self) -> Vec<SessionId> {
        let is_top = |held: &&Held| {
            held.info.record.parent.as_ref().is_none_or(|parent| !self.sessions.contains_key(parent))
        };
        let mut roots: Vec<_> =
            self.sessions.values().filter(is_top).map(|held| held.info.record.id.clone()).collect();
        roots.sort();
        roots
    }
}
