//! A node as the runner sees it: its dependencies and its work.

use std::{fmt, sync::Arc, time::Duration};

use entourage_core::{
    Digest, Result, SessionId,
    agent::Agent,
    event::Recorded,
    permission::Scope,
    provider::Size,
    run::{Outcome, RunContext, Task},
};
use futures_util::future::BoxFuture;

use super::{Inputs, NodeEnd, NodeValue};

/// A node of a graph.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) id: Arc<str>,
    /// In the order of the node's inputs.
    pub(crate) edges: Vec<Edge>,
    pub(crate) work: Work,
    pub(crate) retry: Retries,
    /// Time limit of one attempt.
    pub(crate) timeout: Option<Duration>,
    /// Expected duration, from which the critical path is computed.
    pub(crate) expected: Option<Duration>,
    /// Version of the node, as the program names it.
    pub(crate) version: Box<str>,
    /// Digest of the schema of its output.
    pub(crate) output: Option<Digest>,
    /// Provider whose limit it counts towards.
    pub(crate) provider: Option<Arc<str>>,
}

/// An edge from a node that runs first.
#[derive(Clone)]
pub(crate) struct Edge {
    /// Index of that node in the graph.
    pub(crate) from: usize,
    /// True when the dependent also runs when that node gave no value.
    pub(crate) optional: bool,
    /// True when the dependent is a step that requires the node's value: a skip cannot satisfy it then.
    pub(crate) needed: bool,
    /// Condition on that node's output; the edge is followed only when it holds.
    pub(crate) when: Option<Condition>,
}

pub(crate) type Condition = Arc<dyn Fn(&NodeValue) -> Result<bool> + Send + Sync>;

/// The work at a node.
#[derive(Clone)]
pub(crate) enum Work {
    /// A step of the program itself.
    Step(StepFn),
    /// An agent, or another graph, in a session of its own.
    Agent(AgentWork),
    /// The same work for each item of a list.
    Map(MapWork),
}

pub(crate) type StepFn = Arc<dyn Fn(&Inputs) -> BoxFuture<'static, Result<NodeValue>> + Send + Sync>;

pub(crate) type TaskFn = Arc<dyn Fn(&Inputs) -> Result<Task> + Send + Sync>;
pub(crate) type ReadFn = Arc<dyn Fn(&Outcome) -> Result<NodeValue> + Send + Sync>;
pub(crate) type ItemsFn = Arc<dyn Fn(&Inputs) -> Result<Vec<Work>> + Send + Sync>;
pub(crate) type GatherFn = Arc<dyn Fn(Vec<Option<NodeValue>>) -> Result<NodeValue> + Send + Sync>;

#[derive(Clone)]
pub(crate) struct AgentWork {
    /// Agents by size, smallest first: each failed attempt escalates to the next size, and whichever agent of a size is
    /// free first makes the attempt. At least one.
    pub(crate) agents: Vec<(Option<Size>, Arc<dyn Agent>)>,
    /// Builds the task from the node's inputs.
    pub(crate) task: TaskFn,
    /// Reads the outcome as a value.
    pub(crate) read: ReadFn,
    /// Upper bound of its permissions.
    pub(crate) scope: Scope,
}

#[derive(Clone)]
pub(crate) struct MapWork {
    /// Builds the work for each item, never a `Map`.
    pub(crate) items: ItemsFn,
    /// Gathers the outputs in the order of the items; `None` for one that failed.
    pub(crate) gather: GatherFn,
    /// Maximum number of items in parallel; `None` for the graph's own limit.
    pub(crate) at_once: Option<usize>,
    /// True when one failed item fails the node.
    pub(crate) all: bool,
    /// Name of the agent that works on the items; `None` for steps of the program.
    pub(crate) agent: Option<Arc<str>>,
}

impl AgentWork {
    /// Returns the agents of which one makes the attempt after so many failed ones.
    pub(crate) fn level(&self, failures: u32) -> &[(Option<Size>, Arc<dyn Agent>)] {
        let levels = self.agents.chunk_by(|(one, _), (other, _)| one.is_some() && one == other);
        let last = usize::try_from(failures).unwrap_or(usize::MAX).saturating_add(1);
        levels.take(last).last().unwrap_or_default()
    }

    /// True if a failed attempt may pass the node to another agent.
    pub(crate) fn has_choice(&self) -> bool {
        self.agents.len() > 1
    }
}

/// An attempt that is about to begin, or that a resumed run goes on with.
pub(crate) struct Attempting<'a> {
    /// Id of its node.
    pub(crate) node: &'a str,
    /// Name of its agent.
    pub(crate) agent: &'a str,
    /// Its session.
    pub(crate) child: &'a SessionId,
    /// Context of the graph's run.
    pub(crate) cx: &'a RunContext,
}

/// What goes on beside the nodes of a run: it records values of its own in the graph's session.
pub(crate) trait Beside: Send + Sync {
    /// Takes note of a value that a replayed run recorded.
    ///
    /// # Errors
    /// Those of a record that cannot be read.
    fn recall(&self, record: &Recorded) -> Result<()>;

    /// Completes the task of an attempt.
    ///
    /// # Errors
    /// An error fails the attempt.
    fn brief(&self, task: Task, attempt: Attempting<'_>) -> Result<Task>;

    /// Takes note of the end of an attempt at a node, before that is recorded. It may be told the same again after a
    /// resume.
    fn ended(&self, cx: &RunContext, node: &str, end: &NodeEnd) {
        let _ = (cx, node, end);
    }

    /// True when the supervisor is to be asked as soon as the run begins or goes on.
    fn is_calling(&self) -> bool;
}

/// Retry policy of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retries {
    /// Maximum number of attempts, the first one included.
    pub(crate) attempts: u32,
    /// Delay before the second attempt; doubled before each later one.
    pub(crate) delay: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { attempts: 1, delay: Duration::ZERO }
    }
}

impl Node {
    /// Returns the name of its first agent; `None` for a step of the program itself.
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
