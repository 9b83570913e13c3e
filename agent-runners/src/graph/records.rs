//! Records of a graph's run. Its resume and its reports follow from them alone.

use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind, Money, Result, RunId, SessionId, Timestamp, Usage,
    event::{Record, Recorded, weigh_plain},
    message::json_bytes,
};
use serde::{Deserialize, Serialize};

use super::{Change, GraphSignature, NodeEnd};

/// Namespace of the records of graphs.
pub(super) const NAMESPACE: &str = "graph";

/// A graph began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GraphStarted {
    /// Signature of the graph: its nodes and edges, by which a resume recognises it.
    pub signature: GraphSignature,
}

impl Record for GraphStarted {
    const KIND: &'static str = "graph.started";

    fn summary(&self) -> String {
        format!("begins {} tasks", self.signature.nodes.len())
    }

    fn weigh(&self) -> Result<usize> {
        Ok(self.signature.nodes.len().saturating_mul(100))
    }
}

/// An attempt at a node of a graph began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeStarted {
    /// The node.
    pub node: Arc<str>,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Name of the agent that works on it; `None` for a step of the program itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Arc<str>>,
    /// Session of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<SessionId>,
}

impl Record for NodeStarted {
    const KIND: &'static str = "graph.node_started";

    fn summary(&self) -> String {
        format!("begins {}", self.node)
    }

    fn child(&self) -> Option<(&SessionId, Option<RunId>)> {
        self.child.as_ref().map(|child| (child, None))
    }

    /// Ids and names are always short.
    fn weigh(&self) -> Result<usize> {
        Ok(0)
    }
}

/// An attempt at a node of a graph ended, or the node will not be run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeFinished {
    /// The node.
    pub node: Arc<str>,
    /// Number of the attempt, from 1; 0 when no attempt ended with this: the node never began, or was skipped or
    /// cancelled after its last attempt.
    pub attempt: u32,
    /// Outcome of the node.
    pub end: NodeEnd,
    /// Tokens of the model calls of the agent and of all agents below it, as far as services reported them.
    #[serde(default, skip_serializing_if = "Usage::is_unknown")]
    pub usage: Usage,
    /// Cost of these calls; `None` means unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
    /// Time from its start to its end, in microseconds.
    pub micros: u64,
    /// Time at which the next attempt begins; `None` if this was the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
}

impl Record for NodeFinished {
    const KIND: &'static str = "graph.node_finished";

    fn summary(&self) -> String {
        format!("{} {}", self.node, self.end)
    }

    /// The value is checked before the node counts as completed.
    fn weigh(&self) -> Result<usize> {
        Ok(match &self.end {
            NodeEnd::Completed(value) => value.bytes(),
            _ => 0,
        })
    }
}

/// A graph was changed while it ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GraphChanged {
    /// The change.
    pub change: Change,
    /// Nodes that were skipped because a node failed that is now tried again or skipped itself, and that are pending
    /// again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub again: Vec<Arc<str>>,
}

impl Record for GraphChanged {
    const KIND: &'static str = "graph.changed";

    fn summary(&self) -> String {
        self.change.to_string()
    }

    /// The change is checked before it is applied.
    fn weigh(&self) -> Result<usize> {
        Ok(json_bytes(&self.change, usize::MAX))
    }
}

/// The supervisor of a graph was asked what to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SupervisorAsked {
    /// How often it was asked in this run, from 1.
    pub round: u32,
    /// Its session.
    pub child: SessionId,
    /// Its run.
    pub run: RunId,
    /// Nodes that failed since it was asked before.
    pub about: Vec<Arc<str>>,
}

impl Record for SupervisorAsked {
    const KIND: &'static str = "graph.supervisor_asked";

    fn summary(&self) -> String {
        format!("asks what to do about {}", self.about.join(", "))
    }

    fn child(&self) -> Option<(&SessionId, Option<RunId>)> {
        Some((&self.child, Some(self.run)))
    }

    /// Ids are always short.
    fn weigh(&self) -> Result<usize> {
        Ok(self.about.len().saturating_mul(100))
    }
}

/// The supervisor of a graph answered. The changes that it made are recorded before this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SupervisorAnswered {
    /// How often it was asked in this run, from 1.
    pub round: u32,
    /// Steps that could not be taken, with the reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
    /// Reason why there is no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl Record for SupervisorAnswered {
    const KIND: &'static str = "graph.supervisor_answered";

    fn summary(&self) -> String {
        match &self.problem {
            Some(problem) => format!("no advice: {problem}"),
            None => format!("advised, {} steps refused", self.refused.len()),
        }
    }

    fn weigh(&self) -> Result<usize> {
        weigh_plain(self)
    }
}

/// A record of a graph's run, in its type.
#[derive(Debug)]
pub(super) enum GraphRecord {
    Started(Arc<GraphStarted>),
    NodeStarted(Arc<NodeStarted>),
    NodeFinished(Arc<NodeFinished>),
    Changed(Arc<GraphChanged>),
    Asked(Arc<SupervisorAsked>),
    Answered(Arc<SupervisorAnswered>),
}

impl GraphRecord {
    /// Reads a record; `None` for one of another namespace.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for one that cannot be read, [`ErrorKind::NewerVersion`] for one of a newer version.
    pub(super) fn of(record: &Recorded) -> Result<Option<Self>> {
        Ok(match record.name() {
            NodeFinished::KIND => record.get()?.map(Self::NodeFinished),
            NodeStarted::KIND => record.get()?.map(Self::NodeStarted),
            GraphStarted::KIND => record.get()?.map(Self::Started),
            GraphChanged::KIND => record.get()?.map(Self::Changed),
            SupervisorAsked::KIND => record.get()?.map(Self::Asked),
            SupervisorAnswered::KIND => record.get()?.map(Self::Answered),
            name if name.split('.').next() == Some(NAMESPACE) => return Err(unknown(name)),
            _ => None,
        })
    }
}

fn unknown(name: &str) -> Error {
    let text = format!(
        "records `{name}` of graphs are unknown here; the session was written by a newer version of entourage, update to read it"
    );
    Error::new(ErrorKind::NewerVersion, text)
}
