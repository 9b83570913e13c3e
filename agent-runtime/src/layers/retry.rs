//! Retries of model calls after temporary failures.
//!
//! The layer reads an error's status, never its message. It keeps nothing of a reply: the deltas of a failed attempt
//! were already passed on, and a [`Delta::Restart`] tells the reader to discard them.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use crate::reply::Assembler;
use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, RequestId, Result, RetryStatus,
    provider::{CallContext, Delta, DeltaStream, Layer, Provider, Request, Restart},
};
use futures_util::Stream;

use super::attempt::{Call, Opening, is_output};

/// Bound under which a service's `retry_after` is always obeyed.
const MINUTE: Duration = Duration::from_secs(60);

/// Layer that retries a call that fails with [`Error::retry`] [`Temporary`](entourage_core::RetryStatus::Temporary), or
/// whose stream ends without a finish.
///
/// By default 3 retries follow the first attempt, after 5 s, 10 s and 20 s.
///
/// # Contract
/// - The first attempt is awaited in [`Provider::stream`]. A failure that is not retried is its error; after any other
///   the stream begins with a [`Delta::Restart`].
/// - A restart comes before the wait, so that a reader can explain the silence. It voids the deltas before it.
/// - [`Error::retry_after`] replaces the computed delay if it is above zero and either below 60 s or shorter than that
///   delay. A longer one is ignored: this layer does not wait for hours.
/// - There is no retry after a [`Delta::Finish`], after a cancel, or if the next attempt could only begin after
///   [`CallContext::timeout`]. A cancel also ends a wait, with [`ErrorKind::Cancelled`]. Later attempts get the
///   remaining timeout.
/// - An error without any retry before it is passed on as it is. After retries, the last error's kind comes back as
///   [`Exhausted`](entourage_core::RetryStatus::Exhausted), with the errors of all attempts in its message, equal ones
///   once; a permanent error ends them as it is.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// use entourage_core::ErrorKind;
/// use entourage_runners::ReactAgent;
/// use entourage_runtime::{AgentExt, layers::Retry};
/// use entourage_testkit::ScriptedProvider;
///
/// let service = ScriptedProvider::new().fail(ErrorKind::Overloaded, "no room; try again").text("Hello!");
/// let agent = ReactAgent::builder("a", service.model().layer(Retry::new())).build().unwrap();
/// assert_eq!(agent.ask("Hello?").await.unwrap(), "Hello!");
/// assert_eq!(service.count(), 2);
/// # });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    retries: u32,
    first_delay: Duration,
    factor: u32,
    max_delay: Duration,
    jitter: Duration,
    before_output_only: bool,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            retries: 3,
            first_delay: Duration::from_secs(5),
            factor: 2,
            // Well below the time that a run allows its model to be silent.
            max_delay: Duration::from_secs(120),
            jitter: Duration::ZERO,
            before_output_only: false,
        }
    }
}

impl Retry {
    /// A layer with 3 retries after 5 s, 10 s and 20 s, exactly.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of retries. With 0 every error is passed on as it is.
    #[must_use]
    pub fn with_retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Sets the delay before the first retry. Default 5 s.
    #[must_use]
    pub fn with_first_delay(mut self, delay: Duration) -> Self {
        self.first_delay = delay;
        self
    }

    /// Sets the factor by which each further delay grows. Default 2; 0 counts as 1.
    #[must_use]
    pub fn with_factor(mut self, factor: u32) -> Self {
        self.factor = factor.max(1);
        self
    }

    /// Sets the longest computed delay. Default 2 minutes. A service's `retry_after` has a rule of its own.
    #[must_use]
    pub fn with_max_delay(mut self, delay: Duration) -> Self {
        self.max_delay = delay;
        self
    }

    /// Adds up to `longest` to each delay, so that calls that fail together do not come back together. Default zero.
    /// The amount is derived from the call's [`RequestId`] and the attempt: the same for the same call.
    #[must_use]
    pub fn with_jitter(mut self, longest: Duration) -> Self {
        self.jitter = longest;
        self
    }

    /// Passes an error on once the reply showed output (text, reasoning, a tool call …), for readers that cannot take
    /// it back.
    #[must_use]
    pub fn before_output_only(mut self) -> Self {
        self.before_output_only = true;
        self
    }

    /// Delay before retry number `retry`, from 0.
    fn delay(&self, retry: u32, error: &Error, call: &Call) -> Duration {
        let backoff = self.first_delay.saturating_mul(self.factor.saturating_pow(retry)).min(self.max_delay);
        let asked = error.retry_after().filter(|asked| !asked.is_zero());
        let delay = asked.filter(|asked| *asked < MINUTE || *asked < backoff).unwrap_or(backoff);
        delay.saturating_add(self.spread(call.cx().request, call.attempt))
    }

    fn spread(&self, request: RequestId, attempt: u32) -> Duration {
        let longest = u64::try_from(self.jitter.as_nanos()).unwrap_or(u64::MAX);
        if longest == 0 {
            return Duration::ZERO;
        }
        let mut hasher = DefaultHasher::new();
        (request, attempt).hash(&mut hasher);
        Duration::from_nanos(hasher.finish() % longest)
    }
}

impl Layer for Retry {
    fn layer(self, inner: Arc<dyn Provider>) -> Arc<dyn Provider> {
        Arc::new(Retried { policy: self, inner })
    }
}

