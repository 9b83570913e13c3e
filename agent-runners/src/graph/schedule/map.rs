//! Nodes that run as many items: the items are nodes of their own, and the node itself waits without a slot.

use std::ops::Range;

use super::{
    Consequence, Planned, Refused, Schedule, State,
    machine::Stop,
    plan::{NONE, small},
};

/// The items of a node.
#[derive(Debug)]
pub(super) struct Group {
    /// Number of items that are not over.
    pub(super) open: u32,
    pub(super) items: Range<u32>,
    /// Limit on the items that run in parallel.
    pub(super) limit: u32,
}

impl Schedule {
    /// Expands a running node into these items: it releases its slot and waits for them. The items are nodes, numbered
    /// by the returned range, and count towards every limit; at most `at_once` items of this node run in parallel.
    /// Their edges are ignored: they can start at once.
    ///
    /// When all items are over, [`Consequence::Gather`] reports it; without items, at once. An item that ends without a
    /// value has no other consequence: the caller decides whether it fails the node.
    ///
    /// # Errors
    /// [`Refused::State`] when no attempt at the node is running, or when it is an item itself.
    pub(crate) fn expand(
        &mut self,
        node: usize,
        items: impl IntoIterator<Item = Planned>,
        at_once: Option<usize>,
    ) -> Result<Range<usize>, Refused> {
        let (number, of) = self.node(node)?;
        if of.state != State::Running || self.parent(node).is_some() {
            return Err(Refused::State { node, state: of.state });
        }
        let items: Vec<_> = items.into_iter().map(|item| Planned { edges: Vec::new(), ..item }).collect();
        let (first, open) = (small(self.nodes.len())?, small(items.len())?);
        let end = small(self.nodes.len().saturating_add(items.len()))?;
        let limit = at_once.map_or(Ok(NONE), |most| self.ready.limit(most))?;
        self.leave(number, of.class);
        self.set(number, State::Suspended);
        self.groups.insert(number, Group { open, items: first..end, limit });
        for item in items {
            self.append(&item, number)?;
        }
        if open == 0 {
            self.consequences.push_back(Consequence::Gather { node });
        }
        Ok(first as usize..end as usize)
    }

    /// Returns the number of the limit on the items that this node is one of.
    pub(super) fn group_limit(&self, item: usize) -> u32 {
        let parent = self.parent(item).and_then(|parent| small(parent).ok());
        parent.and_then(|parent| self.groups.get(&parent)).map_or(NONE, |group| group.limit)
    }

    pub(super) fn stop_group(&mut self, node: u32) {
        let items = self.groups.get(&node).map(|group| group.items.clone()).unwrap_or_default();
        for item in items {
            self.cancel_open(item);
        }
    }

    /// Cancels a node that is not over; a suspended one ends only with its items.
    pub(super) fn cancel_open(&mut self, number: u32) {
        let Some(state) = self.nodes.get(number as usize).map(|node| node.state) else { return };
        match state {
            State::Pending | State::Waiting => self.end_told(number, State::Cancelled),
            State::Running => self.ask_to_stop(number, Stop::Cancel),
            State::Suspended => self.suspended_to_stop(number, Stop::Cancel),
            State::Stopping => self.instead_of_restart(number, Stop::Cancel),
            State::Completed | State::Failed | State::Skipped(_) | State::Cancelled => {}
        }
    }

    pub(super) fn ask_to_stop(&mut self, number: u32, stop: Stop) {
        self.set(number, State::Stopping);
        self.stops.insert(number, stop);
        self.consequences.push_back(Consequence::Stop { node: number as usize });
    }

    pub(super) fn suspended_to_stop(&mut self, number: u32, stop: Stop) {
        self.set(number, State::Stopping);
        self.stops.insert(number, stop);
        self.end_without_items(number);
    }

    pub(super) fn instead_of_restart(&mut self, number: u32, stop: Stop) {
        if let Some(given @ Stop::Restart) = self.stops.get_mut(&number) {
            *given = stop;
        }
    }

    /// Counts an item as over; the last one may end its node.
    pub(super) fn tell_parent(&mut self, item: u32) {
        let Some(parent) = self.parent(item as usize).and_then(|parent| small(parent).ok()) else { return };
        let Some(group) = self.groups.get_mut(&parent) else { return };
        group.open = group.open.saturating_sub(1);
        if group.open > 0 {
            return;
        }
        match self.state(parent as usize) {
            Some(State::Suspended) => {
                self.consequences.push_back(Consequence::Gather { node: parent as usize });
            }
            _ => self.end_without_items(parent),
        }
    }

    /// Ends a node that is being stopped if its items are over.
    fn end_without_items(&mut self, node: u32) {
        if self.groups.get(&node).is_some_and(|group| group.open == 0) {
            self.groups.remove(&node);
            let state = self.stops.remove(&node).map_or(State::Cancelled, Stop::end);
            self.end_told(node, state);
        }
    }

    /// True when an item belongs to the items that the node waits for now, not to an earlier attempt.
    pub(super) fn waits_for(&self, node: usize, item: u32) -> bool {
        let number = small(node).unwrap_or(NONE);
        self.state(node) == Some(State::Suspended)
            && self.groups.get(&number).is_some_and(|group| group.items.contains(&item))
    }

    /// True when all items of a node are over and it only needs to be finished.
    pub(super) fn is_gathered(&self, node: usize) -> bool {
        let number = small(node).unwrap_or(NONE);
        self.state(node) == Some(State::Suspended)
            && self.groups.get(&number).is_some_and(|group| group.open == 0)
    }
}
