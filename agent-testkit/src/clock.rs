//! A clock that follows tokio's, and stands still while that is paused.

use tokio::time::Instant;

use entourage_core::{Clock, Timestamp};

/// A clock that reads tokio's. It starts at 2026-01-01 00:00 UTC.
#[derive(Debug, Clone, Copy)]
pub struct PausedClock(Instant);

impl PausedClock {
    /// A clock that starts now.
    #[must_use]
    pub fn new() -> Self {
        Self(Instant::now())
    }
}

impl Default for PausedClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        const START: i64 = 1_767_225_600_000_000;
        Timestamp::from_micros(START).after(self.0.elapsed())
    }
}
