//! One process' life: what it runs on, with everything that leaves it watched, and the points at which it may die.

use std::{
    borrow::Cow,
    fmt,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::seams::{WatchedProvider, WatchedStore, WatchedTool};
use crate::{
    Clock, Digest, RequestId, RuntimeBuilder, SessionId, SystemClock, Timestamp,
    event::Envelope,
    provider::Model,
    run::Observer,
    session::SharedStore,
    tool::{Repeat, Tool},
};

/// Something that happened outside a process, or that it showed: what its death cannot undo.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Note {
    /// A process found this session in its store: so many events, of this digest ([`Tree::digest`](super::Tree::digest)).
    Found {
        /// The session.
        session: SessionId,
        /// Number of its newest event.
        seq: u64,
        /// Digest of all its events.
        digest: Digest,
    },
    /// An event was shown to whoever watches the run, so it was stored before.
    Shown {
        /// The session.
        session: SessionId,
        /// The event's number.
        seq: u64,
        /// Its kind.
        kind: Cow<'static, str>,
    },
    /// A model was asked.
    Asked {
        /// Names the call: the same for every try of a step.
        request: RequestId,
        /// How many results it was shown that say that their outcome is unknown.
        unknown: usize,
    },
    /// A tool began to run.
    Called {
        /// [`ToolContext::idempotency_key`](crate::tool::ToolContext::idempotency_key).
        key: String,
        /// The tool.
        tool: String,
        /// What it declares.
        repeat: Repeat,
    },
    /// A tool came to its end.
    Returned {
        /// As in [`Note::Called`].
        key: String,
    },
}

/// Takes down what a life does, and says where it ends.
///
/// # Contract
/// - What [`Witness::note`] took down is known to later processes, in order, also when this one dies right after.
/// - [`Witness::point`] is called at every point, in order; where it returns true the life is over: everything that
///   would leave the process stands still from then on. It may also never return, as in a process that is then killed.
/// - Both are quick, and called from within the run.
pub trait Witness: Send + Sync + fmt::Debug {
    /// Takes down `note`.
    fn note(&self, note: Note);

    /// The process is at a point; true ends its life.
    fn point(&self) -> bool;
}

/// What the agents of one process run on.
///
/// A scenario makes its agents of [`Life::model`] and [`Life::tool`]: what does not go through them is not a point, and
/// is not checked. Cloning shares it.
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
    /// A life on `store` that `witness` watches, with the system's clock.
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

    /// `tool`, watched.
    #[must_use]
    pub fn tool(&self, tool: impl Tool + 'static) -> Arc<dyn Tool> {
        Arc::new(WatchedTool::new(Arc::new(tool), self.clone()))
    }

    /// `model`, watched. Its layers are inside: each attempt counts as part of the one call.
    #[must_use]
    pub fn model(&self, model: &Model) -> Model {
        model.clone().layer(|provider| Arc::new(WatchedProvider::new(provider, self.clone())) as _)
    }

    /// The store, watched.
    #[must_use]
    pub fn store(&self) -> SharedStore {
        Arc::new(WatchedStore::new(Arc::clone(&self.0.store), self.clone()))
    }

    /// The store itself, for looking at what is there without being seen.
    #[must_use]
    pub fn unwatched_store(&self) -> &SharedStore {
        &self.0.store
    }

    /// A builder of a runtime on the watched store, without network for models, whose events are seen.
    #[must_use = "a builder does nothing until `build`"]
    pub fn runtime(&self) -> RuntimeBuilder {
        super::super::runtime()
            .shared_store(self.store())
            .clock(Shared(Arc::clone(&self.0.clock)))
            .observer(Shown(self.clone()))
    }

    /// How many model calls and tool calls are under way.
    #[must_use]
    pub fn alive(&self) -> usize {
        self.0.alive.load(Ordering::SeqCst)
    }

    /// Whether it is over.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.0.dead.load(Ordering::SeqCst)
    }

    /// Waits for its death. Whoever then drops the tokio runtime has killed the process: nothing of it does anything
    /// more.
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

    /// Runs what leaves the process: a point before it, one after it, and one where it first has to wait (with
    /// `each_wait`, wherever it does).
    pub(super) async fn through<T>(&self, each_wait: bool, future: impl Future<Output = T>) -> T {
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

/// A call under way.
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

/// Sees the events of a life's runs.
#[derive(Debug)]
struct Shown(Life);

impl Observer for Shown {
    fn on_event(&self, event: &Envelope) {
        if event.event.is_stored() {
            let (session, kind) = (event.origin.session.clone(), Cow::Borrowed(event.event.kind()));
            self.0.note(Note::Shown { session, seq: event.seq, kind });
        }
    }
}

/// tokio's clock, begun so much later than the clock of the first process.
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
