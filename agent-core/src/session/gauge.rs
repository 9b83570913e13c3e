//! The size of a conversation and its attempts at compaction, as a part of the fold: enough to decide in constant time
//! whether an attempt is due, and to continue an interrupted one.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ContextUsage;
use crate::{
    ErrorKind, SessionId,
    event::{CompactionStarted, ModelFinished},
};

/// Model calls in a row that may fail for length and be tried again.
const OVERFLOWS: u32 = 2;

/// Size and compaction state of a conversation. Part of the session's state.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Gauge {
    /// A compaction that has begun and not ended.
    open: Option<Arc<CompactionStarted>>,
    /// Tokens of the context after the last attempt; 0 for none. The next attempt waits until the context is a tenth
    /// larger.
    floor: u64,
    /// True if an attempt has ended since the newest reply.
    tried: bool,
    /// True if that attempt made the conversation smaller.
    shrank: bool,
    /// Model calls in a row that failed for length.
    overflows: u32,
    /// Estimated tokens of the conversation when its context was last measured.
    counted: u64,
    /// True if the first message is a summary.
    summarised: bool,
}

impl Gauge {
    pub(crate) fn run_started(&mut self) {
        let (counted, summarised) = (self.counted, self.summarised);
        *self = Self { counted, summarised, ..Self::default() };
    }

    pub(crate) fn run_ended(&mut self) {
        self.open = None;
    }

    /// Records the end of a model call of the conversation. `tokens` is the conversation's estimate, the reply
    /// included.
    pub(crate) fn replied(
        &mut self,
        reply: &ModelFinished,
        measured: bool,
        context: ContextUsage,
        tokens: u64,
    ) {
        let overflow = reply.error.as_ref().is_some_and(|error| error.kind == ErrorKind::ContextOverflow);
        self.overflows = if overflow { self.overflows.saturating_add(1) } else { 0 };
        if measured {
            self.counted = tokens;
            if self.tried && self.shrank {
                self.floor = context.total();
            }
        }
        (self.tried, self.shrank) = (false, false);
    }

    pub(crate) fn started(&mut self, started: &Arc<CompactionStarted>) {
        self.open = Some(Arc::clone(started));
    }

    pub(crate) fn failed(&mut self, context: ContextUsage, tokens: u64) {
        self.open = None;
        (self.tried, self.shrank) = (true, false);
        self.floor = self.projected(context, tokens);
    }

    /// Records a summary. `tokens` is the conversation's estimate from now on.
    pub(crate) fn compacted(&mut self, tokens: u64) {
        self.open = None;
        (self.tried, self.shrank) = (true, true);
        (self.floor, self.counted, self.summarised) = (0, tokens, true);
    }

    /// Records that outputs of about `freed` tokens were cleared.
    pub(crate) fn cleared(&mut self, freed: u64) {
        (self.tried, self.shrank) = (true, true);
        (self.floor, self.counted) = (0, self.counted.saturating_sub(freed));
    }

    /// The compaction to continue. One that began in another session came here with a fork and does not count.
    pub fn open(&self, session: &SessionId) -> Option<&Arc<CompactionStarted>> {
        let own = |child: &SessionId| child.origin().is_some_and(|(parent, ..)| parent == session.as_str());
        self.open.as_ref().filter(|started| own(&started.child))
    }

    /// True if the first message is a summary.
    pub fn is_summarised(&self) -> bool {
        self.summarised
    }

    /// Estimated tokens of the conversation when `context` was measured.
    pub fn counted(&self) -> u64 {
        self.counted
    }

    /// Tokens of the newest step plus an estimate for messages added since.
    pub fn projected(&self, context: ContextUsage, tokens: u64) -> u64 {
        context.total().saturating_add(tokens.saturating_sub(self.counted))
    }

    /// True if the conversation must be made smaller before the next model call.
    pub(crate) fn is_due(&self, context: ContextUsage, tokens: u64, window: Option<u64>) -> bool {
        let Some(window) = window.filter(|window| *window > 0) else { return false };
        if self.tried {
            return false;
        }
        let (used, projected) = (context.total(), self.projected(context, tokens));
        let full = window.saturating_sub(used) <= reserve(window)
            || window.saturating_sub(projected) <= reserve(window) / 2;
        full && grew(self.floor, projected)
    }

    /// True if a step that the service refused for its length may be tried again with a smaller conversation.
    pub(crate) fn may_retry(&self) -> bool {
        !self.tried && (1..=OVERFLOWS).contains(&self.overflows)
    }
}

/// True if `now` exceeds `floor` by at least a tenth.
fn grew(floor: u64, now: u64) -> bool {
    now >= floor.saturating_add(floor / 10)
}

/// Tokens of a window that must remain free.
pub fn reserve(window: u64) -> u64 {
    if window > 200_000 { 20_000 } else { window / 5 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(window: u64, used: u64) -> bool {
        let gauge = Gauge::default();
        gauge.is_due(ContextUsage::of(used, 0), 0, Some(window))
    }

    #[test]
    fn cs01_the_room_that_remains_decides() {
        for (window, last) in [
            (200_001, 180_000),
            (1_000_000, 979_999),
            (200_000, 159_999),
            (100_000, 79_999),
            // 20% of 99,999 is 19,999.8.
            (99_999, 79_999),
            (4, 3),
        ] {
            assert!(!due(window, last), "{window}: {last} leave enough");
            assert!(due(window, last + 1), "{window}: {} leave too little", last + 1);
            assert!(due(window, u64::MAX));
        }
        assert!(!due(0, u64::MAX), "a window of 0 is unknown");
        assert!(!Gauge::default().is_due(ContextUsage::of(u64::MAX, 1), 5, None));
    }

    #[test]
    fn what_came_since_the_step_may_fill_half_of_the_room() {
        let gauge = Gauge { counted: 500, ..Gauge::default() };
        let due = |used: u64, since: u64| gauge.is_due(ContextUsage::of(used, 0), 500 + since, Some(100_000));
        assert!(!due(70_000, 19_999));
        assert!(due(70_000, 20_000));
        assert!(!due(79_999, 10_000));
    }

    #[test]
    fn none_is_tried_again_before_the_context_has_grown_by_a_tenth() {
        let window = Some(100_000);
        let mut gauge = Gauge::default();
        gauge.failed(ContextUsage::of(80_000, 0), 0);
        assert!(!gauge.is_due(ContextUsage::of(99_000, 0), 0, window), "before any reply");
        gauge.tried = false;
        assert!(!gauge.is_due(ContextUsage::of(87_999, 0), 0, window));
        assert!(gauge.is_due(ContextUsage::of(88_000, 0), 0, window));
        gauge.run_started();
        assert!(gauge.is_due(ContextUsage::of(80_000, 0), 0, window), "a new run tries again");
    }
}
