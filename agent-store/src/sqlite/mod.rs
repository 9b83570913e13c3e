//! Sessions in one SQLite file: the four operations of a store.
//!
//! One connection writes and a few read. Nothing here decides whether a file may be used (`open`, `schema`) or knows
//! how a value is spelled in a column (`rows`).

mod error;
mod file;
mod open;
mod rows;
mod schema;

pub use open::{Durability, SqliteBuilder};

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, SessionId,
    session::{Batch, ReadRange, Row, SessionFilter, SessionInfo, SessionRecord, SessionStore},
};
use sqlx::{QueryBuilder, Sqlite, SqliteConnection, SqlitePool};

use error::Failure;
use rows::{Encoded, SESSION_COLUMNS, clamped, unsigned};

/// Keeps sessions in an SQLite database.
///
/// Several stores, in one process or in several, may use the same file: of writers that race, one wins, the others get
/// [`ErrorKind::Conflict`]. Readers see whole batches and never wait for a writer.
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
        let found = sqlx::query(
            "SELECT seq, at, kind, run, agent, body FROM events WHERE session = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
        )
        .bind(session.as_str())
        .bind(clamped(range.after))
        .bind(range.limit.map_or(-1, clamped))
        .fetch_all(&mut *connection)
        .await?;
        if found.is_empty() && !exists(&mut connection, session).await? {
            return Ok(None);
        }
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
        query.push(" ORDER BY updated DESC, id LIMIT ").push_bind(filter.limit.map_or(-1, clamped));
        query.push(" OFFSET ").push_bind(clamped(filter.offset));
        let found = query.build().fetch_all(&self.readers).await?;
        found.iter().map(|row| rows::session(row).map_err(|failure| failure.of_row(row))).collect()
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
        let batch = Encoded::new(expected, batch).map_err(|error| error.with("session", session.as_str()))?;
        match self.write(session, batch).await {
            Ok(Appended::Stored(seq) | Appended::Before(seq)) => Ok(seq),
            Ok(Appended::TooLate(actual)) => Err(Error::append_conflict(session, expected, actual)),
            Ok(Appended::NoSession) => Err(Error::no_session(session).during(OPERATION)),
            Ok(Appended::NoParent) => Err(Error::new(
                ErrorKind::NotFound,
                "the parent session does not exist; create it first, or start the session as a root",
            )
            .during(OPERATION)
            .with("session", session.as_str())),
            Err(failure) => Err(failure.into_session_error(OPERATION, &self.path, session)),
        }
    }

    async fn read(&self, session: &SessionId, range: ReadRange) -> Result<Vec<Row>> {
        const OPERATION: &str = "store.read";
        match self.window(session, range).await {
            Ok(Some(rows)) => Ok(rows),
            Ok(None) => Err(Error::no_session(session).during(OPERATION)),
            Err(failure) => Err(failure.into_session_error(OPERATION, &self.path, session)),
        }
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        self.list(filter).await.map_err(|failure| failure.into_error("store.query", &self.path))
    }

    async fn delete(&self, session: &SessionId) -> Result<u64> {
        self.remove(session)
            .await
            .map_err(|failure| failure.into_session_error("store.delete", &self.path, session))
    }
}

/// What an append came to. Each number is the newest event's.
enum Appended {
    Stored(u64),
    /// The same batch had been stored before.
    Before(u64),
    TooLate(u64),
    NoSession,
    NoParent,
}

async fn append(db: &mut SqliteConnection, session: &SessionId, batch: Encoded) -> Result<Appended, Failure> {
    if batch.create.is_none() && update_head(db, session, &batch).await? {
        return insert_events(db, session, batch).await;
    }
    let seq: Option<i64> = sqlx::query_scalar("SELECT seq FROM sessions WHERE id = ?1")
        .bind(session.as_str())
        .fetch_optional(&mut *db)
        .await?;
    match (seq, &batch.create) {
        (Some(seq), _) => {
            let seq = unsigned("seq", seq)?;
            Ok(if stored_before(db, session, &batch).await? {
                Appended::Before(seq)
            } else {
                Appended::TooLate(seq)
            })
        }
        (None, None) => Ok(Appended::NoSession),
        (None, Some(record)) => {
            if let Some(parent) = &record.parent
                && !exists(db, parent).await?
            {
                return Ok(Appended::NoParent);
            }
            insert_session(db, record, &batch).await?;
            insert_events(db, session, batch).await
        }
    }
}

/// Replaces the head if the session is where the batch expects it to be.
async fn update_head(
    db: &mut SqliteConnection,
    session: &SessionId,
    batch: &Encoded,
) -> Result<bool, Failure> {
    let statement = sqlx::query(
        "UPDATE sessions SET seq = ?2, status = ?3, run = ?4, agent = ?5, title = ?6, messages = ?7, \
         input_tokens = ?8, output_tokens = ?9, cache_read_tokens = ?10, cache_write_tokens = ?11, \
         reasoning_tokens = ?12, cost_pico = ?13, updated = ?14 WHERE id = ?1 AND seq = ?15",
    );
    let updated = batch.bind_head(statement, session).bind(batch.expected).execute(db).await?;
    Ok(updated.rows_affected() == 1)
}

async fn insert_session(
    db: &mut SqliteConnection,
    record: &SessionRecord,
    batch: &Encoded,
) -> Result<(), Failure> {
    let statement = sqlx::query(
        "INSERT INTO sessions (id, seq, status, run, agent, title, messages, input_tokens, output_tokens, \
         cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_pico, updated, parent, role, created) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
    );
    batch
        .bind_head(statement, &record.id)
        .bind(record.parent.as_ref().map(SessionId::as_str))
        .bind(&*record.role)
        .bind(record.created.as_micros())
        .execute(db)
        .await?;
    Ok(())
}

async fn insert_events(
    db: &mut SqliteConnection,
    session: &SessionId,
    batch: Encoded,
) -> Result<Appended, Failure> {
    let seq = unsigned("seq", batch.seq())?;
    for event in batch.events {
        let statement = sqlx::query(
            "INSERT INTO events (session, writer, seq, at, kind, run, agent, body) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        );
        event.bind(statement.bind(session.as_str()).bind(batch.writer)).execute(&mut *db).await?;
    }
    Ok(Appended::Stored(seq))
}

/// Whether all events of the batch are there and are this writer's.
async fn stored_before(
    db: &mut SqliteConnection,
    session: &SessionId,
    batch: &Encoded,
) -> Result<bool, Failure> {
    let known: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM events WHERE session = ?1 AND seq > ?2 AND seq <= ?3 AND writer = ?4",
    )
    .bind(session.as_str())
    .bind(batch.expected)
    .bind(batch.seq())
    .bind(batch.writer)
    .fetch_one(db)
    .await?;
    Ok(known == clamped(batch.events.len()))
}

async fn exists(db: &mut SqliteConnection, session: &SessionId) -> Result<bool, Failure> {
    let found: i64 = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM sessions WHERE id = ?1)")
        .bind(session.as_str())
        .fetch_one(db)
        .await?;
    Ok(found != 0)
}
