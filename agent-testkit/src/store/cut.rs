//! Obligations of an operation whose caller goes away: it is polled a few times and then kept unpolled or dropped, and
//! no other caller may have to wait for it.

use std::{future::Future, sync::Arc, task::Poll, time::Duration};

use entourage_core::{
    ErrorKind, Result, SessionId,
    session::{Lease, ReadRange, SessionFilter, SharedStore},
};
use futures_util::future::BoxFuture;

use super::{
    Checked, Failure, Fixture,
    sample::{batch, create, create_below, id, micros, refused, root, same},
};

/// Most polls before a cut. An operation that needs more is left to end by itself.
const POLLS: usize = 24;
/// Number of concurrent operations.
const CROWD: usize = 5;
/// Pause between two polls. No verdict depends on it.
const PAUSE: Duration = Duration::from_millis(1);
/// Time after which an operation counts as hanging, not slow.
const HANG: Duration = Duration::from_secs(30);

type Operation = BoxFuture<'static, Result<()>>;

/// An operation to cut, each time on a session of its own.
struct Cut {
    /// Makes the session, if the operation needs one.
    prepare: fn(SharedStore, SessionId) -> BoxFuture<'static, Checked>,
    /// Begins operation number `n` of the crowd.
    begin: fn(SharedStore, SessionId, usize) -> Operation,
    /// Checks that the session accepts later operations, however far this one came.
    after: fn(SharedStore, SessionId) -> BoxFuture<'static, Checked>,
}

/// Fate of the future after the cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// It stays alive, and nobody polls it.
    Kept,
    Dropped,
}

/// Begins several operations concurrently, so that they wait for each other, and cuts them after each number of polls
/// until they need no more. After each cut, another session is used and then the same one.
async fn cut_everywhere(at: &Fixture, cut: Cut) -> Checked {
    let other = create(&at.store, "other").await?;
    let mut seq = 1;
    for left in [Left::Kept, Left::Dropped] {
        let mut kept = Vec::new();
        for polls in 1..=POLLS {
            let session = id(&format!("{left:?}-{polls}"))?;
            (cut.prepare)(Arc::clone(&at.store), session.clone()).await?;
            let mut crowd: Vec<Operation> =
                (0..CROWD).map(|n| (cut.begin)(Arc::clone(&at.store), session.clone(), n)).collect();
            poll(&mut crowd, polls).await?;
            let over = crowd.is_empty();
            if left == Left::Kept {
                kept.extend(crowd);
            } else {
                drop(crowd);
            }
            let which = format!("{left:?} after {polls} polls");
            within(&which, "other sessions", others(&at.store, &other, &mut seq)).await?;
            within(&which, "the same session", (cut.after)(Arc::clone(&at.store), session)).await?;
            if over {
                break;
            }
        }
        for operation in kept {
            within("polled again", "the operation itself", async { Ok(operation.await?) }).await?;
        }
    }
    Ok(())
}

/// Polls each operation `polls` times, woken or not. Removes those that end.
async fn poll(crowd: &mut Vec<Operation>, polls: usize) -> Checked {
    for _ in 0..polls {
        let mut ended: Checked = Ok(());
        std::future::poll_fn(|cx| {
            crowd.retain_mut(|operation| match operation.as_mut().poll(cx) {
                Poll::Ready(Ok(())) => false,
                Poll::Ready(Err(error)) => {
                    ended = Err(error.into());
                    false
                }
                Poll::Pending => true,
            });
            Poll::Ready(())
        })
        .await;
        ended?;
        if crowd.is_empty() {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

async fn within(cut: &str, who: &str, work: impl Future<Output = Checked>) -> Checked {
    match tokio::time::timeout(HANG, work).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(Failure(text))) => Err(Failure(format!("{cut}: {who}: {text}"))),
        Err(_) => Err(Failure(format!("{cut}: {who} was blocked by the cut operation"))),
    }
}

async fn others(store: &SharedStore, other: &SessionId, seq: &mut u64) -> Checked {
    store.append(other, *seq, batch(1, *seq, 1)).await?;
    *seq += 1;
    store.lease(other, lease(8, *seq)).await?;
    same("the newest event", &store.read(other, ReadRange::after(*seq - 1)).await?.len(), &1)?;
    store.query(&SessionFilter::all().page(0, 2)).await?;
    same("deleted", &store.delete(&id("nobody")?).await?, &0)
}

fn lease(owner: u64, generation: u64) -> Lease {
    Lease::new(owner, generation, micros(5_000))
}

/// A session of twenty events, with a child.
fn made(store: SharedStore, session: SessionId) -> BoxFuture<'static, Checked> {
    Box::pin(async move {
        create(&store, session.as_str()).await?;
        store.append(&session, 1, batch(1, 1, 19)).await?;
        create_below(&store, &session, &format!("{session}-below")).await?;
        Ok(())
    })
}

/// Appends twice.
fn goes_on(store: SharedStore, session: SessionId) -> BoxFuture<'static, Checked> {
    Box::pin(async move {
        same("the next append", &store.append(&session, 20, batch(2, 20, 1)).await?, &21)?;
        same("the one after it", &store.append(&session, 21, batch(1, 21, 1)).await?, &22)
    })
}

