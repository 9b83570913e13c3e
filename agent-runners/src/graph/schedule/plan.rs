//! The nodes and edges that a schedule works on: flat arrays, built once per graph and shared by its runs.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    sync::Arc,
};

use super::{Planned, PlannedEdge, Refused};

/// Stands for "none" in compact numbers of agents, providers and nodes.
pub(super) const NONE: u32 = u32::MAX;

/// A graph as the scheduler sees it. Cloning shares its edges.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    shape: Arc<Shape>,
    expected: Vec<u64>,
    /// Longest expected time from the start of each node to the end of the graph.
    priority: Vec<u64>,
}

#[derive(Debug)]
struct Shape {
    /// Start of the edges into each node in `ins`; one entry more than there are nodes.
    first_in: Vec<u32>,
    ins: Vec<In>,
    /// Number of edges into each node.
    degree: Vec<u32>,
    /// Start of the edges out of each node in `dependents`; one entry more than there are nodes.
    first_out: Vec<u32>,
    /// Targets of outgoing edges, grouped by source. Kept apart from edge numbers: finishing a node, in most runs,
    /// reads nothing else of its edges, and those of a large graph do not fit into the cache.
    dependents: Vec<u32>,
    /// Numbers of these edges.
    numbers: Vec<u32>,
    /// True for a node with a conditional edge out of it.
    asks: Vec<bool>,
    wants: Vec<Wants>,
    sets: Sets,
    /// Nodes in topological order.
    order: Vec<u32>,
}

/// An edge, seen from the dependent.
#[derive(Debug, Clone, Copy)]
pub(super) struct In {
    pub(super) from: u32,
    pub(super) optional: bool,
    pub(super) conditional: bool,
}

/// An edge, seen from its source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Out {
    pub(super) to: u32,
    /// Number among all edges of the graph.
    pub(super) edge: u32,
}

/// Limits that an attempt at a node counts towards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wants {
    pub(super) agent: u32,
    /// Number of a set of agents, any of which will do; `agent` is none then.
    pub(super) any: u32,
    pub(super) provider: u32,
}

/// Sets of agents, any of which may work on a node, in the order in which they are asked.
#[derive(Debug, Clone, Default)]
pub(super) struct Sets {
    sets: Vec<Arc<[u32]>>,
    numbers: BTreeMap<Arc<[u32]>, u32>,
}

impl Sets {
    /// Returns the agents of a set.
    pub(super) fn agents(&self, number: u32) -> &[u32] {
        self.sets.get(number as usize).map(AsRef::as_ref).unwrap_or_default()
    }

    /// Returns what a node wants that one of these agents works on.
    pub(super) fn wants(&mut self, agents: &[usize], provider: u32) -> Result<Wants, Refused> {
        let agents = agents.iter().map(|agent| small(*agent)).collect::<Result<Arc<[u32]>, _>>()?;
        if let [] | [_] = *agents {
            return Ok(Wants { agent: agents.first().copied().unwrap_or(NONE), any: NONE, provider });
        }
        let next = small(self.sets.len())?;
        let any = *self.numbers.entry(Arc::clone(&agents)).or_insert(next);
        if any == next {
            self.sets.push(agents);
        }
        Ok(Wants { agent: NONE, any, provider })
    }
}

impl Plan {
    /// Builds the plan of `nodes`, numbered from 0 in this order. An edge may come from a later node.
    ///
    /// # Errors
    /// [`Refused::Unknown`] when an edge comes from no node, [`Refused::Cycle`] when nodes depend on each other,
    /// [`Refused::TooMany`] when there are more nodes or edges than 2³² − 2.
    pub(crate) fn new(nodes: impl IntoIterator<Item = Planned>) -> Result<Self, Refused> {
        let nodes = nodes.into_iter();
        let count = nodes.size_hint().0;
        let (mut first_in, mut ins) = (Vec::with_capacity(count + 1), Vec::new());
        let (mut degree, mut wants) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let (mut expected, mut sets) = (Vec::with_capacity(count), Sets::default());
        first_in.push(0);
        for node in nodes {
            for edge in &node.edges {
                ins.push(In::new(edge)?);
            }
            first_in.push(small(ins.len())?);
            degree.push(small(node.edges.len())?);
            wants.push(Wants::new(&node, &mut sets)?);
            expected.push(node.expected);
        }
        small(degree.len())?;
        let Turned { first_out, dependents, numbers, asks } = turned(&first_in, &ins, degree.len())?;
        let order = Vec::new();
        let mut shape =
            Shape { first_in, ins, degree, first_out, dependents, numbers, asks, wants, sets, order };
        shape.order = shape.sorted()?;
        let priority = shape.longest(&expected);
        Ok(Self { shape: Arc::new(shape), expected, priority })
    }

