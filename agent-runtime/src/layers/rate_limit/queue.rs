//! Queue of a limiter, as a pure machine. Time is passed in; nothing waits and nobody is woken.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use entourage_core::provider::RateLimits;
use tokio::time::Instant;

use super::{Priority, adapt::Adaptive, minute::Minute};

/// Longest time that a service's report holds the queue back; then one call goes ahead to find out.
const LONGEST_HOLD: Duration = Duration::from_secs(60);

/// Id of a call in the queue.
pub(super) type Ticket = u64;

#[derive(Debug)]
pub(super) struct Queue {
    concurrency: Adaptive,
    requests: Option<Minute>,
    tokens: Option<Minute>,
    held_until: Option<Instant>,
    /// Waiting calls, highest priority first, then oldest first.
    waiting: BTreeMap<(Reverse<Priority>, Ticket), Waiting>,
    running: HashMap<Ticket, Running>,
    next: Ticket,
}

#[derive(Debug)]
struct Waiting {
    tokens: u64,
    key: Option<Arc<str>>,
}

#[derive(Debug)]
struct Running {
    since: Instant,
    key: Option<Arc<str>>,
}

/// End of a call, as far as it concerns the queue.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outcome {
    /// True if its duration measures the service: it ended by itself, or timed out.
    pub(super) timed: bool,
    /// Tokens that it used, if reported.
    pub(super) tokens: Option<u64>,
}

impl Queue {
    pub(super) fn new(concurrency: Adaptive, requests: Option<u64>, tokens: Option<u64>) -> Self {
        Self {
            concurrency,
            requests: requests.map(Minute::new),
            tokens: tokens.map(Minute::new),
            held_until: None,
            waiting: BTreeMap::new(),
            running: HashMap::new(),
            next: 0,
        }
    }

    /// Adds a call. Returns its ticket, and the tickets of the calls that it supersedes: those that waited have left
    /// the queue, and all of them must be told.
    pub(super) fn join(
        &mut self,
        priority: Priority,
        tokens: u64,
        key: Option<Arc<str>>,
    ) -> (Ticket, Vec<Ticket>) {
        let superseded = key.as_ref().map_or_else(Vec::new, |key| self.remove_key(key));
        let ticket = self.next;
        self.next += 1;
        self.waiting.insert((Reverse(priority), ticket), Waiting { tokens, key });
        (ticket, superseded)
    }

    fn remove_key(&mut self, key: &Arc<str>) -> Vec<Ticket> {
        let mut removed = Vec::new();
        self.waiting.retain(|(_, ticket), waiting| {
            let same = waiting.key.as_ref() == Some(key);
            if same {
                removed.push(*ticket);
            }
            !same
        });
        // A superseded call in flight keeps its slot until its connection is closed.
        removed.extend(self.running.iter().filter(|(_, it)| it.key.as_ref() == Some(key)).map(|(id, _)| *id));
        removed
    }

    /// Admits the first call of the queue, if it may run. No other overtakes it: a large call would never find room.
    pub(super) fn admit(&mut self, now: Instant) -> Option<Ticket> {
        if self.running.len() >= self.concurrency.permits() || self.opens_at(now).is_some() {
            return None;
        }
        let ((_, ticket), waiting) = self.waiting.pop_first()?;
        if let Some(requests) = &mut self.requests {
            requests.take(now, ticket, 1);
        }
        if let Some(tokens) = &mut self.tokens {
            tokens.take(now, ticket, waiting.tokens);
        }
        self.running.insert(ticket, Running { since: now, key: waiting.key });
        Some(ticket)
    }

    /// Time from which the first call may run; `None` if it may now, or nothing waits. Slots are ignored: a released
    /// one admits at once.
    pub(super) fn opens_at(&mut self, now: Instant) -> Option<Instant> {
        let (_, first) = self.waiting.first_key_value()?;
        let requests = self.requests.as_mut().and_then(|requests| requests.room_at(now, 1));
        let tokens = self.tokens.as_mut().and_then(|tokens| tokens.room_at(now, first.tokens));
        let held = self.held_until.filter(|until| *until > now);
        [requests, tokens, held].into_iter().flatten().max()
    }

    /// Removes a call that is over, or was abandoned while it waited.
    pub(super) fn leave(&mut self, priority: Priority, ticket: Ticket, now: Instant, outcome: Outcome) {
        self.waiting.remove(&(Reverse(priority), ticket));
        let Some(running) = self.running.remove(&ticket) else { return };
        if outcome.timed {
            self.concurrency.took(now.saturating_duration_since(running.since));
        }
        if let (Some(minute), Some(tokens)) = (&mut self.tokens, outcome.tokens) {
            minute.correct(ticket, tokens);
        }
    }

    /// Holds all calls back for `delay`, one minute at most.
    pub(super) fn hold(&mut self, now: Instant, delay: Duration) {
        let until = now.checked_add(delay.min(LONGEST_HOLD));
        self.held_until = self.held_until.max(until);
    }

    /// Holds the queue back while the service reports that nothing is left.
    pub(super) fn note(&mut self, now: Instant, limits: &RateLimits) {
        let windows = [limits.requests, limits.tokens, limits.input_tokens, limits.output_tokens];
        let resets =
            windows.into_iter().filter(|window| window.remaining == Some(0)).filter_map(|it| it.reset);
        if let Some(delay) = resets.max() {
            self.hold(now, delay);
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    pub(super) fn permits(&self) -> usize {
        self.concurrency.permits()
    }
}
