//! A node as the runner sees it: what it depends on, and what is to be done.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;

use super::{Inputs, NodeValue};
use crate::{
    Result,
    agent::Agent,
    digest::Digest,
    permission::Scope,
    provider::Size,
    run::{Outcome, Task},
};

/// A node of a graph.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) id: Arc<str>,
    /// In the order of its inputs.
    pub(crate) edges: Vec<Edge>,
    pub(crate) work: Work,
    pub(crate) retry: Retries,
    /// How long one attempt may take.
    pub(crate) timeout: Option<Duration>,
    /// How long it is expected to take: what the critical path is computed from.
    pub(crate) expected: Option<Duration>,
    /// What the program says of its version.
    pub(crate) version: Box<str>,
    /// Digest of the schema of what it returns.
    pub(crate) output: Option<Digest>,
    /// Which provider's limit it counts to.
    pub(crate) provider: Option<Arc<str>>,
}

/// An edge from a node that comes first.
#[derive(Clone)]
pub(crate) struct Edge {
    /// The node's place in the graph.
    pub(crate) from: usize,
    /// Whether the dependent runs also when that node gave nothing.
    pub(crate) optional: bool,
    /// Whether the dependent is a step that takes what the node gives and cannot do without it: a skip of the node
    /// cannot satisfy it then.
    pub(crate) needed: bool,
    /// Followed only when this holds of what the node gave.
    pub(crate) when: Option<Condition>,
}

pub(crate) type Condition = Arc<dyn Fn(&NodeValue) -> Result<bool> + Send + Sync>;

/// What is to be done at a node.
#[derive(Clone)]
pub(crate) enum Work {
    /// A step of the program itself.
    Step(StepFn),
    /// An agent, or another graph, in a session of its own.
    Agent(AgentWork),
    /// The same for each item of a list.
    Map(MapWork),
}

pub(crate) type StepFn = Arc<dyn Fn(&Inputs) -> BoxFuture<'static, Result<NodeValue>> + Send + Sync>;

pub(crate) type TaskFn = Arc<dyn Fn(&Inputs) -> Result<Task> + Send + Sync>;
pub(crate) type ReadFn = Arc<dyn Fn(&Outcome) -> Result<NodeValue> + Send + Sync>;
pub(crate) type ItemsFn = Arc<dyn Fn(&Inputs) -> Result<Vec<Work>> + Send + Sync>;
pub(crate) type GatherFn = Arc<dyn Fn(Vec<Option<NodeValue>>) -> Result<NodeValue> + Send + Sync>;

#[derive(Clone)]
pub(crate) struct AgentWork {
    /// Smallest first: a further attempt escalates to the next (LO04). At least one.
    pub(crate) agents: Vec<(Option<Size>, Arc<dyn Agent>)>,
    /// What it is asked, given what the nodes before it gave.
    pub(crate) task: TaskFn,
    /// What its outcome comes to.
    pub(crate) read: ReadFn,
    /// What it may do, at most.
    pub(crate) scope: Scope,
}

#[derive(Clone)]
pub(crate) struct MapWork {
    /// What is to be done for each item; no `Map` itself.
    pub(crate) items: ItemsFn,
    /// What they gave, in the order of the items; `None` for one that failed.
    pub(crate) gather: GatherFn,
    /// How many at once; `None`: as many as the graph's own limit allows.
    pub(crate) at_once: Option<usize>,
    /// Whether one that failed fails the node.
    pub(crate) all: bool,
    /// Who works on the items, if they are no steps of the program itself.
    pub(crate) agent: Option<Arc<str>>,
}

/// Whether a failed attempt is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retries {
    /// Attempts at most, the first one included.
    pub(crate) attempts: u32,
    /// Before the second attempt; twice as long before each one after it.
    pub(crate) delay: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { attempts: 1, delay: Duration::ZERO }
    }
}

impl Node {
    /// The name of its first agent; `None` for a step of the program itself.
    pub(crate) fn agent(&self) -> Option<&str> {
        match &self.work {
            Work::Agent(work) => work.agents.first().map(|(_, agent)| agent.name()),
            Work::Map(work) => work.agent.as_deref(),
            Work::Step(_) => None,
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let after: Vec<_> = self.edges.iter().map(|edge| edge.from).collect();
        f.debug_struct("Node").field("id", &self.id).field("after", &after).finish_non_exhaustive()
    }
}
