//! What somebody may change of a graph while it runs.

use std::{
    fmt::{self, Write as _},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::signature::NodeSignature;
use crate::permission::Scope;
use crate::shown::Shown;

/// One change of a graph that runs. Recorded, so that a run which is resumed knows of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Change {
    /// A node is not to be run, or not on.
    Skip {
        /// The node.
        node: Arc<str>,
        /// What its dependents make of it.
        dependents: SkipAs,
    },
    /// Another agent is to work on a node.
    Reassign {
        /// The node.
        node: Arc<str>,
        /// Its agent from now on.
        agent: Arc<str>,
    },
    /// A node was added.
    Add {
        /// What it is.
        node: Box<NodeSignature>,
        /// What its agent is told to do, before what the nodes that it depends on gave.
        task: String,
        /// About how many seconds it will take, if that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expected_seconds: Option<u32>,
        /// What it may do, at most, beside what the graph's nodes grant its agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scope: Option<Scope>,
    },
    /// A node that failed, or was skipped or cancelled, is tried again.
    Retry {
        /// The node.
        node: Arc<str>,
    },
    /// A node is stopped, and counts as cancelled.
    Cancel {
        /// The node.
        node: Arc<str>,
    },
}

/// What the dependents of a skipped node make of it (LO13).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SkipAs {
    /// It counts as done, without output.
    #[default]
    Satisfied,
    /// They are skipped as well.
    Blocked,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let f = &mut Shown::line(f);
        match self {
            Self::Skip { node, .. } => write!(f, "{node} is to be skipped"),
            Self::Reassign { node, agent } => write!(f, "{node} goes to {agent}"),
            Self::Add { node, .. } => write!(f, "{} was added", node.id),
            Self::Retry { node } => write!(f, "{node} is tried again"),
            Self::Cancel { node } => write!(f, "{node} is to be cancelled"),
        }
    }
}
