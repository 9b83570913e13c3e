//! What a check found, and the phases of a checked task.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use crate::shown::Shown;

/// A phase of a task whose result is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Phase {
    /// What counts as done is written down, before the work begins: an option of the level `judge`.
    Criteria,
    /// The executor works.
    Execute,
    /// The executor sums up what it did: nothing else crosses to who checks it.
    Summarize,
    /// The work is checked.
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

/// What a check found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Verdict {
    /// Whether the task is complete.
    pub accepted: bool,
    /// Why; for a rejection what is left to do.
    pub reason: String,
    /// What whoever checked looked at: the results of its tools, the newest ones. Empty when it looked at nothing, as a judge
    /// never does, and an agent need not unless [`requires_evidence`](crate::agent::DualBuilder::requires_evidence) is set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
}

/// What one tool told whoever checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Evidence {
    /// The tool.
    pub tool: Box<str>,
    /// Its arguments, as JSON.
    pub arguments: Box<str>,
    /// What it gave, shortened.
    pub result: Box<str>,
    /// Whether it failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

impl Verdict {
    /// The task is complete.
    #[must_use]
    pub fn accepted(reason: impl Into<String>) -> Self {
        Self { accepted: true, reason: reason.into(), evidence: Vec::new() }
    }

    /// Something is left to do.
    #[must_use]
    pub fn rejected(reason: impl Into<String>) -> Self {
        Self { accepted: false, reason: reason.into(), evidence: Vec::new() }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.accepted { "accepted" } else { "rejected" };
        write!(Shown::line(f), "{word}: {}", self.reason)
    }
}
