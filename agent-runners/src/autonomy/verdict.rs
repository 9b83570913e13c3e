//! The verdict of a check, and the phases of a checked task.

use std::fmt::{self, Write as _};

use entourage_core::{
    event::Shown,
    run::Outcome,
    tool::{IntoToolOutput, ToolError, ToolOutput},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A phase of a checked task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Phase {
    /// The acceptance criteria are written, before the work begins: an option of the level `judge`.
    Criteria,
    /// The executor works.
    Execute,
    /// The executor summarizes its work: the summary is all that the checker gets.
    Summarize,
    /// The checker checks the work.
    Check,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Criteria => "sets criteria",
            Self::Execute => "works",
            Self::Summarize => "sums up",
            Self::Check => "checks",
        })
    }
}

/// The result of a check. As JSON it is the answer of a checker that is no
/// [`ReactAgent`](crate::ReactAgent): see [`DualAgent`](crate::DualAgent).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Verdict {
    /// True when the task is complete.
    pub accepted: bool,
    /// The reason; for a rejection, what is left to do.
    pub reason: String,
    /// The newest results of the checker's tools. Empty when it used none: a judge never does, and an agent must only
    /// when [`requires_evidence`](crate::DualBuilder::requires_evidence) is set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
}

/// The result of one tool call of a checker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Evidence {
    /// Name of the tool.
    pub tool: Box<str>,
    /// Arguments of the call, as JSON.
    pub arguments: Box<str>,
    /// The result, shortened.
    pub result: Box<str>,
    /// True when the call failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

impl Verdict {
    /// Creates the verdict that the task is complete.
    #[must_use]
    pub fn accepted(reason: impl Into<String>) -> Self {
        Self { accepted: true, reason: reason.into(), evidence: Vec::new() }
    }

    /// Creates the verdict that something is left to do.
    #[must_use]
    pub fn rejected(reason: impl Into<String>) -> Self {
        Self { accepted: false, reason: reason.into(), evidence: Vec::new() }
    }
}

impl From<Verdict> for Outcome {
    /// The outcome of a checker's run that ended with this verdict: its text is the verdict as JSON.
    fn from(verdict: Verdict) -> Self {
        Self::completed(serde_json::to_string(&verdict).unwrap_or_default())
    }
}

impl IntoToolOutput for Verdict {
    /// The answer of a person who reviews: see [`DualAgent::reviewed_by`](crate::DualAgent::reviewed_by).
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text(serde_json::to_string(&self)?))
    }
}

/// Returns the JSON Schema of a [`Verdict`] that a person gives. A rejection says what is left to do.
pub(crate) fn verdict_form() -> Value {
    json!({
        "type": "object",
        "properties": {"accepted": {"type": "boolean"}, "reason": {"type": "string"}},
        "required": ["accepted", "reason"],
        "additionalProperties": false,
        "anyOf": [{"properties": {"accepted": {"const": true}}}, {"properties": {"reason": {"minLength": 1, "pattern": "\\S"}}}],
    })
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.accepted { "accepted" } else { "rejected" };
        write!(Shown::line(f), "{word}: {}", self.reason)
    }
}
