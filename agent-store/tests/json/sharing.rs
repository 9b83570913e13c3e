//! Several stores on one directory, in one process and in several, and futures that are dropped.

use std::{
    fs,
    future::{Future, poll_fn},
    io::Write,
    path::Path,
    pin::pin,
    process::{Command, Stdio},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use entourage_core::{
    ErrorKind, RetryStatus,
    session::{ReadRange, SessionFilter, SessionStore},
};
use entourage_store::{Durability, JsonStore};
use tokio::{sync::Barrier, task::JoinSet};

use crate::{batch, child, count, create, id, quick, root};

#[tokio::test(flavor = "multi_thread")]
async fn attack_09_of_writers_through_several_stores_one_wins() {
    let directory = tempfile::tempdir().unwrap();
    let first = quick(directory.path()).await;
    let session = create(&first, "s", 1).await;
    for round in 0..10_u64 {
        let start = Arc::new(Barrier::new(12));
        let mut tasks = JoinSet::new();
        for writer in 0..12 {
            let store = quick(directory.path()).await;
            let (start, session) = (Arc::clone(&start), session.clone());
            tasks.spawn(async move {
                start.wait().await;
                store.append(&session, 1 + round, batch(100 + writer, 1 + round, 1)).await
            });
        }
        let results = tasks.join_all().await;
        let lost: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
        assert_eq!(lost.len(), 11, "round {round}");
        assert!(lost.iter().all(|error| error.kind() == ErrorKind::Conflict), "{lost:?}");
    }
    assert_eq!(count(&first, &session).await, 11);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_creators_through_several_stores_one_wins() {
    let directory = tempfile::tempdir().unwrap();
    let start = Arc::new(Barrier::new(12));
    let mut tasks = JoinSet::new();
    for writer in 0..12 {
        let (path, start) = (directory.path().join("sessions"), Arc::clone(&start));
        tasks.spawn(async move {
            // The directory itself is created by all of them at once.
            start.wait().await;
            let store = quick(&path).await;
            let session = id("s");
            store.append(&session, 0, batch(writer, 0, 2).creating(root(&session))).await
        });
    }
    let results = tasks.join_all().await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
    assert!(results.iter().flat_map(|it| it.as_ref().err()).all(|error| error.kind() == ErrorKind::Conflict));
}

const DIRECTORY: &str = "ENTOURAGE_JSON_TEST_DIRECTORY";
const ROUNDS: u64 = 60;

/// Appends until the session has `ROUNDS` further events, and prints the numbers of its own ones.
#[test]
#[ignore = "a process that the next test starts"]
fn racing_process() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let writer = u64::from(std::process::id());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = quick(Path::new(&directory)).await;
        std::io::stdin().read_line(&mut String::new()).unwrap();
        let session = id("s");
        let mut at = 1;
        while at < 1 + ROUNDS {
            match store.append(&session, at, batch(writer, at, 1)).await {
                Ok(_) => println!("WON {}", at + 1),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}"),
            }
            at = store.query(&SessionFilter::id(session.clone())).await.unwrap()[0].head.seq;
            // Readers never see half a batch, and never less than was listed.
            let rows = store.read(&session, ReadRange::all()).await.unwrap();
            assert!(rows.len() as u64 >= at, "{} of {at}", rows.len());
        }
    });
}

#[test]
fn attack_09_of_racing_processes_one_wins_each_number() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = runtime.block_on(async {
        let store = quick(directory.path()).await;
        create(&store, "s", 1).await;
        store
    });
    let mut racers: Vec<_> = (0..3)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "sharing::racing_process", "--ignored", "--nocapture"])
                .env(DIRECTORY, directory.path())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for racer in &mut racers {
        racer.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }
    let mut won = Vec::new();
    for racer in racers {
        let id = u64::from(racer.id());
        let output = racer.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        let numbers = text.lines().filter_map(|line| line.split("WON ").nth(1));
        won.extend(numbers.map(|number| (number.parse::<u64>().unwrap(), id)));
    }
    won.sort_unstable();
    assert_eq!(
        won.iter().map(|(number, _)| *number).collect::<Vec<_>>(),
        (2..=1 + ROUNDS).collect::<Vec<_>>()
    );
    let rows = runtime.block_on(store.read(&id("s"), ReadRange::after(1))).unwrap();
    for (row, (number, writer)) in rows.iter().zip(&won) {
        assert_eq!(row.seq(), *number);
        assert!(
            row.body().unwrap().contains(&format!("\"by {writer}\"")),
            "event {number} is not the winner's"
        );
    }
    assert_eq!(rows.len() as u64, ROUNDS);
}

#[tokio::test]
async fn attack_12_a_batch_that_was_delivered_through_two_stores_is_stored_once() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (quick(directory.path()).await, quick(directory.path()).await);
    let session = create(&first, "s", 2).await;
    for store in [&first, &second, &first] {
        assert_eq!(store.append(&session, 2, batch(5, 2, 2)).await.unwrap(), 4);
        assert_eq!(store.append(&session, 0, batch(1, 0, 2).creating(root(&session))).await.unwrap(), 4);
    }
    // A lease in between does not hide who wrote.
    let lease = entourage_core::session::Lease::new(1, 1, entourage_core::Timestamp::from_micros(0));
    second.lease(&session, lease).await.unwrap();
    assert_eq!(first.append(&session, 4, batch(5, 4, 1)).await.unwrap(), 5);
    assert_eq!(second.append(&session, 2, batch(5, 2, 3)).await.unwrap(), 5);
    assert_eq!(second.append(&session, 1, batch(1, 1, 1)).await.unwrap(), 5);
    assert_eq!(second.append(&session, 1, batch(1, 1, 2)).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(count(&second, &session).await, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_stays_is_a_temporary_error_and_readers_do_not_wait_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let store =
        JsonStore::builder(directory.path()).lock_timeout(Duration::from_millis(20)).build().await.unwrap();
    let session = create(&store, "s", 1).await;
    let file = fs::File::open(store.path_of(&session)).unwrap();
    file.lock().unwrap();
    for error in [
        store.append(&session, 1, batch(1, 1, 1)).await.unwrap_err(),
        store.delete(&session).await.unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Store, RetryStatus::Temporary), "{error:?}");
    }
    assert_eq!(count(&store, &session).await, 1);
    assert_eq!(store.query(&SessionFilter::all()).await.unwrap().len(), 1);
    file.unlock().unwrap();
    assert_eq!(store.append(&session, 1, batch(1, 1, 1)).await.unwrap(), 2);
}

