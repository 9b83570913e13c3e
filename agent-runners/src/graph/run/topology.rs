//! Data shared by all runs of one graph: its plan for the scheduler, and numbers for its agents and providers.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use entourage_core::Result;

use super::{
    super::{
        GraphLimits, Inner, Node, OnFailure, Work,
        schedule::{Limits, Plan, Planned, PlannedEdge, Policy},
    },
    refused,
};

/// Plan and limits of a graph, built when it is first run.
#[derive(Debug)]
pub(crate) struct Topology {
    pub(super) plan: Arc<Plan>,
    pub(super) limits: Limits,
    pub(super) policy: Policy,
    /// Indices of the nodes that each node depends on.
    pub(super) from: Vec<Arc<[usize]>>,
    /// Indices of the nodes that no other node depends on.
    pub(super) sinks: Vec<usize>,
    pub(super) names: Names,
}

/// A graph's topology, built on first use.
#[derive(Debug, Default)]
pub(crate) struct Shape(OnceLock<Arc<Topology>>);

impl Shape {
    pub(super) fn of(&self, graph: &Inner) -> Result<Arc<Topology>> {
        if let Some(made) = self.0.get() {
            return Ok(Arc::clone(made));
        }
        let made = Arc::new(Topology::new(graph)?);
        Ok(Arc::clone(self.0.get_or_init(|| made)))
    }
}

/// Numbers of agents and providers, in the order of their first use.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    agents: HashMap<Arc<str>, usize>,
    providers: HashMap<Arc<str>, usize>,
}

impl Names {
    pub(super) fn agent(&mut self, name: &str) -> usize {
        number(&mut self.agents, name)
    }

    pub(super) fn provider(&mut self, name: &str) -> usize {
        number(&mut self.providers, name)
    }

    /// Returns the number of an agent that has one.
    pub(super) fn known(&self, agent: &str) -> Option<usize> {
        self.agents.get(agent).copied()
    }

    /// Returns the node as the scheduler sees it, without edges.
    pub(super) fn planned(&mut self, node: &Node) -> Planned {
        let expected = node.expected.map_or(UNIT, |time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        // The items of a map are scheduled for their agent, not the map itself.
        let mut agents = match &node.work {
            Work::Agent(work) => work.level(0),
            Work::Step(_) | Work::Map(_) => &[],
        }
        .iter()
        .map(|(_, agent)| self.agent(agent.name()));
        let agent = agents.next();
        let others = agents.collect();
        Planned {
            edges: Vec::new(),
            agent,
            others,
            provider: node.provider.as_ref().map(|provider| self.provider(provider)),
            expected,
        }
    }
}

/// Expected duration of a node when nothing is known of it, in µs: one second, so that all weigh the same.
const UNIT: u64 = 1_000_000;

fn number(numbers: &mut HashMap<Arc<str>, usize>, name: &str) -> usize {
    if let Some(known) = numbers.get(name) {
        return *known;
    }
    let next = numbers.len();
    numbers.insert(name.into(), next);
    next
}

impl Topology {
    fn new(graph: &Inner) -> Result<Self> {
        let mut names = Names::default();
        let limits = limits(&graph.limits, &mut names);
        let planned = graph.nodes.iter().map(|node| {
            let mut planned = names.planned(node);
            planned.edges.extend(node.edges.iter().map(|edge| PlannedEdge {
                from: edge.from,
                optional: edge.optional,
                conditional: edge.when.is_some(),
            }));
            planned
        });
        let plan = Plan::new(planned).map_err(|refusal| refused(graph, &refusal))?;
        let mut followed = vec![false; graph.nodes.len()];
        for edge in graph.nodes.iter().flat_map(|node| &node.edges) {
            if let Some(followed) = followed.get_mut(edge.from) {
                *followed = true;
            }
        }
        let sinks = followed.iter().enumerate().filter(|(_, followed)| !**followed).map(|(place, _)| place);
        Ok(Self {
            plan: Arc::new(plan),
            limits,
            policy: match graph.on_failure {
                OnFailure::SkipDependents => Policy::SkipDependents,
                OnFailure::FailFast => Policy::FailFast,
                OnFailure::Continue => Policy::Continue,
            },
            from: shared_sources(&graph.nodes),
            sinks: sinks.collect(),
            names,
        })
    }
}

/// Returns the dependencies of each node. Nodes of one layer often have the same ones: consecutive equal lists are
/// shared.
fn shared_sources(nodes: &[Node]) -> Vec<Arc<[usize]>> {
    let mut lists: Vec<Arc<[usize]>> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let from = || node.edges.iter().map(|edge| edge.from);
        let list = match lists.last() {
            Some(before) if before.iter().copied().eq(from()) => Arc::clone(before),
            _ => from().collect(),
        };
        lists.push(list);
    }
    lists
}

fn limits(given: &GraphLimits, names: &mut Names) -> Limits {
    Limits {
        overall: Some(given.overall),
        all_agents: None,
        each_agent: given.each_agent,
        agents: given.agents.iter().map(|(name, limit)| (names.agent(name), *limit)).collect(),
        providers: given.providers.iter().map(|(name, limit)| (names.provider(name), *limit)).collect(),
    }
}
