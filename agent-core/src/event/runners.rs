//! What the events of runners carry: of checked tasks and of graphs.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    Money, RunId, SessionId, Timestamp, Usage,
    agent::{Phase, Verdict},
    graph::{Change, NodeEnd, Signature},
    message::Message,
    run::Outcome,
};

payload! {
    /// A phase began of a task whose result is checked before it counts as done.
    PhaseStarted {
        /// Which round of work and check, from 1.
        iteration: u32,
        /// What is done in it.
        phase: Phase,
        /// The session in which it is done.
        child: SessionId,
        /// The run there.
        run: RunId,
        /// What is asked there.
        prompt: Arc<Message>,
    }
}

payload! {
    /// A phase of a checked task ended.
    PhaseFinished {
        /// Which round of work and check, from 1.
        iteration: u32,
        /// What was done in it.
        phase: Phase,
        /// What its run ended with.
        outcome: Outcome,
        /// What the next phase goes on with: a digest of the work, the summary, the feedback.
        text: Arc<str>,
        /// What a check found.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        verdict: Option<Verdict>,
    }
}

payload! {
    /// A graph began.
    GraphStarted {
        /// Its nodes and edges, and what a graph is recognised by.
        signature: Signature,
    }
}

payload! {
    /// An attempt at a node of a graph began.
    NodeStarted {
        /// The node.
        node: Arc<str>,
        /// Which attempt, from 1.
        attempt: u32,
        /// Who works on it; `None` for a step of the program itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<Arc<str>>,
        /// The agent's session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        child: Option<SessionId>,
    }
}

payload! {
    /// An attempt at a node of a graph ended, or a node will not be run.
    NodeFinished {
        /// The node.
        node: Arc<str>,
        /// Which attempt, from 1; 0 for a node that was never started.
        attempt: u32,
        /// How.
        end: NodeEnd,
        /// Tokens of the model calls of the agent and of all agents below it, as far as services told.
        #[serde(default, skip_serializing_if = "Usage::is_unknown")]
        usage: Usage,
        /// What they cost; `None` means unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<Money>,
        /// From its start to its end, in microseconds.
        micros: u64,
        /// When the next attempt begins; `None`: this was the last one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Timestamp>,
    }
}

payload! {
    /// Somebody changed a graph while it ran.
    GraphChanged {
        /// What was changed.
        change: Change,
        /// Nodes that were skipped for want of one that is tried again, and are pending again as well.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        again: Vec<Arc<str>>,
    }
}