    /// Returns the number of nodes.
    pub(super) fn len(&self) -> usize {
        self.expected.len()
    }

    /// Returns the number of edges into each node.
    pub(super) fn degrees(&self) -> &[u32] {
        &self.shape.degree
    }

    pub(super) fn priorities(&self) -> &[u64] {
        &self.priority
    }

    pub(super) fn wants(&self) -> &[Wants] {
        &self.shape.wants
    }

    pub(super) fn sets(&self) -> &Sets {
        &self.shape.sets
    }

    pub(super) fn expected(&self, node: usize) -> Option<u64> {
        self.expected.get(node).copied()
    }

    pub(super) fn edges(&self) -> usize {
        self.shape.ins.len()
    }

    pub(super) fn edge(&self, edge: usize) -> Option<In> {
        self.shape.ins.get(edge).copied()
    }

    /// Returns the numbers of the edges into a node.
    pub(super) fn ins(&self, node: usize) -> Option<Range<u32>> {
        part(&self.shape.first_in, node)
    }

    /// Yields the edges out of a node, in the order of their dependents.
    pub(super) fn outs(&self, node: usize) -> impl Iterator<Item = Out> {
        let numbers = outs_of(&self.shape.first_out, &self.shape.numbers, node);
        self.dependents(node).iter().zip(numbers).map(|(to, edge)| Out { to: *to, edge: *edge })
    }

    /// Returns the targets of the edges out of a node.
    #[inline]
    pub(super) fn dependents(&self, node: usize) -> &[u32] {
        self.shape.dependents(node)
    }

    /// True when an edge out of the node has a condition.
    pub(super) fn asks(&self, node: usize) -> bool {
        self.shape.asks.get(node).copied().unwrap_or_default()
    }
}

impl Shape {
    fn dependents(&self, node: usize) -> &[u32] {
        outs_of(&self.first_out, &self.dependents, node)
    }

    /// Returns the nodes in topological order.
    fn sorted(&self) -> Result<Vec<u32>, Refused> {
        let count = small(self.degree.len())?;
        let given = (0..count).zip(self.first_in.windows(2)).all(|(node, part)| {
            let [start, end] = part else { return true };
            self.ins.get(*start as usize..*end as usize).is_some_and(|ins| ins.iter().all(|e| e.from < node))
        });
        if given {
            return Ok((0..count).collect());
        }
        let mut missing = self.degree.clone();
        let mut order = Vec::with_capacity(missing.len());
        let mut free: VecDeque<u32> =
            (0..count).zip(&self.degree).filter(|(_, degree)| **degree == 0).map(|(node, _)| node).collect();
        while let Some(node) = free.pop_front() {
            order.push(node);
            for to in self.dependents(node as usize) {
                if let Some(left) = missing.get_mut(*to as usize) {
                    *left -= 1;
                    if *left == 0 {
                        free.push_back(*to);
                    }
                }
            }
        }
        if order.len() == missing.len() { Ok(order) } else { Err(Refused::Cycle(self.cycle(&missing))) }
    }

