//! Faults that only the store's own connections can be given.

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

/// Lets the connection that writes have no further page.
async fn fill(store: &SqliteStore) {
    let mut held = store.place.connections().await.unwrap().writer().await.unwrap();
    let db = held.connection().unwrap();
    sqlx::query("PRAGMA max_page_count = 1").execute(db).await.unwrap();
    held.give_back();
}

async fn unfill(store: &SqliteStore) {
    let mut held = store.place.connections().await.unwrap().writer().await.unwrap();
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
