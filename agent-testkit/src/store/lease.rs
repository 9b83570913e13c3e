//! The contract of leases: a rising generation, one owner at a time, and no write of a former owner.

use std::sync::Arc;

use entourage_core::{
    ErrorKind, SessionId,
    session::{Batch, Lease, SessionFilter, SessionRecord, SharedStore},
};
use tokio::{sync::Barrier, task::JoinSet};

use super::{
    Checked, Failure, Fixture,
    sample::{ODD, batch, contents, create, head, holds, id, info, micros, refused, root, row, same},
};

fn lease(owner: u64, generation: u64, until: i64) -> Lease {
    Lease::new(owner, generation, micros(until))
}

async fn held(store: &SharedStore, session: &SessionId) -> Checked<Option<Lease>> {
    Ok(info(store, session).await?.lease)
}

/// Everything that a refused writer must leave unchanged.
async fn all(store: &SharedStore, session: &SessionId) -> Checked<impl PartialEq + std::fmt::Debug> {
    Ok((contents(store, session).await?, info(store, session).await?))
}

pub(super) async fn a_lease_comes_with_the_first_batch(at: Fixture) -> Checked {
    let session = id("s")?;
    let first = lease(7, 1, 2_000);
    at.store.append(&session, 0, batch(1, 0, 2).creating(root(&session)).leased(first)).await?;
    same("the lease", &held(&at.store, &session).await?, &Some(first))?;
    // Lists show the lease of each session, and none for a session that was never leased.
    let free = create(&at.store, "free").await?;
    same("no lease", &held(&at.store, &free).await?, &None)?;
    let listed = at.store.query(&SessionFilter::all()).await?;
    let leases: Vec<_> = listed.iter().map(|it| (it.record.id.as_str(), it.lease)).collect();
    same("the leases in the list", &leases, &vec![("free", None), ("s", Some(first))])
}

pub(super) async fn an_append_takes_and_renews_the_lease(at: Fixture) -> Checked {
    let session = create(&at.store, "s").await?;
    for (expected, next) in [
        (1, lease(7, 1, 2_000)),
        (2, lease(7, 1, 3_000)),
        // An owner may also shorten its lease, and give it back.
        (3, lease(7, 1, 1)),
        (4, lease(7, 1, 0)),
        (5, lease(8, 2, 9_000)),
        (6, lease(8, 5, 9_000)),
    ] {
        at.store.append(&session, expected, batch(1, expected, 1).leased(next)).await?;
        same("the lease after an append", &held(&at.store, &session).await?, &Some(next))?;
    }
    at.store.append(&session, 7, batch(1, 7, 3)).await?;
    let kept = Some(lease(8, 5, 9_000));
    same("the lease after a batch without one", &held(&at.store, &session).await?, &kept)?;
    same("the number of events", &contents(&at.store, &session).await?.len(), &10)
}

pub(super) async fn a_lease_alone_changes_nothing_else(at: Fixture) -> Checked {
    let session = create(&at.store, "s").await?;
    let before = (contents(&at.store, &session).await?, info(&at.store, &session).await?);
    for next in
        [lease(7, 1, 5), lease(7, 1, 9), lease(7, 1, 0), lease(8, 2, 7), lease(7, 3, 8), lease(7, 4, 8)]
    {
        at.store.lease(&session, next).await?;
        let expected = (before.0.clone(), before.1.clone().leased(Some(next)));
        let now = (contents(&at.store, &session).await?, info(&at.store, &session).await?);
        same("the session after a lease", &now, &expected)?;
    }
    // The numbers continue as if nothing had happened.
    same("the number", &at.store.append(&session, 1, batch(1, 1, 1)).await?, &2)
}

pub(super) async fn a_lease_of_nothing_is_not_found(at: Fixture) -> Checked {
    let session = create(&at.store, "s").await?;
    let unknown = id("s1")?;
    refused("a lease", at.store.lease(&unknown, lease(1, 1, 5)).await, ErrorKind::NotFound)?;
    let late = batch(1, 1, 1).leased(lease(1, 1, 5));
    refused("an append", at.store.append(&unknown, 1, late).await, ErrorKind::NotFound)?;
    at.store.lease(&session, lease(1, 1, 5)).await?;
    at.store.delete(&session).await?;
    refused("a lease after all", at.store.lease(&session, lease(1, 1, 5)).await, ErrorKind::NotFound)?;
    same("the sessions", &at.store.query(&SessionFilter::all()).await?.len(), &0)?;
    // A session that is created anew has no lease of its predecessor.
    create(&at.store, "s").await?;
    same("the lease", &held(&at.store, &session).await?, &None)
}

