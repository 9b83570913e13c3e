//! The schedule of one run: starting and finishing nodes, and the effect on their dependents.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use super::{
    Cause, Consequence, Counts, How, Limits, Policy, Refused, State,
    map::Group,
    plan::{In, NONE, Out, Plan, Wants},
    ready::Ready,
};
use crate::graph::SkipAs;

/// State of one run of a graph, from which the next node to start follows.
#[derive(Debug)]
pub(crate) struct Schedule {
    pub(super) plan: Arc<Plan>,
    pub(super) policy: Policy,
    pub(super) nodes: Vec<Node>,
    /// Number of edges into each node from nodes that are not over. Kept apart from `nodes`, so that finishing a node
    /// touches nothing else of its dependents.
    pub(super) missing: Vec<u32>,
    /// Nodes added since the run began.
    pub(super) added: Added,
    pub(super) ready: Ready,
    /// Required edges whose condition did not hold.
    pub(super) unheld: BTreeSet<u32>,
    /// Outcomes of nodes that are being stopped.
    pub(super) stops: BTreeMap<u32, Stop>,
    /// Last reassignment of each node that has one.
    pub(super) reassigned: BTreeMap<u32, Reassigned>,
    /// Agent of each running node that had a choice.
    pub(super) seats: BTreeMap<u32, u32>,
    /// Nodes whose attempt continues with the agent that it had, although they had a choice.
    pub(super) bound: BTreeMap<u32, Bound>,
    /// Pending nodes with an attempt in flight: that attempt continues, whatever became of the node's dependencies.
    pub(super) in_flight: BTreeSet<u32>,
    /// Items of the nodes that have some.
    pub(super) groups: BTreeMap<u32, Group>,
    pub(super) consequences: VecDeque<Consequence>,
    /// Nodes that are over, but whose dependents have not been updated.
    pub(super) wave: VecDeque<u32>,
    pub(super) counts: Counts,
    /// True once everything is cancelled.
    pub(super) closed: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    pub(super) state: State,
    pub(super) priority: u64,
    pub(super) class: u32,
    /// Number of its required edges from nodes that gave no value.
    pub(super) blocked: u32,
}

/// Nodes added to a run: items, and tasks added on request.
#[derive(Debug, Default)]
pub(super) struct Added {
    pub(super) nodes: Vec<AddedNode>,
    /// Edges into them, numbered on from the plan's.
    pub(super) ins: Vec<In>,
    /// Further edges out of each node.
    pub(super) outs: BTreeMap<u32, Vec<Out>>,
}

#[derive(Debug)]
pub(super) struct AddedNode {
    pub(super) first_in: u32,
    pub(super) end_in: u32,
    pub(super) expected: u64,
    /// Node that it is an item of.
    pub(super) parent: u32,
    pub(super) wants: Wants,
}

/// Outcome of a node that is being stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    Skip(SkipAs),
    Cancel,
    /// Pending again, with the agent that it was given to.
    Restart,
}

/// Agents that a node was given to, from the attempt after the running one on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reassigned {
    pub(super) wants: Wants,
    /// Class of limits that these agents make it count towards.
    pub(super) class: u32,
}

/// A node that had a choice, and whose attempt continues.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    pub(super) agent: u32,
    /// Its class from the next attempt on.
    pub(super) class: u32,
}

