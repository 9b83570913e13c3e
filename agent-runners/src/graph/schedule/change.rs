//! Changes by callers while the graph runs. Each change is applied whole, or refused without effect.

use super::{
    Cause, Consequence, Planned, Refused, Schedule, State,
    machine::{AddedNode, Node, Reassigned, Stop},
    plan::{In, NONE, Out, Wants, small},
};
use crate::graph::SkipAs;

impl Schedule {
    /// Skips the node. A running one is skipped when its attempt has been stopped: until then it is
    /// [`State::Stopping`], and [`Consequence::Stop`] reports that. Any other node is skipped at once, which
    /// [`Consequence::Ended`] reports. Returns its new state.
    ///
    /// # Errors
    /// [`Refused::State`] when it is over, or already being skipped or cancelled; [`Refused::Closed`].
    pub(crate) fn skip(&mut self, node: usize, dependents: SkipAs) -> Result<State, Refused> {
        self.stop(node, Stop::Skip(dependents))
    }

    /// Cancels the node; otherwise as [`skip`](Self::skip).
    ///
    /// # Errors
    /// Those of [`skip`](Self::skip).
    pub(crate) fn cancel(&mut self, node: usize) -> Result<State, Refused> {
        self.stop(node, Stop::Cancel)
    }

    fn stop(&mut self, node: usize, stop: Stop) -> Result<State, Refused> {
        let (number, of) = self.open(node)?;
        match of.state {
            State::Pending | State::Waiting => self.end_told(number, stop.end()),
            State::Running => self.ask_to_stop(number, stop),
            State::Suspended => {
                self.suspended_to_stop(number, stop);
                self.stop_group(number);
            }
            State::Stopping if self.is_to_restart(number) => self.instead_of_restart(number, stop),
            state => return Err(Refused::State { node, state }),
        }
        self.spread(|_, _| false);
        Ok(self.state(node).unwrap_or_default())
    }

    /// Cancels everything that is not over, and refuses all further changes.
    pub(crate) fn cancel_all(&mut self) {
        self.close();
        self.spread(|_, _| false);
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
        for number in 0..small(self.nodes.len()).unwrap_or_default() {
            self.cancel_open(number);
        }
    }

    /// Gives the node to whichever of `agents` has a slot first. A running attempt is stopped, and the node is pending
    /// again once that attempt has finished. Returns its new state.
    ///
    /// # Errors
    /// [`Refused::State`] when the node is completed, waits for items, or is being skipped or cancelled;
    /// [`Refused::Closed`].
    pub(crate) fn reassign(&mut self, node: usize, agents: &[usize]) -> Result<State, Refused> {
        let (number, of) = self.open(node)?;
        let refused = match of.state {
            State::Completed | State::Suspended => true,
            State::Stopping => !self.is_to_restart(number),
            _ => false,
        };
        if refused {
            return Err(Refused::State { node, state: of.state });
        }
        let wants = self.ready.sets.wants(agents, self.wants(node).provider)?;
        let class = self.ready.class(wants, self.group_limit(node))?;
        self.reassigned.insert(number, Reassigned { wants, class });
        match of.state {
            State::Running => self.ask_to_stop(number, Stop::Restart),
            State::Stopping => {}
            _ => {
                self.unbind(number);
                self.move_to(number, class);
            }
        }
        if self.in_flight.remove(&number) {
            self.pend(number);
            self.spread(|_, _| false);
        }
        Ok(self.state(node).unwrap_or_default())
    }

    fn move_to(&mut self, node: u32, class: u32) {
        let Some(of) = self.nodes.get_mut(node as usize) else { return };
        of.class = class;
        if of.state == State::Pending && self.missing.get(node as usize) == Some(&0) {
            self.ready.push(node, of.priority, class);
        }
    }

