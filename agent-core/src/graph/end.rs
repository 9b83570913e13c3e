//! How a node ends.

use std::{
    fmt::{self, Write as _},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::NodeValue;
use crate::{ErrorRecord, shown::Shown};

/// How an attempt at a node ended, or why there was none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NodeEnd {
    /// It is done; this is what it returned.
    Completed(NodeValue),
    /// It failed.
    Failed(ErrorRecord),
    /// It was not run, or not to its end.
    Skipped(SkipCause),
    /// It was cancelled, by itself or with the whole graph.
    Cancelled,
}

/// Why a node was skipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SkipCause {
    /// What it depends on failed, or was skipped or cancelled: that node.
    Blocked(Arc<str>),
    /// The condition on the edge from this node did not hold.
    Condition(Arc<str>),
    /// Somebody asked for it.
    Asked,
}

impl NodeEnd {
    /// Whether the node gave a value.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        matches!(self, Self::Completed(_))
    }
}

impl fmt::Display for NodeEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let f = &mut Shown::line(f);
        match self {
            Self::Completed(value) => write!(f, "completed: {}", value.to_text()),
            Self::Failed(error) => write!(f, "failed: {}", error.message),
            Self::Skipped(cause) => write!(f, "skipped: {cause}"),
            Self::Cancelled => f.write_str("cancelled"),
        }
    }
}

impl fmt::Display for SkipCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocked(node) => write!(f, "{node} gave nothing"),
            Self::Condition(node) => write!(f, "the condition after {node} did not hold"),
            Self::Asked => f.write_str("on request"),
        }
    }
}
