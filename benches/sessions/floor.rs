//! The floor of appending: the same rows with prepared bodies, through one bare connection.

use std::path::Path;

use entourage_core::session::{Batch, Columns, Lease, SessionHead};
use sqlx::{
    ConnectOptions, Connection, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteSynchronous},
};

/// A batch with prepared rows.
#[derive(Debug)]
pub(crate) struct Made {
    expected: i64,
    rows: Vec<(Columns, String)>,
    head: SessionHead,
    lease: Lease,
    writer: i64,
}

impl Made {
    pub(crate) fn new((expected, batch): (u64, Batch)) -> Self {
        let made = batch.rows.iter().map(|row| (row.columns(), row.body().unwrap().into_owned()));
        Self {
            expected: expected as i64,
            rows: made.collect(),
            head: batch.head,
            lease: batch.lease.unwrap(),
            writer: batch.writer as i64,
        }
    }
}

/// Opens a database whose tables the store made, with the store's pragmas.
pub(crate) async fn open(path: &Path, durable: bool) -> SqliteConnection {
    let synchronous = if durable { SqliteSynchronous::Full } else { SqliteSynchronous::Normal };
    let options = SqliteConnectOptions::new().filename(path).foreign_keys(true).synchronous(synchronous);
    let mut db = SqliteConnection::connect_with(&options.disable_statement_logging()).await.unwrap();
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut db).await.unwrap();
    assert_eq!(mode, "wal");
    db
}

pub(crate) async fn append(db: &mut SqliteConnection, session: &str, made: Made) {
    let mut transaction = db.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let Made { expected, rows, head, lease, writer } = made;
    let tokens = |count: Option<u64>| count.map(|count| count as i64);
    let updated = sqlx::query(
        "UPDATE sessions SET seq = ?2, status = ?3, run = ?4, agent = ?5, title = ?6, messages = ?7, \
         input_tokens = ?8, output_tokens = ?9, cache_read_tokens = ?10, cache_write_tokens = ?11, \
         reasoning_tokens = ?12, cost_pico = ?13, updated = ?14, checkpoint = ?15, lease_owner = ?16, \
         lease_generation = ?17, lease_until = ?18 WHERE id = ?1 AND seq = ?19",
    )
    .bind(session)
    .bind(head.seq as i64)
    .bind(head.status.as_str())
    .bind(head.run.map(|run| run.to_string()))
    .bind(&*head.agent)
    .bind(&*head.title)
    .bind(head.messages as i64)
    .bind(tokens(head.usage.input))
    .bind(tokens(head.usage.output))
    .bind(tokens(head.usage.cache_read))
    .bind(tokens(head.usage.cache_write))
    .bind(tokens(head.usage.reasoning))
    .bind(head.cost.map(|cost| cost.as_pico() as i64))
    .bind(head.updated.as_micros())
    .bind(head.checkpoint as i64)
    .bind(lease.owner as i64)
    .bind(lease.generation as i64)
    .bind(lease.until.as_micros())
    .bind(expected)
    .execute(&mut *transaction)
    .await
    .unwrap();
    assert_eq!(updated.rows_affected(), 1);
    for (columns, body) in rows {
        sqlx::query(
            "INSERT INTO events (session, writer, seq, at, kind, run, agent, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )
        .bind(session)
        .bind(writer)
        .bind(columns.seq as i64)
        .bind(columns.at.as_micros())
        .bind(columns.kind)
        .bind(columns.run.to_string())
        .bind(columns.agent)
        .bind(body)
        .execute(&mut *transaction)
        .await
        .unwrap();
    }
    transaction.commit().await.unwrap();
}
