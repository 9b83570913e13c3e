//! State queries, and restoring a schedule from the record of a run.

use std::ops::Range;

use super::{
    Cause, Counts, How, Refused, Schedule, State,
    machine::Node,
    plan::{In, NONE, Out, Wants, small},
};

impl Schedule {
    /// Replays a recorded state of a node. Call it in the order of the record, along with the callers' changes. A node
    /// that already reached the state as a consequence of earlier records stays as it is. Limits are ignored. An
    /// attempt stopped by a reassignment is recorded as cancelled, before the next one starts.
    ///
    /// Afterwards, a running node is one whose attempt was in flight when the record ended. A node that is
    /// [`State::Stopping`] must be finished as cancelled, since no part of it is running any more.
    ///
    /// # Errors
    /// [`Refused::State`] when the node cannot have reached the state: the record is of another graph.
    pub(crate) fn restore(
        &mut self,
        node: usize,
        state: State,
        holds: impl FnMut(usize, usize) -> bool,
    ) -> Result<(), Refused> {
        let is = self.node(node)?.1.state;
        let refused = Err(Refused::State { node, state: is });
        match (is, state) {
            (State::Skipped(_), State::Skipped(_)) => {}
            _ if is == state => {}
            (State::Pending | State::Waiting | State::Stopping, State::Running) => self.begin(node)?,
            (State::Running, State::Waiting) => drop(self.retry_later(node)?),
            (State::Pending | State::Waiting, State::Cancelled) => {
                self.end(small(node)?, State::Cancelled);
                self.spread(holds);
            }
            (State::Running | State::Suspended, State::Completed | State::Failed | State::Cancelled) => {
                let how = match state {
                    State::Completed => How::Completed,
                    State::Failed => How::Failed,
                    _ => How::Cancelled,
                };
                self.finish(node, how, holds)?;
            }
            (State::Stopping, State::Skipped(_) | State::Cancelled) => {
                let anew = self.is_to_restart(small(node)?) && state == State::Cancelled;
                let is = self.finish(node, How::Cancelled, holds)?;
                if !anew && (is == State::Cancelled) != (state == State::Cancelled) {
                    return refused;
                }
            }
            // The end of its wait is not recorded; meanwhile a node that it needs gave no value.
            (State::Waiting, State::Skipped(_)) => {
                self.ready_again(node);
                if !matches!(self.state(node), Some(State::Skipped(_))) {
                    return refused;
                }
            }
            _ => return refused,
        }
        // Of several causes, the one that was told.
        if is_derived(state) && self.state(node).is_some_and(is_derived) {
            self.set(small(node)?, state);
        }
        Ok(())
    }

    /// Starts this node now.
    fn begin(&mut self, node: usize) -> Result<(), Refused> {
        if self.state(node) == Some(State::Stopping) {
            self.finish(node, How::Cancelled, |_, _| false)?;
        }
        let (number, of) = self.node(node)?;
        let due = matches!(of.state, State::Pending | State::Waiting);
        if !due || of.blocked > 0 || self.missing.get(node) != Some(&0) {
            return Err(Refused::State { node, state: of.state });
        }
        self.ready.take(of.class);
        self.set(number, State::Running);
        Ok(())
    }

    /// Returns the state of a node; `None` when there is no such node.
    #[inline]
    pub(crate) fn state(&self, node: usize) -> Option<State> {
        self.nodes.get(node).map(|node| node.state)
    }

    /// Returns the node that this one is an item of.
    #[inline]
    pub(crate) fn parent(&self, node: usize) -> Option<usize> {
        let added = self.added.nodes.get(node.checked_sub(self.plan.len())?)?;
        (added.parent != NONE).then_some(added.parent as usize)
    }

    /// True when every node is over.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.counts.open() == 0
    }

    /// True when everything is cancelled, so that nothing can be changed any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns the number of nodes in each state.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Yields the conditional edges out of a node: the dependent, and the edge's number among those of the dependent. A
    /// caller whose conditions may fail evaluates them before [`finish`](Self::finish).
    pub(crate) fn conditions(&self, node: usize) -> impl Iterator<Item = (usize, usize)> {
        let asked = small(node).ok().filter(|_| self.plan.asks(node) || !self.added.outs.is_empty());
        let outs = asked.map(|node| self.outs(node)).unwrap_or_default();
        outs.into_iter()
            .filter(|out| self.edge(out.edge).is_some_and(|edge| edge.conditional))
            .map(|out| (out.to as usize, (out.edge - self.ins(out.to).start) as usize))
    }

    pub(super) fn node(&self, node: usize) -> Result<(u32, Node), Refused> {
        let of = self.nodes.get(node).ok_or(Refused::Unknown(node))?;
        Ok((small(node)?, *of))
    }

    /// Returns the numbers of the edges into a node.
    pub(super) fn ins(&self, node: u32) -> Range<u32> {
        let added = || {
            let node = self.added.nodes.get((node as usize).checked_sub(self.plan.len())?)?;
            Some(node.first_in..node.end_in)
        };
        self.plan.ins(node as usize).or_else(added).unwrap_or_default()
    }

    pub(super) fn edge(&self, edge: u32) -> Option<In> {
        let edge = edge as usize;
        match edge.checked_sub(self.plan.edges()) {
            Some(added) => self.added.ins.get(added).copied(),
            None => self.plan.edge(edge),
        }
    }

    pub(super) fn outs(&self, node: u32) -> Vec<Out> {
        let further = self.added.outs.get(&node).into_iter().flatten().copied();
        self.plan.outs(node as usize).chain(further).collect()
    }

    pub(super) fn expected(&self, node: usize) -> u64 {
        let added = || Some(self.added.nodes.get(node.checked_sub(self.plan.len())?)?.expected);
        self.plan.expected(node).or_else(added).unwrap_or_default()
    }

    pub(super) fn wants(&self, node: usize) -> Wants {
        let added = || Some(self.added.nodes.get(node.checked_sub(self.plan.len())?)?.wants);
        let none = Wants { agent: NONE, any: NONE, provider: NONE };
        self.plan.wants().get(node).copied().or_else(added).unwrap_or(none)
    }
}

/// True for a node that was skipped because of another one.
fn is_derived(state: State) -> bool {
    matches!(state, State::Skipped(Cause::Blocked(_) | Cause::Condition(_)))
}
