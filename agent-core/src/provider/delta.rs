//! The pieces in which a reply arrives.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Usage, message::Opaque};

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
    ReasoningSignature(Box<str>),
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
    /// A setting that the service cannot honour; the call goes on without it.
    Warning(Box<str>),
    /// The reply is complete.
    Finish(Box<Finish>),
}

impl Delta {
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

/// What the service says about its response as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ResponseInfo {
    /// The response id.
    pub id: Option<Box<str>>,
    /// The model that really answered, as the service spells it.
    pub model: Option<Box<str>>,
}

impl ResponseInfo {
    /// An id and a model, as far as known.
    #[must_use]
    pub fn new(id: Option<Box<str>>, model: Option<Box<str>>) -> Self {
        Self { id, model }
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
