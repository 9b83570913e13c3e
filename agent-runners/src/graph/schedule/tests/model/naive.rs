//! A schedule without any counters.

use std::collections::BTreeMap;

use crate::graph::SkipAs;
use crate::graph::schedule::{Cause, How, Limits, Planned, PlannedEdge, Policy, State};

#[derive(Debug, Clone)]
pub(super) struct Naive {
    pub(super) nodes: Vec<NaiveNode>,
    pub(super) limits: Limits,
    pub(super) policy: Policy,
    pub(super) closed: bool,
    /// Maximum number of parallel items of each expansion.
    pub(super) at_once: BTreeMap<usize, usize>,
}

#[derive(Debug, Clone)]
pub(super) struct NaiveNode {
    pub(super) planned: Planned,
    pub(super) state: State,
    /// State that it gets when it is stopped.
    pub(super) stop: Option<State>,
    /// Agents of which one works on it; none for a step.
    pub(super) agents: Vec<usize>,
    pub(super) next_agents: Vec<usize>,
    /// Agent of its current or newest attempt.
    pub(super) seat: Option<usize>,
    /// Agent that its continued attempt must have.
    pub(super) bound: Option<usize>,
    /// Edges whose condition did not hold.
    pub(super) unheld: Vec<usize>,
    pub(super) item_of: Option<usize>,
    /// Attempt of that node that it belongs to.
    pub(super) of_attempt: u32,
    /// True when its current attempt has become items.
    pub(super) expanded: bool,
    pub(super) attempts: u32,
    /// True when it is pending, and an attempt of an earlier process continues as soon as it has a slot.
    pub(super) in_flight: bool,
}

/// A condition: any deterministic function will do.
pub(super) fn holds(to: usize, edge: usize) -> bool {
    !(to * 7 + edge * 3).is_multiple_of(4)
}

impl Naive {
    pub(super) fn new(plan: Vec<Planned>, limits: Limits, policy: Policy) -> Self {
        let nodes = plan.into_iter().map(NaiveNode::new).collect();
        Self { nodes, limits, policy, closed: false, at_once: BTreeMap::new() }
    }

    pub(super) fn gives(&self, node: usize) -> bool {
        match self.nodes[node].state {
            State::Completed | State::Skipped(Cause::Asked(SkipAs::Satisfied)) => true,
            State::Failed | State::Cancelled => self.policy == Policy::Continue,
            _ => false,
        }
    }

    /// Returns every reason why a node cannot run.
    pub(super) fn obstacles(&self, node: usize) -> Vec<Cause> {
        let of = &self.nodes[node];
        let needed = of.planned.edges.iter().enumerate().filter(|(_, edge)| !edge.optional);
        let mut causes = Vec::new();
        for (number, edge) in needed {
            if self.nodes[edge.from].state.is_terminal() && !self.gives(edge.from) {
                causes.push(Cause::Blocked(edge.from));
            } else if of.unheld.contains(&number) {
                causes.push(Cause::Condition(edge.from));
            }
        }
        causes
    }

    /// Returns the length of the longest path from a node, by trying all.
    pub(super) fn urgency(&self, node: usize) -> u64 {
        let mut longest = vec![0; self.nodes.len()];
        // A node depends on earlier ones only.
        for at in (0..self.nodes.len()).rev() {
            longest[at] += self.nodes[at].planned.expected;
            for edge in &self.nodes[at].planned.edges {
                longest[edge.from] = longest[edge.from].max(longest[at]);
            }
        }
        match self.nodes[node].item_of {
            Some(parent) => {
                let expected = |node: usize| self.nodes[node].planned.expected;
                longest[node].max(expected(node) + longest[parent] - expected(parent))
            }
            None => longest[node],
        }
    }

