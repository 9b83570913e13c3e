//! How far a run is, and bringing a schedule to where the record of a run ends.

use std::ops::Range;

use super::{
    Counts, How, Refused, Schedule, State,
    machine::Node,
    plan::{In, NONE, Out, Wants, small},
};

impl Schedule {
    /// Replays that the record says a node to be in this state: to be called in the order of the record, along with the
    /// changes that somebody made. A node that is in that state already, as a consequence of what came before, is left
    /// so. Limits are not looked at. An attempt that was stopped because its node was reassigned is recorded as cancelled,
    /// before the next one starts. Afterwards, a node that runs is one whose attempt was in flight when the record
    /// ended; one that is [`State::Stopping`] is to be finished as cancelled, since nothing of it runs any more.
    ///
    /// # Errors
    /// [`Refused::State`] when the node cannot have come to it: the record is that of another graph.
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
            // Its wait was over, which is not recorded, and what it needs gave nothing meanwhile.
            (State::Waiting, State::Skipped(_)) => {
                self.ready_again(node);
                if !matches!(self.state(node), Some(State::Skipped(_))) {
                    return refused;
                }
            }
            _ => return refused,
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

    /// How far a node is; `None` when there is no such node.
    #[inline]
    pub(crate) fn state(&self, node: usize) -> Option<State> {
        self.nodes.get(node).map(|node| node.state)
    }

    /// Who works on a node, from its next attempt on.
    pub(crate) fn agent(&self, node: usize) -> Option<usize> {
        let reassigned = small(node).ok().and_then(|node| self.reassigned.get(&node)).copied();
        let agent = reassigned.unwrap_or_else(|| self.wants(node).agent);
        (agent != NONE).then_some(agent as usize)
    }

    /// The node whose item this one is.
    #[inline]
    pub(crate) fn parent(&self, node: usize) -> Option<usize> {
        let added = self.added.nodes.get(node.checked_sub(self.plan.len())?)?;
        (added.parent != NONE).then_some(added.parent as usize)
    }

    /// Whether every node is over.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.counts.open() == 0
    }

    /// How many nodes are how far.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// The edges out of a node that have a condition: each dependent, and the edge's number among those of the
    /// dependent. A caller whose conditions may fail asks them before [`finish`](Self::finish).
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

    /// The numbers of the edges into a node.
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
        let none = Wants { agent: NONE, provider: NONE };
        self.plan.wants().get(node).copied().or_else(added).unwrap_or(none)
    }
}
