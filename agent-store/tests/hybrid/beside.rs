//! Runs beside a mover: in any order of their steps, a run that has begun is never ended, and nothing is lost.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use entourage_core::{
    ErrorKind, Result, RetryStatus, SessionId, Timestamp,
    session::{Lease, SessionFilter, SessionStatus, SessionStore},
};
use entourage_store::{ActiveStore, Durability, HybridStore, JsonStore, SqliteStore};

use crate::{
    Place, batch, contents, create, ids, micros, quick, round,
    wire::{Event, Wire},
};

/// Number of steps of a process that had the session open before: it begins a run, renews its lease, appends and ends.
const STEPS: usize = 5;

async fn run_step(store: &dyn SessionStore, session: &SessionId, step: usize) {
    let live = Lease::new(7, 3, micros(i64::MAX));
    let at = |expected: u64, status, lease| {
        let mut next = batch(9, expected, 1);
        next.head.status = status;
        next.leased(lease)
    };
    let done = match step {
        0 => store.append(session, 6, at(6, SessionStatus::Running, live)).await.map(drop),
        1 => store.lease(session, live).await,
        2 => store.append(session, 7, at(7, SessionStatus::Running, live)).await.map(drop),
        3 => store.append(session, 8, at(8, SessionStatus::Running, live)).await.map(drop),
        _ => {
            let over = Lease::new(7, 3, micros(0));
            store.append(session, 9, at(9, SessionStatus::Idle, over)).await.map(drop)
        }
    };
    done.unwrap_or_else(|error| panic!("step {step} of the run: {error:?}"));
}

/// Takes the run's steps before operations `first`, `first + gap`, … of the mover. Returns the number of the mover's
/// operations, and the kind of its error.
async fn beside(first: usize, gap: usize, member: usize) -> (usize, Option<ErrorKind>) {
    let place = Place::new();
    let (active, archive) = round(&place, first).await;
    let tree = create_pair(&active).await;
    // The handle knows this lease, which it gave back.
    active.lease(&tree[member], Lease::new(7, 3, micros(0))).await.unwrap();
    let (session, done) = (tree[member].clone(), Arc::new(AtomicUsize::new(0)));
    let user: Arc<HybridStore> = Arc::new(HybridStore::new(active.clone(), archive.clone()));
    let wire = {
        let (user, session, done) = (Arc::clone(&user), session.clone(), Arc::clone(&done));
        Wire::new(Event::Beside(Box::new(move |n| {
            let (user, session, done) = (Arc::clone(&user), session.clone(), Arc::clone(&done));
            Box::pin(async move {
                let step = done.load(Ordering::Relaxed);
                if step < STEPS && n == first + step * gap {
                    done.store(step + 1, Ordering::Relaxed);
                    run_step(&*user, &session, step).await;
                }
            })
        })))
    };
    let moved = wire.store(&active, &archive).archive(&tree[0]).await;
    for step in done.load(Ordering::Relaxed)..STEPS {
        run_step(&*user, &session, step).await;
    }
    assert_eq!(contents(&*user, &session).await.0.len(), 10, "first {first}, every {gap}th, member {member}");
    assert_eq!(user.query(&SessionFilter::all()).await.unwrap().len(), 2);
    // Once the run is over, the tree moves.
    user.archive(&tree[0]).await.unwrap();
    assert_eq!((place.files(), contents(&archive, &session).await.0.len()), (0, 10));
    (wire.used(), moved.err().map(|error| error.kind()))
}

#[tokio::test]
async fn attack_34_a_run_that_begins_at_any_step_of_a_move_is_never_ended_by_it() {
    let (mut orders, mut moved, mut refused) = (0, 0, 0);
    for member in [0, 1] {
        for gap in [1, 7] {
            for first in 0.. {
                let (used, error) = beside(first, gap, member).await;
                match error {
                    None => moved += 1,
                    Some(ErrorKind::Busy | ErrorKind::Conflict) => refused += 1,
                    Some(other) => panic!("{other:?}"),
                }
                orders += 1;
                if first > used {
                    break;
                }
            }
        }
    }
    println!("{orders} orders: the move was done in {moved}, refused in {refused}");
    assert!(moved > 20 && refused > 20, "{moved} {refused}");
}

