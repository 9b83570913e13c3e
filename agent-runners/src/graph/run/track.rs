//! The state that a run keeps of each node beyond the scheduler's.

use std::{ops::Range, sync::Arc};

use entourage_core::{
    Error, ErrorRecord, Money, SessionId, Timestamp, Usage, agent::Agent, event::Recorded, run::Pause,
};

use super::super::{EdgeSignature, Node, NodeEnd, NodeValue};

/// State of a node beyond what the scheduler knows. Small: a graph may have many thousands of nodes.
#[derive(Debug, Clone, Default)]
pub(super) struct Track {
    /// Number of attempts that ever began.
    pub(super) attempt: u32,
    /// Failed attempts since the node was new, was retried on request, or was reassigned.
    pub(super) failures: u32,
    /// True from the beginning of an attempt to its end, also while it waits.
    pub(super) is_open: bool,
    /// Start of the newest attempt.
    pub(super) started: Timestamp,
    /// Total duration of its attempts.
    pub(super) micros: u64,
    pub(super) more: Option<Box<More>>,
}

impl Track {
    pub(super) fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }
}

/// State that most steps never need.
#[derive(Clone, Default)]
pub(super) struct More {
    /// The session of the newest attempt.
    pub(super) child: Option<SessionId>,
    /// Agent that it was reassigned to, instead of those that the graph names.
    pub(super) agent: Option<Arc<dyn Agent>>,
    /// Agent of the attempt that is being stopped because the node was given to another one: it unwinds what it began.
    pub(super) former: Option<Arc<dyn Agent>>,
    /// Name of the agent of the newest attempt, if there was a choice and no other agent was named since.
    pub(super) by: Option<Arc<str>>,
    /// Error of the newest failed attempt.
    pub(super) error: Option<ErrorRecord>,
    pub(super) spent: Spent,
    /// Start of the next attempt.
    pub(super) retry_at: Option<Timestamp>,
    /// True when an earlier process began the newest attempt and this one must continue it.
    pub(super) goes_on: bool,
    /// True when this process continued the newest attempt.
    pub(super) went_on: bool,
    /// The items of a map.
    pub(super) items: Option<Range<usize>>,
    /// Reason of the pause, while its agent waits for somebody.
    pub(super) pause: Option<Pause>,
}

impl std::fmt::Debug for More {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("More").field("child", &self.child).field("error", &self.error).finish_non_exhaustive()
    }
}

/// A node that is not in the graph itself: one added while it ran, or an item of a map.
#[derive(Debug)]
pub(super) struct Extra {
    pub(super) node: Node,
    /// Nodes that it depends on; for an item those of its map.
    pub(super) from: Arc<[usize]>,
    /// The same by id, for an added node.
    pub(super) after: Vec<EdgeSignature>,
}

/// Tokens and money. The sum with something unknown is unknown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spent {
    pub(super) usage: Usage,
    pub(super) cost: Option<Money>,
}

impl Default for Spent {
    fn default() -> Self {
        Self { usage: Usage::default(), cost: Some(Money::default()) }
    }
}

impl Spent {
    pub(super) fn add(&mut self, other: &Self) {
        self.usage += other.usage;
        self.cost = self.cost.zip(other.cost).map(|(sum, cost)| sum + cost);
    }
}

/// End of an attempt.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) result: Attempt,
    pub(super) spent: Spent,
}

#[derive(Debug)]
pub(super) enum Attempt {
    Done(NodeValue),
    Failed(Error),
    Cancelled,
    Paused(Pause),
    /// The run itself cannot continue.
    Broken(Error),
}

impl Attempt {
    /// Returns the end that it is for its node, unless the attempt goes on in a later run.
    pub(super) fn end(&self) -> Option<NodeEnd> {
        match self {
            Self::Done(value) => Some(NodeEnd::Completed(value.clone())),
            Self::Failed(error) => Some(NodeEnd::Failed(error.record())),
            Self::Cancelled => Some(NodeEnd::Cancelled),
            Self::Paused(_) | Self::Broken(_) => None,
        }
    }
}

impl Ended {
    pub(super) fn new(result: Attempt) -> Self {
        Self { result, spent: Spent::default() }
    }
}

/// An action that a change of state requires.
#[derive(Debug)]
pub(super) enum Told {
    /// Record this value.
    Record(Recorded),
    /// Stop the running attempt.
    Stop(usize),
    /// Let an attempt unwind that is being stopped and that nothing in this process runs.
    Unwind(usize),
    /// Begin the next attempt at this time.
    Wait(usize, Timestamp),
}
