//! Limits on model calls: the rate, the number in flight, and their order.
//!
//! One limiter has many handles. The queue is a pure machine ([`queue`]); the driver ([`shared`]) wakes waiters and
//! spawns nothing. A call is made once: a retry layer around it makes further attempts.

mod adapt;
mod minute;
mod queue;
mod shared;
mod stream;
#[cfg(test)]
mod tests;

use std::{fmt, ops::RangeInclusive, sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    provider::{CallContext, DeltaStream, Layer, Provider, Request},
};
use tokio::time::Instant;

use crate::layers::estimate::input_tokens;
use adapt::Adaptive;
use queue::Queue;
use shared::Shared;

/// Urgency of a call. Higher priorities go first; calls of one priority go in order of arrival.
///
/// A stream of urgent calls can starve others until they time out. That is intended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub u8);

impl Priority {
    /// A call whose answer a person waits for.
    pub const CHAT: Self = Self(10);
    /// A call that a person asked for.
    pub const COMMAND: Self = Self(5);
    /// A call made because a file changed.
    pub const FILE_CHANGE: Self = Self(3);
    /// A call that nobody waits for.
    pub const BACKGROUND: Self = Self(1);
}

impl Default for Priority {
    fn default() -> Self {
        Self::COMMAND
    }
}

/// Layer that queues model calls, to keep within requests per minute, tokens per minute, and a number of calls in
/// flight that adapts to the speed of the service.
///
/// A handle on one shared limiter: clones, [`RateLimit::at`] and [`RateLimit::superseding`] share its queue.
///
/// # Contract
/// - The first call of the queue waits for a slot, and no later one overtakes it.
/// - Within any 60 s no more requests begin than the limit, and none begins that would exceed the tokens. A prompt is
///   estimated at (bytes + 3) / 4 tokens, and 1,500 for each file, when its call begins; the reported total replaces
///   the estimate when it ends. A call whose estimate exceeds the whole limit runs if nothing else was used for 60 s.
/// - The number of slots starts at its upper bound. After each window of completed calls (5 by default) their mean time
///   decides: above 15 s one slot less, below 5 s one more, within 1 to 3 by default. Calls that failed or were dropped
///   do not count; those that timed out do.
/// - A call that is not over 2 minutes after it was made, its wait included, ends with [`ErrorKind::Timeout`];
///   [`RateLimitBuilder::timeout`] sets another time or none. A shorter [`CallContext::timeout`] holds as well. A reply
///   whose finish has come is never failed.
/// - A cancel ends a wait. A dropped call leaves the queue, or releases its slot, at once.
/// - If the service reports that nothing is left, or asks to wait ([`Error::retry_after`]), no call begins until the
///   time that it names, 60 s at most.
///
/// # Order
/// Outside a budget, so that a waiting call has nothing reserved, and inside a retry layer, so that a call releases its
/// slot while it backs off. With the wrong order, `model.layer(retry).layer(limit)`, a call keeps its slot while it
/// backs off, and several requests count as one.
///
/// ```
/// # fn example(model: entourage_core::provider::Model) -> entourage_core::Result<()> {
/// use entourage_runtime::layers::{Priority, RateLimit};
///
/// let limit = RateLimit::builder().requests_per_minute(50).tokens_per_minute(200_000).build()?;
/// let chat = model.clone().layer(limit.at(Priority::CHAT));
/// let titles = model.layer(limit.at(Priority::BACKGROUND).superseding("title"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RateLimit {
    shared: Arc<Shared>,
    timeout: Option<Duration>,
    priority: Priority,
    key: Option<Arc<str>>,
}

impl RateLimit {
    /// A limiter without limits per minute: it bounds only the calls in flight.
    #[must_use]
    pub fn new() -> Self {
        RateLimitBuilder::default().start()
    }

    /// Settings for a limiter.
    pub fn builder() -> RateLimitBuilder {
        RateLimitBuilder::default()
    }

    /// A handle for calls of another priority.
    #[must_use]
    pub fn at(&self, priority: Priority) -> Self {
        Self { priority, ..self.clone() }
    }

    /// A handle for calls of which only the newest matters. Each one ends those with the same key that wait or run,
    /// with [`ErrorKind::Cancelled`].
    #[must_use]
    pub fn superseding(&self, key: impl Into<Arc<str>>) -> Self {
        Self { key: Some(key.into()), ..self.clone() }
    }

