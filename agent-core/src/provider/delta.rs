//! The pieces in which a reply arrives.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Usage, message::Opaque};

/// One piece of a reply. Kept to 40 bytes: thousands of them pass through every run.
///
/// Text and reasoning may come in any number of pieces. Tool calls are told apart by `index`; the pieces of
/// different calls may interleave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Delta {
    /// More text.
    Text(String),
    /// More reasoning.
    Reasoning(String),
    /// The signature, or encrypted form, of the reasoning so far; ends that reasoning part.
    ReasoningSignature(String),
    /// More of a refusal.
    Refusal(String),
    /// A tool call begins.
    ToolCallStart {
        /// Tells the calls of a reply apart.
        index: u32,
        /// The service's id; may be empty.
        id: Arc<str>,
        /// The tool's name.
        name: Arc<str>,
    },
    /// More of a call's arguments.
    ToolCallArguments {
        /// Which call.
        index: u32,
        /// JSON text.
        text: String,
    },
    /// A block that only the provider understands.
    Opaque(Box<Opaque>),
    /// The service's id of the response and the model that really answered.
    Response {
        /// The response id.
        id: Option<Box<str>>,
        /// The model's name as the service spells it.
        model: Option<Box<str>>,
    },
    /// Tokens so far; a later figure replaces an earlier one.
    Usage(Box<Usage>),
    /// A setting that the service cannot honour; the call goes on without it.
    Warning(Box<str>),
    /// The reply is complete.
    Finish(Finish),
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
