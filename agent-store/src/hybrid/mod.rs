//! Active sessions in one store, completed ones in another: what callers see is one store.
//!
//! Which of the two answers is decided here; `archive` moves sessions. Nothing here knows how either keeps its data.

mod archive;

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, RunId, SessionId,
    session::{Batch, Lease, ReadRange, Row, SessionFilter, SessionInfo, SessionStore},
};
use tokio::sync::Mutex;

use crate::{JsonStore, ProblemKind, SqliteStore, listing::page, owned::owned};

/// A store that [`HybridStore`] can move sessions out of.
///
/// A session is sealed as the turning point of its move: from then on [`SessionStore`]'s methods know it no more
/// ([`ErrorKind::NotFound`], not listed, no parent to anybody), but for `delete`, which removes it without counting it.
/// Its children that are not sealed stay.
#[async_trait]
pub trait ActiveStore: SessionStore {
    /// Every session that has data here, sealed ones too, in any order.
    async fn held(&self) -> Result<Vec<Held>>;

    /// Batches with events after `after`, as they were appended and in order; the first one of a session carries its
    /// record. At least one if there is one; the page may end once it holds `events` events.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when there is no such session or it is sealed.
    async fn batches(&self, session: &SessionId, after: u64, events: usize) -> Result<Vec<Batch>>;

    /// Seals the session if its newest event has the number `expected`. Durable like an append.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when the number differs, [`ErrorKind::NotFound`] as for `batches`.
    async fn seal(&self, session: &SessionId, expected: u64) -> Result<()>;
}

/// A session that an [`ActiveStore`] has data of.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// What lists show of it.
    pub info: SessionInfo,
    /// Whether it was moved and only waits to be deleted.
    pub sealed: bool,
}

impl Held {
    /// A session as an [`ActiveStore`] holds it.
    #[must_use]
    pub fn new(info: SessionInfo, sealed: bool) -> Self {
        Self { info, sealed }
    }
}

/// Keeps active sessions in files of JSON lines and moves completed ones to an SQLite archive.
///
/// New sessions are files. [`HybridStore::archive`] and [`HybridStore::archive_idle`] move whole trees to the archive;
/// nothing moves by itself. An archived session stays usable: appending goes on in the archive, and so do children that
/// are created below it.
///
/// # How a tree moves
/// The mover takes the lease of each session, copies the batches to the archive with their writers (so appending one of
/// them again still stores nothing) and with the lease that was there before, seals the files, and deletes them. Until a file is sealed it alone counts, from then
/// on the archive wins; so each session is in one place at any moment, is listed once, and no append is lost. A move that
/// was cut short at any point is finished by calling it again, or by [`HybridStore::recover`], which `open` does.
///
/// Several of these may use the same directory and database, except that a tree must not be deleted by one process while
/// another one archives it: a part of it may stay in the archive, until it is deleted again.
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
    /// As whom this store holds leases.
    owner: u64,
    /// Held while sessions are moved or deleted.
    moving: Arc<Mutex<()>>,
}

impl<A, B> Clone for HybridStore<A, B> {
    fn clone(&self) -> Self {
        Self {
            active: Arc::clone(&self.active),
            archive: Arc::clone(&self.archive),
            owner: self.owner,
            moving: Arc::clone(&self.moving),
        }
    }
}

impl HybridStore {
    /// Opens the directory of active sessions and the archive, creating what is missing (but not what is above them),
    /// finishes moves that were cut short, and sets damaged files aside: `store.active().problems()` names them.
    ///
    /// # Errors
    /// As [`JsonStore::open`] and [`SqliteStore::open`].
    pub async fn open(directory: impl Into<PathBuf>, database: impl Into<PathBuf>) -> Result<Self> {
        let store = Self::new(JsonStore::open(directory).await?, SqliteStore::open(database).await?);
        for problem in store.active.problems().await? {
            if let (ProblemKind::Damaged, Some(session)) = (&problem.kind, &problem.session) {
                // What is no file cannot be moved, and stays reported as it is.
                store.active.set_aside(session).await.ok();
            }
        }
        store.recover().await?;
        Ok(store)
    }
}

impl<A: ActiveStore + 'static, B: SessionStore + 'static> HybridStore<A, B> {
    /// Joins two stores of any kind. Call [`HybridStore::recover`] when a process that used them may have died.
    #[must_use]
    pub fn new(active: A, archive: B) -> Self {
        // The bits of a version 7 id that follow the time and the version are random.
        let owner = u64::try_from(RunId::generate().as_u128() & u128::from(u64::MAX)).unwrap_or_default();
        Self { active: Arc::new(active), archive: Arc::new(archive), owner, moving: Arc::default() }
    }

