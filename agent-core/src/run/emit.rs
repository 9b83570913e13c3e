//! From the driver to whoever watches: the run's handle, which loses nothing, subscribers, and observers.

use std::{
    collections::VecDeque,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use super::{Env, bus::Undelivered, queue::Desk};
use crate::{
    RunId, Timestamp,
    event::{Envelope, Event, Origin},
    provider::Delta,
};

/// Sees every event of every run of a runtime, streamed ones included.
///
/// # Contract
/// Quick, and never blocks: it is called from within the run.
///
/// One that panics is not asked again: the panic hook of the process tells of it, once. The run, what is stored and the
/// other observers go on.
pub trait Observer: Send + Sync + fmt::Debug {
    /// An event happened.
    fn on_event(&self, event: &Envelope);
}

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
        if catch_unwind(AssertUnwindSafe(watch)).is_err() {
            self.out.store(true, Ordering::Relaxed);
        }
    }
}

/// Where a run's events go. Shared by a run and its children.
#[derive(Debug, Clone)]
pub(crate) struct Emitter {
    sink: Option<Arc<Sink>>,
    env: Arc<Env>,
    home: Option<Home>,
}

/// The root session, whose other runs may have staged events too, and the run that this is about.
#[derive(Debug, Clone)]
struct Home {
    desk: Arc<dyn Desk>,
    run: RunId,
}

impl Emitter {
    pub(crate) fn new(sink: Option<Arc<Sink>>, env: &Arc<Env>) -> Self {
        Self { sink, env: Arc::clone(env), home: None }
    }

    /// The emitter of a run of the session at `desk`.
    pub(crate) fn at(mut self, desk: Arc<dyn Desk>, run: RunId) -> Self {
        self.home = Some(Home { desk, run });
        self
    }

    /// The run turned out to be this one: a resumed run keeps its id.
    pub(crate) fn settle_run(&mut self, run: RunId) {
        if let Some(home) = &mut self.home {
            home.run = run;
            if let Some(sink) = &self.sink {
                sink.set_run(run);
            }
        }
    }

    /// The emitter of a run below: its events go the same way, and its session has no others.
    pub(crate) fn below(mut self) -> Self {
        self.home = None;
        self
    }

    pub(super) fn env(&self) -> &Env {
        &self.env
    }

    /// The session whose prompts this run answers; `None` below it.
    pub(crate) fn desk(&self) -> Option<&Arc<dyn Desk>> {
        self.home.as_ref().map(|home| &home.desk)
    }

    /// Whether anybody sees the events that are handed over.
    pub(crate) fn is_heard(&self) -> bool {
        !self.env.observers.is_empty()
            || self.env.bus.is_watched()
            || self.sink.as_ref().is_some_and(|sink| !sink.lock().abandoned)
    }

    /// Whether somebody asked the run to pause.
    pub(crate) fn is_pausing(&self) -> bool {
        self.sink.as_ref().is_some_and(|sink| sink.pausing.load(Ordering::Relaxed))
    }

    /// Hands over all events of `batch`, which is then empty. What a subscriber had no room for has to be waited for.
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

    /// Of several runs of a session: to each what is its own.
    fn distribute(&self, home: &Home, batch: &mut VecDeque<Envelope>) {
        for event in batch.drain(..) {
            let run = event.origin.run;
            if run == home.run {
                if let Some(sink) = &self.sink {
                    sink.push(std::iter::once(event));
                }
            } else if let Some(sink) = home.desk.sink_of(run) {
                sink.push(std::iter::once(event));
            }
        }
    }

    /// Hands over deltas that arrived together, which `deltas` then no longer holds.
    pub(crate) fn emit_deltas(&self, origin: &Arc<Origin>, seq: u64, at: Timestamp, deltas: &mut Vec<Delta>) {
        let envelope = |delta| Envelope { origin: Arc::clone(origin), seq, at, event: Event::Delta(delta) };
        let envelopes = deltas.drain(..).map(envelope);
        match &self.sink {
            Some(sink) if self.env.observers.is_empty() && !self.env.bus.is_watched() => sink.push(envelopes),
            // No delta is one that has to arrive.
            _ => drop(self.emit(&mut envelopes.collect())),
        }
    }
}

/// What a run and its handle share: the events between them, and a wish to pause.
///
/// The queue is unbounded, since the handle loses nothing: it holds at most what the run produced, which its own limits
/// bound.
pub(crate) struct Sink {
    queue: Mutex<Queue>,
    pausing: AtomicBool,
    /// The run waits for its turn.
    waiting: AtomicBool,
}

struct Queue {
    run: RunId,
    events: VecDeque<Envelope>,
    waker: Option<Waker>,
    /// No more events come.
    closed: bool,
    /// Nobody reads.
    abandoned: bool,
}

/// Wakes the reader, after the queue is free again.
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

    /// Of a run that nobody has a handle of.
    pub(crate) fn unread(run: RunId) -> Self {
        Self::with(run, VecDeque::new(), true)
    }

    fn with(run: RunId, events: VecDeque<Envelope>, abandoned: bool) -> Self {
        let queue = Queue { run, events, waker: None, closed: false, abandoned };
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

    /// The run begins to wait for its turn, or no longer does.
    pub(crate) fn set_waiting(&self, waiting: bool) {
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// The run stops before its next effect.
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

    /// All of `batch` at once, which is then empty.
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
        wake(queue);
    }

    /// From now on events are dropped.
    pub(crate) fn abandon(&self) {
        let mut queue = self.lock();
        queue.abandoned = true;
        queue.events.clear();
    }

    /// Moves all events that are there into `into`; `Ready(false)` when no more come.
    pub(crate) fn poll_drain(&self, cx: &mut Context<'_>, into: &mut VecDeque<Envelope>) -> Poll<bool> {
        let mut queue = self.lock();
        if !queue.events.is_empty() {
            // Both buffers are kept: the queue goes on with the one that the reader has emptied.
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
