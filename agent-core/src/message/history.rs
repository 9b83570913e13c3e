//! A shared list of messages: a snapshot costs two reference counts, an append costs the same at any length.

use std::{fmt, ops::Deref, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Message;

const CHUNK: usize = 32;

type Chunk = Vec<Arc<Message>>;

/// The messages of a conversation, shared between snapshots.
///
/// Full chunks never change, so a snapshot that is held while the owner appends costs the owner one copy of at
/// most 32 pointers (and once per 32 appends one copy of the list of chunks), never a copy of the history.
///
/// ```
/// use entourage_core::message::{History, Message};
///
/// let mut history = History::default();
/// history.push(Message::user("Hello"));
/// let snapshot = history.clone();
/// history.push(Message::assistant("Hi!"));
/// assert_eq!((snapshot.len(), history.len()), (1, 2));
/// assert_eq!(History::from("Hello"), snapshot); // one message: the user's
/// ```
#[derive(Clone, Default)]
pub struct History {
    /// `None` until the first chunk is full.
    full: Option<Arc<Vec<Arc<Chunk>>>>,
    tail: Arc<Chunk>,
}

impl History {
    /// Appends a message.
    pub fn push(&mut self, message: impl Into<Arc<Message>>) {
        let tail = Arc::make_mut(&mut self.tail);
        tail.push(message.into());
        if tail.len() == CHUNK {
            let chunk = std::mem::take(&mut self.tail);
            Arc::make_mut(self.full.get_or_insert_default()).push(chunk);
        }
    }

    fn full(&self) -> &[Arc<Chunk>] {
        self.full.as_ref().map_or(&[], |full| full.as_slice())
    }

    /// Number of messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.full().len() * CHUNK + self.tail.len()
    }

    /// True if there are no messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The newest message.
    #[must_use]
    pub fn last(&self) -> Option<&Arc<Message>> {
        self.tail.last().or_else(|| self.full().last().and_then(|chunk| chunk.last()))
    }

    /// The message at `index`, counted from the oldest.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&Arc<Message>> {
        match self.full().get(index / CHUNK) {
            Some(chunk) => chunk.get(index % CHUNK),
            None => self.tail.get(index.checked_sub(self.full().len() * CHUNK)?),
        }
    }

    /// All messages, oldest first.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter { chunks: self.full().iter(), current: [].iter(), tail: self.tail.iter() }
    }
}

/// Iterates over a [`History`], oldest message first.
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    chunks: std::slice::Iter<'a, Arc<Chunk>>,
    current: std::slice::Iter<'a, Arc<Message>>,
    tail: std::slice::Iter<'a, Arc<Message>>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a Arc<Message>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(message) = self.current.next() {
                return Some(message);
            }
            match self.chunks.next() {
                Some(chunk) => self.current = chunk.deref().deref().iter(),
                None => return self.tail.next(),
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.current.len() + self.chunks.len() * CHUNK + self.tail.len();
        (left, Some(left))
    }

    // Used by `for_each` and `collect` of adapters: no decision at each message about where the next one is.
    fn fold<B, F: FnMut(B, Self::Item) -> B>(self, first: B, mut step: F) -> B {
        let mut so_far = self.current.fold(first, &mut step);
        for chunk in self.chunks {
            so_far = chunk.iter().fold(so_far, &mut step);
        }
        self.tail.fold(so_far, step)
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl<'a> IntoIterator for &'a History {
    type Item = &'a Arc<Message>;
    type IntoIter = Iter<'a>;
    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl<M: Into<Arc<Message>>> Extend<M> for History {
    fn extend<I: IntoIterator<Item = M>>(&mut self, messages: I) {
        for message in messages {
            self.push(message);
        }
    }
}

impl<M: Into<Arc<Message>>> FromIterator<M> for History {
    fn from_iter<I: IntoIterator<Item = M>>(messages: I) -> Self {
        let mut history = Self::default();
        history.extend(messages);
        history
    }
}

/// A conversation of one message; a text becomes the user's.
impl<M: Into<Message>> From<M> for History {
    fn from(message: M) -> Self {
        Self::from_iter([message.into()])
    }
}

impl PartialEq for History {
    fn eq(&self, other: &Self) -> bool {
        // Two clones have their chunks in common, up to the newest.
        let mut chunks = self.full().iter().zip(other.full()).chain([(&self.tail, &other.tail)]);
        self.len() == other.len() && chunks.all(|(one, other)| Arc::ptr_eq(one, other) || one == other)
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Serialize for History {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for History {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(<Vec<Message>>::deserialize(deserializer)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_does_not_see_later_messages() {
        let mut history = History::default();
        let mut snapshots = Vec::new();
        for n in 0..200 {
            snapshots.push(history.clone());
            history.push(Message::user(n.to_string()));
        }
        for (n, snapshot) in snapshots.iter().enumerate() {
            assert_eq!(snapshot.len(), n);
            let texts: Vec<_> = snapshot.iter().map(|m| m.text()).collect();
            assert_eq!(texts, (0..n).map(|n| n.to_string()).collect::<Vec<_>>());
            assert_eq!(snapshot.last().map(|m| m.text()), n.checked_sub(1).map(|n| n.to_string()));
            assert_eq!(snapshot.get(n), None);
        }
        assert_eq!(history.get(131).unwrap().text(), "131");
    }

    #[test]
    fn iter_reports_its_exact_length() {
        for count in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 7] {
            let history: History = (0..count).map(|n| Message::user(n.to_string())).collect();
            let mut iter = history.iter();
            for left in (0..=count).rev() {
                let folded: Vec<_> = iter.clone().map(Arc::as_ptr).fold(Vec::new(), |mut all, message| {
                    all.push(message);
                    all
                });
                let mut one_by_one = iter.clone();
                let stepped: Vec<_> = std::iter::from_fn(|| one_by_one.next().map(Arc::as_ptr)).collect();
                assert_eq!((folded.len(), folded), (left, stepped));
                assert_eq!((iter.len(), iter.next().is_some()), (left, left > 0));
            }
            assert_eq!((iter.len(), iter.next()), (0, None));
        }
    }

    #[test]
    fn appending_with_a_snapshot_alive_shares_the_old_messages() {
        let mut history: History = (0..100).map(|n| Message::user(n.to_string())).collect();
        let first = Arc::as_ptr(history.get(0).unwrap());
        let snapshot = history.clone();
        history.push(Message::user("new"));
        assert_eq!(Arc::as_ptr(snapshot.get(0).unwrap()), first);
        assert_eq!(Arc::as_ptr(history.get(0).unwrap()), first);
    }
}
