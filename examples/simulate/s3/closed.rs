//! The closed forms: the expected result of each simulation.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use super::{
    BREAKS, ITEMS, LEAD, M, Measured, REQUESTS_A_MINUTE, SLOW, T, Trouble, WORKER, ask, fact, report,
};
use crate::model::{CALL_TOKENS, price, words};

/// The share that starts at item `first`.
pub(super) struct Share {
    pub(super) first: u32,
    pub(super) items: u32,
}

impl Share {
    pub(super) fn of(workers: u32) -> impl Iterator<Item = Self> {
        let items = ITEMS / workers;
        (0..workers).map(move |worker| Self { first: worker * items, items })
    }

    fn holds(&self, item: u32) -> bool {
        (self.first..self.first + self.items).contains(&item)
    }

    pub(super) fn time(&self, slow: bool) -> Duration {
        let slow_items = if slow { SLOW.saturating_sub(self.first).min(self.items) } else { 0 };
        (M + T) * self.items + T * 9 * slow_items + M
    }

    /// Time until it breaks down.
    fn time_to_break(&self) -> Duration {
        (M + T) * (BREAKS - self.first) + M
    }

    /// Answered model calls, tokens in and tokens out, for `looked` look-ups and, if `done`, a report.
    fn spend(&self, prompt: u64, looked: u32, done: bool) -> (u64, u64, u64) {
        let each = CALL_TOKENS + words(&fact(0));
        let calls = u64::from(looked) + u64::from(done);
        let read: u64 = (0..calls).map(|step| words(WORKER) + prompt + step * each).sum();
        let report = if done { u64::from(self.items) * words(&report(0)) } else { 0 };
        (calls, read, u64::from(looked) * CALL_TOKENS + report)
    }
}

pub(super) fn expected(trouble: Trouble, workers: u32) -> Measured {
    let shares: Vec<_> = Share::of(workers).collect();
    let asks = |again| words(&ask(0, 1, again));
    let slowest =
        shares.iter().map(|share| share.time(trouble == Trouble::Straggler)).max().unwrap_or_default();
    let breaks = matches!(trouble, Trouble::BreaksOnce | Trouble::BreaksTwice);
    let twice = trouble == Trouble::BreaksTwice;
    let (mut calls, mut input, mut output) = (0, 0, 0);
    let mut add = |(more, read, said): (u64, u64, u64)| {
        calls += more;
        input += read;
        output += said;
    };
    let mut again = Duration::ZERO;
    let mut lost = 0;
    for share in &shares {
        if !(breaks && share.holds(BREAKS)) {
            add(share.spend(asks(false), share.items, true));
            continue;
        }
        let looked = BREAKS - share.first;
        add(share.spend(asks(false), looked, false));
        add(share.spend(asks(true), if twice { looked } else { share.items }, !twice));
        again = if twice { share.time_to_break() } else { share.time(false) };
        lost = if twice { share.items } else { 0 };
    }
    let mut time = slowest;
    if workers == 1 && breaks {
        time = again + Share { first: 0, items: ITEMS }.time_to_break();
    }
    let failures = u64::from(breaks) + u64::from(twice);
    if workers > 1 {
        let (workers, kept) = (u64::from(workers), u64::from(ITEMS - lost) * words(&report(0)));
        let begin = words(LEAD) + words(&ask(0, ITEMS, false));
        add((1, begin, workers * CALL_TOKENS));
        add((
            1,
            begin + workers * CALL_TOKENS + kept_at_first(&shares, breaks),
            if breaks { CALL_TOKENS } else { kept },
        ));
        if breaks {
            add((1, begin + (workers + 1) * CALL_TOKENS + kept, kept));
            time += M + again;
        }
        time += M * 2;
    }
    if trouble == Trouble::RateLimit {
        time = limited(&shares);
    }
    Measured {
        time,
        results: ITEMS - lost,
        calls: calls + failures,
        tokens: (input, output),
        cost: price(input, output),
    }
}

/// Words that the lead reads after the first round.
fn kept_at_first(shares: &[Share], breaks: bool) -> u64 {
    let came = shares.iter().filter(|share| !(breaks && share.holds(BREAKS)));
    came.map(|share| u64::from(share.items) * words(&report(0))).sum()
}

/// Time of the whole work under the limit. Requests begin in the order in which they are made, each one no earlier
/// than a minute after the one that is [`REQUESTS_A_MINUTE`] before it.
fn limited(shares: &[Share]) -> Duration {
    let mut begun: Vec<Duration> = Vec::new();
    let mut begin = |made: Duration| {
        let before = begun.len().checked_sub(REQUESTS_A_MINUTE).and_then(|place| begun.get(place));
        let time = before.map_or(made, |before| made.max(*before + Duration::from_secs(60)));
        begun.push(time);
        time
    };
    let leads = shares.len() > 1;
    let handed_out = if leads { begin(Duration::ZERO) + M } else { Duration::ZERO };
    // The next request of each share: its time, its order among those of one moment, and the number of look-ups left.
    let mut next: BinaryHeap<_> =
        (0_u32..).zip(shares).map(|(turn, share)| Reverse((handed_out, turn, share.items))).collect();
    let (mut turn, mut end) = (u32::MAX / 2, Duration::ZERO);
    while let Some(Reverse((made, _, left))) = next.pop() {
        let answered = begin(made) + M;
        turn += 1;
        match left.checked_sub(1) {
            Some(left) => next.push(Reverse((answered + T, turn, left))),
            None => end = end.max(answered),
        }
    }
    if leads { begin(end) + M } else { end }
}