/// More sessions than may be written at once: each operation on them waits for as long as their files are locked.
#[tokio::test(flavor = "multi_thread")]
async fn attack_f9_files_that_somebody_keeps_locked_hold_up_no_other_session() {
    let directory = tempfile::tempdir().unwrap();
    let store = JsonStore::builder(directory.path())
        .durability(Durability::ProcessDeath)
        .lock_timeout(Duration::from_secs(3_600));
    let store = store.build().await.unwrap();
    let (mut locks, mut waiting) = (Vec::new(), JoinSet::new());
    for n in 0..100 {
        let session = create(&store, &format!("locked{n}"), 1).await;
        let file = fs::File::open(store.path_of(&session)).unwrap();
        file.lock().unwrap();
        locks.push(file);
        for expected in [1, 2] {
            let (store, session) = (store.clone(), session.clone());
            waiting.spawn(async move { store.append(&session, expected, batch(1, expected, 1)).await });
        }
    }
    let others = async {
        for n in 0..300 {
            let session = create(&store, &format!("free{n}"), 1).await;
            assert_eq!(store.append(&session, 1, batch(1, 1, 1)).await.unwrap(), 2);
        }
    };
    tokio::time::timeout(Duration::from_secs(30), others).await.expect("the others wait too");
    assert!(waiting.try_join_next().is_none(), "nobody else could append to those");
    drop(locks);
    while let Some(done) = waiting.join_next().await {
        done.unwrap().ok();
    }
    for n in 0..100 {
        assert!(count(&store, &id(&format!("locked{n}"))).await >= 2);
    }
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

#[tokio::test]
async fn a_dropped_append_is_finished_before_the_next_one_begins() {
    let directory = tempfile::tempdir().unwrap();
    let store = JsonStore::builder(directory.path()).durability(Durability::PowerLoss).build().await.unwrap();
    let mut stored = [0, 0];
    for polls in 0..40 {
        let session = create(&store, &format!("s{polls}"), 1).await;
        cut_short(store.append(&session, 1, batch(9, 1, 5)), polls % 3).await;
        // Another writer finds the session before the batch or after it, never in between.
        let error = store.append(&session, 4, batch(8, 4, 1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
        let there = count(&store, &session).await;
        assert!(matches!(there, 1 | 6), "{there} after {polls} polls");
        stored[usize::from(there == 6)] += 1;
        assert_eq!(store.append(&session, 1, batch(9, 1, 5)).await.unwrap(), 6);
        assert_eq!(count(&store, &session).await, 6);
    }
    assert!(stored[0] > 3 && stored[1] > 3, "{stored:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn children_are_not_born_below_a_tree_that_is_being_deleted() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let (store, other) = (quick(directory.path()).await, quick(directory.path()).await);
        let parent = create(&store, &format!("p{round}"), 1).await;
        let start = Arc::new(Barrier::new(2));
        let (began, above) = (Arc::clone(&start), parent.clone());
        let born = tokio::spawn(async move {
            began.wait().await;
            let session = id(&format!("{above}.child"));
            other.append(&session, 0, batch(1, 0, 1).creating(child(&session, &above))).await.is_ok()
        });
        start.wait().await;
        let deleted = store.delete(&parent).await.unwrap();
        let born = born.await.unwrap();
        assert_eq!(deleted, 1 + u64::from(born), "round {round}");
        assert!(store.query(&SessionFilter::all()).await.unwrap().is_empty(), "round {round}");
    }
}

/// A writer that waits for the lock of a file that is then deleted must not lose an event with it.
#[tokio::test(flavor = "multi_thread")]
async fn no_append_is_lost_in_a_file_that_is_deleted() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..30 {
        let (store, other) = (quick(directory.path()).await, quick(directory.path()).await);
        let session = create(&store, &format!("s{round}"), 1).await;
        let start = Arc::new(Barrier::new(2));
        let (began, target) = (Arc::clone(&start), session.clone());
        let appended = tokio::spawn(async move {
            began.wait().await;
            other.append(&target, 1, batch(2, 1, 1)).await
        });
        start.wait().await;
        store.delete(&session).await.unwrap();
        // Appended before the deletion, or not at all.
        if let Err(error) = appended.await.unwrap() {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
        }
        assert_eq!(store.read(&session, ReadRange::all()).await.unwrap_err().kind(), ErrorKind::NotFound);
        create(&store, &format!("s{round}"), 1).await;
        assert_eq!(store.append(&session, 1, batch(1, 1, 1)).await.unwrap(), 2);
    }
}

#[tokio::test]
async fn however_long_a_store_may_wait_it_opens() {
    let directory = tempfile::tempdir().unwrap();
    let store = JsonStore::builder(directory.path()).lock_timeout(Duration::MAX).build().await.unwrap();
    create(&store, "s", 1).await;
}