pub(super) async fn an_append_that_is_cut_holds_up_nobody(at: Fixture) -> Checked {
    let begin = |store: SharedStore, session: SessionId, _: usize| {
        Box::pin(async move { store.append(&session, 20, batch(9, 20, 5)).await.map(drop) }) as Operation
    };
    let after = |store: SharedStore, session: SessionId| {
        Box::pin(async move {
            same("the same batch again", &store.append(&session, 20, batch(9, 20, 5)).await?, &25)?;
            let late = store.append(&session, 20, batch(2, 20, 5)).await;
            refused("another batch in its place", late, ErrorKind::Conflict)?;
            same("the next batch", &store.append(&session, 25, batch(2, 25, 1)).await?, &26)
        }) as BoxFuture<'static, Checked>
    };
    cut_everywhere(&at, Cut { prepare: made, begin, after }).await
}

pub(super) async fn a_creation_that_is_cut_holds_up_nobody(at: Fixture) -> Checked {
    let begin = |store: SharedStore, session: SessionId, _: usize| {
        Box::pin(async move {
            let batch = batch(9, 0, 3).creating(root(&session)).leased(lease(7, 1));
            store.append(&session, 0, batch).await.map(drop)
        }) as Operation
    };
    let after = |store: SharedStore, session: SessionId| {
        Box::pin(async move {
            let again = batch(9, 0, 3).creating(root(&session)).leased(lease(7, 1));
            same("the same batch again", &store.append(&session, 0, again).await?, &3)?;
            let next = batch(9, 3, 1).leased(lease(7, 1));
            same("the next batch", &store.append(&session, 3, next).await?, &4)
        }) as BoxFuture<'static, Checked>
    };
    cut_everywhere(&at, Cut { prepare: |_, _| Box::pin(async { Ok(()) }), begin, after }).await
}

pub(super) async fn a_lease_that_is_cut_holds_up_nobody(at: Fixture) -> Checked {
    let begin = |store: SharedStore, session: SessionId, _: usize| {
        Box::pin(async move { store.lease(&session, lease(7, 1)).await }) as Operation
    };
    let after = |store: SharedStore, session: SessionId| {
        Box::pin(async move {
            let next = batch(2, 20, 1).leased(lease(7, 1));
            same("the next append", &store.append(&session, 20, next).await?, &21)?;
            Ok(store.lease(&session, lease(7, 1)).await?)
        }) as BoxFuture<'static, Checked>
    };
    cut_everywhere(&at, Cut { prepare: made, begin, after }).await
}

pub(super) async fn a_delete_that_is_cut_holds_up_nobody(at: Fixture) -> Checked {
    let begin = |store: SharedStore, session: SessionId, _: usize| {
        Box::pin(async move { store.delete(&session).await.map(drop) }) as Operation
    };
    let after = |store: SharedStore, session: SessionId| {
        Box::pin(async move {
            // The delete may have completed or not.
            match store.append(&session, 20, batch(2, 20, 1)).await {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
            store.delete(&session).await?;
            let late = store.append(&session, 21, batch(2, 21, 1)).await;
            refused("an append to what was deleted", late, ErrorKind::NotFound)
        }) as BoxFuture<'static, Checked>
    };
    cut_everywhere(&at, Cut { prepare: made, begin, after }).await
}

pub(super) async fn a_list_that_is_cut_holds_up_nobody(at: Fixture) -> Checked {
    let begin = |store: SharedStore, session: SessionId, _: usize| {
        Box::pin(async move { store.query(&SessionFilter::tree(session)).await.map(drop) }) as Operation
    };
    cut_everywhere(&at, Cut { prepare: made, begin, after: goes_on }).await
}

pub(super) async fn a_window_that_is_cut_holds_up_nobody(at: Fixture) -> Checked {
    let begin = |store: SharedStore, session: SessionId, _: usize| {
        Box::pin(async move { store.read(&session, ReadRange::after(2).with_limit(9)).await.map(drop) })
            as Operation
    };
    cut_everywhere(&at, Cut { prepare: made, begin, after: goes_on }).await
}

/// One operation of each kind, on one session that is created meanwhile.
async fn any(store: SharedStore, session: SessionId, n: usize) -> Result<()> {
    match n {
        0 => store.append(&session, 0, batch(9, 0, 3).creating(root(&session))).await.map(drop),
        1 => store.query(&SessionFilter::all().page(0, 3)).await.map(drop),
        2 => store.lease(&session, lease(7, 1)).await,
        3 => store.read(&session, ReadRange::all()).await.map(drop),
        _ => store.delete(&session).await.map(drop),
    }
}

pub(super) async fn a_crowd_that_is_cut_holds_up_nobody(at: Fixture) -> Checked {
    let begin = |store: SharedStore, session: SessionId, n: usize| {
        Box::pin(async move {
            match any(store, session, n).await {
                // They run in any order: the session may not exist yet, or no longer.
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        }) as Operation
    };
    let after = |store: SharedStore, session: SessionId| {
        Box::pin(async move {
            store.query(&SessionFilter::tree(session.clone())).await?;
            store.delete(&session).await?;
            Ok(())
        }) as BoxFuture<'static, Checked>
    };
    cut_everywhere(&at, Cut { prepare: |_, _| Box::pin(async { Ok(()) }), begin, after }).await
}
