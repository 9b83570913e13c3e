//! The one error type of the family: its kind, its retry status, and its context.
//!
//! A retry layer reads [`Error::retry`], never the message. Text shown to people names the next step.

use std::{
    borrow::Cow,
    error::Error as StdError,
    fmt::{self, Write as _},
    io, iter, num,
    str::Utf8Error,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{Exhausted, Pause, StopReason, bound, setters, shown::Shown};

/// A `Result` whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Kind of a failure. Stable: programs may branch on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument was refused before anything happened.
    InvalidInput,
    /// A prompt has no text.
    EmptyPrompt,
    /// Something named does not exist: a session, a model, a file.
    NotFound,
    /// The session already has an active run.
    Busy,
    /// Another writer was first, or took the session over.
    Conflict,
    /// A resumed agent asked for something other than what its journal recorded.
    Diverged,
    /// The record of a run has no end: its process died, or the run is still active.
    Unfinished,
    /// A prompt that had to wait is stored in its session's queue, and its run did not begin here. It is not lost:
    /// `Runtime::recover` runs it. Given again it would run twice.
    Queued,
    /// A key is missing or was refused.
    Authentication,
    /// The caller is known and may not do this.
    PermissionDenied,
    /// The limit on agents that run at once is reached.
    TooMany,
    /// Too many requests; see [`Error::retry_after`].
    RateLimited,
    /// The service is up and has no room.
    Overloaded,
    /// The service refused the content.
    ContentFiltered,
    /// The request is larger than the model's context window.
    ContextOverflow,
    /// Something is larger than a stated bound.
    TooLarge,
    /// The budget does not cover the call, or the price that it would have to cover is unknown.
    BudgetExceeded,
    /// A deadline passed.
    Timeout,
    /// The connection failed or broke.
    Transport,
    /// The other side answered with something that its protocol does not allow.
    Protocol,
    /// The run was cancelled.
    Cancelled,
    /// The run is paused; see [`Error::pause`]. Not a failure.
    Paused,
    /// A run was stopped before it had an answer, see [`Error::stop_reason`], or items of a map gave no value.
    Stopped,
    /// A store could not read or write.
    Store,
    /// A file or device of this machine could not be read or written.
    Io,
    /// Stored data is damaged.
    Corrupt,
    /// Stored data was written by a newer version of this library.
    NewerVersion,
    /// A tool failed in a way that the model cannot correct.
    Tool,
    /// This implementation does not support the request.
    Unsupported,
    /// A configuration that cannot work, such as two tools of one name.
    Config,
    /// A defect in this library or in an implementation of one of its traits.
    Internal,
}

impl ErrorKind {
    /// The stable name, as stored and as shown in parentheses by `Display`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidInput => "invalid input",
            Self::EmptyPrompt => "empty prompt",
            Self::NotFound => "not found",
            Self::Busy => "busy",
            Self::Conflict => "conflict",
            Self::Diverged => "diverged",
            Self::Unfinished => "unfinished",
            Self::Queued => "queued",
            Self::Authentication => "authentication",
            Self::PermissionDenied => "permission denied",
            Self::TooMany => "too many",
            Self::RateLimited => "rate limited",
            Self::Overloaded => "overloaded",
            Self::ContentFiltered => "content filtered",
            Self::ContextOverflow => "context overflow",
            Self::TooLarge => "too large",
            Self::BudgetExceeded => "budget exceeded",
            Self::Timeout => "timeout",
            Self::Transport => "transport",
            Self::Protocol => "protocol",
            Self::Cancelled => "cancelled",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Store => "store",
            Self::Io => "input or output",
            Self::Corrupt => "corrupt",
            Self::NewerVersion => "newer version",
            Self::Tool => "tool",
            Self::Unsupported => "unsupported",
            Self::Config => "configuration",
            Self::Internal => "internal",
        }
    }

    fn default_retry(self) -> RetryStatus {
        match self {
            Self::TooMany | Self::RateLimited | Self::Overloaded | Self::Timeout | Self::Transport => {
                RetryStatus::Temporary
            }
            _ => RetryStatus::Permanent,
        }
    }
}

/// The prospect that the same request succeeds later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryStatus {
    /// A retry will fail again.
    Permanent,
    /// A retry may succeed.
    Temporary,
    /// The failure was temporary, and the retries are used up.
    Exhausted,
}

