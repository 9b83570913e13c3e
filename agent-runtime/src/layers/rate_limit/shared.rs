//! Driver of the queue: wakes waiters. Its lock is never held across an await.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use entourage_core::{Error, ErrorKind, Result, provider::RateLimits};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    Priority,
    queue::{Outcome, Queue, Ticket},
};

/// Deadline of a call, and the limit that sets it.
pub(super) type End = Option<(Instant, Duration)>;

/// A queue, and the signals of the calls in it.
pub(super) struct Shared {
    state: Mutex<State>,
    /// Time from which the first call may run even if no other leaves, with the version of the state that it is from.
    /// Waiters admit again at that time.
    opens: watch::Sender<(u64, Option<Instant>)>,
}

struct State {
    queue: Queue,
    calls: HashMap<Ticket, Signals>,
    /// Tokens to cancel once the lock is free.
    told: Vec<CancellationToken>,
    version: u64,
}

/// Signals to one call.
#[derive(Debug, Clone, Default)]
struct Signals {
    granted: CancellationToken,
    superseded: CancellationToken,
}

impl Shared {
    pub(super) fn new(queue: Queue) -> Self {
        let state = State { queue, calls: HashMap::new(), told: Vec::new(), version: 0 };
        Self { state: Mutex::new(state), opens: watch::Sender::new((0, None)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn read<T>(&self, of: impl FnOnce(&Queue) -> T) -> T {
        of(&self.lock().queue)
    }

    /// Changes the queue, admits calls, and signals those concerned.
    fn change<T>(&self, how: impl FnOnce(&mut State, Instant) -> T) -> T {
        let now = Instant::now();
        let mut state = self.lock();
        let result = how(&mut state, now);
        while let Some(ticket) = state.queue.admit(now) {
            if let Some(signals) = state.calls.get(&ticket) {
                let granted = signals.granted.clone();
                state.told.push(granted);
            }
        }
        state.version += 1;
        let (opens, version) = (state.queue.opens_at(now), state.version);
        let told = std::mem::take(&mut state.told);
        // A woken task may drop a pass, which needs the lock.
        drop(state);
        told.iter().for_each(CancellationToken::cancel);
        self.opens.send_if_modified(|known| {
            let news = known.0 < version && known.1 != opens;
            if known.0 < version {
                *known = (version, opens);
            }
            news
        });
        result
    }

    pub(super) fn join(self: &Arc<Self>, priority: Priority, tokens: u64, key: Option<Arc<str>>) -> Pass {
        let keyed = key.is_some();
        let signals = Signals::default();
        let ticket = self.change(|state, _| {
            let (ticket, superseded) = state.queue.join(priority, tokens, key);
            let older = superseded.iter().filter_map(|older| state.calls.get(older));
            state.told.extend(older.map(|signals| signals.superseded.clone()));
            state.calls.insert(ticket, signals.clone());
            ticket
        });
        Pass { shared: Arc::clone(self), ticket, priority, signals, keyed, outcome: Outcome::default() }
    }
}

/// Place of a call in the queue, then its slot. Dropping it releases either.
pub(super) struct Pass {
    shared: Arc<Shared>,
    ticket: Ticket,
    priority: Priority,
    signals: Signals,
    keyed: bool,
    pub(super) outcome: Outcome,
}

impl Pass {
    /// Waits for a slot.
    pub(super) async fn wait(&self, cancel: &CancellationToken, end: End) -> Result<()> {
        let mut opens = self.shared.opens.subscribe();
        loop {
            let (_, wake) = *opens.borrow_and_update();
            tokio::select! {
                biased;
                () = self.signals.superseded.cancelled() => return Err(superseded()),
                () = cancel.cancelled() => return Err(Error::cancelled()),
                () = self.signals.granted.cancelled() => return Ok(()),
                () = until(end.map(|(end, _)| end)) => return Err(too_long(end, "waiting for a slot")),
                () = until(wake) => self.shared.change(|_, _| ()),
                changed = opens.changed() => if changed.is_err() { return Err(closed()) },
            }
        }
    }

    /// Token that fires when a newer call supersedes this one; `None` without a key.
    pub(super) fn superseded(&self) -> Option<CancellationToken> {
        self.keyed.then(|| self.signals.superseded.clone())
    }

    /// Notes the limits that the service reports.
    pub(super) fn note(&self, limits: &RateLimits) {
        self.shared.change(|state, now| state.queue.note(now, limits));
    }

    /// Holds the queue back, as the service asks.
    pub(super) fn hold(&self, delay: Duration) {
        self.shared.change(|state, now| state.queue.hold(now, delay));
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.shared.change(|state, now| {
            state.calls.remove(&self.ticket);
            state.queue.leave(self.priority, self.ticket, now, self.outcome);
        });
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pass({})", self.ticket)
    }
}

/// Sleeps until `time`; forever without one.
pub(super) async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

pub(super) fn superseded() -> Error {
    Error::new(ErrorKind::Cancelled, "a newer call superseded this one").during("model.stream")
}

pub(super) fn too_long(end: End, what: &str) -> Error {
    let limit = end.map(|(_, limit)| limit).unwrap_or_default();
    let text =
        format!("the call timed out after {limit:?} ({what}); try again, or raise the rate limit's timeout");
    Error::new(ErrorKind::Timeout, text).during("model.stream")
}

fn closed() -> Error {
    Error::new(ErrorKind::Internal, "the rate limit's queue is gone; this is a defect").during("model.stream")
}
