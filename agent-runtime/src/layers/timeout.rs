//! Timeouts of model calls: in all, until the first delta, and between two deltas.
//!
//! Time is tokio's. The layer only ends calls; a retry layer around it begins others.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    provider::{CallContext, Delta, DeltaStream, Layer, Provider, Request},
};
use futures_util::Stream;
use tokio::time::{Instant, Sleep};

/// Layer that ends a slow call with [`ErrorKind::Timeout`], which is temporary, and frees its connection.
///
/// No bound is set by default; a bound of zero allows no wait. [`CallContext::timeout`] always holds, and the
/// inner provider is given the shorter of it and [`Timeout::with_total`].
///
/// # Contract
/// - Only waiting for the service counts towards [`Timeout::with_idle`], not the reader's time between two deltas.
/// - A reply whose [`Delta::Finish`] has come is never failed: a bound that is reached after it ends the stream.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// use std::time::Duration;
/// use entourage_core::ErrorKind;
/// use entourage_runners::ReactAgent;
/// use entourage_runtime::{AgentExt, layers::Timeout};
/// use entourage_testkit::{Script, ScriptedProvider};
///
/// let slow = Script::new().text("Well").delay(Duration::from_secs(31)).text(", yes.");
/// let service = ScriptedProvider::new().step(slow);
/// let layer = Timeout::new().with_first_delta(Duration::from_secs(60)).with_idle(Duration::from_secs(30));
/// let agent = ReactAgent::builder("a", service.model().layer(layer)).build().unwrap();
/// let error = agent.ask("Is it?").await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Timeout);
/// assert!(error.message().starts_with("the model's reply paused for more than 30s"));
/// # });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timeout {
    total: Option<Duration>,
    first: Option<Duration>,
    idle: Option<Duration>,
}

impl Timeout {
    /// A layer without bounds.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the time from the start of the call to the end of the reply.
    #[must_use]
    pub fn with_total(mut self, limit: Duration) -> Self {
        self.total = Some(limit);
        self
    }

    /// Limits the time from the start of the call to the first delta. A [`Delta::Warning`] does not count: it is often
    /// made before anything was sent.
    #[must_use]
    pub fn with_first_delta(mut self, limit: Duration) -> Self {
        self.first = Some(limit);
        self
    }

    /// Limits the time between two deltas. One without content, such as usage, counts too.
    #[must_use]
    pub fn with_idle(mut self, limit: Duration) -> Self {
        self.idle = Some(limit);
        self
    }
}

impl Layer for Timeout {
    fn layer(self, inner: Arc<dyn Provider>) -> Arc<dyn Provider> {
        Arc::new(Timed { bounds: self, inner })
    }
}

#[derive(Debug)]
struct Timed {
    bounds: Timeout,
    inner: Arc<dyn Provider>,
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Provider for Timed {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn stream(&self, request: Request, cx: &CallContext) -> Result<DeltaStream> {
        let total = match (self.bounds.total, cx.timeout) {
            (Some(own), Some(callers)) if callers < own => Some(Bound::Call(callers)),
            (Some(own), _) => Some(Bound::Total(own)),
            (None, callers) => callers.map(Bound::Call),
        };
        let mut total = total.map(Timer::new);
        let mut gap = self.bounds.first.map(|limit| Timer::new(Bound::First(limit)));
        let mut cx = cx.clone();
        cx.timeout = total.as_ref().map(|timer| timer.bound.limit());
        let mut start = self.inner.stream(request, &cx);
        let stream = poll_fn(|task| match start.as_mut().poll(task) {
            Poll::Pending => elapsed([&mut total, &mut gap], task).map(|bound| Err(bound.error())),
            ready @ Poll::Ready(_) => ready,
        })
        .await?;
        let timed = TimedStream {
            stream: Some(stream),
            total,
            gap,
            idle: self.bounds.idle,
            begun: false,
            moved: false,
            finished: false,
            late: None,
        };
        Ok(Box::pin(timed))
    }
}

/// A bound and its length.
#[derive(Debug, Clone, Copy)]
enum Bound {
    /// Total bound of the layer.
    Total(Duration),
    /// Timeout of the call.
    Call(Duration),
    First(Duration),
    Idle(Duration),
}

impl Bound {
    fn limit(self) -> Duration {
        match self {
            Self::Total(limit) | Self::Call(limit) | Self::First(limit) | Self::Idle(limit) => limit,
        }
    }

