//! Operations whose futures are polled a few times and then dropped, or kept and no longer polled, block no other one.

use std::{fs::File, future::poll_fn, pin::Pin, task::Poll, time::Duration};

use entourage_core::{
    Result, SessionId, Timestamp,
    session::{Lease, SessionFilter, SessionStore},
};
use entourage_store::JsonStore;

use crate::{batch, create, id, quick, root};

type Operation = Pin<Box<dyn Future<Output = Result<()>> + Send>>;
type Make = fn(JsonStore, SessionId) -> Operation;

/// Every operation that waits for a turn, by name.
const OPERATIONS: [(&str, Make); 6] = [
    ("append", |store, id| Box::pin(async move { store.append(&id, 1, batch(1, 1, 1)).await.map(drop) })),
    ("create", |store, _| {
        Box::pin(async move {
            let id = id("newborn");
            store.append(&id, 0, batch(1, 0, 1).creating(root(&id))).await.map(drop)
        })
    }),
    ("lease", |store, id| {
        Box::pin(async move { store.lease(&id, Lease::new(1, 1, Timestamp::default())).await })
    }),
    ("delete", |store, _| Box::pin(async move { store.delete(&id("nobody")).await.map(drop) })),
    ("list", |store, _| Box::pin(async move { store.query(&SessionFilter::all()).await.map(drop) })),
    ("problems", |store, _| Box::pin(async move { store.problems().await.map(drop) })),
];

/// Polls `operation` up to `times` times, and lets everything else run in between. Returns true once it is ready.
async fn poll(operation: &mut Operation, times: usize) -> bool {
    for _ in 0..times {
        if poll_fn(|context| Poll::Ready(operation.as_mut().poll(context).is_ready())).await {
            return true;
        }
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
    }
    false
}

/// Checks that `next` completes. Before it, `first` waits for a foreign lock on `locked`, and `cut` waits for its turn
/// behind `first` and is never polled again.
async fn next_one_gets_its_turn(locked: &str, first: (&str, Make), cut: (&str, Make), next: (&str, Make)) {
    for (polls, kept) in [(1, true), (1, false), (2, true), (2, false)] {
        let directory = tempfile::tempdir().unwrap();
        let store = quick(&directory.path().join("sessions")).await;
        let session = create(&store, "s", 1).await;
        let lock = File::open(store.path().join(locked)).unwrap();
        lock.lock().unwrap();
        let mut operations = [first.1, cut.1, next.1].map(|make| make(store.clone(), session.clone()));
        assert!(!poll(&mut operations[0], 2).await, "{} waits for the file", first.0);
        assert!(!poll(&mut operations[1], polls).await, "{} waits for its turn", cut.0);
        let [first_left, cut_left, next_left] = operations;
        let cut_left = kept.then_some(cut_left);
        lock.unlock().unwrap();
        let name = format!("{} behind {} behind {}, {polls} polls, kept: {kept}", next.0, cut.0, first.0);
        let ended = tokio::time::timeout(Duration::from_secs(30), next_left).await;
        ended.unwrap_or_else(|_| panic!("{name}: hangs")).ok();
        drop((cut_left, first_left));
    }
}

#[tokio::test]
async fn attack_p13_an_operation_cut_while_it_waits_for_its_lane_lets_the_next_one_in() {
    let [append, _, lease, ..] = OPERATIONS;
    for first in [append, lease] {
        for cut in [append, lease] {
            next_one_gets_its_turn("s-s.jsonl", first, cut, lease).await;
        }
    }
}

#[tokio::test]
async fn attack_p14_an_operation_cut_while_it_waits_for_the_directory_lets_the_next_one_in() {
    let [_, create, _, delete, list, problems] = OPERATIONS;
    for (first, cut, next) in [
        (list, create, list),
        (list, delete, list),
        (delete, list, create),
        (create, problems, delete),
        (create, create, list),
        (delete, delete, problems),
    ] {
        next_one_gets_its_turn(".lock", first, cut, next).await;
    }
}

#[tokio::test]
async fn an_append_that_was_polled_once_is_stored_without_its_caller() {
    for kept in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let store = quick(&directory.path().join("sessions")).await;
        let session = create(&store, "s", 1).await;
        let [append, ..] = OPERATIONS;
        let mut operation = append.1(store.clone(), session.clone());
        poll_fn(|context| Poll::Ready(operation.as_mut().poll(context).is_ready())).await;
        let operation = kept.then_some(operation);
        tokio::task::yield_now().await;
        // The next operation has its turn after the append.
        store.lease(&session, Lease::new(1, 1, Timestamp::default())).await.unwrap();
        assert_eq!(crate::count(&store, &session).await, 2, "kept: {kept}");
        drop(operation);
    }
}