pub(super) async fn attack_10_a_stale_owner_is_fenced(at: Fixture) -> Checked {
    let session = id("s")?;
    let bystander = create(&at.store, "s1").await?;
    at.store.append(&session, 0, batch(1, 0, 1).creating(root(&session)).leased(lease(7, 4, 9))).await?;
    at.store.lease(&session, lease(8, 5, 9)).await?;
    let before = all(&at.store, &session).await?;
    let stale = [
        ("who was taken over from", lease(7, 4, 100)),
        ("who claims the same generation", lease(7, 5, 100)),
        ("who claims it for longest", lease(9, 5, i64::MAX)),
        ("the owner itself, of old", lease(8, 4, 100)),
        ("generation nought", lease(8, 0, 100)),
    ];
    for (who, lease) in stale {
        // The number is right: only the lease is stale.
        let late = at.store.append(&session, 1, batch(1, 1, 3).leased(lease)).await;
        refused(&format!("an append of {who}"), late, ErrorKind::Conflict)?;
        refused(&format!("a lease of {who}"), at.store.lease(&session, lease).await, ErrorKind::Conflict)?;
        same(who, &all(&at.store, &session).await?, &before)?;
    }
    // The next owner is admitted, and fences the others in turn. A lease binds its own session only.
    at.store.append(&session, 1, batch(1, 1, 1).leased(lease(7, 6, 9))).await?;
    refused("the one before", at.store.lease(&session, lease(8, 5, 9)).await, ErrorKind::Conflict)?;
    at.store.lease(&bystander, lease(8, 5, 9)).await?;
    at.store.append(&bystander, 1, batch(1, 1, 1).leased(lease(8, 5, 10))).await?;
    same("the lease", &held(&at.store, &session).await?, &Some(lease(7, 6, 9)))
}

pub(super) async fn a_session_made_anew_takes_nothing_that_is_for_the_deleted_one(at: Fixture) -> Checked {
    let session = id("s")?;
    let made = |created| SessionRecord::root(session.clone(), micros(created));
    // Also with a clock that was set back meanwhile, and whichever lease is the later one.
    for (old, new) in [(made(10), made(20)), (made(20), made(10))] {
        for held_anew in [None, Some(lease(9, 1, 9)), Some(lease(9, 5, 9))] {
            at.store.append(&session, 0, batch(1, 0, 2).creating(old.clone()).leased(lease(7, 4, 9))).await?;
            at.store.append(&session, 2, batch(1, 2, 1).of(&old)).await?;
            at.store.lease(&session, lease(7, 4, 10).of(&old)).await?;
            same("the lease", &held(&at.store, &session).await?, &Some(lease(7, 4, 10)))?;
            same("the number of deleted sessions", &at.store.delete(&session).await?, &1)?;
            let mut anew = batch(2, 0, 3).creating(new.clone());
            anew.lease = held_anew;
            at.store.append(&session, 0, anew).await?;

            let before = all(&at.store, &session).await?;
            let late = batch(1, 3, 1).of(&old);
            for batch in [late.clone(), late.clone().leased(lease(7, 4, 11)), late.leased(lease(7, 9, 11))] {
                refused("a late append", at.store.append(&session, 3, batch).await, ErrorKind::Conflict)?;
            }
            let late = at.store.lease(&session, lease(7, 9, 11).of(&old)).await;
            refused("a late lease", late, ErrorKind::Conflict)?;
            same("the session", &all(&at.store, &session).await?, &before)?;

            at.store.append(&session, 3, batch(2, 3, 1).of(&new).leased(lease(9, 6, 9))).await?;
            at.store.lease(&session, lease(9, 6, 10).of(&new)).await?;
            same("its own lease", &held(&at.store, &session).await?, &Some(lease(9, 6, 10)))?;
            same("the number of sessions", &at.store.delete(&session).await?, &1)?;
        }
    }
    Ok(())
}

