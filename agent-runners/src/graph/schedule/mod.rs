//! The scheduler: decides which node of a graph starts next. Pure: it never waits and knows no clock. The same calls
//! give the same answers, so replaying the record of a run restores its schedule.

use std::{collections::BTreeMap, fmt};

use super::SkipAs;

mod change;
mod machine;
mod map;
mod plan;
mod query;
mod ready;
mod seat;
#[cfg(test)]
mod tests;

pub(crate) use machine::Schedule;
pub(crate) use plan::Plan;

/// A node as the scheduler sees it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Planned {
    /// Edges from its dependencies, in the order of its inputs.
    pub(crate) edges: Vec<PlannedEdge>,
    /// Agent that works on it, as a number that the caller assigns. A step of the program has none, and counts only
    /// towards the overall limit and its provider's.
    pub(crate) agent: Option<usize>,
    /// Further agents: whichever of these and `agent` has a slot first works on it.
    pub(crate) others: Vec<usize>,
    /// Provider whose limit it counts towards, as a number that the caller assigns.
    pub(crate) provider: Option<usize>,
    /// Expected duration in µs; the same for all nodes when unknown.
    pub(crate) expected: u64,
}

/// An edge from the node `from`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PlannedEdge {
    pub(crate) from: usize,
    /// True when the dependent also runs when that node gave no value.
    pub(crate) optional: bool,
    /// True when a condition decides if the edge is followed. A condition that cannot be evaluated, because the node
    /// counts as done without a value, does not hold.
    pub(crate) conditional: bool,
}

/// Limits on parallel attempts. A limit of 0 counts as 1.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// Attempts at all nodes; `None` for no limit.
    pub(crate) overall: Option<usize>,
    /// Attempts at all nodes that agents work on; `None` for no limit.
    pub(crate) all_agents: Option<usize>,
    /// Attempts of each agent that has no limit of its own. Default 1.
    pub(crate) each_agent: usize,
    /// Attempts of single agents.
    pub(crate) agents: BTreeMap<usize, usize>,
    /// Attempts of single providers; other providers have no limit.
    pub(crate) providers: BTreeMap<usize, usize>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            overall: None,
            all_agents: None,
            each_agent: 1,
            agents: BTreeMap::new(),
            providers: BTreeMap::new(),
        }
    }
}

/// Consequence of a node's failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Policy {
    /// Nodes that need it are skipped, transitively; the rest continues.
    #[default]
    SkipDependents,
    /// Running nodes are stopped, and everything that is not over is cancelled.
    FailFast,
    /// A failed or cancelled node counts as done, without output. A skipped node still blocks.
    Continue,
}

/// End of an attempt at a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Completed,
    Failed,
    Cancelled,
}

/// State of a node. Completed never changes; the other terminal states change by [`Schedule::retry`] only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum State {
    /// The node waits for other nodes, or for a slot.
    #[default]
    Pending,
    /// An attempt failed, and the next one is not due yet.
    Waiting,
    /// An attempt is running.
    Running,
    /// The node waits for its items, without a slot.
    Suspended,
    /// Its attempt, or its items, are being stopped. An attempt holds its slot until it has finished.
    Stopping,
    /// The node gave a value.
    Completed,
    /// Its last attempt failed.
    Failed,
    /// The node was not run, or not to its end.
    Skipped(Cause),
    /// The node was stopped, or never run, because it or the graph was cancelled.
    Cancelled,
}

/// Reason why a node was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The node needs this node, which gave no value.
    Blocked(usize),
    /// The condition on the edge from this node does not hold.
    Condition(usize),
    /// The skip was requested.
    Asked(SkipAs),
}

/// A change of a node's state that follows from another node's or from an intervention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consequence {
    /// The node is skipped or cancelled, with no attempt left to finish.
    Ended {
        /// Number of the node.
        node: usize,
        /// Terminal state of the node.
        state: State,
    },
    /// The node's attempt must be stopped; [`Schedule::finish`] returns the state after that.
    Stop {
        /// Number of the node.
        node: usize,
    },
    /// The node was skipped and is pending again: a node that it needs is retried.
    Pending {
        /// Number of the node.
        node: usize,
    },
    /// All items of the node are over: gather their outputs, then [`Schedule::finish`] it.
    Gather {
        /// Number of the node.
        node: usize,
    },
}

/// Reason why the schedule refused a call; nothing has changed then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    /// There is no node of this number.
    Unknown(usize),
    /// The state of the node does not allow it.
    State {
        /// Number of the node.
        node: usize,
        /// Current state of the node.
        state: State,
    },
    /// The node needs `by`, which gave no value: retry `by` first.
    Blocked {
        /// Number of the node.
        node: usize,
        /// Node that it needs.
        by: usize,
    },
    /// The graph was cancelled or has failed fast, and takes no more changes.
    Closed,
    /// These nodes depend on each other, each on the one before it and the first on the last.
    Cycle(Vec<usize>),
    /// There are more nodes or edges than can be numbered.
    TooMany,
}

/// Number of nodes in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) pending: usize,
    pub(crate) waiting: usize,
    /// Includes suspended nodes and those that are being stopped.
    pub(crate) running: usize,
    pub(crate) completed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
    pub(crate) cancelled: usize,
}

impl State {
    /// True when the node is over.
    pub(crate) fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Skipped(_) | Self::Cancelled)
    }
}

impl Counts {
    /// Returns the number of nodes that are not over.
    pub(crate) fn open(&self) -> usize {
        self.pending + self.waiting + self.running
    }

    fn of(&mut self, state: State) -> &mut usize {
        match state {
            State::Pending => &mut self.pending,
            State::Waiting => &mut self.waiting,
            State::Running | State::Suspended | State::Stopping => &mut self.running,
            State::Completed => &mut self.completed,
            State::Failed => &mut self.failed,
            State::Skipped(_) => &mut self.skipped,
            State::Cancelled => &mut self.cancelled,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "pending",
            Self::Waiting => "waiting to be tried again",
            Self::Running | Self::Suspended => "running",
            Self::Stopping => "being stopped",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Skipped(_) => "skipped",
            Self::Cancelled => "cancelled",
        })
    }
}
