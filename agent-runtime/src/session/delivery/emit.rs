//! Delivery of a run's events to its handle, which loses none, to subscribers and to observers.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use entourage_core::{
    RunId, Timestamp,
    event::{Envelope, Event, Origin},
    provider::Delta,
    run::Observer,
};
use tokio_util::sync::CancellationToken;

use crate::{
    caught,
    env::Env,
    session::{delivery::bus::Undelivered, live::Live},
};

/// An observer, until it panics.
#[derive(Debug)]
pub(crate) struct Watcher {
    observer: Arc<dyn Observer>,
    out: AtomicBool,
}

impl Watcher {
    pub(crate) fn new(observer: Arc<dyn Observer>) -> Self {
        Self { observer, out: AtomicBool::new(false) }
    }

    fn show(&self, events: &VecDeque<Envelope>) {
        if self.out.load(Ordering::Relaxed) {
            return;
        }
        let watch = || events.iter().for_each(|event| self.observer.on_event(event));
        if caught(watch).is_err() {
            self.out.store(true, Ordering::Relaxed);
        }
    }
}

/// The destination of a run's events. Shared by a run and its children.
#[derive(Debug, Clone)]
pub(crate) struct Emitter {
    sink: Option<Arc<Sink>>,
    env: Arc<Env>,
    home: Option<Home>,
}

/// The root session, whose other runs may have staged events too, and this emitter's run there.
#[derive(Debug, Clone)]
struct Home {
    /// `None` in a replay, whose session is not open.
    session: Option<Arc<Live>>,
    run: RunId,
}

impl Emitter {
    pub(crate) fn new(sink: Option<Arc<Sink>>, env: &Arc<Env>) -> Self {
        Self { sink, env: Arc::clone(env), home: None }
    }

    /// Makes this the emitter of a run of an open session.
    pub(crate) fn at(mut self, session: Arc<Live>, run: RunId) -> Self {
        self.home = Some(Home { session: Some(session), run });
        self
    }

    /// Makes this the emitter of a root run that is replayed.
    pub(crate) fn of_replay(mut self, run: RunId) -> Self {
        self.home = Some(Home { session: None, run });
        self
    }

    /// Changes the id of the run: a resumed run keeps its own.
    pub(crate) fn settle_run(&mut self, run: RunId) {
        if let Some(home) = &mut self.home {
            home.run = run;
            if let Some(sink) = &self.sink {
                sink.set_run(run);
            }
        }
    }

