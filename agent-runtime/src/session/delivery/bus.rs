//! Delivery of events to subscribers that may be slow. Events that a full subscriber misses are counted. No run waits
//! for one longer than `PATIENCE`, and none waits for one that has stopped reading.

use std::{
    collections::VecDeque,
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use entourage_core::event::{Envelope, Event};
use futures_util::Stream;
use tokio::{sync::Notify, time::Instant};

use crate::env::Env;

/// Time that an event which should not be missed waits for room.
const PATIENCE: Duration = Duration::from_millis(50);

/// The subscribers of a runtime.
#[derive(Default)]
pub(crate) struct Bus {
    /// Number of subscribers: without any, an event costs one look at this.
    count: AtomicUsize,
    readers: Mutex<Vec<Arc<Reader>>>,
}

struct Reader {
    buffer: Mutex<Buffer>,
    capacity: usize,
    missed: AtomicU64,
    /// Notified whenever an event was taken out.
    room: Notify,
}

#[derive(Default)]
struct Buffer {
    events: VecDeque<Envelope>,
    waker: Option<Waker>,
    closed: bool,
    /// True after a wait for room was in vain: until the subscriber reads again, events that find no room are only
    /// counted.
    behind: bool,
}

impl Bus {
    pub(crate) fn is_watched(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    fn readers(&self) -> MutexGuard<'_, Vec<Arc<Reader>>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn subscribe(env: &Arc<Env>, capacity: usize) -> Subscription {
        let reader = Arc::new(Reader {
            buffer: Mutex::default(),
            capacity: capacity.max(1),
            missed: AtomicU64::new(0),
            room: Notify::new(),
        });
        let mut readers = env.bus.readers();
        readers.push(Arc::clone(&reader));
        env.bus.count.store(readers.len(), Ordering::Relaxed);
        Subscription { reader, env: Arc::downgrade(env) }
    }

    fn remove(&self, reader: &Arc<Reader>) {
        let mut readers = self.readers();
        readers.retain(|it| !Arc::ptr_eq(it, reader));
        self.count.store(readers.len(), Ordering::Relaxed);
    }

    /// Delivers `events` to each subscriber that has room. Returns those that have to wait for room.
    pub(crate) fn publish(&self, events: &VecDeque<Envelope>) -> Option<Box<Undelivered>> {
        let mut left = Vec::new();
        for reader in self.readers().iter() {
            reader.take_in(events, &mut left);
        }
        (!left.is_empty()).then(|| Box::new(Undelivered(left.into())))
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        for reader in self.readers().drain(..) {
            reader.close();
        }
    }
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bus({} subscribers)", self.count.load(Ordering::Relaxed))
    }
}

/// True for events by which others learn that a run began, waits or is over.
fn must_arrive(event: &Event) -> bool {
    matches!(
        event,
        Event::RunStarted(_)
            | Event::RunPaused(_)
            | Event::RunFinished(_)
            | Event::PromptDropped(_)
            | Event::ApprovalRequested(_)
    )
}

impl Reader {
    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_in(self: &Arc<Self>, events: &VecDeque<Envelope>, left: &mut Vec<(Arc<Self>, Envelope)>) {
        let mut buffer = self.lock();
        if buffer.closed {
            return;
        }
        for event in events {
            if buffer.events.len() < self.capacity {
                buffer.events.push_back(event.clone());
            } else if must_arrive(&event.event) && !buffer.behind {
                left.push((Arc::clone(self), event.clone()));
            } else {
                self.miss();
            }
        }
        wake(buffer);
    }

    /// Returns true once the event is settled: it was delivered, or nobody reads any more.
    fn offer(&self, event: &Envelope) -> bool {
        let mut buffer = self.lock();
        if buffer.closed {
            return true;
        }
        if buffer.events.len() >= self.capacity {
            return false;
        }
        buffer.events.push_back(event.clone());
        wake(buffer);
        true
    }

    /// Delivers or drops an event whose time to wait is over.
    fn give_up(&self, event: &Envelope) {
        if !self.offer(event) {
            self.lock().behind = true;
            self.miss();
        }
    }

    fn miss(&self) {
        self.missed.fetch_add(1, Ordering::Relaxed);
    }

    fn close(&self) {
        let mut buffer = self.lock();
        buffer.closed = true;
        wake(buffer);
        self.room.notify_waiters();
    }
}

fn wake(mut buffer: MutexGuard<'_, Buffer>) {
    let waker = buffer.waker.take();
    drop(buffer);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Events that found no room. Dropped, they count as missed.
#[must_use = "events that should arrive are waiting"]
pub(crate) struct Undelivered(VecDeque<(Arc<Reader>, Envelope)>);

impl Undelivered {
    /// Waits for room, at most 50 ms for all events together, and then drops the rest.
    pub(crate) async fn arrive(mut self) {
        let until = Instant::now() + PATIENCE;
        while let Some((reader, event)) = self.0.front() {
            let settled = {
                let mut room = std::pin::pin!(reader.room.notified());
                // Enabled here, so that no notice is missed between the look and the wait.
                room.as_mut().enable();
                if reader.offer(event) {
                    true
                } else if tokio::time::timeout_at(until, room).await.is_ok() {
                    false
                } else {
                    reader.give_up(event);
                    true
                }
            };
            if settled {
                self.0.pop_front();
            }
        }
    }
}

impl Drop for Undelivered {
    fn drop(&mut self) {
        self.0.iter().for_each(|(reader, _)| reader.miss());
    }
}

/// All events of a runtime from now on: a stream, made by [`Runtime::subscribe`](crate::Runtime::subscribe).
///
/// It may be read slowly or not at all: once its buffer is full, events are dropped and counted. Events that say that a
/// run began, waits for input or is over, or that a queued prompt was dropped, wait up to 50 ms for room first. Once
/// one waited in vain, none waits until the subscriber reads again.
///
/// Events arrive after they were stored, each run's in order. The stream ends when the runtime and its last run are
/// gone.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_runners::ReactAgent;
/// use entourage_runtime::Runtime;
/// use entourage_testkit::ScriptedProvider;
///
/// let provider = ScriptedProvider::new().text("Hello!");
/// let agent = ReactAgent::builder("greeter", provider.model()).build().unwrap();
/// let runtime = Runtime::in_memory();
/// let mut events = runtime.subscribe();
/// runtime.session().start(&agent, "Hi").outcome().await.unwrap();
/// assert_eq!(events.next().await.unwrap().event.kind(), "run_started");
/// assert_eq!(events.missed(), 0);
/// # });
/// ```
pub struct Subscription {
    reader: Arc<Reader>,
    env: Weak<Env>,
}

impl Subscription {
    /// Returns the next event; `None` when no more come. The same as the `Stream` implementation, without an import.
    pub async fn next(&mut self) -> Option<Envelope> {
        std::future::poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Number of events that found the buffer full and were dropped.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.reader.missed.load(Ordering::Relaxed)
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Envelope>> {
        let mut buffer = self.reader.lock();
        if let Some(event) = buffer.events.pop_front() {
            buffer.behind = false;
            drop(buffer);
            self.reader.room.notify_waiters();
            return Poll::Ready(Some(event));
        }
        if buffer.closed {
            return Poll::Ready(None);
        }
        buffer.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Stream for Subscription {
    type Item = Envelope;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Envelope>> {
        self.get_mut().poll_event(cx)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(env) = self.env.upgrade() {
            env.bus.remove(&self.reader);
        }
        self.reader.close();
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.reader.lock().events.len();
        write!(f, "Subscription({waiting} waiting, {} missed)", self.missed())
    }
}