#[derive(Debug)]
struct Retried {
    policy: Retry,
    inner: Arc<dyn Provider>,
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Provider for Retried {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn stream(&self, request: Request, cx: &CallContext) -> Result<DeltaStream> {
        let call = Call::new(request.clone(), cx);
        let first = self.inner.stream(request, cx).await;
        let mut attempts = Attempts {
            policy: self.policy,
            inner: Arc::clone(&self.inner),
            call,
            failures: Vec::new(),
            shown: false,
            finished: false,
            restart: None,
            state: State::Ended,
        };
        match first {
            Ok(stream) => attempts.state = State::Streaming(stream),
            Err(error) => attempts.restart = Some(attempts.fail(error)?),
        }
        Ok(Box::pin(attempts))
    }
}

/// All attempts at one call, as one stream.
struct Attempts {
    policy: Retry,
    inner: Arc<dyn Provider>,
    call: Call,
    /// Errors so far, each with the number of its attempt.
    failures: Vec<(u32, Error)>,
    shown: bool,
    finished: bool,
    /// Restart to send first, if the first attempt was refused.
    restart: Option<Box<Restart>>,
    state: State,
}

enum State {
    /// Waits for the delay, then for the attempt to begin.
    Opening(Opening),
    Streaming(DeltaStream),
    Ended,
}

impl Stream for Attempts {
    type Item = Result<Delta>;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Delta>>> {
        if let Some(restart) = self.restart.take() {
            return Poll::Ready(Some(Ok(Delta::Restart(restart))));
        }
        loop {
            let error = match &mut self.state {
                State::Ended => return Poll::Ready(None),
                State::Opening(opening) => match ready!(opening.as_mut().poll(task)) {
                    Ok(stream) => {
                        self.state = State::Streaming(stream);
                        continue;
                    }
                    Err(error) => error,
                },
                State::Streaming(stream) => match ready!(stream.as_mut().poll_next(task)) {
                    Some(Ok(delta)) => {
                        self.note(&delta);
                        return Poll::Ready(Some(Ok(delta)));
                    }
                    Some(Err(error)) => error,
                    None if self.finished => {
                        self.state = State::Ended;
                        continue;
                    }
                    None => Assembler::cut_off(),
                },
            };
            return Poll::Ready(Some(self.fail(error).map(Delta::Restart)));
        }
    }
}

impl Attempts {
    #[inline]
    fn note(&mut self, delta: &Delta) {
        match delta {
            // An inner layer retried: count on from its number.
            Delta::Restart(restart) => self.call.attempt = self.call.attempt.max(restart.attempt),
            Delta::Finish(_) => self.finished = true,
            _ => self.shown = self.shown || is_output(delta),
        }
    }

    /// Drops the failed attempt and prepares the next one, or returns the error to end with.
    fn fail(&mut self, error: Error) -> Result<Box<Restart>> {
        self.state = State::Ended;
        let hopeless = error.retry() != RetryStatus::Temporary || error.kind() == ErrorKind::Cancelled;
        if hopeless || self.finished || (self.shown && self.policy.before_output_only) {
            return Err(error);
        }
        if self.call.cx().cancel.is_cancelled() {
            return Err(Error::cancelled().caused_by(error));
        }
        let retry = u32::try_from(self.failures.len()).unwrap_or(u32::MAX);
        if retry >= self.policy.retries {
            return Err(self.give_up(error, "no retry is left"));
        }
        let delay = self.policy.delay(retry, &error, &self.call);
        if self.call.is_over_in(delay) {
            return Err(self.give_up(error, "the call's time would be over before another attempt"));
        }
        let record = error.record();
        self.failures.push((self.call.attempt, error));
        self.call.attempt = self.call.attempt.saturating_add(1);
        self.state = State::Opening(self.call.open(Arc::clone(&self.inner), delay));
        Ok(Box::new(Restart::new(self.call.attempt, record, delay)))
    }

    fn give_up(&mut self, last: Error, why: &str) -> Error {
        if self.failures.is_empty() {
            return last;
        }
        let (kind, after) = (last.kind(), last.retry_after());
        let failures = std::mem::take(&mut self.failures);
        let tries = failures.len().saturating_add(1);
        let told = failures.iter().map(|(attempt, error)| (*attempt, error.to_string()));
        let list = listed(told.chain([(self.call.attempt, last.to_string())]));
        let text = format!("the model call failed {tries} times and {why}; try again later. {list}");
        let error =
            Error::new(kind, text).with_retry(RetryStatus::Exhausted).during("model.stream").caused_by(last);
        match after {
            Some(after) => error.with_retry_after(after),
            None => error,
        }
    }
}

/// Returns the errors of numbered attempts as one text, in which attempts in a row that failed alike are one entry.
fn listed(errors: impl Iterator<Item = (u32, String)>) -> String {
    let mut entries: Vec<(u32, u32, String)> = Vec::new();
    for (attempt, text) in errors {
        match entries.last_mut() {
            Some((_, to, same)) if *same == text => *to = attempt,
            _ => entries.push((attempt, attempt, text)),
        }
    }
    let shown = entries.iter().map(|(from, to, text)| match from == to {
        true => format!("attempt {from}: {text}"),
        false => format!("attempts {from} to {to}: {text}"),
    });
    shown.collect::<Vec<_>>().join("; ")
}