/// A seal fails if the session's newest event or its lease changed since it was judged.
#[tokio::test]
async fn attack_34_a_seal_compares_the_newest_event_and_the_lease() {
    let place = Place::new();
    let (active, archive) = quick(&place).await;
    let session = create(&active, "s", None).await;
    let of = SessionFilter::id(session.clone());
    let judged = active.query(&of).await.unwrap().remove(0);
    for lease in
        [Lease::new(7, 1, micros(0)), Lease::new(7, 1, micros(i64::MAX)), Lease::new(8, 2, micros(0))]
    {
        active.lease(&session, lease).await.unwrap();
        assert_eq!(active.seal(&judged).await.unwrap_err().kind(), ErrorKind::Conflict, "{lease:?}");
    }
    let judged = active.query(&of).await.unwrap().remove(0);
    active.append(&session, 6, batch(1, 6, 1)).await.unwrap();
    assert_eq!(active.seal(&judged).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(active.remove(std::slice::from_ref(&session)).await.unwrap_err().kind(), ErrorKind::Conflict);
    let judged = active.query(&of).await.unwrap().remove(0);
    active.seal(&judged).await.unwrap();
    drop(archive);
}

/// A lease that is live by this machine's clock keeps the mover away; one that ran out, or that was given back, does
/// not.
#[tokio::test]
async fn leases_of_clocks_that_are_days_apart_only_delay_a_move() {
    const DAY: i64 = 86_400_000_000;
    let now = Timestamp::now().as_micros();
    for (until, moves) in
        [(now + 3 * DAY, false), (i64::MAX, false), (now - 3 * DAY, true), (0, true), (i64::MIN, true)]
    {
        let place = Place::new();
        let (active, archive) = quick(&place).await;
        let store = HybridStore::new(active, archive);
        let session = create(&store, "s", None).await;
        let lease = Lease::new(7, 3, micros(until));
        store.lease(&session, lease).await.unwrap();
        let moved = store.archive(&session).await;
        assert_eq!(moved.as_ref().err().map(|error| error.kind()), (!moves).then_some(ErrorKind::Busy));
        // The lease's owner continues, wherever the session is; a stale owner does not.
        let next = batch(7, 6, 1).leased(Lease::new(7, 3, micros(now + 9 * DAY)));
        assert_eq!(store.append(&session, 6, next).await.unwrap(), 7, "{until}");
        let late = batch(6, 7, 1).leased(Lease::new(6, 2, micros(i64::MAX)));
        assert_eq!(store.append(&session, 7, late).await.unwrap_err().kind(), ErrorKind::Conflict, "{until}");
    }
}

/// Creates a tree of two sessions: each step of a move then handles one above and one below.
async fn create_pair(store: &dyn SessionStore) -> [SessionId; 2] {
    let root = create(store, "talk", None).await;
    let child = create(store, "talk.1$$0", Some(&root)).await;
    [root, child]
}

type Doing = Pin<Box<dyn Future<Output = Result<u64>> + Send>>;

fn archives(store: HybridStore, session: SessionId) -> Doing {
    Box::pin(async move { store.archive(&session).await })
}

fn deletes(store: HybridStore, session: SessionId) -> Doing {
    Box::pin(async move { store.delete(&session).await })
}

/// Runs a mover, and at its operation `at` the work of another process, which waits for no lock. Returns both results,
/// or `None` if the mover did not come that far.
async fn interrupted(
    (active, archive, session): (&JsonStore, &SqliteStore, &SessionId),
    (at, does, idle): (usize, fn(HybridStore, SessionId) -> Doing, bool),
) -> Option<(Result<u64>, Result<u64>)> {
    let other = JsonStore::builder(active.path()).durability(Durability::ProcessDeath);
    let other = other.lock_timeout(Duration::ZERO).build().await.unwrap();
    let (other, of) = (HybridStore::new(other, archive.clone()), session.clone());
    let did = Arc::new(Mutex::new(None));
    let told = Arc::clone(&did);
    let wire = Wire::new(Event::Beside(Box::new(move |n| {
        let (other, of, told) = (other.clone(), of.clone(), Arc::clone(&told));
        Box::pin(async move {
            if n == at {
                let done = does(other, of).await;
                *told.lock().unwrap() = Some(done);
            }
        })
    })));
    let mover = wire.store(active, archive);
    let moved = if idle {
        mover.archive_idle(micros(i64::MAX)).await.map(|roots| roots.len() as u64)
    } else {
        mover.archive(session).await
    };
    let did = did.lock().unwrap().take()?;
    Some((moved, did))
}

/// Returns true if the operation succeeded, or failed because another one came first or is still at it.
fn is_done_or_late(result: &Result<u64>) -> bool {
    let late = [ErrorKind::Conflict, ErrorKind::NotFound, ErrorKind::Busy];
    result.as_ref().err().is_none_or(|error| late.contains(&error.kind()))
}

/// Two movers of one tree do not hinder each other.
#[tokio::test]
async fn two_movers_move_a_tree_once() {
    for (idle, at) in [false, true].into_iter().flat_map(|idle| (0..60).map(move |at| (idle, at))) {
        let place = Place::new();
        let (active, archive) = round(&place, at).await;
        let tree = create_pair(&active).await;
        let (of, what) = ((&active, &archive, &tree[0]), (at, archives as _, idle));
        let Some((moved, other)) = interrupted(of, what).await else {
            assert!(at > 20, "{at}");
            continue;
        };
        assert!(is_done_or_late(&moved) && is_done_or_late(&other), "{at} {idle}: {moved:?} {other:?}");
        let store = HybridStore::new(active.clone(), archive);
        store.archive(&tree[0]).await.unwrap();
        assert_eq!(ids(&store, &SessionFilter::all()).await.len(), 2, "{at} {idle}");
        for session in &tree {
            assert_eq!(contents(&store, session).await.0.len(), 6, "{at} {idle}");
        }
        assert_eq!((place.files(), left(&active)), (0, vec![]), "{at} {idle}");
    }
}

/// A stale copy in the archive is no prefix of the session, so a mover drops it. A copy that another mover put in its
/// place meanwhile is the only one of the tree.
#[tokio::test]
async fn a_mover_drops_a_stale_copy_and_never_what_another_one_put_in_its_place() {
    for (idle, at) in [false, true].into_iter().flat_map(|idle| (0..60).map(move |at| (idle, at))) {
        let place = Place::new();
        let (active, archive) = round(&place, at).await;
        let tree = create_pair(&active).await;
        for session in &tree {
            active.note_copy(session).await.unwrap();
            let found = active.query(&SessionFilter::id(session.clone())).await.unwrap();
            let stale = batch(77, 0, 6).creating(found[0].record.clone());
            archive.append(session, 0, stale).await.unwrap();
        }
        let (of, what) = ((&active, &archive, &tree[0]), (at, archives as _, idle));
        let Some((moved, other)) = interrupted(of, what).await else {
            assert!(at > 20, "{at}");
            continue;
        };
        assert!(is_done_or_late(&moved) && is_done_or_late(&other), "{at} {idle}: {moved:?} {other:?}");
        let store = HybridStore::new(active.clone(), archive);
        let there = ids(&store, &SessionFilter::all()).await.len();
        assert_eq!(there, 2, "{at} {idle}: {moved:?} {other:?}");
        store.archive(&tree[0]).await.unwrap();
        for session in &tree {
            let (rows, ..) = contents(&store, session).await;
            assert_eq!((rows.len(), rows[0].1.contains("by 77")), (6, false), "{at} {idle}");
        }
        assert_eq!((place.files(), left(&active)), (0, vec![]), "{at} {idle}");
    }
}

/// A delete and a move of the same tree, each in a process of its own: one of them comes first.
#[tokio::test]
async fn a_tree_that_is_deleted_while_another_process_moves_it_is_gone_or_whole() {
    let (mut deleted, mut refused) = (0, 0);
    for (idle, at) in [false, true].into_iter().flat_map(|idle| (0..60).map(move |at| (idle, at))) {
        let place = Place::new();
        let (active, archive) = round(&place, at).await;
        let tree = create_pair(&active).await;
        let (of, what) = ((&active, &archive, &tree[0]), (at, deletes as _, idle));
        let Some((moved, other)) = interrupted(of, what).await else { continue };
        assert!(is_done_or_late(&moved), "{at} {idle}: {moved:?}");
        let store = HybridStore::new(active.clone(), archive);
        let there = ids(&store, &SessionFilter::all()).await.len();
        match other {
            Ok(count) => {
                assert_eq!((count, there), (2, 0), "{at} {idle}");
                assert_eq!(store.archived().query(&SessionFilter::all()).await.unwrap(), []);
                deleted += 1;
            }
            Err(error) => {
                assert_eq!((error.kind(), there), (ErrorKind::Busy, 2), "{at} {idle}: {error:?}");
                assert_eq!(error.retry(), RetryStatus::Temporary);
                assert_eq!(store.delete(&tree[0]).await.unwrap(), 2);
                refused += 1;
            }
        }
        assert_eq!((place.files(), left(&active)), (0, vec![]), "{at} {idle}");
    }
    assert!(deleted > 2 && refused > 20, "{deleted} {refused}");
}

/// Returns the names in a directory apart from its locks.
fn left(active: &JsonStore) -> Vec<String> {
    let names = std::fs::read_dir(active.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with('.')).collect()
}

/// The number of operations for each tree is the same, however many are moved.
#[tokio::test]
async fn attack_38_archive_idle_looks_at_each_session_as_often_however_many_there_are() {
    let mut costs = Vec::new();
    for trees in [10, 20, 40] {
        let place = Place::new();
        let (active, archive) = quick(&place).await;
        for n in 0..trees {
            let root = create(&active, &format!("s{n:03}"), None).await;
            create(&active, &format!("s{n:03}.1$$0"), Some(&root)).await;
        }
        let wire = Wire::new(Event::Nothing);
        let moved = wire.store(&active, &archive).archive_idle(micros(i64::MAX)).await.unwrap();
        assert_eq!((moved.len(), place.files()), (trees, 0));
        let log = wire.log();
        let count = |name: &str| log.iter().filter(|it| **it == name).count();
        assert_eq!(count("delete"), 0, "deleting a tree looks at all files");
        costs.push((count("held"), log.len() - count("held"), trees));
    }
    let [(held, others, trees), rest @ ..] = costs.as_slice() else { panic!("{costs:?}") };
    for (more_held, more_others, more_trees) in rest {
        assert_eq!(more_held, held, "{costs:?}");
        assert_eq!(more_others * trees, others * more_trees, "{costs:?}");
    }
}