/// The error of every fallible operation in the family.
///
/// `Display` is one line; `Debug`, which Rust prints for a `main` that fails, is a report with all causes. Both show
/// control and hidden characters as escapes, so that text of a model or a service cannot control a terminal.
/// [`Error::message`] is the text as it is. With `?` errors of `io`, of numbers and of JSON become one.
///
/// ```
/// use entourage_core::{Error, ErrorKind, RetryStatus};
///
/// let error = Error::new(ErrorKind::RateLimited, "too many requests; wait and try again")
///     .during("model.stream")
///     .with("model", "large-1");
/// assert_eq!(error.retry(), RetryStatus::Temporary);
/// let text = "too many requests; wait and try again (rate limited in model.stream, model: large-1)";
/// assert_eq!(error.to_string(), text);
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    retry: RetryStatus,
    message: Cow<'static, str>,
    operation: Option<&'static str>,
    context: Vec<(&'static str, String)>,
    retry_after: Option<Duration>,
    pause: Option<Pause>,
    exhausted: Option<Box<Exhausted>>,
    stopped: Option<Box<StopReason>>,
    /// True if the call that failed is known never to have been sent.
    unsent: bool,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of `kind`. `message` says what happened and what to do next.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            kind,
            retry: kind.default_retry(),
            message: message.into(),
            operation: None,
            context: Vec::new(),
            retry_after: None,
            pause: None,
            exhausted: None,
            stopped: None,
            unsent: false,
            source: None,
        }))
    }

    /// A pause: the run stops here and waits for `pause`. An agent passes this on with `?`.
    #[must_use]
    pub fn paused(pause: Pause) -> Self {
        Self::new(ErrorKind::Paused, pause.to_string()).with_pause(pause)
    }

    /// The error of a run that was stopped before it had an answer. The message names the reason and the next step.
    #[must_use]
    pub fn stopped(reason: StopReason) -> Self {
        let text = format!("the run was stopped without an answer: {reason}; {}", reason.next_step());
        Self::new(ErrorKind::Stopped, text).with_stop_reason(reason)
    }

    /// The error of a cancelled run.
    #[must_use]
    pub fn cancelled() -> Self {
        Self::new(ErrorKind::Cancelled, "the call or run was cancelled")
    }

    /// Adds a named value, such as the session or the model. Never a secret.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.0.context.push((name, value.into()));
        self
    }

    setters! {
        /// Names the operation that failed, such as `"model.stream"`.
        during(operation: &'static str) sets 0.operation = Some(operation);
        /// Sets the cause.
        caused_by(source: impl Into<Box<dyn StdError + Send + Sync>>) sets 0.source = Some(source.into());
        /// Overrides the retry status.
        with_retry(retry: RetryStatus) sets 0.retry = retry;
        /// Sets the time that the service asked to wait before the next attempt.
        with_retry_after(delay: Duration) sets 0.retry_after = Some(delay);
        /// Sets the bound of a budget that was reached. The run then ends as stopped by it, and not as failed.
        with_exhausted(exhausted: Exhausted) sets 0.exhausted = Some(Box::new(exhausted));
        /// Sets the input that the run waits for.
        with_pause(pause: Pause) sets 0.pause = Some(pause);
        /// Sets the reason for which a run was stopped.
        with_stop_reason(reason: StopReason) sets 0.stopped = Some(Box::new(reason));
        /// Marks the call that failed as one that never left this machine, so that it cost nothing: there was no
        /// connection, for example. Without it, only a cause that shows this has the same effect, such as a refused
        /// connection.
        unsent() sets 0.unsent = true;
    }

    /// Kind of the failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Retry status.
    #[must_use]
    pub fn retry(&self) -> RetryStatus {
        self.0.retry
    }

    /// Time that the service asked to wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Input that the run waits for, if the kind is [`ErrorKind::Paused`].
    #[must_use]
    pub fn pause(&self) -> Option<&Pause> {
        self.0.pause.as_ref()
    }

    /// The reason for which a run was stopped; only errors of the kind [`ErrorKind::Stopped`] have one.
    #[must_use]
    pub fn stop_reason(&self) -> Option<&StopReason> {
        self.0.stopped.as_deref()
    }

    /// The bound of a budget that was reached, if the kind is [`ErrorKind::BudgetExceeded`] and a budget reported it.
    #[must_use]
    pub fn exhausted(&self) -> Option<&Exhausted> {
        self.0.exhausted.as_deref()
    }

    /// The message alone, without kind and context.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The named values added on the way up.
    pub fn context(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.context.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// The form that events store. Texts longer than 16 KiB are cut, and causes longer than 2 KiB.
    #[must_use]
    pub fn record(&self) -> ErrorRecord {
        let operation = self.0.operation.iter().map(|operation| (*operation).to_owned());
        let values = self.0.context.iter().enumerate().map(|(place, (name, value))| match *name {
            // The context of an earlier record keeps its form.
            RECORDED if place == 0 => value.clone(),
            name => format!("{name}: {value}"),
        });
        let causes = self.causes().map(|cause| format!("cause: {cause}"));
        let context = operation.chain(values).chain(causes).collect::<Vec<_>>().join(", ");
        ErrorRecord {
            kind: self.kind(),
            retry: self.retry(),
            message: bound::shortened(self.message(), bound::TEXT).into_owned(),
            context: bound::shortened(&context, bound::TEXT).into_owned(),
            exhausted: self.0.exhausted.clone(),
            stopped: self.0.stopped.clone(),
            unsent: self.is_unsent(),
        }
    }

    /// Returns at most 8 causes, the nearest first, without those that the message names.
    fn causes(&self) -> impl Iterator<Item = String> {
        let causes = iter::successors(StdError::source(self), |&cause| cause.source());
        let texts = causes.take(8).map(ToString::to_string);
        let new = texts.filter(|text| !self.message().contains(&**text));
        new.map(|text| bound::shortened(&text, 2 << 10).into_owned())
    }

    /// True if the error or a cause of it shows that the call never left.
    pub fn is_unsent(&self) -> bool {
        let mut next = Some(self as &(dyn StdError + 'static));
        while let Some(cause) = next {
            let marked = cause.downcast_ref::<Self>().is_some_and(|error| error.0.unsent);
            if marked || has_no_connection(cause) {
                return true;
            }
            next = cause.source();
        }
        false
    }
}

fn has_no_connection(cause: &(dyn StdError + 'static)) -> bool {
    use io::ErrorKind::{AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable};
    let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
    matches!(kind, Some(ConnectionRefused | HostUnreachable | NetworkUnreachable | AddrNotAvailable))
}

/// Name of the value that holds the context of a record.
const RECORDED: &str = "recorded";

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Shown::line(f);
        write!(out, "{} ({}", self.0.message, self.0.kind.as_str())?;
        if let Some(operation) = self.0.operation {
            write!(out, " in {operation}")?;
        }
        for (name, value) in &self.0.context {
            write!(out, ", {name}: {value}")?;
        }
        out.write_str(")")
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Shown::line(f), "{}", self.0.message)?;
        let mut line = |name: &str, text: &dyn fmt::Display| {
            f.write_str("\n  ")?;
            write!(Shown::line(f), "{name}: {text}")
        };
        line("kind", &self.0.kind.as_str())?;
        let operation = self.0.operation.map(|operation| ("operation", operation));
        operation.into_iter().chain(self.context()).try_for_each(|(name, value)| line(name, &value))?;
        self.causes().try_for_each(|cause| line("caused by", &cause))?;
        match (self.0.retry, self.0.retry_after) {
            (RetryStatus::Temporary, None) => line("retry", &"may succeed later"),
            (RetryStatus::Temporary, Some(wait)) => {
                line("retry", &format_args!("may succeed after {wait:?}"))
            }
            _ => Ok(()),
        }
    }
}

macro_rules! from_others {
    ($($other:ty),*) => {$(impl From<$other> for Error {
        fn from(error: $other) -> Self {
            Self::new(kind_of(&error), error.to_string()).caused_by(error)
        }
    })*};
}
from_others!(io::Error, serde_json::Error, num::ParseIntError, num::ParseFloatError, Utf8Error);

fn kind_of(error: &(dyn StdError + 'static)) -> ErrorKind {
    match error.downcast_ref().map(io::Error::kind) {
        None => ErrorKind::InvalidInput,
        Some(io::ErrorKind::NotFound) => ErrorKind::NotFound,
        Some(io::ErrorKind::PermissionDenied) => ErrorKind::PermissionDenied,
        Some(io::ErrorKind::TimedOut) => ErrorKind::Timeout,
        Some(_) if has_no_connection(error) => ErrorKind::Transport,
        Some(_) => ErrorKind::Io,
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}

/// An [`Error`] as an event stores it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ErrorRecord {
    /// Kind of the failure.
    pub kind: ErrorKind,
    /// Retry status.
    pub retry: RetryStatus,
    /// The message, without kind and context.
    pub message: String,
    /// Operation, named values and causes, joined by commas; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub context: String,
    /// The bound of a budget that was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exhausted: Option<Box<Exhausted>>,
    /// The reason for which a run was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Box<StopReason>>,
    /// True if the call that failed is known never to have been sent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsent: bool,
}

impl ErrorRecord {
    /// Restores the error, for example for the outcome of a finished run after a restart.
    #[must_use]
    pub fn to_error(&self) -> Error {
        let mut error = Error::new(self.kind, self.message.clone()).with_retry(self.retry);
        error.0.exhausted.clone_from(&self.exhausted);
        error.0.stopped.clone_from(&self.stopped);
        error.0.unsent = self.unsent;
        if self.context.is_empty() { error } else { error.with(RECORDED, self.context.clone()) }
    }
}