    /// Returns the agent that would get the node now, if it has a slot at every limit.
    pub(super) fn slot(&self, node: &NaiveNode) -> Option<Option<usize>> {
        let holding: Vec<_> = self
            .nodes
            .iter()
            .filter(|n| n.state == State::Running || n.state == State::Stopping && !n.expanded)
            .collect();
        let below = |most: usize, counts: &dyn Fn(&NaiveNode) -> bool| {
            holding.iter().filter(|n| counts(n)).count() < most.max(1)
        };
        let p = &node.planned;
        let agents = node.bound.map_or_else(|| node.agents.clone(), |bound| vec![bound]);
        let is_free = |agent: &usize| {
            let most = self.limits.agents.get(agent).copied().unwrap_or(self.limits.each_agent);
            below(most, &|n| n.seat == Some(*agent))
        };
        let seat = agents.iter().copied().find(is_free);
        let provider = p.provider.and_then(|provider| self.limits.providers.get(&provider));
        let provider = provider.is_none_or(|most| below(*most, &|n| n.planned.provider == p.provider));
        let group = node.item_of.and_then(|parent| self.at_once.get(&parent));
        let group = group.is_none_or(|most| below(*most, &|n| n.item_of == node.item_of));
        let all = self.limits.all_agents.filter(|_| !agents.is_empty());
        let all = all.is_none_or(|most| below(most, &|n| n.seat.is_some()));
        let agent = all && (seat.is_some() || agents.is_empty());
        let free = below(self.limits.overall.unwrap_or(usize::MAX), &|_| true) && agent && provider && group;
        free.then_some(seat)
    }

    pub(super) fn is_ready(&self, node: usize) -> bool {
        let of = &self.nodes[node];
        let over = |edge: &PlannedEdge| self.nodes[edge.from].state.is_terminal();
        of.state == State::Pending && (of.in_flight || of.planned.edges.iter().all(over))
    }

    pub(super) fn next(&self) -> Option<usize> {
        (0..self.nodes.len())
            .filter(|node| self.is_ready(*node) && self.slot(&self.nodes[*node]).is_some())
            .max_by_key(|node| (self.urgency(*node), std::cmp::Reverse(*node)))
    }

    /// Ends nodes until there are no more consequences.
    pub(super) fn settle(&mut self) {
        loop {
            let blocked = (0..self.nodes.len())
                .filter(|node| self.nodes[*node].state == State::Pending && !self.nodes[*node].in_flight)
                .find_map(|node| Some((node, *self.obstacles(node).first()?)));
            let emptied = (0..self.nodes.len()).find(|node| {
                let mut items = self.nodes.iter().filter(|n| n.item_of == Some(*node));
                self.nodes[*node].state == State::Stopping
                    && self.nodes[*node].expanded
                    && items.all(|item| item.state.is_terminal())
            });
            match (blocked, emptied) {
                (Some((node, cause)), _) => self.nodes[node].state = State::Skipped(cause),
                (None, Some(node)) => {
                    let end = self.nodes[node].stop.take().unwrap();
                    self.end(node, end);
                }
                (None, None) => return,
            }
        }
    }

    pub(super) fn end(&mut self, node: usize, state: State) {
        (self.nodes[node].state, self.nodes[node].in_flight) = (state, false);
        self.nodes[node].bound = None;
        for to in 0..self.nodes.len() {
            for number in 0..self.nodes[to].planned.edges.len() {
                let edge = self.nodes[to].planned.edges[number];
                let asked = edge.from == node && edge.conditional && !edge.optional && self.gives(node);
                if asked && !(state == State::Completed && holds(to, number)) {
                    self.nodes[to].unheld.push(number);
                }
            }
        }
    }

    pub(super) fn finish(&mut self, node: usize, how: How) -> State {
        let of = &mut self.nodes[node];
        of.agents.clone_from(&of.next_agents);
        of.bound = None;
        match of.stop.take() {
            Some(State::Pending) => of.state = State::Pending,
            Some(state) => self.end(node, state),
            None => {
                let state = how.into();
                let fast = self.policy == Policy::FailFast && how == How::Failed && of.item_of.is_none();
                self.end(node, state);
                if fast {
                    self.cancel_all();
                }
            }
        }
        self.settle();
        self.nodes[node].state
    }