    /// Returns a cycle among the nodes with unmet dependencies, in the direction of its edges.
    fn cycle(&self, missing: &[u32]) -> Vec<usize> {
        let open = |node: usize| missing.get(node).is_some_and(|left| *left > 0);
        let mut seen = vec![false; missing.len()];
        let mut path = Vec::new();
        let mut next = (0..missing.len()).find(|node| open(*node));
        while let Some(node) = next {
            path.push(node);
            match seen.get_mut(node) {
                Some(seen) if !*seen => *seen = true,
                _ => break,
            }
            let ins = part(&self.first_in, node).unwrap_or_default();
            let from = ins.filter_map(|edge| self.ins.get(edge as usize));
            next = from.map(|edge| edge.from as usize).find(|from| open(*from));
        }
        let Some(last) = path.pop() else { return Vec::new() };
        let mut cycle: Vec<_> = path.into_iter().skip_while(|node| *node != last).collect();
        cycle.reverse();
        cycle
    }

    /// Returns the longest expected time from each node to the end.
    fn longest(&self, expected: &[u64]) -> Vec<u64> {
        let mut longest = vec![0_u64; expected.len()];
        for node in self.order.iter().rev() {
            let node = *node as usize;
            let after = self.dependents(node).iter().filter_map(|to| longest.get(*to as usize)).max();
            let after = after.copied().unwrap_or_default();
            if let (Some(longest), Some(own)) = (longest.get_mut(node), expected.get(node)) {
                *longest = own.saturating_add(after);
            }
        }
        longest
    }
}

impl In {
    pub(super) fn new(edge: &PlannedEdge) -> Result<Self, Refused> {
        Ok(Self { from: small(edge.from)?, optional: edge.optional, conditional: edge.conditional })
    }
}

impl Wants {
    pub(super) fn new(node: &Planned, sets: &mut Sets) -> Result<Self, Refused> {
        let number = |given: Option<usize>| given.map_or(Ok(NONE), small);
        let (agent, provider) = (number(node.agent)?, number(node.provider)?);
        if node.others.is_empty() {
            return Ok(Self { agent, any: NONE, provider });
        }
        let agents: Vec<_> = node.agent.into_iter().chain(node.others.iter().copied()).collect();
        sets.wants(&agents, provider)
    }
}

/// Edges grouped by source, in the order of their dependents, and the nodes with a conditional edge out of them.
struct Turned {
    first_out: Vec<u32>,
    dependents: Vec<u32>,
    numbers: Vec<u32>,
    asks: Vec<bool>,
}

fn turned(first_in: &[u32], ins: &[In], count: usize) -> Result<Turned, Refused> {
    let mut first_out = vec![0_u32; count + 1];
    let mut asks = vec![false; count];
    for edge in ins {
        let from = edge.from as usize;
        let asks = asks.get_mut(from).ok_or(Refused::Unknown(from))?;
        *asks |= edge.conditional;
        if let Some(number) = first_out.get_mut(from + 1) {
            *number += 1;
        }
    }
    let mut sum = 0;
    for first in &mut first_out {
        sum += *first;
        *first = sum;
    }
    let mut next = first_out.clone();
    let (mut dependents, mut numbers) = (vec![0; ins.len()], vec![0; ins.len()]);
    let mut edges = (0..small(ins.len())?).zip(ins);
    for (to, part) in (0..small(count)?).zip(first_in.windows(2)) {
        let [start, end] = part else { continue };
        for (edge, given) in edges.by_ref().take((end - start) as usize) {
            if let Some(place) = next.get_mut(given.from as usize) {
                let at = *place as usize;
                if let (Some(dependent), Some(number)) = (dependents.get_mut(at), numbers.get_mut(at)) {
                    (*dependent, *number) = (to, edge);
                }
                *place += 1;
            }
        }
    }
    Ok(Turned { first_out, dependents, numbers, asks })
}

fn outs_of<'a>(first_out: &[u32], all: &'a [u32], node: usize) -> &'a [u32] {
    let part = part(first_out, node);
    part.and_then(|part| all.get(part.start as usize..part.end as usize)).unwrap_or_default()
}

fn part(first: &[u32], node: usize) -> Option<Range<u32>> {
    Some(*first.get(node)?..*first.get(node + 1)?)
}

/// Converts a number to its compact form.
pub(super) fn small(number: usize) -> Result<u32, Refused> {
    u32::try_from(number).ok().filter(|number| *number < NONE).ok_or(Refused::TooMany)
}
