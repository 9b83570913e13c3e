//! Which run a future is polled in: a run that waits behind another one is never waited for from within that one.

use std::{future::Future, sync::Arc};

use super::{Env, Sink};
use crate::{Error, ErrorKind, SessionId};

tokio::task_local! {
    /// The root run whose agent, tools and agents below are polled here.
    static NEST: Nest;
}

/// A root session's run under way.
#[derive(Debug, Clone)]
pub(crate) struct Nest {
    /// The runtime.
    owner: u64,
    session: SessionId,
    sink: Arc<Sink>,
}

impl Nest {
    pub(crate) fn new(env: &Env, session: &SessionId, sink: &Arc<Sink>) -> Self {
        Self { owner: env.owner, session: session.clone(), sink: Arc::clone(sink) }
    }

    /// `run`, which everything that is polled in it is then known to be within.
    pub(crate) fn around<F: Future>(self, run: F) -> impl Future<Output = F::Output> {
        NEST.scope(self, run)
    }

    /// `work` in a task of its own, still within the run that this is called in.
    pub(super) fn inherited<F: Future>(work: F) -> impl Future<Output = F::Output> {
        let nest = NEST.try_with(Clone::clone).ok();
        async move {
            match nest {
                Some(nest) => NEST.scope(nest, work).await,
                None => work.await,
            }
        }
    }

    /// Whether this is polled within the run of `sink`.
    fn is_within(sink: &Arc<Sink>) -> bool {
        NEST.try_with(|nest| Arc::ptr_eq(&nest.sink, sink)).unwrap_or(false)
    }

    /// Whether the run of `sink` waits behind the one that this is polled in.
    pub(super) fn is_waited_for(owner: u64, session: &SessionId, sink: &Sink) -> bool {
        let behind = |nest: &Nest| nest.owner == owner && nest.session == *session;
        sink.is_waiting() && NEST.try_with(behind).unwrap_or(false)
    }

    /// Why the run of `sink` cannot be waited for here: it would wait for itself. One that was `cancelled` needs no turn of
    /// its own any more.
    pub(super) fn refuse(
        owner: u64,
        session: &SessionId,
        sink: &Arc<Sink>,
        cancelled: bool,
    ) -> Option<Error> {
        let text = if Self::is_within(sink) {
            "a run cannot wait for its own outcome; take its handle out of what runs within it"
        } else if !cancelled && Self::is_waited_for(owner, session, sink) {
            "this run waits for the one under way in its session, from within which it is awaited, so neither would go \
             on; use `ToolContext::run_agent` to run an agent now, `Session::steer` to add to the run under way, or \
             `RunHandle::detach` to let it run afterwards"
        } else {
            return None;
        };
        Some(Error::new(ErrorKind::Busy, text).during("run.outcome").with("session", session.as_str()))
    }
}
