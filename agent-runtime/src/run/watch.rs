//! The watch over a run from outside its agent: its deadline, its session's lease, and the time to unwind.

use std::{pin::pin, task::Poll, time::Duration};

use entourage_core::{
    Error, ErrorKind, Result, Timestamp,
    run::{Outcome, RunContext},
};
use futures_util::{FutureExt, future::BoxFuture};

use crate::{
    Caught,
    effects::site::Site,
    run::{budget, execute::CLEAN_UP},
};

/// The reason that a run was cut short from outside.
pub(super) enum Cut {
    /// Its deadline passed, or its budget's time.
    Late,
    /// Another process has the session now.
    Fenced(Error),
    /// It was cancelled and did not end in time: its store hangs, or its agent does not listen.
    Stuck,
}

/// Polls the agent, renews its session's lease meanwhile, and cancels it when something cuts it short.
pub(super) async fn run_agent(
    mut work: Caught<'_, Result<Outcome>>,
    deadline: Option<Timestamp>,
    cx: &RunContext,
    site: &Site,
) -> (Result<Box<Outcome>>, Option<Cut>) {
    // A late run begins nothing: an agent that need not wait would come to its end before its watch.
    let is_late = time_left(deadline, cx, site).is_some_and(|left| left.is_zero());
    let mut cut = is_late.then_some(Cut::Late);
    if is_late {
        cx.cancellation().cancel();
    }
    let mut watch: Option<BoxFuture<'_, Cut>> = None;
    let ended = std::future::poll_fn(|task| {
        loop {
            // Boxed where it comes out: an outcome is large and is moved often.
            match work.poll_unpin(task) {
                Poll::Ready(Ok(ended)) => return Poll::Ready(ended.map(Box::new)),
                Poll::Ready(Err(panic)) => return Poll::Ready(Err(panicked(&panic, cx.agent()))),
                Poll::Pending => {}
            }
            // Made only once there is something to wait for: a run that never waits needs no timers.
            let watching = watch.get_or_insert_with(|| match cut {
                None => Box::pin(watch_over(cx, site, deadline)),
                Some(_) => Box::pin(unwind(cx)),
            });
            match std::task::ready!(watching.as_mut().poll(task)) {
                Cut::Stuck => return Poll::Ready(Err(Error::cancelled())),
                reason => {
                    cut = Some(reason);
                    cx.cancellation().cancel();
                    watch = None;
                }
            }
        }
    })
    .await;
    (ended, cut)
}

pub(crate) fn panicked(panic: &str, agent: &str) -> Error {
    let text = format!("the agent panicked: {panic}");
    Error::new(ErrorKind::Internal, text).with("agent", agent)
}

/// Completes when a cancelled run has used up its time to unwind.
pub(crate) async fn stuck(cx: &RunContext) {
    cx.cancellation().cancelled().await;
    tokio::time::sleep(CLEAN_UP).await;
}

/// Waits for the end of `work`, and keeps the session's lease meanwhile. If another process has it, that is noted.
pub(super) async fn leased(site: &Site, work: impl Future<Output = ()>) {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        () = &mut work => return,
        _ = keep_lease(site) => {}
    }
    work.await;
}

async fn unwind(cx: &RunContext) -> Cut {
    stuck(cx).await;
    Cut::Stuck
}

/// Returns the time that the run has left by its deadline and its budget; `None` without a bound.
fn time_left(deadline: Option<Timestamp>, cx: &RunContext, site: &Site) -> Option<Duration> {
    let left = deadline.map(|deadline| deadline.since(site.now()));
    left.into_iter().chain(budget::time_left(cx.budget())).min()
}

async fn watch_over(cx: &RunContext, site: &Site, deadline: Option<Timestamp>) -> Cut {
    let over = async {
        match time_left(deadline, cx, site) {
            Some(left) => tokio::time::sleep(left).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = over => Cut::Late,
        error = keep_lease(site) => Cut::Fenced(error),
        () = stuck(cx) => Cut::Stuck,
    }
}

/// Renews the lease whenever a third of its time went by without a commit; returns when another process has it, or it
/// was deleted.
async fn keep_lease(site: &Site) -> Error {
    let time = site.env.lease;
    if site.env.store.is_none() {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep((time / 3).max(Duration::from_millis(1))).await;
        // A store that fails now may be back before the lease ends.
        if let Err(error) = site.journal.renew_lease(&site.emitter, site.now(), time).await
            && matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound)
        {
            return error;
        }
    }
}
