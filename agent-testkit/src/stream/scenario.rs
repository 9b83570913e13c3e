//! The words of a service in a case, in neutral terms: plain data that a subject spells on its wire.

use std::time::Duration;

use entourage_core::{Error, ErrorKind, RetryStatus, Usage, provider::FinishReason};

/// The answers of a service in one case of the suite.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StreamScenario {
    /// The case's name.
    pub name: &'static str,
    /// One reply for each call, in order.
    pub replies: Vec<Reply>,
    /// Size in bytes of the pieces in which the body is sent, each flushed; `None` for no cutting. Meaningless for
    /// subjects without bytes.
    pub piece: Option<usize>,
}

impl StreamScenario {
    /// A scenario of `replies`, sent without cutting.
    #[must_use]
    pub fn new(name: &'static str, replies: impl Into<Vec<Reply>>) -> Self {
        Self { name, replies: replies.into(), piece: None }
    }

    /// Sets the size of the pieces, in bytes.
    #[must_use]
    pub fn in_pieces_of(mut self, bytes: usize) -> Self {
        self.piece = Some(bytes);
        self
    }
}

/// The answer to one call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Reply {
    /// The service refuses the request.
    Refused(Failure),
    /// The service takes the request and sends nothing, not even a status, until the caller goes away.
    Silent,
    /// The service accepts the request and streams.
    Streamed {
        /// The content, in order.
        says: Vec<Say>,
        /// The end of the stream.
        ending: Ending,
    },
}

impl Reply {
    /// A stream of `says` with a regular finish, for `reason`.
    #[must_use]
    pub fn finished(says: impl Into<Vec<Say>>, reason: FinishReason) -> Self {
        Self::Streamed { says: says.into(), ending: Ending::Finish(reason) }
    }
}

/// One utterance of a service. A wire may join several into one: only their sum is compared.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Say {
    /// More text.
    Text(&'static str),
    /// More reasoning.
    Reasoning(&'static str),
    /// The signature, or encrypted form, of the reasoning so far, or of the next content if there was none.
    Signature(&'static str),
    /// More of a refusal.
    Refusal(&'static str),
    /// The start of a tool call.
    CallStart {
        /// Number of the call within the reply, from 0.
        index: u32,
        /// The service's id of the call.
        id: &'static str,
        /// The tool's name.
        name: &'static str,
    },
    /// More arguments of a call.
    Arguments {
        /// Number of the call within the reply.
        index: u32,
        /// A piece of JSON text.
        json: &'static str,
    },
    /// A block that only this service understands, such as the result of a tool on its side. The subject chooses
    /// which.
    Block,
    /// The service's id of the response. Without it, any is accepted.
    ResponseId(&'static str),
    /// The model that really answered. Without it, any is accepted.
    ResponseModel(&'static str),
    /// Tokens of this reply; `input` includes cached tokens and `output` includes reasoning, as in [`Usage`]. Without
    /// it none are reported, if the wire allows that.
    Usage(Usage),
}

/// The end of a stream.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Ending {
    /// A regular finish. [`FinishReason::ToolCalls`] is spelled as the wire ends a reply with calls.
    Finish(FinishReason),
    /// A regular finish, after which the service does not close the stream: it sends what means nothing on its wire,
    /// such as comments, until the caller goes away.
    Unclosed(FinishReason),
    /// An error inside the stream, after which the service closes it.
    Failed(Failure),
    /// A closed connection with the reply incomplete.
    CutOff,
    /// No end: the connection stays open without data until the caller goes away.
    Open,
}

/// A failure of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The meaning of the failure. The subject chooses type and code so that they express it on its wire.
    pub kind: ErrorKind,
    /// The HTTP status of a refusal, or the status that would match a failure inside a stream.
    pub status: u16,
    /// The service's own words.
    pub message: &'static str,
    /// The time that the service asks to wait: `retry-after`, in whole seconds.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure of `kind`.
    #[must_use]
    pub fn new(kind: ErrorKind, status: u16, message: &'static str) -> Self {
        Self { kind, status, message, retry_after: None }
    }

    /// Adds a time to wait.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// The retry advice of the error: tells if another attempt may help.
    #[must_use]
    pub fn retry(&self) -> RetryStatus {
        self.to_error().retry()
    }

    /// The error that a provider must make of this failure.
    #[must_use]
    pub fn to_error(&self) -> Error {
        let error = Error::new(self.kind, self.message).during("model.stream");
        match self.retry_after {
            Some(wait) => error.with_retry_after(wait),
            None => error,
        }
    }
}
