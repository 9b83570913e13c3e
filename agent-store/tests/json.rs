//! Promises of the JSON lines store alone: torn lines, damage, several stores on one directory, bounded reads.

#![cfg(feature = "json")]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::string_slice
)]

#[path = "json/cut.rs"]
mod cut;
#[path = "json/damage.rs"]
mod damage;
#[path = "json/files.rs"]
mod files;
#[path = "json/gone.rs"]
mod gone;
#[path = "json/reading.rs"]
mod reading;
#[path = "json/sharing.rs"]
mod sharing;
#[path = "json/torn.rs"]
mod torn;

use std::{path::Path, sync::Arc};

use entourage_core::{
    RunId, SessionId, Timestamp,
    session::{Batch, Columns, ReadRange, Row, SessionHead, SessionRecord, SessionStore, SharedStore},
};
use entourage_store::{Durability, JsonStore};
use entourage_testkit::store::{Capabilities, Fixture, conformance};

fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

/// Returns a batch of `count` events after `expected`, by `writer`.
fn batch(writer: u64, expected: u64, count: u64) -> Batch {
    let run = RunId::parse("019a7b1c-0000-7000-8000-000000000001").unwrap();
    let rows = (expected + 1..=expected + count)
        .map(|seq| {
            let columns = Columns::new(seq, Timestamp::from_micros(1), "warning", run, "root");
            Row::stored(columns, format!("{{\"text\":\"by {writer}\",\"n\":{seq}}}"))
        })
        .collect();
    let mut head = SessionHead::default();
    head.seq = expected + count;
    Batch::new(writer, rows, head)
}

fn root(id: &SessionId) -> SessionRecord {
    SessionRecord::root(id.clone(), Timestamp::from_micros(1))
}

fn child(id: &SessionId, parent: &SessionId) -> SessionRecord {
    SessionRecord::child(id.clone(), parent.clone(), "child", Timestamp::from_micros(1))
}

/// Creates a session of `count` events.
async fn create(store: &JsonStore, name: &str, count: u64) -> SessionId {
    let id = id(name);
    store.append(&id, 0, batch(1, 0, count).creating(root(&id))).await.unwrap();
    id
}

async fn count(store: &JsonStore, id: &SessionId) -> usize {
    store.read(id, ReadRange::all()).await.unwrap().len()
}

/// Opens a store that does not wait for the disk.
async fn quick(path: &Path) -> JsonStore {
    JsonStore::builder(path).durability(Durability::ProcessDeath).build().await.unwrap()
}

async fn fixture() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions");
    let store = JsonStore::open(&path).await.unwrap();
    let reopen = move || {
        let path = path.clone();
        async move { Ok(Arc::new(JsonStore::open(path).await?) as SharedStore) }
    };
    Fixture::from(Arc::new(store)).reopening(reopen).keeping(directory)
}

#[tokio::test]
async fn json_passes_the_suite_on_one_thread() {
    let report = conformance("json on one thread", Capabilities::all(), fixture).await;
    println!("{report:#}");
    report.assert();
}
