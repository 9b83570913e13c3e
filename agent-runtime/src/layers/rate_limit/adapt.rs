//! Number of slots, adapted to the duration of calls.

use std::{ops::RangeInclusive, time::Duration};

/// Slots within bounds, moved by the mean duration of calls.
#[derive(Debug, Clone)]
pub(super) struct Adaptive {
    bounds: RangeInclusive<usize>,
    fast: Duration,
    slow: Duration,
    window: u32,
    permits: usize,
    count: u32,
    sum: Duration,
}

impl Adaptive {
    pub(super) fn new(bounds: RangeInclusive<usize>, fast: Duration, slow: Duration, window: u32) -> Self {
        let permits = *bounds.end();
        Self { bounds, fast, slow, window, permits, count: 0, sum: Duration::ZERO }
    }

    pub(super) fn permits(&self) -> usize {
        self.permits
    }

    /// Adds the duration of a call. A full window is judged and a new one begins, so that a change is judged by calls
    /// that ended after it.
    pub(super) fn took(&mut self, time: Duration) {
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.saturating_add(time);
        if self.count < self.window {
            return;
        }
        let mean = self.sum.checked_div(self.count).unwrap_or_default();
        if mean > self.slow {
            self.permits = self.permits.saturating_sub(1).max(*self.bounds.start());
        } else if mean < self.fast {
            self.permits = self.permits.saturating_add(1).min(*self.bounds.end());
        }
        self.count = 0;
        self.sum = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lo14_concurrency_follows_the_mean_within_its_bounds() {
        let second = Duration::from_secs;
        let mut permits = Adaptive::new(1..=3, second(5), second(15), 2);
        let mut after = |times: [u64; 2]| {
            times.into_iter().for_each(|time| permits.took(second(time)));
            permits.permits()
        };
        assert_eq!(after([15, 15]), 3, "a mean of just 15 s is not slow");
        assert_eq!(after([15, 16]), 2);
        assert_eq!(after([1, 60]), 1, "the mean counts, not the latest");
        assert_eq!(after([60, 60]), 1, "never below the lower bound");
        assert_eq!(after([5, 5]), 1, "a mean of just 5 s is not fast");
        assert_eq!(after([4, 5]), 2);
        assert_eq!(after([0, 0]), 3);
        assert_eq!(after([0, 0]), 3, "never above the upper bound");
    }

    #[test]
    fn lo14_a_window_is_judged_once_it_is_full() {
        let mut permits = Adaptive::new(1..=3, Duration::from_secs(5), Duration::from_secs(15), 3);
        permits.took(Duration::from_secs(100));
        permits.took(Duration::from_secs(100));
        assert_eq!(permits.permits(), 3);
        permits.took(Duration::from_secs(100));
        assert_eq!(permits.permits(), 2);
        permits.took(Duration::from_secs(100));
        assert_eq!(permits.permits(), 2, "the calls of the window before no longer count");
    }
}
