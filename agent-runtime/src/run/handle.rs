//! The caller's handle of a run. No event of the run is lost on the way to it.

use std::{
    collections::VecDeque,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use entourage_core::{Error, ErrorKind, Result, RunId, SessionId, event::Envelope, run::Outcome};
use futures_util::Stream;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    caught::panic_text,
    session::delivery::{emit::Sink, nest::Nest},
};

/// A handle of an active or queued run: a stream of its events, and one outcome.
///
/// The run continues by itself, also when nobody reads, and the handle loses no event. A queued run's first event is
/// [`Event::PromptQueued`](entourage_core::event::Event::PromptQueued); if it is cancelled before it begins, its last
/// one is [`Event::PromptDropped`](entourage_core::event::Event::PromptDropped). Dropping the handle cancels the run;
/// [`RunHandle::detach`] lets it continue.
///
/// Code within a run, such as a tool, may start another run of the same session, which queues behind it, but cannot
/// await it: that stream ends after the event that queued the run, and its outcome is [`ErrorKind::Busy`], which
/// cancels it. The run's own outcome cannot be awaited there either. Only futures that the run polls count as within
/// it, not tasks that a tool spawns.
#[must_use = "dropping a run cancels it; await its outcome or detach it"]
pub struct RunHandle {
    session: SessionId,
    /// Id of the runtime.
    owner: u64,
    events: VecDeque<Envelope>,
    /// True once an event came.
    begun: bool,
    sink: Arc<Sink>,
    task: Task,
    cancel: CancelOnDrop,
}

enum Task {
    Running(JoinHandle<Result<Outcome>>),
    /// The run was refused before it began.
    Refused(Option<Error>),
}

struct CancelOnDrop(Option<CancellationToken>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(token) = self.0.take() {
            token.cancel();
        }
    }
}

impl RunHandle {
    pub(crate) fn new(
        owner: u64,
        session: SessionId,
        sink: Arc<Sink>,
        task: Result<JoinHandle<Result<Outcome>>>,
        cancel: CancellationToken,
    ) -> Self {
        let task = match task {
            Ok(task) => Task::Running(task),
            Err(error) => {
                sink.close();
                Task::Refused(Some(error))
            }
        };
        let cancel = CancelOnDrop(Some(cancel));
        Self { session, owner, events: VecDeque::new(), begun: false, sink, task, cancel }
    }

    /// Returns the run's id. A resumed run's id is known once its first event was read.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.sink.run()
    }

    /// Returns the session of the run.
    #[must_use]
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Returns the next event; `None` when the run is over. The same as the `Stream` implementation, without an import.
    #[inline]
    pub async fn next(&mut self) -> Option<Envelope> {
        // The event is taken out here: passed through one more future it would be copied once more.
        if self.events.is_empty() && !std::future::poll_fn(|cx| self.poll_more(cx)).await {
            return None;
        }
        self.events.pop_front()
    }

    /// Asks the run to stop. Its stream continues until it has unwound.
    ///
    /// The outcome is then [`Status::Cancelled`](entourage_core::run::Status::Cancelled). A `DualAgent` or
    /// `Autonomy` at the root ends as [`Status::Paused`](entourage_core::run::Status::Paused) instead, with
    /// [`Pause::Asked`](entourage_core::run::Pause::Asked), unless its builder's `cancel_ends` says otherwise. A run
    /// that ended before the request keeps its outcome.
    pub fn cancel(&self) {
        if let Some(token) = &self.cancel.0 {
            token.cancel();
        }
    }

    /// Asks the run to pause: it ends as paused before its next model call or its next tool call begins, and
    /// [`Session::resume`](crate::Session::resume) continues it. Calls in flight finish first; so does a wait.
    ///
    /// Agents below it pause as well: a tool that runs one should declare
    /// [`Repeat::Resume`](entourage_core::tool::Repeat::Resume).
    pub fn pause(&self) {
        self.sink.pause();
    }

    /// Returns a token that cancels this run, for a signal handler or another task.
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        self.cancel.0.clone().unwrap_or_default()
    }

    /// Returns a reader of the run's current id, and a token that is cancelled when the run is over. A resumed run
    /// takes the id of the run that it continues once that is known.
    pub fn watched(&self) -> (impl Fn() -> RunId + Send + Sync + 'static, CancellationToken) {
        let sink = Arc::clone(&self.sink);
        let over = sink.over();
        (move || sink.run(), over)
    }

    /// Waits until the run is admitted: its first event is then stored.
    ///
    /// # Errors
    /// The reason that it was not admitted.
    pub(crate) async fn admitted(mut self) -> Result<Self> {
        if !self.events.is_empty() || std::future::poll_fn(|cx| self.poll_more(cx)).await {
            return Ok(self);
        }
        Err(self.outcome().await.err().unwrap_or_else(Error::cancelled))
    }

    /// Lets the run continue without this handle.
    pub fn detach(mut self) {
        self.sink.abandon();
        self.cancel.0 = None;
    }

    /// Waits for the run to end and returns its outcome. Drops unread events. When it returns, nothing of the run is
    /// alive.
    ///
    /// Dropping the future cancels the run.
    ///
    /// # Errors
    /// The error that the run failed with; [`ErrorKind::Busy`] when it is awaited from within a run that it waits for.
    /// A run that was cancelled, stopped or paused is an outcome, not an error.
    pub async fn outcome(mut self) -> Result<Outcome> {
        self.events.clear();
        self.sink.abandon();
        let cancelled = self.is_cancelled();
        let result = match &mut self.task {
            Task::Running(task) => {
                let ended = std::future::poll_fn(|cx| match Pin::new(&mut *task).poll(cx) {
                    Poll::Ready(ended) => Poll::Ready(Ok(ended)),
                    Poll::Pending => Nest::refuse(self.owner, &self.session, &self.sink, cancelled)
                        .map_or(Poll::Pending, |error| Poll::Ready(Err(error))),
                });
                // On refusal the handle is dropped as it is, which cancels the run: nobody waits for it any more.
                ended.await?.unwrap_or_else(|error| Err(lost(error)))
            }
            Task::Refused(error) => Err(error.take().unwrap_or_else(Error::cancelled)),
        };
        self.cancel.0 = None;
        result
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.0.as_ref().is_some_and(CancellationToken::is_cancelled)
    }

    /// Inlined up to the queue: a long reply is read one piece at a time.
    #[inline]
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Envelope>> {
        if self.events.is_empty() && !std::task::ready!(self.poll_more(cx)) {
            return Poll::Ready(None);
        }
        Poll::Ready(self.events.pop_front())
    }

    /// Fetches the queued events; `Ready(false)` when no more come.
    #[inline(never)]
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let more = self.sink.poll_drain(cx, &mut self.events);
        let waits = more.is_pending() && self.begun && !self.is_cancelled();
        if waits && Nest::is_waited_for(self.owner, &self.session, &self.sink) {
            return Poll::Ready(false);
        }
        self.begun |= more.is_ready();
        more
    }
}

/// Returns the error of a run whose task ended without a result.
fn lost(error: JoinError) -> Error {
    if !error.is_panic() {
        return Error::new(ErrorKind::Internal, "the run's task was ended from outside").caused_by(error);
    }
    let panic = error.into_panic();
    let text = format!("what the run was given panicked: {}", panic_text(panic));
    Error::new(ErrorKind::Internal, text)
}

impl Stream for RunHandle {
    type Item = Envelope;

    #[inline]
    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Envelope>> {
        self.get_mut().poll_event(cx)
    }
}

impl fmt::Debug for RunHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunHandle")
            .field("run", &self.id())
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}
