//! What the nodes before a node gave. Shared with them: nothing is copied an edge.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use super::NodeValue;

/// What a node is given: what each node that it depends on gave, in the order of its edges.
#[derive(Clone)]
pub(crate) struct Inputs {
    slots: Arc<Slots>,
    /// The places of the nodes that it depends on.
    from: Arc<[usize]>,
}

/// What the nodes of one run gave.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    fixed: Box<[OnceLock<NodeValue>]>,
    /// Of nodes that were added while the graph ran.
    added: Mutex<HashMap<usize, NodeValue>>,
}

impl Slots {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { fixed: (0..nodes).map(|_| OnceLock::new()).collect(), added: Mutex::default() }
    }

    pub(crate) fn set(&self, place: usize, value: NodeValue) {
        match self.fixed.get(place) {
            // A node gives one value: what is done is never done again.
            Some(slot) => drop(slot.set(value)),
            None => {
                self.added.lock().unwrap_or_else(PoisonError::into_inner).insert(place, value);
            }
        }
    }

    pub(crate) fn get(&self, place: usize) -> Option<NodeValue> {
        match self.fixed.get(place) {
            Some(slot) => slot.get().cloned(),
            None => self.added.lock().unwrap_or_else(PoisonError::into_inner).get(&place).cloned(),
        }
    }
}

impl Inputs {
    pub(crate) fn new(slots: Arc<Slots>, from: Arc<[usize]>) -> Self {
        Self { slots, from }
    }

    /// How many nodes it depends on.
    pub(crate) fn len(&self) -> usize {
        self.from.len()
    }

    /// What the node at the other end of edge `edge` gave; `None` when it gave nothing.
    pub(crate) fn get(&self, edge: usize) -> Option<NodeValue> {
        self.from.get(edge).and_then(|place| self.slots.get(*place))
    }
}

impl fmt::Debug for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inputs").field("from", &self.from).finish_non_exhaustive()
    }
}
