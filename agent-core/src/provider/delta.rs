//! The pieces in which a reply arrives.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    ErrorRecord, Usage,
    message::{Opaque, Signature},
};

/// One piece of a reply. Kept to 24 bytes: thousands of them pass through every run.
///
/// Text and reasoning may come in any number of pieces. Tool calls are told apart by `index`; the pieces of
/// different calls may interleave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Delta {
    /// More text.
    Text(Box<str>),
    /// More reasoning.
    Reasoning(Box<str>),
    /// The signature, or encrypted form, of the reasoning so far; ends that reasoning part.
    ReasoningSignature(Box<Signature>),
    /// More of a refusal.
    Refusal(Box<str>),
    /// A tool call begins.
    ToolCallStart(Box<CallStart>),
    /// More of a call's arguments.
    ToolCallArguments {
        /// Which call.
        index: u32,
        /// JSON text.
        text: Box<str>,
    },
    /// A block that only the provider understands.
    Opaque(Box<Opaque>),
    /// The service's id of the response and the model that really answered.
    Response(Box<ResponseInfo>),
    /// Tokens so far; a later figure replaces an earlier one.
    Usage(Box<Usage>),
    /// Something that the wire or the service cannot honour; the call goes on without it.
    Warning(Box<Warning>),
    /// The call failed and another attempt begins: all that came before is void, except [`Delta::Warning`].
    Restart(Box<Restart>),
    /// The reply is complete.
    Finish(Box<Finish>),
}

impl Delta {
    /// More text.
    #[must_use]
    pub fn text(text: impl Into<Box<str>>) -> Self {
        Self::Text(text.into())
    }

    /// The signature of the reasoning so far.
    #[must_use]
    pub fn signature(signature: Signature) -> Self {
        Self::ReasoningSignature(Box::new(signature))
    }

    /// The end.
    #[must_use]
    pub fn finish(finish: impl Into<Finish>) -> Self {
        Self::Finish(Box::new(finish.into()))
    }

    /// The beginning of call `index`.
    #[must_use]
    pub fn tool_call(index: u32, id: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self::ToolCallStart(Box::new(CallStart { index, id: id.into(), name: name.into() }))
    }

    /// More arguments of call `index`.
    #[must_use]
    pub fn arguments(index: u32, text: impl Into<Box<str>>) -> Self {
        Self::ToolCallArguments { index, text: text.into() }
    }
}

/// The beginning of a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallStart {
    /// Tells the calls of a reply apart.
    pub index: u32,
    /// The service's id; may be empty.
    pub id: Arc<str>,
    /// The tool's name.
    pub name: Arc<str>,
}

/// What the service says about its response as a whole. It may come in several pieces; a later one adds to it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ResponseInfo {
    /// The response id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Box<str>>,
    /// The model that really answered, as the service spells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<str>>,
    /// The service's id of the request, for its support.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Box<str>>,
    /// What is left of the account's limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Box<RateLimits>>,
}

impl ResponseInfo {
    /// An id and a model, as far as known.
    #[must_use]
    pub fn new(id: Option<Box<str>>, model: Option<Box<str>>) -> Self {
        Self { id, model, ..Self::default() }
    }

    /// Takes over what `later` knows.
    pub fn merge(&mut self, later: Self) {
        self.id = later.id.or(self.id.take());
        self.model = later.model.or(self.model.take());
        self.request = later.request.or(self.request.take());
        self.limits = later.limits.or(self.limits.take());
    }
}

/// An account's limits as the service's headers state them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RateLimits {
    /// Requests.
    pub requests: RateWindow,
    /// Tokens, where the service counts input and output together.
    pub tokens: RateWindow,
    /// Prompt tokens.
    pub input_tokens: RateWindow,
    /// Reply tokens.
    pub output_tokens: RateWindow,
}

/// One limit; each figure as far as the service states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RateWindow {
    /// How many are allowed.
    pub limit: Option<u64>,
    /// How many are left.
    pub remaining: Option<u64>,
    /// How long until it is full again.
    pub reset: Option<Duration>,
}

/// Something that could not be honoured, and what was done instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Warning {
    /// What it is about.
    pub kind: WarningKind,
    /// The setting, tool or part that it is about, such as `top_k`; may be empty.
    pub subject: Box<str>,
    /// For people.
    pub text: Box<str>,
}

impl Warning {
    /// A warning about `subject`.
    #[must_use]
    pub fn new(kind: WarningKind, subject: impl Into<Box<str>>, text: impl Into<Box<str>>) -> Self {
        Self { kind, subject: subject.into(), text: text.into() }
    }
}

/// What a [`Warning`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WarningKind {
    /// A parameter that was left out or changed.
    Setting,
    /// A tool or a tool choice that was left out or weakened.
    Tool,
    /// A file that was not shown.
    Media,
    /// A schema that was changed, or is not enforced.
    Schema,
    /// Part of the conversation that was left out.
    History,
    /// A part of the reply that was not understood.
    Reply,
    /// A rule that cannot be matched against a tool, which the warning is about.
    Rule,
    /// Something else.
    #[default]
    Other,
}

/// Why all that came of a reply so far is void, and what begins instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Restart {
    /// The attempt that begins, from 2.
    pub attempt: u32,
    /// Why the one before it failed.
    pub error: ErrorRecord,
    /// How long is waited before it begins.
    pub delay: Duration,
    /// The service that is asked now, when it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Arc<str>>,
    /// The model that is asked now, when it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
}

impl Restart {
    /// Attempt number `attempt` begins after `delay`, because of `error`.
    #[must_use]
    pub fn new(attempt: u32, error: ErrorRecord, delay: Duration) -> Self {
        Self { attempt, error, delay, provider: None, model: None }
    }
}

/// Why a reply ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Finish {
    /// In our terms.
    pub reason: FinishReason,
    /// The wire's own word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<Box<str>>,
}

impl Finish {
    /// An end for `reason`, without a word of the wire.
    #[must_use]
    pub fn new(reason: FinishReason) -> Self {
        Self { reason, raw: None }
    }

    /// An end for `reason`, which the wire spelled `raw`.
    #[must_use]
    pub fn from_wire(reason: FinishReason, raw: impl Into<Box<str>>) -> Self {
        Self { reason, raw: Some(raw.into()) }
    }
}

impl From<FinishReason> for Finish {
    fn from(reason: FinishReason) -> Self {
        Self::new(reason)
    }
}

impl From<FinishReason> for Box<Finish> {
    fn from(reason: FinishReason) -> Self {
        Self::new(Finish::new(reason))
    }
}

/// Why a reply ended, in provider-neutral terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FinishReason {
    /// The model had nothing more to say, or met a stop sequence.
    Stop,
    /// The model waits for its tool calls.
    ToolCalls,
    /// The output limit was reached.
    Length,
    /// The service withheld the rest.
    ContentFilter,
    /// The model declined.
    Refusal,
    /// The run was cancelled while the reply came.
    Cancelled,
    /// The reply broke off with an error.
    Error,
    /// Something else; see the wire's own word.
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_stays_small() {
        assert_eq!(size_of::<Delta>(), 24);
        assert!(size_of::<crate::event::Envelope>() <= 48);
    }
}
