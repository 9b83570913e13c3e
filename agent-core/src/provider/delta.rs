//! The pieces in which a reply arrives: `Delta` and what its variants hold.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    ErrorRecord, Usage,
    base::FinishReason,
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
    /// Signature, or encrypted form, of the reasoning so far; ends that reasoning part.
    ReasoningSignature(Box<Signature>),
    /// More of a refusal.
    Refusal(Box<str>),
    /// Start of a tool call.
    ToolCallStart(Box<CallStart>),
    /// More of a call's arguments.
    ToolCallArguments {
        /// Index of the call in the reply.
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
    /// A setting, tool or part that the wire or the service cannot honour; the call goes on without it.
    Warning(Box<Warning>),
    /// Failure of the attempt and start of another: all deltas before it are void, except [`Delta::Warning`].
    Restart(Box<Restart>),
    /// End of a complete reply.
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

    /// The end of the reply.
    #[must_use]
    pub fn finish(finish: impl Into<Finish>) -> Self {
        Self::Finish(Box::new(finish.into()))
    }

    /// The start of call `index`.
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

/// Start of a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallStart {
    /// Index that tells the calls of a reply apart.
    pub index: u32,
    /// The service's id; may be empty.
    pub id: Arc<str>,
    /// The tool's name.
    pub name: Arc<str>,
}

/// Facts that a service reports about its response as a whole. They may come in several pieces; a later one adds to it.
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
    /// Remaining limits of the account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Box<RateLimits>>,
}

impl ResponseInfo {
    /// An id and a model, as far as known.
    #[must_use]
    pub fn new(id: Option<Box<str>>, model: Option<Box<str>>) -> Self {
        Self { id, model, ..Self::default() }
    }

    /// Takes over each field that `later` has set.
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
    /// Limit on requests.
    pub requests: RateWindow,
    /// Limit on tokens, where the service counts input and output together.
    pub tokens: RateWindow,
    /// Limit on prompt tokens.
    pub input_tokens: RateWindow,
    /// Limit on reply tokens.
    pub output_tokens: RateWindow,
}

/// One limit; each figure as far as the service states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RateWindow {
    /// Size of the quota.
    pub limit: Option<u64>,
    /// Remaining quota.
    pub remaining: Option<u64>,
    /// Time until the quota is full again.
    pub reset: Option<Duration>,
}

/// Notice of something that could not be honoured, and of what was done instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Warning {
    /// Subject area.
    pub kind: WarningKind,
    /// The setting, tool or part concerned, such as `top_k`; may be empty.
    pub subject: Box<str>,
    /// Explanation for people.
    pub text: Box<str>,
}

impl Warning {
    /// A warning about `subject`.
    #[must_use]
    pub fn new(kind: WarningKind, subject: impl Into<Box<str>>, text: impl Into<Box<str>>) -> Self {
        Self { kind, subject: subject.into(), text: text.into() }
    }
}

/// Subject area of a [`Warning`].
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
    /// A rule that can never match the tool that the warning names.
    Rule,
    /// Anything else.
    #[default]
    Other,
}

/// Start of another attempt, which voids the reply so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Restart {
    /// Number of the attempt that begins, from 2.
    pub attempt: u32,
    /// Error of the attempt before it.
    pub error: ErrorRecord,
    /// Wait before the attempt begins.
    pub delay: Duration,
    /// New service, if it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Arc<str>>,
    /// New model, if it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
}

impl Restart {
    /// Start of attempt number `attempt` after `delay`, because of `error`.
    #[must_use]
    pub fn new(attempt: u32, error: ErrorRecord, delay: Duration) -> Self {
        Self { attempt, error, delay, provider: None, model: None }
    }
}

/// End of a reply, with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Finish {
    /// Reason in provider-neutral terms.
    pub reason: FinishReason,
    /// Reason as the wire spells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<Box<str>>,
}

impl Finish {
    /// An end for `reason`, without the wire's spelling.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_stays_small() {
        assert_eq!(size_of::<Delta>(), 24);
        assert!(size_of::<crate::event::Envelope>() <= 48);
    }
}
