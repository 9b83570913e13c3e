//! Nodes that any of several agents may work on: which of them does.

use super::{
    Refused, Schedule,
    machine::Bound,
    plan::{NONE, Wants, small},
};

impl Schedule {
    /// Returns the agent that works on a node which had a choice, or whose attempt continues.
    pub(crate) fn seat(&self, node: usize) -> Option<usize> {
        let node = small(node).ok()?;
        let bound = || self.bound.get(&node).map(|bound| bound.agent);
        self.seats.get(&node).copied().or_else(bound).map(|agent| agent as usize)
    }

    /// Gives a running node that was restored the agent that its record names, if it had a choice. Returns false when
    /// that is none of its agents.
    pub(crate) fn sit(&mut self, node: usize, agent: usize) -> bool {
        let (Ok(number), Ok(seat)) = (small(node), small(agent)) else { return false };
        let offered = self.offered(node);
        if offered.len() < 2 {
            return true;
        }
        let fits = offered.contains(&agent) && self.ready.take_agent(seat).is_ok();
        if fits {
            self.seats.insert(number, seat);
        }
        fits
    }

    /// Returns the agents of which one works on the node, from its next attempt on.
    pub(crate) fn offered(&self, node: usize) -> Vec<usize> {
        let given = small(node).ok().and_then(|node| self.reassigned.get(&node));
        let wants = given.map_or_else(|| self.wants(node), |given| given.wants);
        match wants {
            Wants { agent, any: NONE, .. } => (agent != NONE).then_some(agent as usize).into_iter().collect(),
            Wants { any, .. } => self.ready.sets.agents(any).iter().map(|agent| *agent as usize).collect(),
        }
    }

    /// Releases the slots of an attempt.
    pub(super) fn leave(&mut self, node: u32, class: u32) {
        self.ready.release(class);
        if let Some(agent) = self.seats.remove(&node) {
            self.ready.release_agent(agent);
        }
    }

    /// Releases the slots of an attempt that is to continue, and returns the class of limits that it waits for: its
    /// agent has no choice any more.
    pub(super) fn bind(&mut self, node: u32, class: u32) -> Result<u32, Refused> {
        let Some(agent) = self.seats.get(&node).copied() else {
            self.ready.release(class);
            return Ok(class);
        };
        let place = node as usize;
        let wants = Wants { agent, any: NONE, provider: self.wants(place).provider };
        let fixed = self.ready.class(wants, self.group_limit(place))?;
        self.leave(node, class);
        self.bound.insert(node, Bound { agent, class });
        if let Some(of) = self.nodes.get_mut(place) {
            of.class = fixed;
        }
        Ok(fixed)
    }

    /// Gives a node its choice back.
    pub(super) fn unbind(&mut self, node: u32) {
        if let Some(bound) = self.bound.remove(&node)
            && let Some(of) = self.nodes.get_mut(node as usize)
        {
            of.class = bound.class;
        }
    }
}
