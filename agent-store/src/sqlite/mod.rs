//! Sessions in one SQLite file: the operations of a store.
//!
//! One connection writes (`append`, in a `transaction`) and a few read (`read`); each operation runs in a task of its
//! own. Nothing here decides whether a file may be used (`open`, `schema`), notices that it changed (`place`) or knows
//! how a value is spelled in a column (`rows`).

mod append;
mod error;
mod file;
mod open;
mod place;
mod read;
mod rows;
mod schema;
mod transaction;
mod version;
mod views;

pub use open::SqliteBuilder;

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use entourage_core::{
    Error, Result, SessionId,
    session::{Batch, Lease, ReadRange, Row, SessionFilter, SessionInfo, SessionStore},
};

use crate::{
    owned::owned,
    sql::{
        Failure, LeaseColumns,
        views::ViewSet,
        write::{Appended, Leased},
    },
};
use append::{append, remove, take_lease};
use error::Explain;
use place::Place;
use rows::Encoded;
use transaction::Transaction;

/// Keeps sessions in an SQLite database.
///
/// Several stores, in one process or in several, may use the same file: of writers that race, one wins, the others get
/// [`ErrorKind::Conflict`](entourage_core::ErrorKind::Conflict). Readers see whole batches and never wait for a writer.
///
/// # When the disk fails
/// An operation that meets a full or broken disk fails and stores nothing; the next one uses a new connection. While
/// the file is missing from its path, every operation fails; they work again once the file, or a copy of it, is back.
///
/// # Cancel safety
/// Once polled, an operation completes without its caller, entirely or not at all. A future that is dropped or no
/// longer polled blocks no other operation.
#[derive(Clone)]
pub struct SqliteStore {
    place: Arc<Place>,
}

impl SqliteStore {
    /// Opens the database at `path` with the default options; see [`SqliteBuilder::build`].
    ///
    /// # Errors
    /// As [`SqliteBuilder::build`].
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder(path).build().await
    }

    /// Returns the options for the database at `path`.
    pub fn builder(path: impl AsRef<Path>) -> SqliteBuilder {
        SqliteBuilder::new(path)
    }

    /// Returns the absolute path of the database; `:memory:` for one in memory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.place.path
    }

    /// Waits for operations in flight, writes the log back into the file and closes it, for all clones of this store.
    /// Dropping the last clone closes it too, a moment later.
    pub async fn close(&self) {
        self.place.close().await;
    }

    /// Installs views for plain SQL, such as those of a runner (`VIEWS.sqlite` of its module): the name of their
    /// set, its version, and the name and the `SELECT` of each view. A text may read the tables, the views of the
    /// store and earlier views of its set. Returns the version that is there then.
    ///
    /// Call it after each opening: it does nothing if the set is there, and takes the place of an older version, or
    /// of other texts of the same one. A newer version, of another program, stays. A migration of the tables drops
    /// installed views, until the next call.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](entourage_core::ErrorKind::InvalidInput) for a name of a view that does not
    /// begin with its set's and an underscore, and for a text that the database does not take;
    /// [`ErrorKind::Conflict`](entourage_core::ErrorKind::Conflict) if something else has the name of a view. All
    /// views are installed, or nothing changes.
    pub async fn install_views(
        &self,
        set: &'static str,
        version: u32,
        views: &'static [(&'static str, &'static str)],
    ) -> Result<u32> {
        let set = ViewSet::new(set, version, views)?;
        let place = Arc::clone(&self.place);
        let installed = owned(async move { install(&place, &set).await }).await;
        installed.map_err(|failure| failure.explain("store.install_views", self.path()))
    }

    fn new(place: Place) -> Self {
        Self { place: Arc::new(place) }
    }
}

async fn write(place: &Place, session: &SessionId, batch: Encoded) -> Result<Appended, Failure> {
    let mut transaction = Transaction::begin(place).await?;
    let appended = append(transaction.db()?, session, batch).await;
    transaction.end(appended.map(|it| (it, matches!(it, Appended::Stored(_))))).await
}

async fn take(place: &Place, session: &SessionId, lease: LeaseColumns) -> Result<Leased, Failure> {
    let mut transaction = Transaction::begin(place).await?;
    let leased = take_lease(transaction.db()?, session, lease).await;
    transaction.end(leased.map(|it| (it, it == Leased::Taken))).await
}

async fn delete(place: &Place, session: &SessionId) -> Result<u64, Failure> {
    let mut transaction = Transaction::begin(place).await?;
    let deleted = remove(transaction.db()?, session).await;
    transaction.end(deleted.map(|it| (it, true))).await
}

async fn install(place: &Place, set: &ViewSet) -> Result<u32, Failure> {
    let mut held = place.reader().await?;
    let kept = views::kept(held.connection()?, set).await;
    if let Some(version) = held.settle(kept).await? {
        return Ok(version);
    }
    let mut transaction = Transaction::begin(place).await?;
    let installed = views::install(transaction.db()?, set).await;
    transaction.end(installed).await
}

async fn window(place: &Place, session: &SessionId, range: ReadRange) -> Result<Option<Vec<Row>>, Failure> {
    let mut held = place.reader().await?;
    let found = read::window(held.connection()?, session, range).await;
    held.settle(found).await
}

async fn list(place: &Place, filter: &SessionFilter) -> Result<Vec<SessionInfo>, Failure> {
    let mut held = place.reader().await?;
    let found = read::list(held.connection()?, filter).await;
    held.settle(found).await
}

#[async_trait]
impl SessionStore for SqliteStore {
    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        const OPERATION: &str = "store.append";
        batch.check(session, expected)?;
        let batch = Encoded::new(expected, batch)
            .map_err(|error| error.during(OPERATION).with("session", session.as_str()))?;
        let (place, of) = (Arc::clone(&self.place), session.clone());
        match owned(async move { write(&place, &of, batch).await }).await {
            Ok(appended) => appended.told(OPERATION, session, expected),
            Err(failure) => Err(failure.explain_session(OPERATION, self.path(), session)),
        }
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        const OPERATION: &str = "store.read";
        let (place, of) = (Arc::clone(&self.place), session.clone());
        match owned(async move { window(&place, &of, range).await }).await {
            Ok(Some(rows)) => Ok(rows),
            Ok(None) => Err(Error::no_session(session).during(OPERATION)),
            Err(failure) => Err(failure.explain_session(OPERATION, self.path(), session)),
        }
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        let (place, filter) = (Arc::clone(&self.place), filter.clone());
        let found = owned(async move { list(&place, &filter).await }).await;
        found.map_err(|failure| failure.explain("store.query", self.path()))
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        const OPERATION: &str = "store.lease";
        let lease = LeaseColumns::new(lease)
            .map_err(|error| error.during(OPERATION).with("session", session.as_str()))?;
        let (place, of) = (Arc::clone(&self.place), session.clone());
        match owned(async move { take(&place, &of, lease).await }).await {
            Ok(leased) => leased.told(OPERATION, session),
            Err(failure) => Err(failure.explain_session(OPERATION, self.path(), session)),
        }
    }

    async fn delete(&self, session: &SessionId) -> Result<u64> {
        let (place, of) = (Arc::clone(&self.place), session.clone());
        let deleted = owned(async move { delete(&place, &of).await }).await;
        deleted.map_err(|failure| failure.explain_session("store.delete", self.path(), session))
    }
}

#[cfg(test)]
mod tests;
