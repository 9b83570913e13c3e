//! Which node of a graph is to be started next. Pure: it never waits and knows no clock; the same calls give the same
//! answers, so that replaying what was recorded of a run gives the schedule that the run had.

use std::{collections::BTreeMap, fmt};

use super::SkipAs;

mod change;
mod machine;
mod map;
#[cfg(test)]
mod model;
mod plan;
mod query;
mod ready;
#[cfg(test)]
mod tests;

pub(crate) use machine::Schedule;
pub(crate) use plan::Plan;

/// A node as far as it is scheduled.
#[derive(Debug, Clone, Default)]
pub(crate) struct Planned {
    /// What it depends on, in the order of its inputs.
    pub(crate) edges: Vec<PlannedEdge>,
    /// Who works on it: a number that the caller gives out. A step of the program has none, and counts to the overall
    /// limit and its provider's only.
    pub(crate) agent: Option<usize>,
    /// Whose limit it counts to as well: a number that the caller gives out.
    pub(crate) provider: Option<usize>,
    /// How long it is expected to take, in µs; the same for all where nobody knows.
    pub(crate) expected: u64,
}

/// An edge from the node `from`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PlannedEdge {
    pub(crate) from: usize,
    /// Whether the dependent runs also when that node gave nothing.
    pub(crate) optional: bool,
    /// Whether a condition decides if it is followed. One that cannot be asked, because the node counts as done but
    /// gave no value, does not hold.
    pub(crate) conditional: bool,
}

/// How many attempts may run at once. A limit of 0 counts as 1.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// Of all nodes; `None`: as many as there are.
    pub(crate) overall: Option<usize>,
    /// Of all nodes that an agent works on; `None`: as many as there are.
    pub(crate) all_agents: Option<usize>,
    /// Of each agent that has no limit of its own. 1 by default.
    pub(crate) each_agent: usize,
    /// Of single agents.
    pub(crate) agents: BTreeMap<usize, usize>,
    /// Of single providers; the others have no limit.
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

/// What follows from the failure of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Policy {
    /// What needs it is skipped, transitively; the rest goes on.
    #[default]
    SkipDependents,
    /// What runs is stopped, and everything that is not over is cancelled.
    FailFast,
    /// A node that failed or was cancelled counts as done, without output. What was skipped still blocks.
    Continue,
}

/// How an attempt at a node ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Completed,
    Failed,
    Cancelled,
}

/// How far a node is. Completed never changes; the other ends change by [`Schedule::retry`] only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum State {
    /// It waits for other nodes, or for a slot.
    #[default]
    Pending,
    /// An attempt failed; the next one is not due yet.
    Waiting,
    /// An attempt runs.
    Running,
    /// It waits for its items, without a slot.
    Suspended,
    /// Its attempt, or its items, are to be stopped. An attempt holds its slot until it is finished.
    Stopping,
    /// It gave a value.
    Completed,
    /// Its last attempt failed.
    Failed,
    /// It was not run, or not to its end.
    Skipped(Cause),
    /// It was stopped, or never run, because somebody cancelled it or the graph.
    Cancelled,
}

/// Why a node was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It needs this node, which gave nothing.
    Blocked(usize),
    /// The condition on the edge from this node does not hold.
    Condition(usize),
    /// Somebody asked for it.
    Asked(SkipAs),
}

/// What followed for a node from what happened elsewhere, or from an intervention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consequence {
    /// It is skipped or cancelled, without an attempt that is left to finish.
    Ended {
        /// The node.
        node: usize,
        /// How it ended.
        state: State,
    },
    /// Its attempt is to be stopped; [`Schedule::finish`] says what it is then.
    Stop {
        /// The node.
        node: usize,
    },
    /// It was skipped, and is pending again: what it needs is tried once more.
    Pending {
        /// The node.
        node: usize,
    },
    /// All its items are over: gather what they gave, then [`Schedule::finish`] it.
    Gather {
        /// The node.
        node: usize,
    },
}

/// Why a schedule cannot do what it was asked to; nothing has changed then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    /// There is no such node.
    Unknown(usize),
    /// Not with a node in this state.
    State {
        /// The node.
        node: usize,
        /// How far it is.
        state: State,
    },
    /// It needs `by`, which gave nothing: that one is to be tried again first.
    Blocked {
        /// The node.
        node: usize,
        /// What it needs.
        by: usize,
    },
    /// The graph was cancelled, or failed fast: it takes no changes.
    Closed,
    /// These nodes depend on each other, each on the one before it and the first on the last.
    Cycle(Vec<usize>),
    /// There are more nodes or edges than can be numbered.
    TooMany,
}

/// How many nodes are how far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) pending: usize,
    pub(crate) waiting: usize,
    /// Also those that are suspended or being stopped.
    pub(crate) running: usize,
    pub(crate) completed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
    pub(crate) cancelled: usize,
}

impl State {
    /// Whether it is over.
    pub(crate) fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Skipped(_) | Self::Cancelled)
    }
}

impl Counts {
    /// How many are not over.
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
