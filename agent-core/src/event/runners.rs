//! Payloads of the events of graphs.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    Money, SessionId, Timestamp, Usage,
    graph::{Change, GraphSignature, NodeEnd},
};

payload! {
    /// A graph began.
    GraphStarted {
        /// Signature of the graph: its nodes and edges, by which a resume recognises it.
        signature: GraphSignature,
    }
}

payload! {
    /// An attempt at a node of a graph began.
    NodeStarted {
        /// The node.
        node: Arc<str>,
        /// Number of the attempt, from 1.
        attempt: u32,
        /// Name of the agent that works on it; `None` for a step of the program itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<Arc<str>>,
        /// Session of the agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        child: Option<SessionId>,
    }
}

payload! {
    /// An attempt at a node of a graph ended, or the node will not be run.
    NodeFinished {
        /// The node.
        node: Arc<str>,
        /// Number of the attempt, from 1; 0 for a node that was never started.
        attempt: u32,
        /// Outcome of the node.
        end: NodeEnd,
        /// Tokens of the model calls of the agent and of all agents below it, as far as services reported them.
        #[serde(default, skip_serializing_if = "Usage::is_unknown")]
        usage: Usage,
        /// Cost of these calls; `None` means unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<Money>,
        /// Time from its start to its end, in microseconds.
        micros: u64,
        /// Time at which the next attempt begins; `None` if this was the last one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Timestamp>,
    }
}

payload! {
    /// A graph was changed while it ran.
    GraphChanged {
        /// The change.
        change: Change,
        /// Nodes that were skipped because a node failed that is now tried again, and that are pending again too.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        again: Vec<Arc<str>>,
    }
}
