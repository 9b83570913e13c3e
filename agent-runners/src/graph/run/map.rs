//! Maps: nodes that do the same for each item of a list. Their items become nodes while the graph runs.

use std::sync::Arc;

use entourage_core::{Error, ErrorKind, ErrorRecord, Result, Timestamp, run::StopReason};

use super::{
    super::{Node, NodeEnd, NodeValue, SkipCause, Work, schedule::State},
    machine::{Machine, guarded},
    track::{Attempt, Ended, Extra},
};
use crate::finality::{failed_task, is_final_record};

/// Maximum number of items of one map: each is a node, with events of its own.
const MOST_ITEMS: usize = 100_000;

impl Machine {
    /// Begins a map: each item of its list becomes a node, named `map[0]` and so on.
    pub(super) fn expand(&mut self, place: usize, now: Timestamp) {
        match self.items(place).and_then(|items| self.add_items(place, items)) {
            Ok(()) => self.follow(now),
            Err(error) => self.settle(place, Ended::new(Attempt::Failed(error)), now),
        }
    }

    /// Restores the items of a map that began. A failure to build them is ignored: it is recorded as the map's own end.
    pub(super) fn recall_items(&mut self, place: usize) {
        drop(self.items(place).and_then(|items| self.add_items(place, items)));
    }

    /// True when all items of a map are over and only its own end is missing.
    pub(super) fn is_gathered(&self, place: usize) -> bool {
        let items = self.tracks.get(place).and_then(|track| track.more.as_ref()?.items.clone());
        let over = |item| self.schedule.state(item).is_some_and(State::is_terminal);
        self.schedule.state(place) == Some(State::Suspended) && items.is_some_and(|mut items| items.all(over))
    }

    fn items(&self, place: usize) -> Result<Vec<Work>> {
        let Some(Node { work: Work::Map(map), .. }) = self.node(place) else {
            return Err(Error::new(ErrorKind::Internal, "this node has no items"));
        };
        let inputs = self.inputs(place);
        let items = guarded("making the items of a map", || (map.items)(&inputs))?;
        if items.len() > MOST_ITEMS {
            let text = format!("a map has at most {MOST_ITEMS} items; split the list");
            return Err(Error::new(ErrorKind::TooLarge, text).with("items", items.len().to_string()));
        }
        if items.iter().any(|item| matches!(item, Work::Map(_))) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "an item of a map cannot be a map itself; flatten the list",
            ));
        }
        Ok(items)
    }

    fn add_items(&mut self, place: usize, items: Vec<Work>) -> Result<()> {
        let Some(node) = self.node(place).cloned() else { return Ok(()) };
        let Work::Map(map) = &node.work else { return Ok(()) };
        let from = self.topology.from.get(place).cloned().unwrap_or_default();
        let before = self.tracks.get(place).and_then(|track| track.more.as_ref()?.items.clone());
        let nodes: Vec<_> =
            items.into_iter().enumerate().map(|(index, work)| item(&node, index, work)).collect();
        let planned: Vec<_> = nodes.iter().map(|node| self.names().planned(node)).collect();
        let range = self.schedule.expand(place, planned, map.at_once).map_err(|it| self.refused(&it))?;
        for (node, at) in nodes.into_iter().zip(range.clone()) {
            self.extra_by_id.insert(Arc::clone(&node.id), at);
            self.extra.push(Extra { node, from: Arc::clone(&from), after: Vec::new() });
            self.tracks.push(super::track::Track::default());
        }
        if let Some(track) = self.track(place) {
            track.more().items = Some(range.clone());
        }
        // In a retried map, the items that gave a value the first time keep it.
        for (old, new) in before.into_iter().flatten().zip(range) {
            if let Some(value) = self.slots.get(old) {
                self.slots.set(new, value);
                self.tracks.swap(old, new);
                drop(self.schedule.restore(new, State::Running, |_, _| false));
                drop(self.schedule.restore(new, State::Completed, |_, _| false));
            } else if let (Some(old), Some(new)) = (self.tracks.get(old).cloned(), self.tracks.get_mut(new)) {
                (new.attempt, new.micros) = (old.attempt, old.micros);
                if let Some(old) = old.more {
                    let more = new.more();
                    (more.child, more.error, more.spent) = (old.child, old.error, old.spent);
                }
            }
        }
        Ok(())
    }

    /// Gathers the outputs of a map's items into one value.
    ///
    /// # Errors
    /// [`ErrorKind::Stopped`] if an item has no output and the map has no place for gaps, or if no item has one and one
    /// is final. The error is final if an item is.
    pub(super) fn gather(&self, place: usize) -> Result<NodeValue> {
        let Some(Node { work: Work::Map(map), .. }) = self.node(place) else {
            return Err(Error::new(ErrorKind::Internal, "this node has no items"));
        };
        let items = self.tracks.get(place).and_then(|track| track.more.as_ref()?.items.clone());
        let items = items.unwrap_or_default();
        let gaps: Vec<_> = items.clone().filter(|item| self.slots.get(*item).is_none()).collect();
        let last = gaps.iter().find_map(|item| Some((*item, self.final_failure(*item)?)));
        let named = last.as_ref().map(|(item, _)| *item).or(gaps.first().copied());
        let has_none = last.is_some() && gaps.len() == items.len();
        if let Some(named) = named.filter(|_| map.all || has_none) {
            let (id, why) = (self.id(named), self.why(named));
            let text = format!("{} of {} items have no output; {id} {why}", gaps.len(), items.len());
            let error = Error::new(ErrorKind::Stopped, text);
            let Some((_, failure)) = last else { return Err(error) };
            // That one alone: a map may have very many items.
            let (failed, cancelled, skipped) = ([failed_task(id, &failure)].into(), [].into(), [].into());
            return Err(error.with_stop_reason(StopReason::Tasks { failed, cancelled, skipped }));
        }
        let values = items.map(|item| self.slots.get(item)).collect();
        guarded("gathering the items of a map", || (map.gather)(values))
    }

    /// Returns the error of a node that failed and that nobody may try again by themselves.
    pub(super) fn final_failure(&self, place: usize) -> Option<ErrorRecord> {
        match self.end(place)? {
            NodeEnd::Failed(error) if is_final_record(&error) => Some(error),
            _ => None,
        }
    }

    /// Describes why a node gave no value.
    pub(super) fn why(&self, place: usize) -> String {
        match self.end(place) {
            Some(NodeEnd::Failed(error)) => format!("failed: {}", error.message),
            Some(NodeEnd::Skipped(SkipCause::Asked)) => "was skipped".to_owned(),
            Some(NodeEnd::Skipped(cause)) => format!("was skipped: {cause}"),
            _ => "was cancelled".to_owned(),
        }
    }

    /// Returns the end of a node; `None` when it is not over.
    pub(super) fn end(&self, place: usize) -> Option<NodeEnd> {
        match self.schedule.state(place)? {
            State::Completed => self.slots.get(place).map(NodeEnd::Completed),
            State::Failed => {
                let error = self.tracks.get(place)?.more.as_ref()?.error.clone()?;
                Some(NodeEnd::Failed(error))
            }
            state @ (State::Skipped(_) | State::Cancelled) => Some(self.end_of(state)),
            State::Pending | State::Waiting | State::Running | State::Suspended | State::Stopping => None,
        }
    }
}

fn item(map: &Node, index: usize, work: Work) -> Node {
    Node { id: format!("{}[{index}]", map.id).into(), edges: Vec::new(), work, ..map.clone() }
}