    /// Number of calls in the queue.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.read(Queue::waiting)
    }

    /// Number of calls in flight.
    #[must_use]
    pub fn running(&self) -> usize {
        self.shared.read(Queue::running)
    }

    /// Current number of slots.
    #[must_use]
    pub fn permits(&self) -> usize {
        self.shared.read(Queue::permits)
    }
}

impl Default for RateLimit {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("priority", &self.priority)
            .field("key", &self.key)
            .field("timeout", &self.timeout)
            .field("waiting", &self.waiting())
            .field("running", &self.running())
            .field("permits", &self.permits())
            .finish()
    }
}

/// Settings of a [`RateLimit`].
#[derive(Debug, Clone)]
#[must_use]
pub struct RateLimitBuilder {
    requests: Option<u64>,
    tokens: Option<u64>,
    concurrency: RangeInclusive<usize>,
    fast: Duration,
    slow: Duration,
    window: u32,
    timeout: Option<Duration>,
}

impl Default for RateLimitBuilder {
    fn default() -> Self {
        Self {
            requests: None,
            tokens: None,
            concurrency: 1..=3,
            fast: Duration::from_secs(5),
            slow: Duration::from_secs(15),
            window: 5,
            timeout: Some(Duration::from_secs(120)),
        }
    }
}

impl RateLimitBuilder {
    /// Limits the requests that begin within any 60 s.
    pub fn requests_per_minute(mut self, requests: u64) -> Self {
        self.requests = Some(requests);
        self
    }

    /// Limits the tokens used within any 60 s, input and output together, as far as they are known.
    pub fn tokens_per_minute(mut self, tokens: u64) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Bounds the number of slots; equal bounds turn adapting off. By default 1 to 3.
    pub fn concurrency(mut self, bounds: RangeInclusive<usize>) -> Self {
        self.concurrency = bounds;
        self
    }

    /// Sets the mean times that adapt the slots: below `fast` one more, above `slow` one less. By default 5 s and 15 s.
    pub fn speed(mut self, fast: Duration, slow: Duration) -> Self {
        self.fast = fast;
        self.slow = slow;
        self
    }

    /// Sets the number of completed calls over which the mean is taken. By default 5.
    pub fn window(mut self, calls: u32) -> Self {
        self.window = calls;
        self
    }

    /// Limits the time of a call, its wait included; `None` for no limit. By default 2 minutes.
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.timeout = timeout.into();
        self
    }

    /// Builds the limiter.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for settings under which no call could ever run, a window of 0, or `fast` above `slow`.
    pub fn build(self) -> Result<RateLimit> {
        let bounds = &self.concurrency;
        let wrong = if self.requests == Some(0) || self.tokens == Some(0) {
            "a limit of 0 per minute lets no call run; leave the limit out or set at least 1"
        } else if *bounds.start() == 0 || bounds.is_empty() {
            "the bounds of calls at once must begin with 1 or more and end no lower"
        } else if self.window == 0 {
            "a mean is taken over at least 1 call"
        } else if self.fast > self.slow {
            "`fast` must not be above `slow`"
        } else {
            return Ok(self.start());
        };
        Err(Error::new(ErrorKind::Config, wrong).during("rate_limit.build"))
    }

    fn start(self) -> RateLimit {
        let concurrency = Adaptive::new(self.concurrency, self.fast, self.slow, self.window);
        RateLimit {
            shared: Arc::new(Shared::new(Queue::new(concurrency, self.requests, self.tokens))),
            timeout: self.timeout,
            priority: Priority::default(),
            key: None,
        }
    }
}

impl Layer for RateLimit {
    fn layer(self, inner: Arc<dyn Provider>) -> Arc<dyn Provider> {
        Arc::new(Limited { inner, limit: self })
    }
}

#[derive(Debug)]
struct Limited {
    inner: Arc<dyn Provider>,
    limit: RateLimit,
}

#[async_trait]
impl Provider for Limited {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn stream(&self, request: Request, cx: &CallContext) -> Result<DeltaStream> {
        if cx.cancel.is_cancelled() {
            return Err(Error::cancelled());
        }
        let RateLimit { shared, timeout, priority, key } = &self.limit;
        let began = Instant::now();
        let limit = [*timeout, cx.timeout].into_iter().flatten().min();
        let end = limit.and_then(|limit| Some((began.checked_add(limit)?, limit)));
        let pass = shared.join(*priority, input_tokens(&request), key.clone());
        pass.wait(&cx.cancel, end).await?;
        // The inner call's timeout runs from here.
        let mut inner = cx.clone();
        inner.timeout = cx.timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
        stream::open(&*self.inner, request, &inner, pass, end).await
    }
}
