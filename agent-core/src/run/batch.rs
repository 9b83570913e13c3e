//! Which calls of a step may start now (CM04). Pure.

use std::{num::NonZeroUsize, ops::Range};

/// Starts calls in their order: those that only read run together up to a limit, any other runs alone and holds back
/// every call after it.
///
/// ```
/// use std::num::NonZeroUsize;
/// use entourage_core::run::ToolSchedule;
///
/// let mut schedule = ToolSchedule::new(vec![false, true, false], NonZeroUsize::new(5).unwrap());
/// assert_eq!(schedule.start(), Some(0));
/// assert_eq!(schedule.start(), None, "call 1 changes something and waits for call 0");
/// schedule.finish(0);
/// assert_eq!(schedule.start(), Some(1));
/// assert_eq!(schedule.start(), None);
/// ```
#[derive(Debug, Clone)]
pub struct Batch {
    exclusive: Vec<bool>,
    waiting: Range<usize>,
    running: usize,
    alone: bool,
    limit: usize,
}

impl Batch {
    /// A schedule of calls, each with whether it must run alone.
    #[must_use]
    pub fn new(exclusive: Vec<bool>, limit: NonZeroUsize) -> Self {
        Self { waiting: 0..exclusive.len(), exclusive, running: 0, alone: false, limit: limit.get() }
    }

    /// The next call that may start, which then counts as running.
    pub fn start(&mut self) -> Option<usize> {
        let next = self.waiting.start;
        let exclusive = *self.exclusive.get(next)?;
        let room = if exclusive { self.running == 0 } else { self.running < self.limit };
        if self.waiting.is_empty() || self.alone || !room {
            return None;
        }
        self.waiting.start += 1;
        self.running += 1;
        self.alone = exclusive;
        Some(next)
    }

    /// A running call ended.
    pub fn finish(&mut self, call: usize) {
        self.running = self.running.saturating_sub(1);
        if self.exclusive.get(call).copied().unwrap_or(false) {
            self.alone = false;
        }
    }

    /// No further call starts.
    pub fn stop(&mut self) {
        self.waiting.start = self.waiting.end;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// CM04: never more than the limit, a writer alone, order kept, all run.
        #[test]
        fn cm04_schedule(exclusive in prop::collection::vec(any::<bool>(), 0..30), limit in 1usize..6, picks in prop::collection::vec(0usize..100, 60)) {
            let mut schedule = Batch::new(exclusive.clone(), NonZeroUsize::new(limit).unwrap());
            let (mut running, mut started) = (Vec::new(), Vec::new());
            let mut picks = picks.into_iter();
            loop {
                while let Some(call) = schedule.start() {
                    running.push(call);
                    started.push(call);
                }
                prop_assert!(running.len() <= limit);
                prop_assert!(running.len() <= 1 || running.iter().all(|call| !exclusive[*call]));
                if running.is_empty() { break; }
                let done = running.remove(picks.next().unwrap_or(0) % running.len());
                schedule.finish(done);
            }
            prop_assert_eq!(started, (0..exclusive.len()).collect::<Vec<_>>());
        }
    }
}
