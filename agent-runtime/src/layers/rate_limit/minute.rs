//! Usage within the last minute.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);

/// Limit on an amount within any 60 s.
#[derive(Debug)]
pub(super) struct Minute {
    limit: u64,
    /// Time, ticket and amount of each use; oldest first.
    used: VecDeque<(Instant, u64, u64)>,
    sum: u64,
}

impl Minute {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, used: VecDeque::new(), sum: 0 }
    }

    fn forget(&mut self, now: Instant) {
        while let Some((at, _, amount)) = self.used.front().copied() {
            if now.saturating_duration_since(at) < MINUTE {
                break;
            }
            self.sum = self.sum.saturating_sub(amount);
            self.used.pop_front();
        }
    }

    /// Time from which there is room for `amount`; `None` if there is now. An amount above the limit has room once
    /// nothing else is counted: only the service knows if it takes it.
    pub(super) fn room_at(&mut self, now: Instant, amount: u64) -> Option<Instant> {
        self.forget(now);
        let mut left = self.sum;
        let mut room = None;
        for (at, _, used) in &self.used {
            if left == 0 || left.saturating_add(amount) <= self.limit {
                break;
            }
            left = left.saturating_sub(*used);
            room = at.checked_add(MINUTE);
        }
        room
    }

    pub(super) fn take(&mut self, now: Instant, ticket: u64, amount: u64) {
        self.sum = self.sum.saturating_add(amount);
        self.used.push_back((now, ticket, amount));
    }

    /// Replaces the estimate of `ticket` by the real `amount`.
    pub(super) fn correct(&mut self, ticket: u64, amount: u64) {
        if let Some((_, _, used)) = self.used.iter_mut().rev().find(|(_, owner, _)| *owner == ticket) {
            self.sum = self.sum.saturating_sub(*used).saturating_add(amount);
            *used = amount;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn room_comes_when_the_oldest_is_a_minute_old() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut minute = Minute::new(10);
        minute.take(at(0), 0, 4);
        minute.take(at(10), 1, 6);
        assert_eq!(minute.room_at(at(20), 0), None);
        assert_eq!(minute.room_at(at(20), 4), Some(at(60)));
        assert_eq!(minute.room_at(at(20), 5), Some(at(70)));
        assert_eq!(minute.room_at(at(20), 11), Some(at(70)), "too large for any minute: alone");
        minute.correct(1, 1);
        assert_eq!(minute.room_at(at(20), 5), None);
        assert_eq!(minute.room_at(at(60), 9), None);
        assert_eq!(minute.room_at(at(70), 11), None);
    }

    proptest! {
        #[test]
        fn no_minute_holds_more_than_its_limit(calls in prop::collection::vec((0_u64..40, 1_u64..12), 1..60)) {
            let mut now = Instant::now();
            let mut minute = Minute::new(10);
            let mut taken: Vec<(Instant, u64)> = Vec::new();
            for (ticket, (pause, amount)) in calls.into_iter().enumerate() {
                now += Duration::from_secs(pause);
                if let Some(room) = minute.room_at(now, amount) {
                    prop_assert!(room > now);
                    now = room;
                    prop_assert_eq!(minute.room_at(now, amount), None);
                }
                minute.take(now, ticket as u64, amount);
                taken.push((now, amount));
                let within = taken.iter().filter(|(at, _)| now.saturating_duration_since(*at) < MINUTE);
                let (count, sum) = within.fold((0, 0), |(count, sum), (_, amount)| (count + 1, sum + amount));
                prop_assert!(sum <= 10 || count == 1);
            }
        }
    }
}