pub(super) async fn attack_10_a_lease_that_ran_out_or_was_given_back_still_fences(at: Fixture) -> Checked {
    // A store has no clock: the generation alone decides.
    let session = create(&at.store, "s").await?;
    at.store.lease(&session, lease(7, 1, i64::MIN)).await?;
    refused("another owner", at.store.lease(&session, lease(8, 1, 9)).await, ErrorKind::Conflict)?;
    let late = batch(1, 1, 1).leased(lease(8, 1, 9));
    refused("its append", at.store.append(&session, 1, late).await, ErrorKind::Conflict)?;
    at.store.lease(&session, lease(8, 2, 0)).await?;
    refused("the first owner", at.store.lease(&session, lease(7, 1, 9)).await, ErrorKind::Conflict)?;
    same("the lease", &held(&at.store, &session).await?, &Some(lease(8, 2, 0)))
}

pub(super) async fn attack_12_an_echo_of_a_fenced_owner_stores_nothing(at: Fixture) -> Checked {
    let session = create(&at.store, "s").await?;
    let sent = batch(7, 1, 2).leased(lease(7, 1, 9));
    at.store.append(&session, 1, sent.clone()).await?;
    at.store.lease(&session, lease(8, 2, 9)).await?;
    let before = all(&at.store, &session).await?;
    // It was stored when it was first sent, and the echo returns that result.
    same("the echo", &at.store.append(&session, 1, sent).await?, &3)?;
    same("the session", &all(&at.store, &session).await?, &before)?;
    let next = batch(7, 3, 1).leased(lease(7, 1, 9));
    refused("what comes next", at.store.append(&session, 3, next).await, ErrorKind::Conflict)
}

pub(super) async fn leases_come_back_at_their_limits(at: Fixture) -> Checked {
    let most = i64::MAX.unsigned_abs();
    let limits = [
        lease(0, 0, i64::MIN),
        lease(0, 0, -1),
        lease(u64::MAX, 1, i64::MAX),
        lease(most, 2, 0),
        lease(most + 1, most - 1, 1),
        lease(u64::MAX - 1, most, i64::MIN),
    ];
    let session = create(&at.store, "s").await?;
    for (n, limit) in (1..).zip(limits) {
        at.store.lease(&session, limit).await?;
        same("a lease", &held(&at.store, &session).await?, &Some(limit))?;
        let batch = batch(1, n, 1).leased(limit);
        at.store.append(&session, n, batch).await?;
        same("a lease with a batch", &held(&at.store, &session).await?, &Some(limit))?;
        let fresh = id(&format!("s{n}"))?;
        let first = Batch::new(1, vec![row(1, ODD)], head(1, 1)).creating(root(&fresh)).leased(limit);
        at.store.append(&fresh, 0, first).await?;
        same("a lease of a new session", &held(&at.store, &fresh).await?, &Some(limit))?;
    }
    Ok(())
}

pub(super) async fn a_lease_outlives_its_handle(at: Fixture) -> Checked {
    let session = create(&at.store, "s").await?;
    at.store.lease(&session, lease(u64::MAX, 1, 9)).await?;
    let second = at.reopened().await?;
    same("the lease", &held(&second, &session).await?, &Some(lease(u64::MAX, 1, 9)))?;
    second.append(&session, 1, batch(2, 1, 1).leased(lease(8, 2, 9))).await?;
    let stale = batch(1, 2, 1).leased(lease(u64::MAX, 1, 10));
    refused("the first handle", at.store.append(&session, 2, stale).await, ErrorKind::Conflict)?;
    refused("its lease", at.store.lease(&session, lease(u64::MAX, 1, 10)).await, ErrorKind::Conflict)?;
    same("the lease at last", &held(&at.store, &session).await?, &Some(lease(8, 2, 9)))
}

pub(super) async fn attack_09_of_fifty_racing_takeovers_one_wins(at: Fixture) -> Checked {
    const OWNERS: usize = 50;
    let session = create(&at.store, "s").await?;
    at.store.lease(&session, lease(1, 1, 9)).await?;
    let start = Arc::new(Barrier::new(OWNERS));
    let mut tasks = JoinSet::new();
    for owner in (100..).take(OWNERS) {
        let (store, start, session) = (Arc::clone(&at.store), Arc::clone(&start), session.clone());
        tasks.spawn(async move {
            start.wait().await;
            // One half comes with a batch, the other by itself.
            let taken = lease(owner, 2, 9);
            let result = if owner % 2 == 0 {
                store.lease(&session, taken).await
            } else {
                store.append(&session, 1, batch(owner, 1, 1).leased(taken)).await.map(drop)
            };
            (taken, result)
        });
    }
    let mut winners = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        let (lease, result) = ended.map_err(|error| Failure(error.to_string()))?;
        match result {
            Ok(()) => winners.push(lease),
            lost => refused("a takeover that was too late", lost, ErrorKind::Conflict)?,
        }
    }
    same("the number of winners", &winners.len(), &1)?;
    same("the lease", &held(&at.store, &session).await?, &winners.pop())
}