    pub(super) fn stop(&mut self, node: usize, end: State) -> bool {
        let restarts = self.nodes[node].stop == Some(State::Pending);
        match self.nodes[node].state {
            State::Pending | State::Waiting => self.end(node, end),
            State::Running => self.stopping(node, end),
            State::Suspended => {
                self.stopping(node, end);
                self.stop_items(node);
            }
            State::Stopping if restarts => self.stopping(node, end),
            _ => return false,
        }
        self.settle();
        true
    }

    pub(super) fn stopping(&mut self, node: usize, end: State) {
        (self.nodes[node].state, self.nodes[node].stop) = (State::Stopping, Some(end));
    }

    pub(super) fn stop_items(&mut self, node: usize) {
        for item in 0..self.nodes.len() {
            if self.nodes[item].item_of == Some(node) {
                self.stop(item, State::Cancelled);
            }
        }
    }

    pub(super) fn cancel_all(&mut self) {
        self.closed = true;
        // A node that is cancelled together with its dependency is not skipped for it.
        for node in 0..self.nodes.len() {
            if matches!(self.nodes[node].state, State::Pending | State::Waiting) {
                (self.nodes[node].state, self.nodes[node].in_flight) = (State::Cancelled, false);
                self.nodes[node].bound = None;
            }
        }
        for node in 0..self.nodes.len() {
            self.stop(node, State::Cancelled);
        }
    }

    pub(super) fn retry(&mut self, node: usize) -> bool {
        let of = &self.nodes[node];
        let open = of
            .item_of
            .map(|parent| &self.nodes[parent])
            .is_none_or(|parent| parent.state == State::Suspended && parent.attempts == of.of_attempt);
        let over = of.state.is_terminal() && of.state != State::Completed;
        let vain = self.obstacles(node).iter().any(|cause| matches!(cause, Cause::Blocked(_)));
        if !open || !over || vain {
            return false;
        }
        self.nodes[node].unheld.clear();
        self.nodes[node].state = State::Pending;
        let mut back = vec![node];
        while let Some(from) = back.pop() {
            for to in 0..self.nodes.len() {
                let edges = self.nodes[to].planned.edges.clone();
                let mut again = false;
                for number in (0..edges.len()).filter(|number| edges[*number].from == from) {
                    self.nodes[to].unheld.retain(|unheld| *unheld != number);
                    again = true;
                }
                let skipped =
                    matches!(self.nodes[to].state, State::Skipped(Cause::Blocked(_) | Cause::Condition(_)));
                if again && skipped && self.obstacles(to).is_empty() {
                    self.nodes[to].state = State::Pending;
                    back.push(to);
                }
            }
        }
        true
    }

    pub(super) fn reassign(&mut self, node: usize, agents: &[usize]) -> bool {
        let of = &mut self.nodes[node];
        match (of.state, of.stop) {
            (State::Completed | State::Suspended, _) => return false,
            (State::Running, _) | (State::Stopping, Some(State::Pending)) => {
                of.next_agents = agents.to_vec();
                self.stopping(node, State::Pending);
            }
            (State::Stopping, _) => return false,
            _ => {
                (of.in_flight, of.bound) = (false, None);
                (of.agents, of.next_agents) = (agents.to_vec(), agents.to_vec());
            }
        }
        self.settle();
        true
    }
}

impl NaiveNode {
    pub(super) fn new(planned: Planned) -> Self {
        let agents: Vec<_> = planned.agent.into_iter().chain(planned.others.iter().copied()).collect();
        Self {
            planned,
            state: State::Pending,
            stop: None,
            next_agents: agents.clone(),
            agents,
            seat: None,
            bound: None,
            unheld: vec![],
            item_of: None,
            of_attempt: 0,
            expanded: false,
            attempts: 0,
            in_flight: false,
        }
    }
}
