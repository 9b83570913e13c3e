//! The sessions that are open in this process. Each has one owner: its journal, its active run and its queue are behind
//! the owner's lock.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use entourage_core::{RunId, SessionId, Timestamp, agent::Agent, event::Origin, session::SharedStore};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio_util::sync::CancellationToken;

use crate::{
    deps::Deps,
    env::Env,
    session::{
        delivery::emit::Sink,
        journal::{Journal, queued::InQueue},
        queue::{PromptQueue, Running, Ticket},
    },
};

/// The open sessions of a runtime.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) env: Arc<Env>,
    pub(crate) store: SharedStore,
    open: Mutex<HashMap<SessionId, Weak<Live>>>,
}

impl Registry {
    pub(crate) fn new(env: Arc<Env>, store: SharedStore) -> Self {
        Self { env, store, open: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Weak<Live>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the session if it is open here.
    pub(crate) fn get(&self, id: &SessionId) -> Option<Arc<Live>> {
        self.lock().get(id).and_then(Weak::upgrade)
    }

    /// Returns all that are open here.
    pub(crate) fn all(&self) -> Vec<Arc<Live>> {
        self.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Opens a session, unless it is open here. With `new` it is known that nothing is stored of it.
    pub(crate) fn open(self: &Arc<Self>, id: SessionId, new: bool) -> Arc<Live> {
        let mut open = self.lock();
        if let Some(live) = open.get(&id).and_then(Weak::upgrade) {
            return live;
        }
        let live = Arc::new(Live::new(Arc::clone(&self.env), Arc::downgrade(self), id.clone(), new));
        open.insert(id, Arc::downgrade(&live));
        live
    }
}

/// An open session: the owner of its journal, its active run and its queue.
pub(crate) struct Live {
    pub(crate) env: Arc<Env>,
    pub(crate) registry: Weak<Registry>,
    pub(crate) id: SessionId,
    state: Mutex<State>,
    /// Held only by work that ends without its caller.
    pub(crate) opening: AsyncMutex<()>,
    /// Held by the run that is under way without a place in the queue, or waits to be.
    pub(crate) turns: AsyncMutex<()>,
    /// Notified whenever a run ends and whenever a prompt leaves the queue.
    pub(crate) changed: Notify,
}

/// The state of an open session.
pub(crate) struct State {
    pub(crate) journal: Option<Arc<Journal>>,
    /// True when it is known to be new, so that the store need not be asked.
    pub(crate) new: bool,
    pub(crate) queue: PromptQueue,
}

impl State {
    /// Stages the queued prompts in `journal`. Returns false if that is the session's journal no more.
    pub(crate) fn stage_queued(&mut self, journal: &Arc<Journal>, now: Timestamp) -> bool {
        let is_used = self.journal.as_ref().is_some_and(|used| Arc::ptr_eq(used, journal));
        if is_used {
            self.queue.stage(journal, now);
        }
        is_used
    }
}

impl Live {
    pub(crate) fn new(env: Arc<Env>, registry: Weak<Registry>, id: SessionId, new: bool) -> Self {
        let state = State { journal: None, new, queue: PromptQueue::default() };
        let (opening, turns) = (AsyncMutex::new(()), AsyncMutex::new(()));
        Self { env, registry, id, state: Mutex::new(state), opening, turns, changed: Notify::new() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.lock().queue.active().is_some()
    }

    /// True while an agent runs in this process.
    pub(crate) fn runs_here(&self) -> bool {
        self.lock().queue.active().is_some_and(|running| running.agent.is_some())
    }

    /// Cancels the active run and drops the queued prompts. Returns the number of the newest prompt that this is about.
    pub(crate) fn cancel(&self) -> u64 {
        let (tokens, mark) = {
            let mut state = self.lock();
            (state.queue.clear(), state.queue.mark())
        };
        tokens.iter().for_each(CancellationToken::cancel);
        mark
    }

    /// Asks the active run to pause.
    pub(crate) fn pause(&self) {
        if let Some(running) = self.lock().queue.active() {
            running.sink.pause();
        }
    }

    /// Waits until nothing that was accepted up to `mark` is left.
    pub(crate) async fn unwound(&self, mark: u64) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if !self.lock().queue.has(mark) {
                return;
            }
            changed.await;
        }
    }

    /// Returns the sink of another run of the session.
    pub(crate) fn sink_of(&self, run: RunId) -> Option<Arc<Sink>> {
        self.lock().queue.sink_of(run)
    }

    /// Adds the queued prompts that join the run to its conversation.
    pub(crate) fn fold(&self, journal: &Journal, origin: &Arc<Origin>) {
        self.lock().queue.fold(journal, origin, &*self.env.clock);
    }

    /// True while prompts wait for the end of the active run.
    pub(crate) fn is_awaited(&self) -> bool {
        self.lock().queue.is_awaited()
    }

    /// Lets the next queued prompt begin its run. With `ended`, ends the active run first.
    pub(crate) fn pass_on(self: &Arc<Self>, mut ended: bool, hold: bool) {
        loop {
            let next = {
                let mut state = self.lock();
                if std::mem::replace(&mut ended, true) {
                    state.queue.end(hold);
                }
                state.queue.next()
            };
            let Some(Ticket { entry, queued, turn, .. }) = next else { break };
            match turn.send(Claim::new(Arc::clone(self), entry.sink, queued)) {
                Ok(()) => break,
                Err(claim) => claim.refuse(),
            }
        }
        self.changed.notify_waiters();
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let Some(registry) = self.registry.upgrade() else { return };
        let mut open = registry.lock();
        // Another handle may have been opened since: only a dead entry goes.
        if open.get(&self.id).is_some_and(|session| session.strong_count() == 0) {
            open.remove(&self.id);
        }
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A run's claim on its session. Dropping it, also with the run's task, gives the claim up and ends the run's stream.
pub(crate) struct Claim {
    session: Option<Arc<Live>>,
    sink: Arc<Sink>,
    /// Place of the run's prompt in the stored queue, once it is stored.
    pub(crate) queued: Option<InQueue>,
    /// True if the run can be resumed: queued prompts must not abandon it.
    pub(crate) hold: bool,
}

impl Claim {
    pub(crate) fn new(session: Arc<Live>, sink: Arc<Sink>, queued: Option<InQueue>) -> Self {
        Self { session: Some(session), sink, queued, hold: false }
    }

    /// Drops a claim that nobody took; the caller offers it to the next prompt.
    pub(crate) fn refuse(mut self) {
        self.session = None;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            session.pass_on(true, self.hold);
        }
        self.sink.close();
    }
}

/// A run that is about to begin, or to join the queue.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) run: RunId,
    pub(crate) agent: Arc<dyn Agent>,
    pub(crate) cancel: CancellationToken,
    pub(crate) sink: Arc<Sink>,
    pub(crate) deps: Deps,
}

impl Entry {
    pub(crate) fn new(run: RunId, agent: Arc<dyn Agent>, deps: &Deps) -> Self {
        Self::with(run, agent, Sink::new(run), deps)
    }

    /// Creates the entry of a run without a handle.
    pub(crate) fn unread(run: RunId, agent: Arc<dyn Agent>, deps: &Deps) -> Self {
        Self::with(run, agent, Sink::unread(run), deps)
    }

    fn with(run: RunId, agent: Arc<dyn Agent>, sink: Sink, deps: &Deps) -> Self {
        Self { run, agent, cancel: CancellationToken::new(), sink: Arc::new(sink), deps: deps.clone() }
    }

    pub(crate) fn running(&self, accepted: u64) -> Running {
        Running {
            accepted,
            sink: Arc::clone(&self.sink),
            cancel: self.cancel.clone(),
            agent: Some(Arc::clone(&self.agent)),
            brief: false,
        }
    }
}