    /// Makes this the emitter of a child run: its events go the same way, and its session has no other runs.
    pub(crate) fn below(mut self) -> Self {
        self.home = None;
        self
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// True for a run of a root session, which answers that session's prompts.
    pub(crate) fn is_of_root(&self) -> bool {
        self.home.is_some()
    }

    /// Returns the open session whose prompts this run answers; `None` for a child, and in a replay.
    pub(crate) fn session(&self) -> Option<&Arc<Live>> {
        self.home.as_ref()?.session.as_ref()
    }

    /// True when anybody receives the events.
    pub(crate) fn is_heard(&self) -> bool {
        !self.env.observers.is_empty()
            || self.env.bus.is_watched()
            || self.sink.as_ref().is_some_and(|sink| !sink.lock().abandoned)
    }

    /// True when the run was asked to pause.
    pub(crate) fn is_pausing(&self) -> bool {
        self.sink.as_ref().is_some_and(|sink| sink.pausing.load(Ordering::Relaxed))
    }

    /// Delivers all events of `batch` and empties it. Returns the events that have to wait for room with a subscriber.
    pub(crate) fn emit(&self, batch: &mut VecDeque<Envelope>) -> Option<Box<Undelivered>> {
        for watcher in &*self.env.observers {
            watcher.show(batch);
        }
        let left = if self.env.bus.is_watched() { self.env.bus.publish(batch) } else { None };
        match (&self.sink, &self.home) {
            (_, Some(home)) if batch.iter().any(|event| event.origin.run != home.run) => {
                self.distribute(home, batch);
            }
            (Some(sink), _) => sink.append(batch),
            (None, _) => batch.clear(),
        }
        left
    }

    /// Delivers to each of several runs of a session its own events.
    fn distribute(&self, home: &Home, batch: &mut VecDeque<Envelope>) {
        for event in batch.drain(..) {
            let run = event.origin.run;
            if run == home.run {
                if let Some(sink) = &self.sink {
                    sink.push(std::iter::once(event));
                }
            } else if let Some(sink) = home.session.as_ref().and_then(|session| session.sink_of(run)) {
                sink.push(std::iter::once(event));
            }
        }
    }

    /// Delivers deltas that arrived together, and empties `deltas`.
    pub(crate) fn emit_deltas(&self, origin: &Arc<Origin>, seq: u64, at: Timestamp, deltas: &mut Vec<Delta>) {
        let envelope = |delta| Envelope::new(Arc::clone(origin), seq, at, Event::Delta(delta));
        let envelopes = deltas.drain(..).map(envelope);
        match &self.sink {
            Some(sink) if self.env.observers.is_empty() && !self.env.bus.is_watched() => sink.push(envelopes),
            // A delta need not arrive: a subscriber without room misses it.
            _ => drop(self.emit(&mut envelopes.collect())),
        }
    }
}

/// The state that a run shares with its handle: the queue of events between them, and a request to pause.
///
/// The queue is unbounded, since the handle loses nothing. It holds at most what the run produced, which the run's own
/// limits bound.
pub(crate) struct Sink {
    queue: Mutex<Queue>,
    pausing: AtomicBool,
    /// True while the run waits in its session's queue.
    waiting: AtomicBool,
}

struct Queue {
    run: RunId,
    events: VecDeque<Envelope>,
    waker: Option<Waker>,
    /// True when no more events come.
    closed: bool,
    /// True when nobody reads.
    abandoned: bool,
    /// Cancelled when no more events come, for whoever asked.
    over: Option<CancellationToken>,
}

/// Wakes the reader, once the lock is released.
fn wake(mut queue: MutexGuard<'_, Queue>) {
    let waker = queue.waker.take();
    drop(queue);
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Sink {
    pub(crate) fn new(run: RunId) -> Self {
        // A short run fits.
        let events = VecDeque::with_capacity(16);
        Self::with(run, events, false)
    }

    /// Creates the sink of a run without a handle.
    pub(crate) fn unread(run: RunId) -> Self {
        Self::with(run, VecDeque::new(), true)
    }

    fn with(run: RunId, events: VecDeque<Envelope>, abandoned: bool) -> Self {
        let queue = Queue { run, events, waker: None, closed: false, abandoned, over: None };
        Self { queue: Mutex::new(queue), pausing: AtomicBool::new(false), waiting: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn run(&self) -> RunId {
        self.lock().run
    }

    fn set_run(&self, run: RunId) {
        self.lock().run = run;
    }

    /// Records that the run waits in its session's queue, or no longer does.
    pub(crate) fn set_waiting(&self, waiting: bool) {
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Asks the run to stop before its next effect.
    pub(crate) fn pause(&self) {
        self.pausing.store(true, Ordering::Relaxed);
    }

    fn push(&self, events: impl Iterator<Item = Envelope>) {
        let mut queue = self.lock();
        if !queue.abandoned && !queue.closed {
            queue.events.extend(events);
            wake(queue);
        }
    }

    /// Appends all of `batch` at once and empties it.
    fn append(&self, batch: &mut VecDeque<Envelope>) {
        let mut queue = self.lock();
        if queue.abandoned || queue.closed {
            drop(queue);
            batch.clear();
            return;
        }
        queue.events.append(batch);
        wake(queue);
    }

    pub(crate) fn close(&self) {
        let mut queue = self.lock();
        queue.closed = true;
        let over = queue.over.take();
        wake(queue);
        if let Some(over) = over {
            over.cancel();
        }
    }

    /// Returns a token that is cancelled once no more events come.
    pub(crate) fn over(&self) -> CancellationToken {
        let mut queue = self.lock();
        let token = queue.over.get_or_insert_default().clone();
        let closed = queue.closed;
        drop(queue);
        if closed {
            token.cancel();
        }
        token
    }

    /// Drops all events, also later ones.
    pub(crate) fn abandon(&self) {
        let mut queue = self.lock();
        queue.abandoned = true;
        queue.events.clear();
    }

    /// Moves the queued events into `into`; `Ready(false)` when no more come.
    pub(crate) fn poll_drain(&self, cx: &mut Context<'_>, into: &mut VecDeque<Envelope>) -> Poll<bool> {
        let mut queue = self.lock();
        if !queue.events.is_empty() {
            // Both buffers are kept: the queue continues with the one that the reader has emptied.
            std::mem::swap(&mut queue.events, into);
            return Poll::Ready(true);
        }
        if queue.closed {
            return Poll::Ready(false);
        }
        queue.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = self.lock();
        write!(f, "Sink({} waiting, closed: {})", queue.events.len(), queue.closed)
    }
}
