//! Leases, checkpoints and the filters by prefix and tree.

use entourage_core::{
    ErrorKind, SessionId, Timestamp,
    session::{Lease, ReadRange, SessionFilter, SessionInfo, SessionRecord, SessionStore},
};
use entourage_store::SqliteStore;

use crate::{batch, count, create, id, plain, root, run};

fn lease(owner: u64, generation: u64) -> Lease {
    Lease::new(owner, generation, Timestamp::from_micros(5))
}

async fn info(store: &SqliteStore, session: &SessionId) -> SessionInfo {
    store.query(&SessionFilter::id(session.clone())).await.unwrap().remove(0)
}

async fn ids(store: &SqliteStore, filter: SessionFilter) -> Vec<String> {
    store.query(&filter).await.unwrap().into_iter().map(|info| info.record.id.to_string()).collect()
}

#[tokio::test]
async fn a_lease_comes_with_a_batch_and_fences_off_older_ones() {
    let store = SqliteStore::in_memory().await.unwrap();
    let session = id("s");
    let first = batch(1, 0, 1).creating(root(&session)).leased(lease(u64::MAX, 1));
    store.append(&session, 0, first.clone()).await.unwrap();
    assert_eq!(info(&store, &session).await.lease, Some(lease(u64::MAX, 1)));
    // A batch without one leaves it as it is; another owner of the same generation is too late.
    store.append(&session, 1, batch(1, 1, 1)).await.unwrap();
    let fenced = store.append(&session, 2, batch(2, 2, 1).leased(lease(7, 1))).await.unwrap_err();
    assert_eq!(fenced.kind(), ErrorKind::Conflict);
    assert!(fenced.to_string().contains("took the session over (generation 1)"), "{fenced}");
    assert_eq!(
        (info(&store, &session).await.lease, count(&store, &session).await),
        (Some(lease(u64::MAX, 1)), 2)
    );
    // The next generation replaces it, and then the first owner is fenced off, with batches and without.
    let taken = batch(2, 2, 1).leased(lease(7, 2));
    assert_eq!(store.append(&session, 2, taken.clone()).await.unwrap(), 3);
    let renewed = store.lease(&session, lease(u64::MAX, 1)).await.unwrap_err();
    assert!(renewed.to_string().contains("generation 2"), "{renewed}");
    // A stored batch is a repetition, whoever holds the lease by now; a wrong number comes before the lease.
    assert_eq!(store.append(&session, 0, first).await.unwrap(), 3);
    let late = store.append(&session, 2, batch(3, 2, 1).leased(lease(u64::MAX, 1))).await.unwrap_err();
    assert!(late.to_string().contains("it is at event 3, not 2"), "{late}");
    assert_eq!(store.append(&session, 2, taken).await.unwrap(), 3);
}

