//! Sessions in one SQLite file: the operations of a store.
//!
//! One connection writes (`append`) and a few read. Nothing here decides whether a file may be used (`open`, `schema`)
//! or knows how a value is spelled in a column (`rows`).

mod append;
mod error;
mod file;
mod open;
mod rows;
mod schema;

pub use open::SqliteBuilder;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use entourage_core::{
    Error, Result, SessionId,
    session::{Batch, Lease, ReadRange, Row, SessionFilter, SessionInfo, SessionStore},
};
use sqlx::{QueryBuilder, Row as _, Sqlite, SqliteConnection, SqlitePool, sqlite::SqliteRow};

use crate::sql::{
    self, Failure, LeaseColumns, SESSION_COLUMNS, clamped, unsigned,
    write::{Appended, Leased},
};
use append::{append, take_lease};
use error::Explain;
use rows::Encoded;

/// Keeps sessions in an SQLite database.
///
/// Several stores, in one process or in several, may use the same file: of writers that race, one wins, the others get
/// [`ErrorKind::Conflict`](entourage_core::ErrorKind::Conflict). Readers see whole batches and never wait for a writer.
///
/// # Cancel safety
/// An operation whose future is dropped happened completely or not at all, and the store stays usable.
#[derive(Clone)]
pub struct SqliteStore {
    path: Arc<Path>,
    writer: SqlitePool,
    readers: SqlitePool,
}

impl SqliteStore {
    /// Opens the database at `path` with the default options; see [`SqliteBuilder::open`].
    ///
    /// # Errors
    /// As [`SqliteBuilder::open`].
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self> {
        Self::builder(path).open().await
    }

    /// Options for the database at `path`.
    pub fn builder(path: impl Into<PathBuf>) -> SqliteBuilder {
        SqliteBuilder::new(path)
    }

    /// Where the database is, absolute; `:memory:` for one in memory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for operations under way, writes the log back into the file and closes it, for all clones of this store.
    /// Dropping the last clone closes it too, a moment later.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }

    fn new(path: Arc<Path>, writer: SqlitePool, readers: SqlitePool) -> Self {
        Self { path, writer, readers }
    }

    async fn write(&self, session: &SessionId, batch: Encoded) -> Result<Appended, Failure> {
        // The lock is taken at once: a transaction that reads first and then wants to write could fail in between.
        // Dropped before the commit, it rolls back before anybody else gets the connection.
        let mut transaction = self.writer.begin_with("BEGIN IMMEDIATE").await?;
        let appended = append(&mut transaction, session, batch).await?;
        if let Appended::Stored(_) = appended {
            transaction.commit().await?;
        } else {
            transaction.rollback().await?;
        }
        Ok(appended)
    }

    async fn window(&self, session: &SessionId, range: ReadRange) -> Result<Option<Vec<Row>>, Failure> {
        let mut connection = self.readers.acquire().await?;
        let found = loop {
            let found = sqlx::query(
                "SELECT seq, at, kind, run, agent, body FROM events WHERE session = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
            )
            .bind(session.as_str())
            .bind(clamped(range.after))
            .bind(range.limit.map_or(-1, clamped))
            .fetch_all(&mut *connection)
            .await?;
            if !found.is_empty() {
                break found;
            }
            match newest(&mut connection, session).await? {
                None => return Ok(None),
                // Somebody appended in between: nothing is not what there was to read.
                Some(newest) if newest > range.after && range.limit != Some(0) => {}
                Some(_) => break found,
            }
        };
        let rows = found.iter().map(rows::event).collect::<Result<Vec<_>, _>>()?;
        for (expected, row) in (range.after.saturating_add(1)..=u64::MAX).zip(&rows) {
            if row.seq() != expected {
                return Err(Failure::damaged(format!("event {} where event {expected} belongs", row.seq())));
            }
        }
        Ok(Some(rows))
    }

