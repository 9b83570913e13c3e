//! The inputs of a node: the outputs of the nodes before it. They are shared: nothing is copied per edge.

use std::{
    collections::HashMap,
    fmt,
    ops::Range,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use entourage_core::message::Message;

use super::NodeValue;

/// Inputs of a node: the output of each node that it depends on, in the order of its edges.
#[derive(Clone)]
pub(crate) struct Inputs {
    slots: Arc<Slots>,
    /// Indices of the nodes that it depends on.
    from: Arc<[usize]>,
}

/// Outputs of the nodes of one run.
#[derive(Debug)]
pub(crate) struct Slots {
    /// The message that the graph was given; `input` is its text.
    message: Arc<Message>,
    input: NodeValue,
    fixed: Box<[OnceLock<NodeValue>]>,
    /// Outputs of nodes added while the graph ran.
    added: Mutex<HashMap<usize, NodeValue>>,
}

impl Slots {
    /// Creates empty slots for a run of a graph of `nodes` nodes that was given this message.
    pub(crate) fn new(nodes: usize, message: Arc<Message>) -> Self {
        Self {
            input: NodeValue::new(message.text()),
            message,
            fixed: (0..nodes).map(|_| OnceLock::new()).collect(),
            added: Mutex::default(),
        }
    }

    pub(crate) fn set(&self, place: usize, value: NodeValue) {
        match self.fixed.get(place) {
            // A node gives one value: a completed node never runs again.
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

    /// Returns the text that the graph was given.
    pub(crate) fn input(&self) -> &NodeValue {
        &self.slots.input
    }

    /// Returns the message that the graph was given, media included.
    pub(crate) fn message(&self) -> &Arc<Message> {
        &self.slots.message
    }

    /// Borrows an output as [`Inputs::get`] returns it; `None` also for a node added while the graph ran.
    pub(crate) fn peek(&self, edge: usize) -> Option<&NodeValue> {
        self.from.get(edge).and_then(|place| self.slots.fixed.get(*place)?.get())
    }

    /// Returns the output of the node at the other end of edge `edge`; `None` when it gave none.
    pub(crate) fn get(&self, edge: usize) -> Option<NodeValue> {
        self.from.get(edge).and_then(|place| self.slots.get(*place))
    }
}

/// Edge numbers. They are mostly consecutive: a range then spares each run from reading them from memory.
#[derive(Debug, Clone)]
pub(crate) enum EdgeNumbers {
    Row(Range<usize>),
    List(Arc<[usize]>),
}

impl FromIterator<usize> for EdgeNumbers {
    fn from_iter<I: IntoIterator<Item = usize>>(numbers: I) -> Self {
        let numbers: Vec<_> = numbers.into_iter().collect();
        let Some(first) = numbers.first().copied() else { return Self::Row(0..0) };
        match first.checked_add(numbers.len()) {
            Some(end) if numbers.iter().copied().eq(first..end) => Self::Row(first..end),
            _ => Self::List(numbers.into()),
        }
    }
}

impl EdgeNumbers {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Row(row) => row.len(),
            Self::List(list) => list.len(),
        }
    }

    pub(crate) fn get(&self, index: usize) -> Option<usize> {
        match self {
            Self::Row(row) => row.clone().nth(index),
            Self::List(list) => list.get(index).copied(),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let (row, list) = match self {
            Self::Row(row) => (row.clone(), [].as_slice()),
            Self::List(list) => (0..0, &**list),
        };
        row.chain(list.iter().copied())
    }
}

impl fmt::Debug for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inputs").field("from", &self.from).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::EdgeNumbers;

    #[test]
    fn numbers_of_edges_are_those_given_in_their_order() {
        let given: [&[usize]; 7] =
            [&[], &[0], &[3, 4, 5], &[5, 4], &[1, 1], &[0, 2], &[usize::MAX - 1, usize::MAX]];
        for numbers in given {
            let kept: EdgeNumbers = numbers.iter().copied().collect();
            assert_eq!((kept.len(), kept.iter().collect::<Vec<_>>()), (numbers.len(), numbers.to_vec()));
            let each = (0..=numbers.len()).map(|index| kept.get(index));
            assert!(each.eq((0..=numbers.len()).map(|index| numbers.get(index).copied())));
        }
        assert!(matches!([3, 4, 5].into_iter().collect(), EdgeNumbers::Row(row) if row == (3..6)));
        assert!(matches!([4, 4].into_iter().collect(), EdgeNumbers::List(_)));
    }
}
