//! The life of one process: its surroundings, with everything that leaves it watched, and the points at which it may
//! die.

use std::{
    fmt,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use entourage_core::{
    Clock, Digest, RequestId, SessionId, SystemClock, Timestamp,
    event::Envelope,
    provider::Model,
    run::Observer,
    session::SharedStore,
    tool::{Repeat, Tool},
};
use entourage_runtime::RuntimeBuilder;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::seams::{WatchedProvider, WatchedStore, WatchedTool};

/// An effect outside a process, or an event that it showed: nothing that its death can undo.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Note {
    /// A process found this session in its store, with `seq` events of this digest
    /// ([`Tree::digest`](super::Tree::digest)).
    Found {
        /// The session.
        session: SessionId,
        /// Sequence number of its newest event.
        seq: u64,
        /// Digest of all its events.
        digest: Digest,
    },
    /// An event was shown to an observer of the run, so it was stored before.
    Shown {
        /// The session.
        session: SessionId,
        /// Sequence number of the event.
        seq: u64,
        /// Kind of the event.
        kind: String,
    },
    /// A model was called.
    Asked {
        /// Id of the call: the same for every try of a step.
        request: RequestId,
        /// Number of results in the request that say that their outcome is unknown.
        unknown: usize,
    },
    /// A tool began to run.
    Called {
        /// The call's [`ToolContext::idempotency_key`](entourage_core::tool::ToolContext::idempotency_key).
        key: String,
        /// The tool.
        tool: String,
        /// Repetition that the tool declares.
        repeat: Repeat,
    },
    /// A tool call ended.
    Returned {
        /// As in [`Note::Called`].
        key: String,
    },
}

/// Records the effects of a life, and decides where it ends.
///
/// # Contract
/// - Notes taken by [`Witness::note`] are known to later processes, in order, even if this one dies right after.
/// - [`Witness::point`] is called at every point, in order. Where it returns true the life is over: everything that
///   would leave the process stands still from then on. It may also never return, as in a process that is then killed.
/// - Both are quick, and called from within the run.
pub trait Witness: Send + Sync + fmt::Debug {
    /// Records `note`.
    fn note(&self, note: Note);

    /// Called at each point; true ends the life of the process.
    fn point(&self) -> bool;
}

/// Store, models and tools of one process, watched.
///
/// A scenario builds its agents from [`Life::model`] and [`Life::tool`]: anything else is neither a point nor checked.
/// Clones share the life.
#[derive(Debug, Clone)]
pub struct Life(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: SharedStore,
    witness: Arc<dyn Witness>,
    clock: Arc<dyn Clock>,
    dead: AtomicBool,
    died: CancellationToken,
    alive: AtomicUsize,
}

impl Life {
    /// A life on `store`, watched by `witness`, with the system's clock.
    #[must_use]
    pub fn new(store: SharedStore, witness: Arc<dyn Witness>) -> Self {
        Self::at(store, witness, Arc::new(SystemClock))
    }

    pub(super) fn at(store: SharedStore, witness: Arc<dyn Witness>, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner {
            store,
            witness,
            clock,
            dead: AtomicBool::new(false),
            died: CancellationToken::new(),
            alive: AtomicUsize::new(0),
        }))
    }

    /// Wraps `tool` so that it is watched.
    #[must_use]
    pub fn tool(&self, tool: impl Tool + 'static) -> Arc<dyn Tool> {
        Arc::new(WatchedTool::new(Arc::new(tool), self.clone()))
    }

    /// Wraps `model` so that it is watched. Its layers are inside: all attempts count as one call.
    #[must_use]
    pub fn model(&self, model: &Model) -> Model {
        model.clone().layer(|provider| Arc::new(WatchedProvider::new(provider, self.clone())) as _)
    }

    /// The store, watched.
    #[must_use]
    pub fn store(&self) -> SharedStore {
        Arc::new(WatchedStore::new(Arc::clone(&self.0.store), self.clone()))
    }

    /// The store itself, for reading it unwatched.
    #[must_use]
    pub fn unwatched_store(&self) -> &SharedStore {
        &self.0.store
    }

    /// A runtime builder on the watched store, without network for models, whose events are noted.
    #[must_use = "a builder does nothing until `build`"]
    pub fn runtime(&self) -> RuntimeBuilder {
        super::super::runtime()
            .shared_store(self.store())
            .clock(Shared(Arc::clone(&self.0.clock)))
            .observer(Shown(self.clone()))
    }

    /// Number of model calls and tool calls in flight.
    #[must_use]
    pub fn alive(&self) -> usize {
        self.0.alive.load(Ordering::SeqCst)
    }

    /// True if the life is over.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.0.dead.load(Ordering::SeqCst)
    }

    /// Waits for the death of the process. Dropping the tokio runtime then completes the kill: nothing of the process
    /// runs any more.
    pub async fn died(&self) {
        self.0.died.cancelled().await;
    }

    pub(super) fn note(&self, note: Note) {
        if !self.is_dead() {
            self.0.witness.note(note);
        }
    }

    /// Passes a point; false when life is over, here or before.
    pub(super) fn goes_on(&self) -> bool {
        if self.is_dead() {
            return false;
        }
        if self.0.witness.point() {
            self.0.dead.store(true, Ordering::SeqCst);
            self.0.died.cancel();
            return false;
        }
        true
    }

    pub(super) fn working(&self) -> Working {
        self.0.alive.fetch_add(1, Ordering::SeqCst);
        Working(self.clone())
    }

    /// Polls a future that leaves the process. Points are before it, after it, and at its first wait (with
    /// `each_wait`, at every wait).
    pub(crate) async fn through<T>(&self, each_wait: bool, future: impl Future<Output = T>) -> T {
        if !self.goes_on() {
            return std::future::pending().await;
        }
        let mut future = pin!(future);
        let mut waited = false;
        std::future::poll_fn(|task| {
            if self.is_dead() {
                return Poll::Pending;
            }
            let polled = future.as_mut().poll(task);
            let point = polled.is_ready() || each_wait || !waited;
            waited = true;
            if point && !self.goes_on() { Poll::Pending } else { polled }
        })
        .await
    }
}

/// A call in flight.
#[derive(Debug)]
pub(super) struct Working(Life);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.0.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Debug)]
struct Shared(Arc<dyn Clock>);

impl Clock for Shared {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

/// Notes the stored events of a life's runs.
#[derive(Debug)]
struct Shown(Life);

impl Observer for Shown {
    fn on_event(&self, event: &Envelope) {
        if event.event.is_stored() {
            let (session, kind) = (event.origin.session.clone(), event.event.kind().to_owned());
            self.0.note(Note::Shown { session, seq: event.seq, kind });
        }
    }
}

/// tokio's clock with an offset from the clock of the first process.
#[derive(Debug)]
pub(super) struct LifeClock(Instant, Duration);

impl LifeClock {
    pub(super) fn later(by: Duration) -> Self {
        Self(Instant::now(), by)
    }
}

impl Clock for LifeClock {
    fn now(&self) -> Timestamp {
        const START: i64 = 1_767_225_600_000_000;
        Timestamp::from_micros(START).after(self.1 + self.0.elapsed())
    }
}
