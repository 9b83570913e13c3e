//! Changes of a graph while it runs.

use std::{
    fmt::{self, Write as _},
    sync::Arc,
};

use entourage_core::event::Shown;
use entourage_core::permission::Scope;
use serde::{Deserialize, Serialize};

use super::signature::NodeSignature;

/// A change of a running graph. Recorded, so that a resumed run knows of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Change {
    /// A node will not run, or not continue.
    Skip {
        /// Id of the node.
        node: Arc<str>,
        /// Effect of the skip on the node's dependents.
        dependents: SkipAs,
    },
    /// A node is given to another agent.
    Reassign {
        /// Id of the node.
        node: Arc<str>,
        /// Name of its agent from now on.
        agent: Arc<str>,
    },
    /// A node was added.
    Add {
        /// Signature of the new node.
        node: Box<NodeSignature>,
        /// Task of its agent, before the outputs of the nodes that it depends on.
        task: String,
        /// Expected duration in seconds, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expected_seconds: Option<u32>,
        /// Further upper bound of its permissions, beside those that the graph's nodes grant its agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scope: Option<Scope>,
    },
    /// A node that failed, was skipped or was cancelled is retried.
    Retry {
        /// Id of the node.
        node: Arc<str>,
    },
    /// A node is stopped, and counts as cancelled.
    Cancel {
        /// Id of the node.
        node: Arc<str>,
    },
}

/// Effect of a skipped node on its dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SkipAs {
    /// The node counts as done, without output.
    #[default]
    Satisfied,
    /// They are skipped as well.
    Blocked,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let f = &mut Shown::line(f);
        match self {
            Self::Skip { node, .. } => write!(f, "skip of {node} requested"),
            Self::Reassign { node, agent } => write!(f, "{node} goes to {agent}"),
            Self::Add { node, .. } => write!(f, "{} was added", node.id),
            Self::Retry { node } => write!(f, "{node} is tried again"),
            Self::Cancel { node } => write!(f, "cancellation of {node} requested"),
        }
    }
}
