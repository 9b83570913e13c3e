//! What a run knows of one of its nodes, and what it does about it next.

use std::{ops::Range, sync::Arc};

use super::super::{EdgeSignature, Node, NodeValue};
use crate::{
    Error, ErrorRecord, SessionId, Timestamp,
    agent::Agent,
    event::Event,
    run::{Pause, Spent},
};

/// How far a node is, beyond what the scheduler knows. Small: a graph may have many thousands.
#[derive(Debug, Clone, Default)]
pub(super) struct Track {
    /// Attempts that began, ever.
    pub(super) attempt: u32,
    /// Attempts that failed since it was new, or since somebody tried it again or gave it to another agent.
    pub(super) failures: u32,
    /// When the newest attempt began.
    pub(super) started: Timestamp,
    /// How long its attempts took.
    pub(super) micros: u64,
    pub(super) more: Option<Box<More>>,
}

impl Track {
    pub(super) fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }
}

/// What most steps have none of.
#[derive(Clone, Default)]
pub(super) struct More {
    /// The session of the newest attempt.
    pub(super) child: Option<SessionId>,
    /// Who works on it, instead of those that the graph names.
    pub(super) agent: Option<Arc<dyn Agent>>,
    /// Why the newest attempt failed.
    pub(super) error: Option<ErrorRecord>,
    pub(super) spent: Spent,
    /// When the next attempt begins.
    pub(super) retry_at: Option<Timestamp>,
    /// An earlier process began the newest attempt, and this one is to go on with it.
    pub(super) goes_on: bool,
    /// This process went on with the newest attempt.
    pub(super) went_on: bool,
    /// The items of a map.
    pub(super) items: Option<Range<usize>>,
    /// What it waits for.
    pub(super) pause: Option<Pause>,
}

impl std::fmt::Debug for More {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("More").field("child", &self.child).field("error", &self.error).finish_non_exhaustive()
    }
}

/// A node that the graph itself does not have: one that was added while it ran, or an item of a map.
#[derive(Debug)]
pub(super) struct Extra {
    pub(super) node: Node,
    /// The nodes that it depends on; for an item those of its map.
    pub(super) from: Arc<[usize]>,
    /// The same by id, for one that was added.
    pub(super) after: Vec<EdgeSignature>,
}

/// How an attempt ended.
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
    /// The run itself cannot go on.
    Broken(Error),
}

impl Ended {
    pub(super) fn new(result: Attempt) -> Self {
        Self { result, spent: Spent::default() }
    }
}

/// What is to be done about a change of state.
#[derive(Debug)]
pub(super) enum Told {
    /// It is to be recorded.
    Event(Event),
    /// The attempt that runs is to be stopped.
    Stop(usize),
    /// The next attempt begins then.
    Wait(usize, Timestamp),
}