/// Runs both concurrently, each in its own task. The rounds give one of them a different head start: on a single
/// thread nothing else would vary their order.
async fn both<A: Send + 'static, B: Send + 'static>(
    round: usize,
    a: impl Future<Output = A> + Send + 'static,
    b: impl Future<Output = B> + Send + 'static,
) -> Checked<(A, B)> {
    let start = Arc::new(Barrier::new(2));
    let other = Arc::clone(&start);
    let a = tokio::spawn(async move {
        start.wait().await;
        yield_times(round % 4).await;
        a.await
    });
    let b = tokio::spawn(async move {
        other.wait().await;
        yield_times(round / 4 % 4).await;
        b.await
    });
    let failed = |error: tokio::task::JoinError| Failure(error.to_string());
    Ok((a.await.map_err(failed)?, b.await.map_err(failed)?))
}

async fn yield_times(times: usize) {
    for _ in 0..times {
        tokio::task::yield_now().await;
    }
}

const ROUNDS: usize = 48;

pub(super) async fn attack_10_a_takeover_that_races_an_append_fences_it(at: Fixture) -> Checked {
    for round in 0..ROUNDS {
        let session = create(&at.store, &format!("s{round}")).await?;
        at.store.lease(&session, lease(7, 1, 9)).await?;
        let (store, name) = (Arc::clone(&at.store), session.clone());
        let append = async move { store.append(&name, 1, batch(7, 1, 2).leased(lease(7, 1, 10))).await };
        let (store, name) = (Arc::clone(&at.store), session.clone());
        let take = async move { store.lease(&name, lease(8, 2, 9)).await };
        let (appended, taken) = both(round, append, take).await?;
        taken?;
        let events = match appended {
            Ok(_) => 3,
            late => {
                refused("the append", late, ErrorKind::Conflict)?;
                1
            }
        };
        same("the number of events", &contents(&at.store, &session).await?.len(), &events)?;
        same("the lease", &held(&at.store, &session).await?, &Some(lease(8, 2, 9)))?;
        let next = batch(7, events as u64, 1).leased(lease(7, 1, 11));
        refused("the next one", at.store.append(&session, events as u64, next).await, ErrorKind::Conflict)?;
    }
    Ok(())
}

pub(super) async fn a_delete_that_races_leaves_nothing_behind(at: Fixture) -> Checked {
    for round in 0..ROUNDS {
        let session = create(&at.store, "s").await?;
        let (store, name) = (Arc::clone(&at.store), session.clone());
        let write = async move {
            match round % 3 {
                0 => store.append(&name, 1, batch(7, 1, 2).leased(lease(7, 1, 9))).await.map(|_| 1),
                1 => store.lease(&name, lease(7, 1, 9)).await.map(|()| 1),
                _ => {
                    let child = SessionId::new("child")?;
                    let record = SessionRecord::child(child.clone(), name, "child", micros(1));
                    store.append(&child, 0, batch(7, 0, 1).creating(record)).await.map(|_| 2)
                }
            }
        };
        let (store, name) = (Arc::clone(&at.store), session.clone());
        let delete = async move { store.delete(&name).await };
        let (written, deleted) = both(round, write, delete).await?;
        let there = match written {
            Ok(sessions) => sessions,
            late => {
                refused("a write after the end", late, ErrorKind::NotFound)?;
                1
            }
        };
        same("the number of deleted sessions", &deleted?, &there)?;
        holds("no session is left", at.store.query(&SessionFilter::all()).await?.is_empty())?;
        let again = at.store.append(&session, 1, batch(7, 1, 2)).await;
        refused("an append to what was deleted", again, ErrorKind::NotFound)?;
    }
    Ok(())
}