#[tokio::test]
async fn a_lease_is_renewed_and_given_back_without_an_event() {
    let store = SqliteStore::in_memory().await.unwrap();
    let session = create(&store, "s", 1).await;
    assert_eq!(info(&store, &session).await.lease, None);
    for next in [
        lease(7, 1),
        Lease::new(7, 1, Timestamp::from_micros(i64::MAX)),
        Lease::new(7, 1, Timestamp::default()),
    ] {
        store.lease(&session, next).await.unwrap();
        assert_eq!(info(&store, &session).await.lease, Some(next));
    }
    assert_eq!(count(&store, &session).await, 1);
    assert_eq!(store.lease(&session, lease(8, 1)).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(store.lease(&id("nobody"), lease(8, 1)).await.unwrap_err().kind(), ErrorKind::NotFound);
    let large = store.lease(&session, lease(8, u64::MAX)).await.unwrap_err();
    assert_eq!(large.kind(), ErrorKind::TooLarge, "{large:?}");
}

#[tokio::test]
async fn attack_08_half_a_lease_and_a_negative_checkpoint_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let (half, negative, fine) = (
        create(&store, "half", 1).await,
        create(&store, "negative", 1).await,
        create(&store, "fine", 1).await,
    );
    let mut plain = plain(&path).await;
    let refused = sqlx::query("UPDATE sessions SET lease_until = 1").execute(&mut plain).await.unwrap_err();
    assert!(refused.to_string().contains("CHECK constraint"), "{refused}");
    run(
        &mut plain,
        "PRAGMA ignore_check_constraints = ON; UPDATE sessions SET lease_until = 1 WHERE id = 'half'; \
         UPDATE sessions SET checkpoint = -1 WHERE id = 'negative'",
    )
    .await;
    for (session, what) in [(half, "a lease by half"), (negative, "checkpoint = -1")] {
        let error = store.query(&SessionFilter::id(session)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        assert!(error.to_string().contains(what), "{error}");
    }
    assert_eq!(store.query(&SessionFilter::id(fine.clone())).await.unwrap().len(), 1);
    assert_eq!(store.read(&fine, ReadRange::all()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn attack_13_a_prefix_is_bytes_and_never_a_pattern() {
    let store = SqliteStore::in_memory().await.unwrap();
    for name in ["s1", "s10", "s1.1$$0", "S1", "s", "s_1", "s-1", "zz"] {
        create(&store, name, 1).await;
    }
    for (prefix, expected) in [
        ("", &["S1", "s", "s-1", "s1", "s1.1$$0", "s10", "s_1", "zz"][..]),
        ("s1", &["s1", "s1.1$$0", "s10"]),
        ("s1.", &["s1.1$$0"]),
        ("S", &["S1"]),
        ("s_", &["s_1"]),
        ("z", &["zz"]),
    ] {
        assert_eq!(ids(&store, SessionFilter::all().with_prefix(prefix)).await, expected, "{prefix}");
    }
    // Hostile ones find nothing, and harm nothing.
    for prefix in [
        "%",
        "_",
        "s%",
        "*",
        "s?",
        "s1' OR '1'='1",
        "'; DROP TABLE sessions; --",
        "\0",
        "s\0",
        "s1\u{10ffff}",
        "é",
    ] {
        assert_eq!(ids(&store, SessionFilter::all().with_prefix(prefix)).await, [""; 0], "{prefix:?}");
    }
    assert_eq!(store.query(&SessionFilter::all()).await.unwrap().len(), 8);
}

#[tokio::test]
async fn attack_13_a_tree_is_what_was_started_below_not_what_looks_like_it() {
    let store = SqliteStore::in_memory().await.unwrap();
    for name in ["s1", "s10", "s1.9$$9"] {
        create(&store, name, 1).await;
    }
    for (name, parent) in [("s1.1$$0", "s1"), ("s1.1$$0.1$$0", "s1.1$$0"), ("odd", "s1"), ("s10.1$$0", "s10")]
    {
        let record = SessionRecord::child(id(name), id(parent), "child", Timestamp::from_micros(1));
        store.append(&id(name), 0, batch(1, 0, 1).creating(record)).await.unwrap();
    }
    assert_eq!(ids(&store, SessionFilter::tree(id("s1"))).await, ["odd", "s1", "s1.1$$0", "s1.1$$0.1$$0"]);
    assert_eq!(ids(&store, SessionFilter::tree(id("s1.1$$0"))).await, ["s1.1$$0", "s1.1$$0.1$$0"]);
    assert_eq!(ids(&store, SessionFilter::tree(id("nobody"))).await, [""; 0]);
    // Filters combine, and the page is cut from the result.
    let filter = SessionFilter::tree(id("s1")).with_prefix("s1.").page(1, 5);
    assert_eq!(ids(&store, filter).await, ["s1.1$$0.1$$0"]);
}

#[tokio::test]
async fn a_checkpoint_comes_back() {
    let store = SqliteStore::in_memory().await.unwrap();
    let session = create(&store, "s", 1).await;
    let mut batch = batch(1, 1, 4);
    batch.head.checkpoint = 3;
    store.append(&session, 1, batch).await.unwrap();
    assert_eq!(info(&store, &session).await.head.checkpoint, 3);
}
