//! What a service says in a case, in neutral terms: plain data for whoever spells it on a wire.

use std::time::Duration;

use crate::{Error, ErrorKind, Retry, Usage, provider::FinishReason};

/// What a service answers in one case of the suite.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Scenario {
    /// The case's name.
    pub name: &'static str,
    /// One reply for each call, in order.
    pub replies: Vec<Reply>,
    /// Send the body in pieces of this many bytes, each flushed; `None` for as it comes. Nothing to those who have no
    /// bytes.
    pub piece: Option<usize>,
}

impl Scenario {
    /// A scenario of `replies`, sent as it comes.
    #[must_use]
    pub fn new(name: &'static str, replies: impl Into<Vec<Reply>>) -> Self {
        Self { name, replies: replies.into(), piece: None }
    }

    /// The same in pieces of `bytes` bytes.
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
    /// The service takes the request and answers nothing, not even a status, until the caller goes away.
    Silent,
    /// The service accepts the request and streams.
    Streamed {
        /// What it says, in order.
        says: Vec<Say>,
        /// How it ends.
        ending: Ending,
    },
}

impl Reply {
    /// A stream of `says` that ends well, because of `reason`.
    #[must_use]
    pub fn finished(says: impl Into<Vec<Say>>, reason: FinishReason) -> Self {
        Self::Streamed { says: says.into(), ending: Ending::Finish(reason) }
    }
}

/// One thing that a service says. A wire that sends several of them as one does so: what they add up to is compared.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Say {
    /// More text.
    Text(&'static str),
    /// More reasoning.
    Reasoning(&'static str),
    /// The signature, or encrypted form, of the reasoning so far, or of what follows when there was none.
    Signature(&'static str),
    /// More of a refusal.
    Refusal(&'static str),
    /// A tool call begins.
    CallStart {
        /// Tells the calls of a reply apart, from 0.
        index: u32,
        /// The service's id of it.
        id: &'static str,
        /// The tool's name.
        name: &'static str,
    },
    /// More of a call's arguments.
    Arguments {
        /// Which call.
        index: u32,
        /// A piece of JSON text.
        json: &'static str,
    },
    /// A block that only this service understands, such as the result of a tool on its side. Which one is up to whoever
    /// spells it.
    Block,
    /// The service's id of the response. Without it, any.
    ResponseId(&'static str),
    /// The model that really answered. Without it, any.
    ResponseModel(&'static str),
    /// Tokens of this reply, with `input` counting cached tokens and `output` counting reasoning, as in [`Usage`].
    /// Without it, none are reported, if the wire allows that.
    Usage(Usage),
}

/// How a stream ends.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Ending {
    /// Well. [`FinishReason::ToolCalls`] is spelled as the wire spells the end of a reply with calls.
    Finish(FinishReason),
    /// With an error inside the stream, after which the service closes it.
    Failed(Failure),
    /// The connection is closed with the reply incomplete.
    CutOff,
    /// Not at all: the connection stays open and nothing more comes until the caller goes away.
    Open,
}

/// A failure of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// What it means. Whoever spells it chooses type and code so that they say this on their wire.
    pub kind: ErrorKind,
    /// The HTTP status of a refusal, and what a failure inside a stream would have had as one.
    pub status: u16,
    /// The service's own words.
    pub message: &'static str,
    /// How long the service asks to wait: `retry-after`, in whole seconds.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure of `kind`.
    #[must_use]
    pub fn new(kind: ErrorKind, status: u16, message: &'static str) -> Self {
        Self { kind, status, message, retry_after: None }
    }

    /// The same, asking to wait.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Whether trying again may help.
    #[must_use]
    pub fn retry(&self) -> Retry {
        self.to_error().retry()
    }

    /// The error that a provider makes of it.
    #[must_use]
    pub fn to_error(&self) -> Error {
        let error = Error::new(self.kind, self.message).during("model.stream");
        match self.retry_after {
            Some(wait) => error.with_retry_after(wait),
            None => error,
        }
    }
}
