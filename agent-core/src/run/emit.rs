//! From the driver to whoever watches: the run's handle, which loses nothing, and observers.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use crate::{
    Timestamp,
    event::{Envelope, Event, Origin},
    provider::Delta,
};

/// Sees every event of every run of a runtime, streamed ones included.
///
/// # Contract
/// Quick, and never blocks: it is called from within the run.
pub trait Observer: Send + Sync + fmt::Debug {
    /// An event happened.
    fn on_event(&self, event: &Envelope);
}

/// Where a run's events go. Shared by a run and its children.
#[derive(Debug, Clone)]
pub(crate) struct Emitter {
    sink: Option<Arc<Sink>>,
    observers: Arc<[Arc<dyn Observer>]>,
}

impl Emitter {
    pub(crate) fn new(sink: Option<Arc<Sink>>, observers: Arc<[Arc<dyn Observer>]>) -> Self {
        Self { sink, observers }
    }

    /// Hands over all events of `batch`, which is then empty.
    pub(crate) fn emit(&self, batch: &mut VecDeque<Envelope>) {
        for observer in &*self.observers {
            for event in &*batch {
                observer.on_event(event);
            }
        }
        match &self.sink {
            Some(sink) => sink.push(batch.drain(..)),
            None => batch.clear(),
        }
    }

    /// Hands over deltas that arrived together, which `deltas` then no longer holds.
    pub(crate) fn emit_deltas(&self, origin: &Arc<Origin>, seq: u64, at: Timestamp, deltas: &mut Vec<Delta>) {
        let envelope = |delta| Envelope { origin: Arc::clone(origin), seq, at, event: Event::Delta(delta) };
        let envelopes = deltas.drain(..).map(envelope);
        match &self.sink {
            Some(sink) if self.observers.is_empty() => sink.push(envelopes),
            _ => self.emit(&mut envelopes.collect()),
        }
    }
}

/// The queue between a run and its handle. Unbounded, since the handle loses nothing: it holds at most what the run
/// produced, which its own limits bound.
pub(crate) struct Sink(Mutex<Queue>);

impl Default for Sink {
    fn default() -> Self {
        // A short run fits.
        let events = VecDeque::with_capacity(16);
        Self(Mutex::new(Queue { events, ..Queue::default() }))
    }
}

#[derive(Default)]
struct Queue {
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
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, events: impl Iterator<Item = Envelope>) {
        let mut queue = self.lock();
        if !queue.abandoned {
            queue.events.extend(events);
            wake(queue);
        }
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
