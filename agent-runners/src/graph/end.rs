//! The ends of a node.

use std::{
    fmt::{self, Write as _},
    sync::Arc,
};

use entourage_core::{ErrorRecord, event::Shown};
use serde::{Deserialize, Serialize};

use super::NodeValue;

/// End of an attempt at a node, or the reason why there was none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NodeEnd {
    /// The node is done, with this output.
    Completed(NodeValue),
    /// The attempt failed.
    Failed(ErrorRecord),
    /// The node was not run, or not to its end.
    Skipped(SkipCause),
    /// The node was cancelled, alone or with the whole graph.
    Cancelled,
}

/// Reason why a node was skipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SkipCause {
    /// This node, which it depends on, failed, was skipped or was cancelled.
    Blocked(Arc<str>),
    /// The condition on the edge from this node did not hold.
    Condition(Arc<str>),
    /// The skip was requested.
    Asked,
}

impl NodeEnd {
    /// True when the node gave a value.
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
            Self::Blocked(node) => write!(f, "{node} has no output"),
            Self::Condition(node) => write!(f, "the condition after {node} did not hold"),
            Self::Asked => f.write_str("on request"),
        }
    }
}
