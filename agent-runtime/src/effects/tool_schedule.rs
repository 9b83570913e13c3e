//! The order in which the tool calls of a step start. Pure.

use std::{num::NonZeroUsize, ops::Range};

/// Starts calls in their order: those that only read run together up to a limit, any other runs alone and holds back
/// every call after it.
///
/// A call is judged when it is about to start, since what ran before it may have changed what it touches.
#[derive(Debug, Clone)]
pub(crate) struct ToolSchedule {
    waiting: Range<usize>,
    running: usize,
    /// True when the running call must run alone.
    alone: bool,
    /// True when the next call must run alone, as last judged.
    held: bool,
    limit: usize,
}

impl ToolSchedule {
    /// Creates a schedule of `calls` calls, of which at most `limit` run at once.
    #[must_use]
    pub(crate) fn new(calls: usize, limit: NonZeroUsize) -> Self {
        Self { waiting: 0..calls, running: 0, alone: false, held: false, limit: limit.get() }
    }

    /// Returns the call to judge now; `None` when none may start before another one ends.
    #[must_use]
    pub(crate) fn next(&self) -> Option<usize> {
        let room = if self.held { self.running == 0 } else { self.running < self.limit };
        (!self.waiting.is_empty() && !self.alone && room).then_some(self.waiting.start)
    }

    /// Starts the call that [`ToolSchedule::next`] returned. Returns `false` when it must run alone and others run:
    /// once they have ended, it is returned again, to be judged anew.
    pub(crate) fn start(&mut self, exclusive: bool) -> bool {
        self.held = exclusive && self.running > 0;
        if self.held || self.next().is_none() {
            return false;
        }
        self.waiting.start += 1;
        self.running += 1;
        self.alone = exclusive;
        true
    }

    /// Skips the call that [`ToolSchedule::next`] returned: it never runs.
    pub(crate) fn pass(&mut self) {
        self.held = false;
        if !self.waiting.is_empty() {
            self.waiting.start += 1;
        }
    }

    /// Records the end of a running call.
    pub(crate) fn finish(&mut self) {
        self.running = self.running.saturating_sub(1);
        // A call that runs alone is the only one.
        self.alone &= self.running > 0;
    }

    /// Lets no further call start.
    pub(crate) fn stop(&mut self) {
        self.waiting.start = self.waiting.end;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_call_that_must_run_alone_is_judged_again_once_the_others_ended() {
        let mut schedule = ToolSchedule::new(3, NonZeroUsize::new(5).unwrap());
        assert_eq!(schedule.next(), Some(0));
        assert!(schedule.start(false));
        assert_eq!(schedule.next(), Some(1));
        assert!(!schedule.start(true), "call 1 changes something and waits for call 0");
        assert_eq!(schedule.next(), None);
        schedule.finish();
        assert_eq!(schedule.next(), Some(1), "to be judged anew");
        assert!(schedule.start(true));
        assert_eq!(schedule.next(), None);
    }

    proptest! {
        /// Never more than the limit, a writer alone, order kept, all run.
        #[test]
        fn cm04_schedule(exclusive in prop::collection::vec(any::<bool>(), 0..30), limit in 1usize..6, picks in prop::collection::vec(0usize..100, 100)) {
            let mut schedule = ToolSchedule::new(exclusive.len(), NonZeroUsize::new(limit).unwrap());
            let (mut running, mut started) = (Vec::new(), Vec::new());
            let mut picks = picks.into_iter();
            loop {
                while let Some(call) = schedule.next() {
                    if picks.next().unwrap_or(1) % 10 == 0 {
                        schedule.pass();
                    } else if schedule.start(exclusive[call]) {
                        running.push(call);
                    } else {
                        prop_assert!(exclusive[call] && !running.is_empty());
                        prop_assert_eq!(schedule.next(), None);
                        continue;
                    }
                    started.push(call);
                }
                prop_assert!(running.len() <= limit);
                prop_assert!(running.len() <= 1 || running.iter().all(|call| !exclusive[*call]));
                if running.is_empty() { break; }
                running.remove(picks.next().unwrap_or(0) % running.len());
                schedule.finish();
            }
            prop_assert_eq!(started, (0..exclusive.len()).collect::<Vec<_>>());
        }
    }
}
