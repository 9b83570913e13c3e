//! A graph under construction: its nodes are shared by the handles on them.

use std::{
    any::TypeId,
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use entourage_core::{Digest, Result, agent::Agent, permission::Scope, provider::Size, run::Task};

use super::{Condition, Inputs, MapWork, Problem, ReadFn, StepFn, TaskFn};

/// Default number of attempts at a node that escalates.
const ESCALATIONS: u32 = 3;

/// The nodes of a graph under construction. No lock is held while code of the program runs.
#[derive(Default)]
pub(super) struct Draft(Mutex<Vec<DraftNode>>);

impl Draft {
    pub(super) fn push(&self, node: DraftNode) -> usize {
        let mut nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.push(node);
        nodes.len().saturating_sub(1)
    }

    /// Edits a node; does nothing once the graph is built.
    pub(super) fn edit(&self, place: usize, change: impl FnOnce(&mut DraftNode)) {
        let mut nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(node) = nodes.get_mut(place) {
            change(node);
        }
    }

    /// Returns the index and the id of the node `id` if it returns `gives`.
    pub(super) fn find(&self, id: &str, gives: TypeId) -> Option<(usize, Arc<str>)> {
        let nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = nodes.iter().position(|node| *node.links.id == *id)?;
        let node = nodes.get(place).filter(|node| node.gives == gives)?;
        Some((place, Arc::clone(&node.links.id)))
    }

    pub(super) fn take(&self) -> Vec<DraftNode> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(super) struct DraftNode {
    pub(super) links: Links,
    /// Type of the value that it returns.
    pub(super) gives: TypeId,
    pub(super) work: DraftWork,
    pub(super) attempts: Option<u32>,
    pub(super) delay: Duration,
    pub(super) timeout: Option<Duration>,
    pub(super) expected: Option<Duration>,
    pub(super) version: Box<str>,
    pub(super) output: Option<Digest>,
    pub(super) provider: Option<Arc<str>>,
}

/// Id and dependencies of a node.
pub(super) struct Links {
    pub(super) id: Arc<str>,
    pub(super) edges: Vec<DraftEdge>,
    /// Number of the edge from each node that it depends on.
    by_place: HashMap<usize, usize>,
    /// Dependencies given by id only.
    pub(super) named: Vec<String>,
    /// True when its prompt contains the text that the graph was given.
    pub(super) input: bool,
    pub(super) problems: Vec<Problem>,
}

pub(super) struct DraftEdge {
    pub(super) from: usize,
    pub(super) optional: bool,
    pub(super) needed: bool,
    pub(super) when: Option<Condition>,
    /// Type that the dependent takes the value for; `None` for a dependency of order alone.
    pub(super) takes: Option<TypeId>,
}

pub(super) enum DraftWork {
    Step(StepFn),
    Agent(DraftAgent),
    /// Steps for the items of a list.
    Map(MapWork),
    /// An agent for the items of a list.
    MapAgent(DraftAgent, TasksFn, MapWork),
}

pub(super) type TasksFn = Arc<dyn Fn(&Inputs) -> Result<Vec<Task>> + Send + Sync>;

pub(super) struct DraftAgent {
    pub(super) agents: Vec<(Option<Size>, Arc<dyn Agent>)>,
    pub(super) ask: Ask,
    pub(super) read: ReadFn,
    pub(super) scope: Scope,
    /// Text in the prompt that describes the form of the answer.
    pub(super) form: Option<Arc<str>>,
}

/// Source of an agent's prompt.
#[derive(Clone)]
pub(super) enum Ask {
    /// A fixed text, followed by the outputs of the nodes before it.
    Text(Arc<str>),
    /// A task that the program makes of the inputs.
    Made(TaskFn),
}

impl Links {
    pub(super) fn new(id: &str) -> Self {
        let (edges, by_place) = (Vec::new(), HashMap::new());
        Self { id: id.into(), edges, by_place, named: Vec::new(), input: false, problems: Vec::new() }
    }

    /// Returns the number of the edge from the node `from`, created if absent. There is one edge per node: further
    /// requirements are merged into it.
    pub(super) fn edge(&mut self, from: usize, takes: Option<TypeId>, optional: bool, needed: bool) -> usize {
        let next = self.edges.len();
        let number = *self.by_place.entry(from).or_insert(next);
        match self.edges.get_mut(number) {
            None => self.edges.push(DraftEdge { from, optional, needed, when: None, takes }),
            Some(edge) => {
                edge.optional &= optional;
                edge.needed |= needed;
                if takes.is_some() && edge.takes.is_some() && edge.takes != takes {
                    self.problems.push(Problem::Retyped { node: Arc::clone(&self.id) });
                }
                edge.takes = edge.takes.or(takes);
            }
        }
        number
    }

    /// Adds a condition to an edge, on the source's output as `takes`. All conditions of an edge must hold.
    pub(super) fn condition(&mut self, edge: usize, when: Condition, takes: TypeId) {
        let Some(edge) = self.edges.get_mut(edge) else { return };
        edge.takes.get_or_insert(takes);
        edge.when = Some(match edge.when.take() {
            None => when,
            Some(before) => Arc::new(move |value| Ok(before(value)? && when(value)?)),
        });
    }
}

impl DraftNode {
    pub(super) fn new(links: Links, gives: TypeId, work: DraftWork) -> Self {
        Self {
            links,
            gives,
            work,
            attempts: None,
            delay: Duration::ZERO,
            timeout: None,
            expected: None,
            version: Box::default(),
            output: None,
            provider: None,
        }
    }

    /// Changes the type that the node returns.
    pub(super) fn retype(&mut self, from: TypeId, to: TypeId) {
        if self.gives != from {
            self.links.problems.push(Problem::Retyped { node: Arc::clone(&self.links.id) });
        }
        self.gives = to;
    }

    pub(super) fn escalate(&mut self, agents: Vec<(Option<Size>, Arc<dyn Agent>)>) {
        if agents.is_empty() {
            self.links.problems.push(Problem::NoSizes { node: Arc::clone(&self.links.id) });
            return;
        }
        let sizes = agents.chunk_by(|(one, _), (other, _)| one == other).count();
        self.attempts.get_or_insert(u32::try_from(sizes).unwrap_or(u32::MAX).min(ESCALATIONS));
        self.agent("escalate", |agent| agent.agents = agents);
    }

    /// Edits the agents that work on the node.
    pub(super) fn agent(&mut self, setting: &'static str, change: impl FnOnce(&mut DraftAgent)) {
        match &mut self.work {
            DraftWork::Agent(agent) | DraftWork::MapAgent(agent, ..) => change(agent),
            DraftWork::Step(_) | DraftWork::Map(_) => self.misused(setting, "a node that agents work on"),
        }
    }

    /// Edits how the items of its list are processed.
    pub(super) fn map(&mut self, setting: &'static str, change: impl FnOnce(&mut MapWork)) {
        match &mut self.work {
            DraftWork::Map(map) | DraftWork::MapAgent(_, _, map) => change(map),
            DraftWork::Step(_) | DraftWork::Agent(_) => self.misused(setting, "a map over a list"),
        }
    }

    fn misused(&mut self, setting: &'static str, only: &'static str) {
        self.links.problems.push(Problem::Misused { node: Arc::clone(&self.links.id), setting, only });
    }
}