impl Schedule {
    /// Creates the schedule of a run of `plan` that has not begun.
    ///
    /// # Errors
    /// [`Refused::TooMany`] when there are more limits than can be numbered.
    pub(crate) fn new(plan: Arc<Plan>, limits: Limits, policy: Policy) -> Result<Self, Refused> {
        let mut ready = Ready::new(limits, plan.sets().clone());
        let mut nodes = Vec::with_capacity(plan.len());
        for ((node, wants), priority) in (0..).zip(plan.wants()).zip(plan.priorities()) {
            let class = ready.class(*wants, NONE)?;
            nodes.push(Node::new(class, *priority));
            if plan.degrees().get(node as usize) == Some(&0) {
                ready.push(node, *priority, class);
            }
        }
        let counts = Counts { pending: nodes.len(), ..Counts::default() };
        let missing = plan.degrees().to_vec();
        Ok(Self {
            plan,
            policy,
            nodes,
            missing,
            added: Added::default(),
            ready,
            unheld: BTreeSet::new(),
            stops: BTreeMap::new(),
            reassigned: BTreeMap::new(),
            seats: BTreeMap::new(),
            bound: BTreeMap::new(),
            in_flight: BTreeSet::new(),
            groups: BTreeMap::new(),
            consequences: VecDeque::new(),
            wave: VecDeque::new(),
            counts,
            closed: false,
        })
    }

    /// Starts the next node: it counts as running from now on. `None` when no node can run, or no slot is free.
    ///
    /// Of the nodes with a free slot at every limit, the one with the longest expected path to the end of the graph
    /// goes first, its own expected duration included; ties go to the node added first.
    #[inline]
    pub(crate) fn start(&mut self) -> Option<usize> {
        let (nodes, missing, in_flight) = (&self.nodes, &self.missing, &self.in_flight);
        let (node, agent) = self.ready.pop(|node, class| {
            (missing.get(node as usize) == Some(&0) || in_flight.contains(&node))
                && nodes
                    .get(node as usize)
                    .is_some_and(|node| node.state == State::Pending && node.class == class)
        })?;
        self.in_flight.remove(&node);
        if let Some(agent) = agent {
            self.seats.insert(node, agent);
        }
        self.set(node, State::Running);
        Some(node as usize)
    }

    /// Finishes the attempt at `node`, or the node whose items are all over: releases its slots and returns its new
    /// state. A node that was being stopped gets the outcome it was stopped for, whatever `how` says.
    ///
    /// `holds(dependent, edge)` is called once for each conditional edge out of a completed node; `edge` is its number
    /// among those of the dependent. The effects on other nodes are returned by [`consequence`](Self::consequence).
    ///
    /// # Errors
    /// [`Refused::State`] when no attempt at it is running, or its items are not over.
    #[inline]
    pub(crate) fn finish(
        &mut self,
        node: usize,
        how: How,
        holds: impl FnMut(usize, usize) -> bool,
    ) -> Result<State, Refused> {
        let number = self.settle_slots(node)?;
        let state = match self.stops.remove(&number) {
            Some(Stop::Skip(dependents)) => State::Skipped(Cause::Asked(dependents)),
            Some(Stop::Cancel) => State::Cancelled,
            Some(Stop::Restart) => return Ok(self.restarted(number)),
            None => how.into(),
        };
        let fails_fast =
            state == State::Failed && self.policy == Policy::FailFast && self.parent(node).is_none();
        self.end(number, state);
        if fails_fast {
            self.close();
        }
        self.spread(holds);
        Ok(state)
    }

    /// Releases the slots of an attempt that is over. The next one counts as the agent that the node was given to
    /// meanwhile, whatever else became of the node.
    fn settle_slots(&mut self, node: usize) -> Result<u32, Refused> {
        let (number, of) = self.node(node)?;
        match (of.state, self.groups.get(&number)) {
            (State::Running | State::Stopping, None) => self.leave(number, of.class),
            (State::Suspended, Some(group)) if group.open == 0 => drop(self.groups.remove(&number)),
            (state, _) => return Err(Refused::State { node, state }),
        }
        self.unbind(number);
        if let Some(given) = self.reassigned.get(&number)
            && let Some(of) = self.nodes.get_mut(node)
        {
            of.class = given.class;
        }
        Ok(number)
    }

