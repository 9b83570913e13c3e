//! Runs beside a mover: whatever the order of their steps, a run that has begun is never ended, and nothing is lost.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use entourage_core::{
    ErrorKind, SessionId, Timestamp,
    session::{Lease, SessionFilter, SessionStatus, SessionStore},
};
use entourage_store::{ActiveStore, HybridStore, JsonStore};

use crate::{
    Place, batch, contents, create, create_tree, micros, quick,
    wire::{Event, Wire},
};

/// What a process that had the session open before does in it: it begins a run, goes on, renews its lease and ends.
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

/// The run's steps happen before operations `first`, `first + gap`, … of the mover. Gives how many the mover did.
async fn beside(first: usize, gap: usize, member: usize) -> (usize, Option<ErrorKind>) {
    let place = Place::new();
    let (active, archive) = quick(&place).await;
    let tree = create_tree(&active, "talk").await;
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
    assert_eq!(user.query(&SessionFilter::all()).await.unwrap().len(), 4);
    // Once it is over the tree moves.
    user.archive(&tree[0]).await.unwrap();
    assert_eq!((place.files(), contents(&archive, &session).await.0.len()), (0, 10));
    (wire.used(), moved.err().map(|error| error.kind()))
}

#[tokio::test]
async fn attack_34_a_run_that_begins_at_any_step_of_a_move_is_never_ended_by_it() {
    let (mut orders, mut moved, mut refused) = (0, 0, 0);
    for member in [0, 3] {
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

/// The judgement and the seal are one look at the session.
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

/// A lease that is live by this machine's clock keeps the mover away; one that ran out, or that was given back, does not.
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
        // Whoever holds it goes on, wherever the session is; whoever lost it does not.
        let next = batch(7, 6, 1).leased(Lease::new(7, 3, micros(now + 9 * DAY)));
        assert_eq!(store.append(&session, 6, next).await.unwrap(), 7, "{until}");
        let late = batch(6, 7, 1).leased(Lease::new(6, 2, micros(i64::MAX)));
        assert_eq!(store.append(&session, 7, late).await.unwrap_err().kind(), ErrorKind::Conflict, "{until}");
    }
}

/// Two movers of one tree are in nobody's way.
#[tokio::test]
async fn two_movers_move_a_tree_once() {
    for first in 0..90 {
        let place = Place::new();
        let (active, archive) = quick(&place).await;
        let tree = create_tree(&active, "talk").await;
        let other: Arc<HybridStore> = Arc::new(HybridStore::new(active.clone(), archive.clone()));
        let (store, root) = (Arc::clone(&other), tree[0].clone());
        let wire = Wire::new(Event::Beside(Box::new(move |n| {
            let (store, root) = (Arc::clone(&store), root.clone());
            Box::pin(async move {
                if n == first {
                    store.archive(&root).await.unwrap();
                }
            })
        })));
        let moved = wire.store(&active, &archive).archive(&tree[0]).await;
        if let Err(error) = moved {
            assert!([ErrorKind::Conflict, ErrorKind::NotFound].contains(&error.kind()), "{first}: {error:?}");
        }
        other.archive(&tree[0]).await.unwrap();
        assert_eq!(
            (place.files(), other.query(&SessionFilter::all()).await.unwrap().len()),
            (0, 4),
            "{first}"
        );
        for session in &tree {
            assert_eq!(contents(&*other, session).await.0.len(), 6, "{first}");
        }
        assert_eq!(fs_names(&active), [".lock"], "{first}: nothing is left behind");
    }
}

fn fs_names(active: &JsonStore) -> Vec<String> {
    let names = std::fs::read_dir(active.path()).unwrap();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Moving many costs what they are: the number of operations for each is the same however many there are.
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
