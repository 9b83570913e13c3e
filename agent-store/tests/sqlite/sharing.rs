//! Several stores on one file, and futures that are dropped.

use std::{
    collections::BTreeSet,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use entourage_core::{
    ErrorKind, RetryStatus,
    session::{ReadRange, SessionFilter, SessionStore},
};
use entourage_store::SqliteStore;
use sqlx::Connection;
use tokio::{sync::Barrier, task::JoinSet};

use crate::{batch, count, create, id, plain, root, run};

#[tokio::test(flavor = "multi_thread")]
async fn many_stores_may_create_one_file_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let start = Arc::new(Barrier::new(8));
    let mut tasks = JoinSet::new();
    for n in 0..8 {
        let (path, start) = (directory.path().join("sessions.db"), Arc::clone(&start));
        tasks.spawn(async move {
            start.wait().await;
            let store = SqliteStore::open(path).await.unwrap();
            create(&store, &format!("s{n}"), 2).await;
            store
        });
    }
    let stores = tasks.join_all().await;
    for store in &stores {
        assert_eq!(store.query(&SessionFilter::all()).await.unwrap().len(), 8);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attack_09_of_writers_through_several_stores_one_wins() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let first = SqliteStore::open(&path).await.unwrap();
    let session = create(&first, "s", 1).await;
    for round in 0..5_u64 {
        let start = Arc::new(Barrier::new(12));
        let mut tasks = JoinSet::new();
        for writer in 0..12 {
            let store = SqliteStore::open(&path).await.unwrap();
            let (start, session) = (Arc::clone(&start), session.clone());
            tasks.spawn(async move {
                start.wait().await;
                store.append(&session, 1 + round, batch(100 + writer, 1 + round, 1)).await
            });
        }
        let results = tasks.join_all().await;
        let lost = results.iter().filter_map(|result| result.as_ref().err()).collect::<Vec<_>>();
        assert_eq!(lost.len(), 11, "round {round}");
        assert!(lost.iter().all(|error| error.kind() == ErrorKind::Conflict), "{lost:?}");
    }
    assert_eq!(count(&first, &session).await, 6);
}

#[tokio::test]
async fn a_lock_that_stays_is_a_temporary_error_and_readers_do_not_wait_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let store = SqliteStore::builder(&path).busy_timeout(Duration::ZERO).build().await.unwrap();
    let session = create(&store, "s", 1).await;
    let mut other = plain(&path).await;
    run(&mut other, "BEGIN IMMEDIATE; UPDATE sessions SET title = 'not yet'").await;

    let error = store.append(&session, 1, batch(1, 1, 1)).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Store, RetryStatus::Temporary), "{error:?}");
    let error = store.delete(&session).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Store, RetryStatus::Temporary), "{error:?}");
    assert_eq!(count(&store, &session).await, 1);
    let listed = store.query(&SessionFilter::all()).await.unwrap();
    assert_eq!(&*listed[0].head.title, "", "what is not committed is not seen");
    // Opening needs no lock when the tables are up to date.
    let second = SqliteStore::builder(&path).busy_timeout(Duration::ZERO).build().await.unwrap();
    assert_eq!(count(&second, &session).await, 1);

    run(&mut other, "ROLLBACK").await;
    assert_eq!(store.append(&session, 1, batch(1, 1, 1)).await.unwrap(), 2);
    other.close().await.unwrap();
}

/// Drops `future` instead of polling it more than `polls` times.
async fn cut_short<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_append_leaves_no_half_batch_and_no_lock() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let other = SqliteStore::open(&path).await.unwrap();
    let bystander = create(&other, "bystander", 1).await;
    let mut ended = [0, 0];
    for polls in 0..60 {
        let session = create(&store, &format!("s{polls}"), 1).await;
        let done = cut_short(store.append(&session, 1, batch(9, 1, 5)), polls).await;
        ended[usize::from(done.is_some())] += 1;
        // A transaction left open would block the other store for good.
        let expected = polls as u64 + 1;
        assert_eq!(other.append(&bystander, expected, batch(3, expected, 1)).await.unwrap(), expected + 1);
        assert!(matches!(count(&other, &session).await, 1 | 6), "after {polls} polls");
        assert_eq!(store.append(&session, 1, batch(9, 1, 5)).await.unwrap(), 6);
        assert_eq!(count(&store, &session).await, 6);
    }
    assert!(ended[0] > 0 && ended[1] > 0, "some appends must be cut and some must end: {ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_deletes_and_reads_leave_the_store_usable() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("sessions.db")).await.unwrap();
    for polls in 0..30 {
        let session = create(&store, "s", 50).await;
        cut_short(store.read(&session, ReadRange::all()), polls).await;
        cut_short(store.delete(&session), polls).await;
        let left = store.delete(&session).await.unwrap();
        assert!(left <= 1);
        assert!(store.query(&SessionFilter::all()).await.unwrap().is_empty());
    }
    let again = id("s");
    assert_eq!(store.append(&again, 0, batch(1, 0, 1).creating(root(&again))).await.unwrap(), 1);
}

/// Returns this process's locks on the file, as the kernel knows them. They are shown beside the open files: the table
/// of all processes' locks is read in pieces, and one that ends meanwhile hides another.
#[cfg(target_os = "linux")]
fn locks(path: &std::path::Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for open in std::fs::read_dir("/proc/self/fd").unwrap() {
        let open = open.unwrap();
        // Other tests open and close files meanwhile.
        if std::fs::read_link(open.path()).is_ok_and(|file| file == path) {
            let about = std::path::Path::new("/proc/self/fdinfo").join(open.file_name());
            let about = std::fs::read_to_string(about).unwrap_or_default();
            found.extend(about.lines().filter(|line| line.starts_with("lock:")).map(str::to_owned));
        }
    }
    found
}

/// A process that closes any handle of a file loses all its locks on it, and another one could then delete a log in
/// use.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_second_store_on_a_file_leaves_the_locks_of_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.db");
    let first = SqliteStore::open(&path).await.unwrap();
    first.query(&SessionFilter::all()).await.unwrap();
    let held = locks(&path);
    assert!(!held.is_empty(), "a store that is open holds no lock");
    let second = SqliteStore::open(&path).await.unwrap();
    second.query(&SessionFilter::all()).await.unwrap();
    second.close().await;
    assert_eq!(locks(&path), held);
}
