//! Validation of a graph before it runs. Nothing here recurses: a chain of nodes may be as long as a graph is large.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use entourage_core::agent::Agent;
use entourage_runtime::check_agent_name;

use super::{
    GraphLimits, Problem,
    draft::{DraftNode, DraftWork},
};

/// Maximum number of nodes of a graph.
pub(super) const MAX_NODES: usize = 100_000;
/// Maximum number of edges of a graph.
pub(super) const MAX_EDGES: usize = 10_000_000;
/// Maximum length of a node's id, in bytes.
const MAX_ID: usize = 64;

/// A validation in progress: the nodes, and the problems found so far.
pub(super) struct Check<'a> {
    pub(super) nodes: &'a mut [DraftNode],
    pub(super) problems: Vec<Problem>,
}

impl Check<'_> {
    /// Returns all problems of a graph, in node order where they belong to a node, and the index of each id.
    pub(super) fn all(
        mut self,
        agents: &BTreeMap<Arc<str>, Arc<dyn Agent>>,
        limits: &GraphLimits,
    ) -> (Vec<Problem>, HashMap<Arc<str>, usize>) {
        if let Some(problem) = size(self.nodes) {
            self.problems.push(problem);
            return (self.problems, HashMap::new());
        }
        let places = self.names();
        self.dependencies(&places);
        self.types();
        for node in self.nodes.iter_mut() {
            self.problems.append(&mut node.links.problems);
            bounds(node, &mut self.problems);
        }
        for name in agents.keys().filter(|name| check_agent_name(name).is_err()) {
            self.problems.push(Problem::BadName { what: "agent", name: Arc::clone(name) });
        }
        self.limits(agents, limits);
        let cycles = cycles(self.nodes);
        self.problems.extend(cycles.into_iter().map(|nodes| Problem::Cycle { nodes }));
        (self.problems, places)
    }

    fn names(&mut self) -> HashMap<Arc<str>, usize> {
        let mut places = HashMap::with_capacity(self.nodes.len());
        let mut again = BTreeSet::new();
        for (place, node) in self.nodes.iter().enumerate() {
            if !is_id(&node.links.id) {
                self.problems.push(Problem::BadName { what: "node", name: Arc::clone(&node.links.id) });
            }
            if places.contains_key(&node.links.id) {
                if again.insert(Arc::clone(&node.links.id)) {
                    self.problems.push(Problem::Duplicate { node: Arc::clone(&node.links.id) });
                }
            } else {
                places.insert(Arc::clone(&node.links.id), place);
            }
        }
        places
    }

    /// Resolves the dependencies given by id.
    fn dependencies(&mut self, places: &HashMap<Arc<str>, usize>) {
        for node in self.nodes.iter_mut() {
            for named in std::mem::take(&mut node.links.named) {
                match places.get(&*named) {
                    Some(place) => drop(node.links.edge(*place, None, false, false)),
                    None => self.problems.push(Problem::UnknownDependency {
                        node: Arc::clone(&node.links.id),
                        dependency: named.into(),
                    }),
                }
            }
        }
    }

    /// Checks that each node takes the type that the other one gives.
    fn types(&mut self) {
        let gives: Vec<_> = self.nodes.iter().map(|node| node.gives).collect();
        for node in self.nodes.iter() {
            let old = node.links.edges.iter().any(|edge| {
                edge.takes.is_some_and(|takes| gives.get(edge.from).is_some_and(|gives| *gives != takes))
            });
            if old {
                self.problems.push(Problem::Retyped { node: Arc::clone(&node.links.id) });
            }
        }
    }

    fn limits(&mut self, agents: &BTreeMap<Arc<str>, Arc<dyn Agent>>, limits: &GraphLimits) {
        let zero = |what, of: &Arc<str>| Problem::Zero { what, of: Arc::clone(of) };
        if limits.overall == 0 {
            self.problems.push(zero("the limit of nodes at once", &Arc::default()));
        }
        if limits.each_agent == 0 {
            self.problems.push(zero("the limit of each agent", &Arc::default()));
        }
        for (name, limit) in &limits.agents {
            if *limit == 0 {
                self.problems.push(zero("the limit", name));
            }
            if !agents.contains_key(name) {
                self.problems.push(Problem::UnknownAgent { node: None, agent: Arc::clone(name) });
            }
        }
        let named: BTreeSet<_> = self.nodes.iter().filter_map(|node| node.provider.as_ref()).collect();
        for (name, limit) in &limits.providers {
            if *limit == 0 {
                self.problems.push(zero("the limit", name));
            }
            if !named.contains(name) {
                self.problems.push(Problem::UnusedLimit { provider: Arc::clone(name) });
            }
        }
    }
}