    async fn list(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>, Failure> {
        let mut query = QueryBuilder::<Sqlite>::new("SELECT ");
        query.push(SESSION_COLUMNS).push(" FROM sessions WHERE true");
        if let Some(id) = &filter.id {
            query.push(" AND id = ").push_bind(id.as_str());
        }
        match &filter.parent {
            Some(Some(parent)) => query.push(" AND parent = ").push_bind(parent.as_str()),
            Some(None) => query.push(" AND parent IS NULL"),
            None => &mut query,
        };
        if let Some(status) = filter.status {
            query.push(" AND status = ").push_bind(status.as_str());
        }
        if let Some(prefix) = &filter.prefix {
            // Bytes decide in both comparisons, and no id holds the last character that there is.
            query.push(" AND id >= ").push_bind(&**prefix);
            query.push(" AND id < ").push_bind(format!("{prefix}{}", char::MAX));
        }
        if let Some(root) = &filter.tree {
            query.push(" AND id IN (WITH RECURSIVE tree (id) AS (SELECT id FROM sessions WHERE id = ");
            query.push_bind(root.as_str());
            query.push(" UNION SELECT child.id FROM sessions AS child JOIN tree ON child.parent = tree.id) ");
            query.push("SELECT id FROM tree)");
        }
        query.push(" ORDER BY updated DESC, id LIMIT ").push_bind(filter.limit.map_or(-1, clamped));
        query.push(" OFFSET ").push_bind(clamped(filter.offset));
        let found = query.build().fetch_all(&self.readers).await?;
        let of_row = |row: &SqliteRow, failure: Failure| failure.of_session(row.try_get("id").ok());
        found
            .iter()
            .map(|row| sql::session(row, |text| Ok(text.into())).map_err(|failure| of_row(row, failure)))
            .collect()
    }

    async fn take(&self, session: &SessionId, lease: LeaseColumns) -> Result<Leased, Failure> {
        let mut transaction = self.writer.begin_with("BEGIN IMMEDIATE").await?;
        let leased = take_lease(&mut transaction, session, lease).await?;
        transaction.commit().await?;
        Ok(leased)
    }

    async fn remove(&self, session: &SessionId) -> Result<u64, Failure> {
        let mut transaction = self.writer.begin_with("BEGIN IMMEDIATE").await?;
        let tree: Vec<String> = sqlx::query_scalar(
            "WITH RECURSIVE tree (id) AS (SELECT id FROM sessions WHERE id = ?1 UNION \
             SELECT child.id FROM sessions AS child JOIN tree ON child.parent = tree.id) SELECT id FROM tree",
        )
        .bind(session.as_str())
        .fetch_all(&mut *transaction)
        .await?;
        // The deepest first: SQLite bounds how deep one delete may cascade.
        for id in tree.iter().rev() {
            sqlx::query("DELETE FROM sessions WHERE id = ?1")
                .bind(id.as_str())
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await?;
        Ok(clamped(tree.len()).unsigned_abs())
    }
}

#[async_trait]
impl SessionStore for SqliteStore {
    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        const OPERATION: &str = "store.append";
        batch.check(session, expected)?;
        let batch = Encoded::new(expected, batch)
            .map_err(|error| error.during(OPERATION).with("session", session.as_str()))?;
        match self.write(session, batch).await {
            Ok(appended) => appended.told(OPERATION, session, expected),
            Err(failure) => Err(failure.explain_session(OPERATION, &self.path, session)),
        }
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        const OPERATION: &str = "store.read";
        match self.window(session, range).await {
            Ok(Some(rows)) => Ok(rows),
            Ok(None) => Err(Error::no_session(session).during(OPERATION)),
            Err(failure) => Err(failure.explain_session(OPERATION, &self.path, session)),
        }
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        self.list(filter).await.map_err(|failure| failure.explain("store.query", &self.path))
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        const OPERATION: &str = "store.lease";
        let lease = LeaseColumns::new(lease)
            .map_err(|error| error.during(OPERATION).with("session", session.as_str()))?;
        match self.take(session, lease).await {
            Ok(leased) => leased.told(OPERATION, session),
            Err(failure) => Err(failure.explain_session(OPERATION, &self.path, session)),
        }
    }

    async fn delete(&self, session: &SessionId) -> Result<u64> {
        self.remove(session)
            .await
            .map_err(|failure| failure.explain_session("store.delete", &self.path, session))
    }
}

/// The number of a session's newest event.
async fn newest(db: &mut SqliteConnection, session: &SessionId) -> Result<Option<u64>, Failure> {
    let seq: Option<i64> = sqlx::query_scalar("SELECT seq FROM sessions WHERE id = ?1")
        .bind(session.as_str())
        .fetch_optional(db)
        .await?;
    seq.map(|seq| unsigned("seq", seq)).transpose()
}
