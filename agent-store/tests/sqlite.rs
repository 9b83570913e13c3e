//! Promises of the SQLite store alone: the files that it accepts, several stores on one file, plain SQL.

#![cfg(feature = "sqlite")]
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[path = "sqlite/faults.rs"]
mod faults;
#[path = "sqlite/files.rs"]
mod files;
#[path = "sqlite/leases.rs"]
mod leases;
#[path = "sqlite/sharing.rs"]
mod sharing;
#[path = "sqlite/tables.rs"]
mod tables;

use std::path::Path;

use entourage_core::{
    RunId, SessionId, Timestamp,
    session::{Batch, Columns, ReadRange, Row, SessionHead, SessionRecord, SessionStore},
};
use entourage_store::SqliteStore;
use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};

fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

/// Returns a batch of `count` events after `expected`, by `writer`.
fn batch(writer: u64, expected: u64, count: u64) -> Batch {
    let rows = (expected + 1..=expected + count)
        .map(|seq| {
            let columns = Columns::new(seq, Timestamp::from_micros(1), "warning", RunId::generate(), "root");
            Row::stored(columns, format!("{{\"text\":\"by {writer}\"}}"))
        })
        .collect();
    let mut head = SessionHead::default();
    head.seq = expected + count;
    Batch::new(writer, rows, head)
}

fn root(id: &SessionId) -> SessionRecord {
    SessionRecord::root(id.clone(), Timestamp::from_micros(1))
}

/// Creates a session of `count` events.
async fn create(store: &SqliteStore, name: &str, count: u64) -> SessionId {
    let id = id(name);
    store.append(&id, 0, batch(1, 0, count).creating(root(&id))).await.unwrap();
    id
}

async fn count(store: &SqliteStore, id: &SessionId) -> usize {
    store.read(id, ReadRange::all()).await.unwrap().len()
}

/// Opens the database past the store, as any other program would.
async fn plain(path: &Path) -> SqliteConnection {
    SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(path).create_if_missing(true))
        .await
        .unwrap()
}

async fn run(connection: &mut SqliteConnection, sql: &'static str) {
    sqlx::raw_sql(sql).execute(connection).await.unwrap();
}