    fn error(self) -> Error {
        let limit = self.limit();
        let (name, text) = match self {
            Self::Total(_) => ("total", format!("the model's reply took longer than {limit:?}")),
            Self::Call(_) => {
                ("call", format!("the model call took longer than its own timeout of {limit:?}"))
            }
            Self::First(_) => ("first delta", format!("the model did not begin its reply within {limit:?}")),
            Self::Idle(_) => ("idle", format!("the model's reply paused for more than {limit:?}")),
        };
        let text = format!("{text}; try again, or allow it more time");
        Error::new(ErrorKind::Timeout, text).during("model.stream").with("bound", name)
    }
}

struct Timer {
    bound: Bound,
    sleep: Pin<Box<Sleep>>,
}

impl Timer {
    fn new(bound: Bound) -> Self {
        Self { bound, sleep: Box::pin(tokio::time::sleep(bound.limit())) }
    }
}

fn elapsed(timers: [&mut Option<Timer>; 2], task: &mut Context<'_>) -> Poll<Bound> {
    for timer in timers.into_iter().flatten() {
        if timer.sleep.as_mut().poll(task).is_ready() {
            return Poll::Ready(timer.bound);
        }
    }
    Poll::Pending
}

struct TimedStream {
    /// Inner stream; `None` once it has ended.
    stream: Option<DeltaStream>,
    total: Option<Timer>,
    /// Timer until the first delta, then until the next one.
    gap: Option<Timer>,
    idle: Option<Duration>,
    begun: bool,
    /// True if a delta came since `gap` was last set.
    moved: bool,
    finished: bool,
    /// The bound that was reached when the newest delta came; its error comes next.
    late: Option<Bound>,
}

impl Stream for TimedStream {
    type Item = Result<Delta>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Delta>>> {
        let this = &mut *self;
        let Some(stream) = &mut this.stream else {
            return Poll::Ready(this.late.take().map(|bound| Err(bound.error())));
        };
        match stream.as_mut().poll_next(task) {
            Poll::Ready(Some(Ok(delta))) => {
                // A stream that always has more is never pending, so its total is checked here too.
                if let Poll::Ready(bound) = elapsed([&mut this.total, &mut None], task) {
                    match &delta {
                        Delta::Finish(_) => {}
                        Delta::Usage(_) => this.end_after(bound),
                        _ => return Poll::Ready(this.end(bound)),
                    }
                }
                this.note(&delta);
                Poll::Ready(Some(Ok(delta)))
            }
            Poll::Ready(end) => {
                this.stream = None;
                Poll::Ready(end)
            }
            Poll::Pending => {
                this.set_gap();
                elapsed([&mut this.total, &mut this.gap], task).map(|bound| this.end(bound))
            }
        }
    }
}

impl TimedStream {
    #[inline]
    fn note(&mut self, delta: &Delta) {
        self.begun = self.begun || !matches!(delta, Delta::Warning(_) | Delta::Restart(_));
        self.finished = self.finished || matches!(delta, Delta::Finish(_));
        self.moved = self.begun;
    }

    /// Resets the gap once for each wait, not once for each delta.
    fn set_gap(&mut self) {
        if !std::mem::take(&mut self.moved) {
            return;
        }
        match (self.idle, &mut self.gap) {
            (Some(limit), Some(timer)) if matches!(timer.bound, Bound::Idle(_)) => {
                // A limit too long for the clock is never reached: the timer stays as it is.
                if let Some(end) = Instant::now().checked_add(limit) {
                    timer.sleep.as_mut().reset(end);
                }
            }
            (limit, gap) => *gap = limit.map(|limit| Timer::new(Bound::Idle(limit))),
        }
    }

    fn end(&mut self, bound: Bound) -> Option<Result<Delta>> {
        self.stream = None;
        (!self.finished).then(|| Err(bound.error()))
    }

    /// Ends the stream after the figures that came too late for its total: the service has charged them.
    fn end_after(&mut self, bound: Bound) {
        self.stream = None;
        self.late = (!self.finished).then_some(bound);
    }
}