fn size(nodes: &[DraftNode]) -> Option<Problem> {
    if nodes.is_empty() {
        return Some(Problem::Empty);
    }
    if nodes.len() > MAX_NODES {
        return Some(Problem::TooMany { what: "nodes", count: nodes.len(), limit: MAX_NODES });
    }
    let edges = nodes.iter().fold(0_usize, |sum, node| {
        sum.saturating_add(node.links.edges.len()).saturating_add(node.links.named.len())
    });
    (edges > MAX_EDGES).then_some(Problem::TooMany { what: "edges", count: edges, limit: MAX_EDGES })
}

fn bounds(node: &DraftNode, problems: &mut Vec<Problem>) {
    let mut zero = |what| problems.push(Problem::Zero { what, of: Arc::clone(&node.links.id) });
    if node.attempts == Some(0) {
        zero("the number of attempts");
    }
    if node.timeout.is_some_and(|limit| limit.is_zero()) {
        zero("the timeout");
    }
    if let DraftWork::Map(map) | DraftWork::MapAgent(_, _, map) = &node.work
        && map.at_once == Some(0)
    {
        zero("the number of items at once");
    }
}

/// True for an id that a program may give a node. Plans are narrower: see [`is_task_id`].
pub(super) fn is_id(id: &str) -> bool {
    let words = id.split(' ').all(|word| !word.is_empty() && word.chars().all(in_word));
    words && id.len() <= MAX_ID
}

/// True for an id that a plan may give a task: no spaces, so that an id is never a sentence in a prompt.
pub(super) fn is_task_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= MAX_ID && id.chars().all(in_word)
}

fn in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    New,
    OnPath,
    Done,
}

/// Returns one cycle of each group of nodes that wait for each other: its nodes, the first one repeated at the end.
fn cycles(nodes: &[DraftNode]) -> Vec<Vec<Arc<str>>> {
    let mut marks = vec![Mark::New; nodes.len()];
    let mut told = vec![false; nodes.len()];
    let mut cycles = Vec::new();
    for start in 0..nodes.len() {
        // The path from `start` to the current node, each node with the number of its next edge.
        let mut path = vec![(start, 0_usize)];
        while let Some((place, edge)) = path.last_mut() {
            let place = *place;
            let Some(mark) = marks.get_mut(place) else { break };
            if *edge == 0 && *mark != Mark::New {
                if *mark == Mark::OnPath {
                    tell(nodes, &path, &mut told, &mut cycles);
                }
                path.pop();
                continue;
            }
            *mark = Mark::OnPath;
            match nodes.get(place).and_then(|node| node.links.edges.get(*edge)) {
                Some(next) => {
                    *edge = edge.saturating_add(1);
                    path.push((next.from, 0));
                }
                None => {
                    *mark = Mark::Done;
                    path.pop();
                }
            }
        }
    }
    cycles
}

/// Records the cycle at the end of `path`, unless a recorded one shares a node with it.
fn tell(nodes: &[DraftNode], path: &[(usize, usize)], told: &mut [bool], cycles: &mut Vec<Vec<Arc<str>>>) {
    let Some(((place, _), path)) = path.split_last() else { return };
    let cycle: Vec<_> = path.iter().map(|(at, _)| *at).skip_while(|at| at != place).collect();
    if cycle.iter().any(|at| told.get(*at).copied().unwrap_or_default()) {
        return;
    }
    for at in &cycle {
        if let Some(told) = told.get_mut(*at) {
            *told = true;
        }
    }
    cycles.push(closed(nodes, cycle));
}

/// Returns a cycle that was followed backwards in the order in which its nodes run, from its first one on.
fn closed(nodes: &[DraftNode], mut cycle: Vec<usize>) -> Vec<Arc<str>> {
    cycle.reverse();
    let first = cycle.iter().enumerate().min_by_key(|(_, place)| **place).map_or(0, |(at, _)| at);
    cycle.rotate_left(first);
    cycle.extend(cycle.first().copied());
    cycle.into_iter().filter_map(|place| nodes.get(place)).map(|node| Arc::clone(&node.links.id)).collect()
}
