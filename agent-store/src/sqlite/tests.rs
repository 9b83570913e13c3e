//! Faults that can be injected only into the store's own connections.

use std::{
    fs,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use entourage_core::{
    ErrorKind, RunId, Timestamp,
    session::{Columns, SessionHead, SessionRecord},
};

use super::*;

fn batch(expected: u64, bytes: usize) -> Batch {
    let columns = Columns::new(expected + 1, Timestamp::from_micros(1), "warning", RunId::generate(), "root");
    let mut head = SessionHead::default();
    head.seq = expected + 1;
    Batch::new(1, vec![Row::stored(columns, format!("{{\"text\":\"{}\"}}", "x".repeat(bytes)))], head)
}

/// Bounds the size of the database, so that the writer gets no further page.
async fn fill(store: &SqliteStore) {
    let (_, mut held) = store.place.writer().await.unwrap();
    let db = held.connection().unwrap();
    sqlx::query("PRAGMA max_page_count = 1").execute(db).await.unwrap();
    held.give_back();
}

async fn unfill(store: &SqliteStore) {
    let (_, mut held) = store.place.writer().await.unwrap();
    let db = held.connection().unwrap();
    sqlx::query("PRAGMA max_page_count = 100000").execute(db).await.unwrap();
    held.give_back();
}

#[tokio::test]
async fn after_a_disk_that_was_full_for_a_moment_the_next_operations_work() {
    let directory = tempfile::tempdir().unwrap();
    let file = SqliteStore::open(directory.path().join("sessions.db")).await.unwrap();
    let memory = SqliteStore::in_memory().await.unwrap();
    for store in [file, memory] {
        let session = SessionId::new("s").unwrap();
        let record = SessionRecord::root(session.clone(), Timestamp::from_micros(1));
        store.append(&session, 0, batch(0, 10).creating(record)).await.unwrap();
        for seq in 1..4 {
            fill(&store).await;
            let error = store.append(&session, seq, batch(seq, 1 << 20)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Store, "{error:?}");
            assert!(error.to_string().contains("the disk is full"), "{error}");
            unfill(&store).await;
            assert_eq!(store.append(&session, seq, batch(seq, 1 << 20)).await.unwrap(), seq + 1);
        }
        assert_eq!(store.read(&session, ReadRange::all()).await.unwrap().len(), 4);
        assert_eq!(store.delete(&session).await.unwrap(), 1);
    }
}

/// Returns a store with the session `s` of one event.
async fn some_session(path: &Path) -> (SqliteStore, SessionId) {
    let store = SqliteStore::builder(path).readers(1).build().await.unwrap();
    let session = SessionId::new("s").unwrap();
    let record = SessionRecord::root(session.clone(), Timestamp::from_micros(1));
    store.append(&session, 0, batch(0, 10).creating(record)).await.unwrap();
    (store, session)
}

/// Polls an operation once. It stays pending, because another one holds the connection that it needs.
fn waiting<F: Future>(operation: F) -> Pin<Box<F>> {
    let mut operation = Box::pin(operation);
    let polled = operation.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Pending));
    operation
}

#[tokio::test]
async fn who_waits_for_a_connection_to_a_file_that_was_exchanged_gets_one_to_the_new_file() {
    let directory = tempfile::tempdir().unwrap();
    let [path, away, spare] = ["sessions.db", "away.db", "spare.db"].map(|name| directory.path().join(name));
    some_session(&spare).await.0.close().await;
    let (store, session) = some_session(&path).await;
    let taken = (store.place.writer().await.unwrap(), store.place.reader().await.unwrap());
    let next = Encoded::new(1, batch(1, 10)).unwrap();
    let filter = SessionFilter::all();
    let writes = waiting(write(&store.place, &session, next));
    let lists = waiting(list(&store.place, &filter));
    let reads = waiting(window(&store.place, &session, ReadRange::all()));

    for suffix in ["", "-wal", "-shm"] {
        let name = |path: &Path| format!("{}{suffix}", path.display());
        fs::rename(name(&path), name(&away)).unwrap();
    }
    fs::rename(&spare, &path).unwrap();
    assert_eq!(store.query(&filter).await.unwrap().len(), 1, "through new connections");
    assert!(matches!(writes.await.unwrap(), Appended::Stored(2)));
    assert_eq!(lists.await.unwrap().len(), 1);
    assert!(reads.await.unwrap().is_some());
    assert_eq!(store.read(&session, ReadRange::all()).await.unwrap().len(), 2, "in the new file");
    drop(taken);
}

#[tokio::test]
async fn a_store_that_was_closed_says_so_to_those_who_wait_as_well() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let (store, session) = some_session(&path).await;
    let taken = (store.place.writer().await.unwrap(), store.place.reader().await.unwrap());
    let next = Encoded::new(1, batch(1, 10)).unwrap();
    let filter = SessionFilter::all();
    let lists = waiting(list(&store.place, &filter));
    let writes = waiting(write(&store.place, &session, next));
    let closing = waiting(store.close());
    drop(taken);
    let ((), lists, writes) = tokio::join!(closing, lists, writes);
    for failure in [lists.unwrap_err(), writes.err().unwrap()] {
        let error = failure.explain("store.query", &path);
        assert!(error.to_string().contains("the store was closed"), "{error}");
    }
}
