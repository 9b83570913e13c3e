//! The root run that a future is polled in. A queued run is never awaited from within the run that it waits for.

use std::{future::Future, sync::Arc};

use entourage_core::{Error, ErrorKind, SessionId};

use crate::{env::Env, session::delivery::emit::Sink};

tokio::task_local! {
    /// The root run whose agent, tools or child agents are being polled.
    static NEST: Nest;
}

/// The active run of a root session.
#[derive(Debug, Clone)]
pub(crate) struct Nest {
    /// Id of the runtime.
    owner: u64,
    session: SessionId,
    sink: Arc<Sink>,
}

impl Nest {
    pub(crate) fn new(env: &Env, session: &SessionId, sink: &Arc<Sink>) -> Self {
        Self { owner: env.owner, session: session.clone(), sink: Arc::clone(sink) }
    }

    /// Wraps `run`, so that all that it polls is known to be within it.
    pub(crate) fn around<F: Future>(self, run: F) -> impl Future<Output = F::Output> {
        NEST.scope(self, run)
    }

    /// Wraps `work` for a task of its own, still within the run that this is called in.
    pub(crate) fn inherited<F: Future>(work: F) -> impl Future<Output = F::Output> {
        let nest = NEST.try_with(Clone::clone).ok();
        async move {
            match nest {
                Some(nest) => NEST.scope(nest, work).await,
                None => work.await,
            }
        }
    }

    /// True when this is polled within the run of `sink`.
    fn is_within(sink: &Arc<Sink>) -> bool {
        NEST.try_with(|nest| Arc::ptr_eq(&nest.sink, sink)).unwrap_or(false)
    }

    /// True when the run of `sink` is queued behind the one that this is polled in.
    pub(crate) fn is_waited_for(owner: u64, session: &SessionId, sink: &Sink) -> bool {
        let behind = |nest: &Nest| nest.owner == owner && nest.session == *session;
        sink.is_waiting() && NEST.try_with(behind).unwrap_or(false)
    }

    /// Returns an error if the run of `sink` cannot be awaited here, because it would wait for itself. A queued run
    /// that was `cancelled` can be: it does not have to begin any more.
    pub(crate) fn refuse(
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