    /// Adds a node that depends on existing nodes, so there is never a cycle. These may be over; a condition on a
    /// completed one counts as held. Returns the node's number. A node whose dependency gave no value is skipped at
    /// once, which [`Consequence::Ended`] reports.
    ///
    /// # Errors
    /// [`Refused::Unknown`] when an edge comes from no node, [`Refused::TooMany`], [`Refused::Closed`].
    pub(crate) fn add(&mut self, planned: &Planned) -> Result<usize, Refused> {
        if self.closed {
            return Err(Refused::Closed);
        }
        if let Some(edge) = planned.edges.iter().find(|edge| edge.from >= self.nodes.len()) {
            return Err(Refused::Unknown(edge.from));
        }
        let node = self.append(planned, NONE)?;
        self.spread(|_, _| false);
        Ok(node)
    }

    pub(super) fn append(&mut self, planned: &Planned, parent: u32) -> Result<usize, Refused> {
        let node = small(self.nodes.len())?;
        let first_in = self.plan.edges() + self.added.ins.len();
        let (first_in, end_in) = (small(first_in)?, small(first_in + planned.edges.len())?);
        let ins = planned.edges.iter().map(In::new).collect::<Result<Vec<_>, _>>()?;
        let wants = Wants::new(planned, &mut self.ready.sets)?;
        let limit = self.groups.get(&parent).map_or(NONE, |group| group.limit);
        let class = self.ready.class(wants, limit)?;
        let mut of = Node::new(class, planned.expected.saturating_add(self.after(parent)));
        let mut missing = 0;
        for (number, edge) in (first_in..end_in).zip(&ins) {
            let state = self.state(edge.from as usize).unwrap_or_default();
            if !state.is_terminal() {
                missing += 1;
            } else if !edge.optional && !self.gives(state) {
                of.blocked += 1;
            } else if !edge.optional && edge.conditional && state != State::Completed {
                of.blocked += 1;
                self.unheld.insert(number);
            }
            self.added.outs.entry(edge.from).or_default().push(Out { to: node, edge: number });
        }
        self.added.ins.extend(ins);
        self.added.nodes.push(AddedNode { first_in, end_in, expected: planned.expected, parent, wants });
        self.nodes.push(of);
        self.missing.push(missing);
        self.counts.pending += 1;
        self.raise(node);
        self.pend(node);
        Ok(node as usize)
    }

    /// Returns the longest expected path behind a node, without its own duration.
    fn after(&self, node: u32) -> u64 {
        let priority = self.nodes.get(node as usize).map_or(0, |node| node.priority);
        priority.saturating_sub(self.expected(node as usize))
    }

    /// Raises the priority of the nodes that a new node depends on.
    fn raise(&mut self, node: u32) {
        let mut raised = vec![node];
        while let Some(node) = raised.pop() {
            let after = self.nodes.get(node as usize).map_or(0, |node| node.priority);
            let from: Vec<_> = self.ins(node).filter_map(|e| self.edge(e)).map(|e| e.from).collect();
            for from in from {
                if self.raise_to(from, self.expected(from as usize).saturating_add(after)) {
                    self.raise_items(from);
                    raised.push(from);
                }
            }
        }
    }

    fn raise_items(&mut self, of: u32) {
        let items = self.groups.get(&of).map(|group| group.items.clone()).unwrap_or_default();
        let after = self.after(of);
        for item in items {
            self.raise_to(item, self.expected(item as usize).saturating_add(after));
        }
    }

    fn raise_to(&mut self, node: u32, priority: u64) -> bool {
        let Some(of) = self.nodes.get_mut(node as usize).filter(|of| of.priority < priority) else {
            return false;
        };
        of.priority = priority;
        let due = self.missing.get(node as usize) == Some(&0) || self.in_flight.contains(&node);
        if of.state == State::Pending && due {
            self.ready.push(node, priority, of.class);
        }
        true
    }

    /// Retries a node that failed, was skipped or was cancelled: it is pending again. So are the nodes that were
    /// skipped because of it, unless something else blocks them; [`Consequence::Pending`] reports those. A condition
    /// that caused the node's own skip is dropped.
    ///
    /// # Errors
    /// [`Refused::State`] in every other state, and for an item that its node no longer waits for; [`Refused::Blocked`]
    /// when a node that it needs gave no value; [`Refused::Closed`].
    pub(crate) fn retry(&mut self, node: usize) -> Result<(), Refused> {
        let number = self.can_retry(node)?;
        for edge in self.ins(number) {
            self.unheld.remove(&edge);
        }
        if let Some(of) = self.nodes.get_mut(node) {
            of.blocked = 0;
        }
        self.reopen_item(node);
        self.revive(number);
        Ok(())
    }

