//! Wakes those who wait in the queue. Its lock is never held while anything is awaited.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    Priority,
    queue::{Outcome, Queue, Ticket},
};
use crate::{Error, ErrorKind, Result, provider::RateLimits};

/// When a call must be over, and the limit that says so.
pub(super) type End = Option<(Instant, Duration)>;

/// A queue and those who are in it.
pub(super) struct Shared {
    state: Mutex<State>,
    /// When the first in the queue may run although nobody leaves, as of a version of the state. Whoever waits looks
    /// again then.
    opens: watch::Sender<(u64, Option<Instant>)>,
}

struct State {
    queue: Queue,
    calls: HashMap<Ticket, Signals>,
    /// To be fired once the lock is free.
    told: Vec<CancellationToken>,
    version: u64,
}

/// How a call is told.
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

    /// Changes the queue, lets run whoever may, and tells those whom it concerns.
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
        // Waking may run what drops a place, which needs the lock.
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

/// A place in the queue, then among those who run. Dropping it gives it back.
pub(super) struct Pass {
    shared: Arc<Shared>,
    ticket: Ticket,
    priority: Priority,
    signals: Signals,
    keyed: bool,
    pub(super) outcome: Outcome,
}

impl Pass {
    /// Waits until the call may run.
    pub(super) async fn wait(&self, cancel: &CancellationToken, end: End) -> Result<()> {
        let mut opens = self.shared.opens.subscribe();
        loop {
            let (_, wake) = *opens.borrow_and_update();
            tokio::select! {
                biased;
                () = self.signals.superseded.cancelled() => return Err(superseded()),
                () = cancel.cancelled() => return Err(Error::cancelled()),
                () = self.signals.granted.cancelled() => return Ok(()),
                () = until(end.map(|(end, _)| end)) => return Err(too_long(end, "waited in the queue of the rate limit")),
                () = until(wake) => self.shared.change(|_, _| ()),
                changed = opens.changed() => if changed.is_err() { return Err(closed()) },
            }
        }
    }

    /// Fires when a newer call takes the place of this one; `None` when none can.
    pub(super) fn superseded(&self) -> Option<CancellationToken> {
        self.keyed.then(|| self.signals.superseded.clone())
    }

    /// The service says what is left.
    pub(super) fn note(&self, limits: &RateLimits) {
        self.shared.change(|state, now| state.queue.note(now, limits));
    }

    /// The service asks to wait.
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

/// Forever, without a time.
pub(super) async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

pub(super) fn superseded() -> Error {
    Error::new(ErrorKind::Cancelled, "a newer call took the place of this one").during("model.stream")
}

pub(super) fn too_long(end: End, what: &str) -> Error {
    let limit = end.map(|(_, limit)| limit).unwrap_or_default();
    let text = format!(
        "the call {what} until its {limit:?} were over; try again, or raise the rate limit's timeout"
    );
    Error::new(ErrorKind::Timeout, text).during("model.stream")
}

fn closed() -> Error {
    Error::new(ErrorKind::Internal, "the rate limit's queue is gone; this is a defect").during("model.stream")
}
