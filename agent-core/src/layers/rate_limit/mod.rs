//! How many model calls may run, and which one is next (LO14).
//!
//! One limiter, many handles. The queue is a pure machine ([`queue`]); the driver ([`shared`]) wakes those who wait
//! and spawns nothing. It never asks twice: a retry layer around it does.

mod adapt;
mod minute;
mod queue;
mod shared;
mod stream;
#[cfg(test)]
mod tests;

use std::{fmt, ops::RangeInclusive, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::time::Instant;

use super::{Layer, tally};
use crate::{
    Error, ErrorKind, Result,
    provider::{CallContext, DeltaStream, Provider, Request},
};
use adapt::Adaptive;
use queue::Queue;
use shared::Shared;

/// How urgent a call is; the higher goes first, and calls of one priority go in the order in which they came.
///
/// A stream of urgent calls can keep others waiting until their time is up: that is what priorities mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub u8);

impl Priority {
    /// Somebody waits for the answer.
    pub const CHAT: Self = Self(10);
    /// Somebody asked for it.
    pub const COMMAND: Self = Self(5);
    /// A file changed.
    pub const FILE_CHANGE: Self = Self(3);
    /// Nobody waits.
    pub const BACKGROUND: Self = Self(1);
}

impl Default for Priority {
    fn default() -> Self {
        Self::COMMAND
    }
}

/// Holds model calls back so that they keep within requests per minute, tokens per minute and a number of calls at
/// once that follows how fast the service is.
///
/// A handle on one shared limiter: clones, [`RateLimit::at`] and [`RateLimit::superseding`] share its queue.
///
/// # Contract
/// - The call that is first in the queue waits until it may run, and no later one overtakes it.
/// - Within any 60 s no more requests begin than were set, and none begins that would exceed the tokens. A prompt is
///   estimated at (bytes + 3) / 4 tokens, and 1,500 for each file, when its call begins; the reported total replaces
///   that when it ends. A call that is estimated larger than the whole limit runs when nothing else was used for 60 s.
/// - Calls at once start at the upper bound. After each window of completed calls (5 by default) their mean time
///   decides: above 15 s one less, below 5 s one more, within 1 to 3 by default. Calls that failed or were dropped
///   do not count; those that ran out of time do.
/// - A call must be over, waiting and running together, 2 minutes after it was asked for, or it ends with
///   [`ErrorKind::Timeout`]; [`RateLimitBuilder::timeout`] sets another time or none. A shorter
///   [`CallContext::timeout`] is kept as well. A reply whose finish has come is never failed.
/// - A cancel ends a wait. A dropped call leaves the queue, or gives its place back, at once.
/// - When the service reports that nothing is left, or asks to wait ([`Error::retry_after`]), nobody begins until the
///   time that it names, 60 s at most.
///
/// # Order
/// Above a budget, so that a call that waits has nothing set aside, and below a retry layer, so that a call gives its
/// place back while it waits for its next attempt. The wrong order, `model.layer(retry).layer(limit)`, lets a call
/// that waits for another attempt keep others out, and counts several requests as one.
///
/// ```
/// # fn example(model: entourage_core::provider::Model) -> entourage_core::Result<()> {
/// use entourage_core::layers::{Priority, RateLimit};
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
    /// A limiter without limits per minute: only calls at once are bounded.
    #[must_use]
    pub fn new() -> Self {
        RateLimitBuilder::default().start()
    }

    /// A limiter with other settings.
    pub fn builder() -> RateLimitBuilder {
        RateLimitBuilder::default()
    }

    /// A handle for calls of another priority.
    #[must_use]
    pub fn at(&self, priority: Priority) -> Self {
        Self { priority, ..self.clone() }
    }

    /// A handle for calls of which only the newest matters: each one ends those of the same key that wait or run,
    /// with [`ErrorKind::Cancelled`].
    #[must_use]
    pub fn superseding(&self, key: impl Into<Arc<str>>) -> Self {
        Self { key: Some(key.into()), ..self.clone() }
    }

    /// How many calls wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.read(Queue::waiting)
    }

    /// How many calls run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.shared.read(Queue::running)
    }

    /// How many calls may run at once at present.
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
    /// At most so many requests begin within any 60 s.
    pub fn requests_per_minute(mut self, requests: u64) -> Self {
        self.requests = Some(requests);
        self
    }

    /// At most so many tokens, input and output together, are used within any 60 s, as far as they are known.
    pub fn tokens_per_minute(mut self, tokens: u64) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Bounds of how many calls run at once; equal bounds turn adapting off. By default 1 to 3.
    pub fn concurrency(mut self, bounds: RangeInclusive<usize>) -> Self {
        self.concurrency = bounds;
        self
    }

    /// A mean below `fast` allows one call more at once, one above `slow` one less. By default 5 s and 15 s.
    pub fn speed(mut self, fast: Duration, slow: Duration) -> Self {
        self.fast = fast;
        self.slow = slow;
        self
    }

    /// After how many completed calls the mean is taken. By default 5.
    pub fn window(mut self, calls: u32) -> Self {
        self.window = calls;
        self
    }

    /// How long a call may take, waiting and running together; `None` for any time. By default 2 minutes.
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.timeout = timeout.into();
        self
    }

    /// The limiter.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a limit under which no call could ever run.
    pub fn build(self) -> Result<RateLimit> {
        let bounds = &self.concurrency;
        let wrong = if self.requests == Some(0) || self.tokens == Some(0) {
            "a limit of 0 per minute lets no call run; leave the limit out or set at least 1"
        } else if *bounds.start() == 0 || bounds.is_empty() {
            "the bounds of calls at once must begin with 1 or more and end no lower"
        } else if self.window == 0 {
            "a mean is taken over at least 1 call"
        } else if self.fast > self.slow {
            "the mean that counts as fast must not be above the one that counts as slow"
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
        let pass = shared.join(*priority, tally::input_tokens(&request), key.clone());
        pass.wait(&cx.cancel, end).await?;
        // The inner call's time begins now.
        let mut inner = cx.clone();
        inner.timeout = cx.timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
        stream::open(&*self.inner, request, &inner, pass, end).await
    }
}