    /// Makes `node` wait for a retry after a failed attempt, without a slot, until [`ready_again`](Self::ready_again).
    /// A node that was being stopped is finished instead. Returns its new state.
    ///
    /// # Errors
    /// Those of [`finish`](Self::finish).
    pub(crate) fn retry_later(&mut self, node: usize) -> Result<State, Refused> {
        if self.state(node) == Some(State::Stopping) {
            return self.finish(node, How::Cancelled, |_, _| false);
        }
        let number = self.settle_slots(node)?;
        self.set(number, State::Waiting);
        Ok(State::Waiting)
    }

    /// Ends a node's wait for its retry. Returns false when it no longer waits, because it was skipped or cancelled.
    pub(crate) fn ready_again(&mut self, node: usize) -> bool {
        let Ok((number, of)) = self.node(node) else { return false };
        if of.state != State::Waiting {
            return false;
        }
        self.pend(number);
        self.spread(|_, _| false);
        true
    }

    /// Continues the attempt at `node` that an earlier process began, as soon as it has its slots again. Its
    /// dependencies are not checked again: the attempt has begun, whatever became of them since.
    ///
    /// # Errors
    /// [`Refused::State`] when no attempt at it is running.
    pub(crate) fn go_on(&mut self, node: usize) -> Result<(), Refused> {
        let (number, of) = self.node(node)?;
        if of.state != State::Running {
            return Err(Refused::State { node, state: of.state });
        }
        let class = self.bind(number, of.class)?;
        self.set(number, State::Pending);
        self.in_flight.insert(number);
        self.ready.push(number, of.priority, class);
        Ok(())
    }

    /// Counts an attempt that waits as running, whatever the limits say: to be stopped it must unwind.
    ///
    /// # Errors
    /// [`Refused::State`] when no attempt at the node waits.
    pub(crate) fn take_up(&mut self, node: usize) -> Result<(), Refused> {
        let (number, of) = self.node(node)?;
        let goes_on = of.state == State::Pending && self.in_flight.remove(&number);
        if !goes_on && of.state != State::Waiting {
            return Err(Refused::State { node, state: of.state });
        }
        self.ready.take(of.class);
        self.set(number, State::Running);
        Ok(())
    }

    fn restarted(&mut self, node: u32) -> State {
        self.pend(node);
        self.spread(|_, _| false);
        self.nodes.get(node as usize).map_or(State::Pending, |node| node.state)
    }

    /// Makes the node pending: it starts (again) as soon as its dependencies allow.
    pub(super) fn pend(&mut self, node: u32) {
        self.set(node, State::Pending);
        let Some(of) = self.nodes.get(node as usize).copied() else { return };
        let obstacle = if of.blocked > 0 { self.obstacle(node) } else { None };
        if let Some(cause) = obstacle {
            self.end_told(node, State::Skipped(cause));
        } else if self.missing.get(node as usize) == Some(&0) {
            self.ready.push(node, of.priority, of.class);
        }
    }

    /// Returns the next consequence for other nodes, or of an intervention, oldest first; `None` when there are no
    /// more. Call it until then after each call that may have consequences.
    #[inline]
    pub(crate) fn consequence(&mut self) -> Option<Consequence> {
        loop {
            let next = self.consequences.pop_front()?;
            match next {
                // Since this was queued, the node was stopped or one of its items is retried.
                Consequence::Gather { node } if !self.is_gathered(node) => {}
                _ => return Some(next),
            }
        }
    }

    /// Ends a node; [`spread`](Self::spread) updates its dependents.
    pub(super) fn end(&mut self, node: u32, state: State) {
        self.in_flight.remove(&node);
        self.unbind(node);
        self.set(node, state);
        self.wave.push_back(node);
    }

    /// Ends a node without an attempt, which the caller learns as a consequence.
    pub(super) fn end_told(&mut self, node: u32, state: State) {
        self.end(node, state);
        self.consequences.push_back(Consequence::Ended { node: node as usize, state });
    }