    /// Returns the number of a node that can be retried.
    ///
    /// # Errors
    /// Those of [`retry`](Self::retry).
    pub(crate) fn can_retry(&self, node: usize) -> Result<u32, Refused> {
        let (number, of) = self.open(node)?;
        let open = self.parent(node).is_none_or(|parent| self.waits_for(parent, number));
        if !of.state.is_terminal() || of.state == State::Completed || !open {
            return Err(Refused::State { node, state: of.state });
        }
        let needed = self.ins(number).filter_map(|edge| self.edge(edge)).filter(|edge| !edge.optional);
        let vain = |from: &usize| self.state(*from).is_some_and(|s| s.is_terminal() && !self.gives(s));
        if let Some(by) = needed.map(|edge| edge.from as usize).find(vain) {
            return Err(Refused::Blocked { node, by });
        }
        Ok(number)
    }

    fn reopen_item(&mut self, item: usize) {
        let parent = self.parent(item).and_then(|parent| small(parent).ok());
        if let Some(group) = parent.and_then(|parent| self.groups.get_mut(&parent)) {
            group.open += 1;
        }
    }

    /// Makes a node pending again, and the nodes that were skipped because of it.
    fn revive(&mut self, first: u32) {
        let mut revived = vec![first];
        let mut others = Vec::new();
        let mut next = 0;
        while let Some(node) = revived.get(next).copied() {
            next += 1;
            let was = self.state(node as usize).unwrap_or_default();
            self.set(node, State::Pending);
            for out in self.outs(node) {
                if self.unsettle(out, was) {
                    revived.push(out.to);
                } else {
                    others.push(out.to);
                }
            }
        }
        for node in revived {
            self.pend(node);
            if node != first {
                self.consequences.push_back(Consequence::Pending { node: node as usize });
            }
        }
        for node in others {
            self.blame(node);
        }
    }

    /// Updates the cause of a node that stays skipped although the node that caused it is retried.
    fn blame(&mut self, node: u32) {
        let Some(State::Skipped(Cause::Blocked(by) | Cause::Condition(by))) = self.state(node as usize)
        else {
            return;
        };
        if self.state(by).is_some_and(State::is_terminal) {
            return;
        }
        if let Some(cause) = self.obstacle(node) {
            let state = State::Skipped(cause);
            self.set(node, state);
            self.consequences.push_back(Consequence::Ended { node: node as usize, state });
        }
    }

    /// Withdraws an edge whose source was over, in the state `was`, and no longer is. Returns true when the dependent
    /// becomes pending with it.
    fn unsettle(&mut self, out: Out, was: State) -> bool {
        let gave = self.gives(was);
        let needed = self.edge(out.edge).is_some_and(|edge| !edge.optional);
        let blocked = needed && (!gave || self.unheld.remove(&out.edge));
        if let Some(missing) = self.missing.get_mut(out.to as usize) {
            *missing += 1;
        }
        let Some(of) = self.nodes.get_mut(out.to as usize).filter(|_| blocked) else { return false };
        of.blocked -= 1;
        of.blocked == 0 && matches!(of.state, State::Skipped(Cause::Blocked(_) | Cause::Condition(_)))
    }

    fn open(&self, node: usize) -> Result<(u32, Node), Refused> {
        if self.closed { Err(Refused::Closed) } else { self.node(node) }
    }

    pub(super) fn is_to_restart(&self, node: u32) -> bool {
        matches!(self.stops.get(&node), Some(Stop::Restart))
    }
}

impl Stop {
    /// Returns the state of a node that was stopped for this.
    pub(super) fn end(self) -> State {
        match self {
            Self::Skip(dependents) => State::Skipped(Cause::Asked(dependents)),
            Self::Cancel => State::Cancelled,
            Self::Restart => State::Pending,
        }
    }
}