    /// Where sessions are until they are moved.
    #[must_use]
    pub fn active(&self) -> &A {
        &self.active
    }

    /// Where they are then.
    #[must_use]
    pub fn archived(&self) -> &B {
        &self.archive
    }

    async fn is_active(&self, session: &SessionId) -> Result<bool> {
        Ok(!self.active.query(&SessionFilter::id(session.clone())).await?.is_empty())
    }

    async fn is_archived(&self, session: &SessionId) -> Result<bool> {
        Ok(!self.archive.query(&SessionFilter::id(session.clone())).await?.is_empty())
    }

    /// Whether a new session belongs in the archive: it is there, or its parent is.
    async fn is_born_archived(&self, batch: &Batch) -> Result<bool> {
        let Some(record) = &batch.create else { return Ok(false) };
        if self.is_active(&record.id).await? {
            return Ok(false);
        }
        if self.is_archived(&record.id).await? {
            return Ok(true);
        }
        match &record.parent {
            Some(parent) => Ok(!self.is_active(parent).await?),
            None => Ok(false),
        }
    }

    async fn append_where_it_is(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        if self.is_born_archived(&batch).await? {
            return self.archive.append(session, expected, batch).await;
        }
        match self.active.append(session, expected, batch.clone()).await {
            Err(error) if is_missing(&error) => self.archive.append(session, expected, batch).await,
            appended => appended,
        }
    }

    async fn delete_both(&self, session: &SessionId) -> Result<u64> {
        let _moving = self.moving.lock().await;
        let held = by_id(self.active.held().await?);
        let copies = self.archive.query(&SessionFilter::tree(session.clone())).await?;
        let is_active = |copy: &&SessionInfo| held.get(&copy.record.id).is_some_and(|held| !held.sealed);
        let twice = copies.iter().filter(is_active).count() as u64;
        // The files last: as long as one is there, its copy in the archive does not count for more.
        let archived = self.archive.delete(session).await?;
        let active = self.active.delete(session).await?;
        Ok((archived + active).saturating_sub(twice))
    }

    /// The archive's answer to `filter`, from the first on, without the sessions that are still active.
    async fn query_archive(
        &self,
        filter: &SessionFilter,
        active: &HashMap<SessionId, Held>,
    ) -> Result<Vec<SessionInfo>> {
        let wanted = filter.limit.map(|limit| filter.offset.saturating_add(limit));
        let mut filter = filter.clone();
        (filter.offset, filter.limit) = (0, wanted);
        loop {
            let mut found = self.archive.query(&filter).await?;
            let full = Some(found.len()) == filter.limit;
            found.retain(|info| active.get(&info.record.id).is_none_or(|held| held.sealed));
            match (wanted, filter.limit) {
                // Copies of active sessions took the place of others: ask for as many more.
                (Some(wanted), Some(limit)) if full && found.len() < wanted => {
                    filter.limit = Some(limit.saturating_add(wanted - found.len()));
                }
                _ => return Ok(found),
            }
        }
    }
}

#[async_trait]
impl<A: ActiveStore + 'static, B: SessionStore + 'static> SessionStore for HybridStore<A, B> {
    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        batch.check(session, expected)?;
        let (store, id) = (self.clone(), session.clone());
        owned(async move { store.append_where_it_is(&id, expected, batch).await }).await
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        match self.active.read(session, range).await {
            Err(error) if is_missing(&error) => self.archive.read(session, range).await,
            read => read,
        }
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        if let (Some(id), None) = (&filter.id, &filter.tree) {
            let active = self.is_active(id).await?;
            return if active { self.active.query(filter).await } else { self.archive.query(filter).await };
        }
        // The active ones first: what moves meanwhile is then found in both, never in neither.
        let held = by_id(self.active.held().await?);
        let tree =
            filter.tree.as_ref().map(|root| archive::tree(&held, root).into_iter().collect::<HashSet<_>>());
        let mut found: Vec<_> = held
            .values()
            .filter(|held| !held.sealed && filter.admits(&held.info))
            .filter(|held| tree.as_ref().is_none_or(|tree| tree.contains(&held.info.record.id)))
            .map(|held| held.info.clone())
            .collect();
        found.extend(self.query_archive(filter, &held).await?);
        Ok(page(found, filter))
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        let (store, id) = (self.clone(), session.clone());
        owned(async move {
            match store.active.lease(&id, lease).await {
                Err(error) if is_missing(&error) => store.archive.lease(&id, lease).await,
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

fn is_missing(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

fn by_id(held: Vec<Held>) -> HashMap<SessionId, Held> {
    held.into_iter().map(|held| (held.info.record.id.clone(), held)).collect()
}