    /// Updates the dependents of nodes that are over, then theirs, and so on: breadth first, in the order of the nodes.
    #[inline]
    pub(super) fn spread(&mut self, mut holds: impl FnMut(usize, usize) -> bool) {
        while let Some(node) = self.wave.pop_front() {
            let state = self.nodes.get(node as usize).map_or(State::Pending, |node| node.state);
            let plain = state == State::Completed
                && (node as usize) < self.plan.len()
                && !self.plan.asks(node as usize)
                && !self.added.outs.contains_key(&node);
            if plain {
                self.tell_plainly(node);
                continue;
            }
            self.tell(node, state, &mut holds);
            self.tell_parent(node);
        }
    }

    /// Satisfies all edges out of the node.
    #[inline]
    fn tell_plainly(&mut self, node: u32) {
        let Self { plan, missing, nodes, ready, .. } = self;
        for to in plan.dependents(node as usize) {
            let Some(left) = missing.get_mut(*to as usize) else { continue };
            *left -= 1;
            if *left == 0
                && let Some(of) = nodes.get(*to as usize)
                && of.state == State::Pending
            {
                ready.push(*to, of.priority, of.class);
            }
        }
    }

    fn tell(&mut self, node: u32, state: State, holds: &mut impl FnMut(usize, usize) -> bool) {
        let gives = self.gives(state);
        let plan = Arc::clone(&self.plan);
        let further = self.added.outs.get(&node).cloned().unwrap_or_default();
        for out in plan.outs(node as usize).chain(further) {
            let Some(edge) = self.edge(out.edge) else { continue };
            if let Some(left) = self.missing.get_mut(out.to as usize) {
                *left -= 1;
            }
            let held = gives
                && (!edge.conditional || {
                    let number = out.edge - self.ins(out.to).start;
                    state == State::Completed && holds(out.to as usize, number as usize)
                });
            if held || edge.optional {
                self.satisfied(out.to);
                continue;
            }
            if gives {
                self.unheld.insert(out.edge);
            }
            let from = node as usize;
            self.block(out.to, if gives { Cause::Condition(from) } else { Cause::Blocked(from) });
        }
    }

    fn satisfied(&mut self, node: u32) {
        if self.missing.get(node as usize) == Some(&0)
            && let Some(of) = self.nodes.get(node as usize)
            && of.state == State::Pending
        {
            self.ready.push(node, of.priority, of.class);
        }
    }

    fn block(&mut self, node: u32, cause: Cause) {
        let Some(of) = self.nodes.get_mut(node as usize) else { return };
        of.blocked += 1;
        if of.state == State::Pending && !self.in_flight.contains(&node) {
            self.end_told(node, State::Skipped(cause));
        }
    }

    /// True when a node that ended in this state satisfies its dependents.
    pub(crate) fn gives(&self, state: State) -> bool {
        match state {
            State::Completed | State::Skipped(Cause::Asked(SkipAs::Satisfied)) => true,
            State::Failed | State::Cancelled => self.policy == Policy::Continue,
            _ => false,
        }
    }

    /// Returns the first reason why a node cannot run, among its dependencies that are over.
    pub(super) fn obstacle(&self, node: u32) -> Option<Cause> {
        self.ins(node).find_map(|number| {
            let edge = self.edge(number).filter(|edge| !edge.optional)?;
            let from = edge.from as usize;
            let state = self.state(from)?;
            if state.is_terminal() && !self.gives(state) {
                return Some(Cause::Blocked(from));
            }
            self.unheld.contains(&number).then_some(Cause::Condition(from))
        })
    }

    pub(super) fn set(&mut self, node: u32, state: State) {
        if let Some(node) = self.nodes.get_mut(node as usize) {
            *self.counts.of(node.state) -= 1;
            *self.counts.of(state) += 1;
            node.state = state;
        }
    }
}

impl Node {
    pub(super) fn new(class: u32, priority: u64) -> Self {
        Self { state: State::Pending, priority, class, blocked: 0 }
    }
}

impl From<How> for State {
    fn from(how: How) -> Self {
        match how {
            How::Completed => Self::Completed,
            How::Failed => Self::Failed,
            How::Cancelled => Self::Cancelled,
        }
    }
}
