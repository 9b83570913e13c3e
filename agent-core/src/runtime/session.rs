//! A session as programs hold it: starts runs, one at a time, and answers what paused ones wait for.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use serde_json::Value;
use tokio::sync::Mutex as AsyncMutex;
use tokio_util::sync::CancellationToken;

use super::{Inner, RuntimeBuilder};
use crate::{
    Error, ErrorKind, Result, RunId, SessionId, Timestamp,
    agent::Agent,
    event::{ApprovalDecided, Event, Origin, Signal},
    message::History,
    permission::{ApprovalId, Decision, Scope},
    run::{Admission, Emitter, Env, Journal, RunHandle, Sink, Task, Within, execute},
    session::{SessionHead, SessionRecord, SessionState},
};

/// A session: runs happen in it one after another, and each sees what was said before. Cloning shares it.
#[derive(Clone)]
pub struct Session(pub(super) Arc<Shared>);

pub(super) struct Shared {
    env: Arc<Env>,
    runtime: Weak<Inner>,
    id: SessionId,
    state: Mutex<State>,
    opening: AsyncMutex<()>,
}

struct State {
    journal: Option<Arc<Journal>>,
    /// Known to be new, so that the store need not be asked.
    new: bool,
    active: Option<(RunId, CancellationToken)>,
}

impl Shared {
    pub(super) fn new(env: Arc<Env>, runtime: Weak<Inner>, id: SessionId, new: bool) -> Self {
        let state = State { journal: None, new, active: None };
        Self { env, runtime, id, state: Mutex::new(state), opening: AsyncMutex::new(()) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn cancel(&self) {
        if let Some((_, token)) = &self.lock().active {
            token.cancel();
        }
    }

    /// The session's journal: the one in use, or read from the store, or new if that is allowed.
    pub(super) async fn journal(&self, create: bool) -> Result<Arc<Journal>> {
        let _one_at_a_time = self.opening.lock().await;
        let known_new = {
            let state = self.lock();
            match &state.journal {
                Some(journal) if !journal.is_broken() => return Ok(Arc::clone(journal)),
                Some(_) => false,
                None => state.new,
            }
        };
        let stored = if known_new { None } else { Journal::find(self.env.store.clone(), &self.id).await? };
        let journal = match stored {
            Some(journal) => Arc::new(journal),
            None if create => {
                let record = SessionRecord::root(self.id.clone(), self.env.clock.now());
                Arc::new(Journal::create(self.env.store.clone(), record))
            }
            None => return Err(Error::no_session(&self.id).during("session.open")),
        };
        if create || !known_new {
            self.lock().journal = Some(Arc::clone(&journal));
        }
        Ok(journal)
    }

    /// Busy check and activation in one (CM11).
    fn activate(&self, run: RunId, token: &CancellationToken) -> Result<()> {
        let mut state = self.lock();
        if let Some((active, _)) = &state.active {
            return Err(Error::new(
                ErrorKind::Busy,
                "the session has an active run; await its outcome or cancel it first",
            )
            .with("session", self.id.as_str())
            .with("active", active.to_string()));
        }
        state.active = Some((run, token.clone()));
        Ok(())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.upgrade() else { return };
        let mut live = runtime.live();
        // Another handle may have been opened since: only a dead entry goes.
        if live.get(&self.id).is_some_and(|session| session.strong_count() == 0) {
            live.remove(&self.id);
        }
    }
}

/// Ends a run's claim on its session, also when its task is dropped, and then its stream.
struct Active {
    session: Arc<Shared>,
    sink: Arc<Sink>,
}

impl Drop for Active {
    fn drop(&mut self) {
        self.session.lock().active = None;
        self.sink.close();
    }
}

impl Session {
    /// A session for one question: known to nobody else, and kept only while it runs.
    pub(crate) fn ephemeral() -> Self {
        let env = Arc::new(RuntimeBuilder::default().env());
        Self(Arc::new(Shared::new(env, Weak::new(), SessionId::generate(), true)))
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        &self.0.id
    }

    /// Starts a run. It goes on by itself; the handle streams its events and gives its outcome.
    ///
    /// A prompt that says nothing, a session that is busy and the like are errors of the outcome, and nothing is
    /// stored. Must be called within a tokio runtime. A run that the session left unfinished is given up.
    pub fn start(&self, agent: &(impl Agent + Clone + 'static), prompt: impl Into<Task>) -> RunHandle {
        self.launch(Arc::new(agent.clone()), Admission::Start(prompt.into()), None)
    }

    /// As [`Session::start`], and the run is stopped when `deadline` has passed.
    pub fn start_with_deadline(
        &self,
        agent: &(impl Agent + Clone + 'static),
        prompt: impl Into<Task>,
        deadline: Timestamp,
    ) -> RunHandle {
        self.launch(Arc::new(agent.clone()), Admission::Start(prompt.into()), Some(deadline))
    }

    /// Goes on with the run that a process left unfinished, or that is paused. No completed step runs again.
    ///
    /// Do this when the process that ran it is gone: nothing tells a dead process from a slow one. A live one is fenced
    /// off at its next append, with [`ErrorKind::Conflict`], and what it had under way may have run by then.
    ///
    /// The outcome is [`ErrorKind::NotFound`] when there is no such run, [`ErrorKind::Conflict`] when another process
    /// was faster, [`ErrorKind::Config`] when another agent started it.
    pub fn resume(&self, agent: &(impl Agent + Clone + 'static)) -> RunHandle {
        self.launch(Arc::new(agent.clone()), Admission::Resume, None)
    }

    fn launch(&self, agent: Arc<dyn Agent>, admission: Admission, deadline: Option<Timestamp>) -> RunHandle {
        let run = RunId::generate();
        let cancel = CancellationToken::new();
        let sink = Arc::new(Sink::default());
        let task = self.0.activate(run, &cancel).and_then(|()| {
            let active = Active { session: Arc::clone(&self.0), sink: Arc::clone(&sink) };
            let handle = tokio::runtime::Handle::try_current().map_err(|error| {
                Error::new(ErrorKind::Config, "a run needs a tokio runtime; call this within one")
                    .caused_by(error)
            })?;
            let within = Box::new(Within {
                path: None,
                scope: Scope::all(),
                cancel: cancel.clone(),
                emitter: Emitter::new(Some(Arc::clone(&sink)), Arc::clone(&self.0.env.observers)),
                run: Some(run),
                deadline,
            });
            let env = Arc::clone(&self.0.env);
            let tasks = env.tasks.clone();
            Ok(tasks.spawn_on(
                async move {
                    let create = matches!(admission, Admission::Start(_));
                    let journal = active.session.journal(create).await?;
                    let outcome = Box::pin(execute(env, journal, agent, admission, *within)).await;
                    drop(active);
                    outcome
                },
                &handle,
            ))
        });
        RunHandle::new(run, self.0.id.clone(), sink, task, cancel)
    }

    /// Cancels the active run, if there is one.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Whether a run is under way in this process.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.0.lock().active.is_some()
    }

    /// The conversation so far; empty for a session without runs.
    ///
    /// # Errors
    /// The store's.
    pub async fn history(&self) -> Result<History> {
        self.read(|state| state.history().clone()).await
    }

    /// What lists show about the session.
    ///
    /// # Errors
    /// The store's.
    pub async fn head(&self) -> Result<SessionHead> {
        self.read(|state| state.head().clone()).await
    }

    /// The id of the run that a process left unfinished or that is paused, if there is one.
    ///
    /// # Errors
    /// The store's.
    pub async fn unfinished(&self) -> Result<Option<RunId>> {
        self.read(|state| state.run().map(|run| run.id)).await
    }

    async fn read<T: Default>(&self, read: impl FnOnce(&SessionState) -> T) -> Result<T> {
        match self.0.journal(false).await {
            Ok(journal) => Ok(journal.read(read)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(T::default()),
            Err(error) => Err(error),
        }
    }

    /// Sends the session a signal, which wakes a run that is paused for it when it is resumed.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when the session is not stored, [`ErrorKind::Busy`] while a run is active, the store's.
    pub async fn signal(&self, name: impl Into<String>, value: Value) -> Result<()> {
        let signal = Signal { name: name.into(), value };
        self.append(|_| Ok(Event::SignalReceived(Arc::new(signal)))).await
    }

    /// Answers the question that paused a run; [`Session::resume`] then goes on.
    ///
    /// The answer is bound to the exact call that was asked about and is used once.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when no such question is open, [`ErrorKind::InvalidInput`] for [`Decision::Later`],
    /// [`ErrorKind::Busy`] while a run is active, the store's.
    pub async fn decide(&self, id: &ApprovalId, decision: Decision) -> Result<()> {
        if decision == Decision::Later {
            return Err(Error::new(ErrorKind::InvalidInput, "an answer is allow or deny"));
        }
        self.append(|journal| {
            let digest = journal.read(|state| state.asked(id)).ok_or_else(|| {
                Error::new(ErrorKind::NotFound, "no such question is open in the session")
                    .with("approval", id.as_str())
            })?;
            Ok(Event::ApprovalDecided(Arc::new(ApprovalDecided { id: id.clone(), decision, digest })))
        })
        .await
    }

    async fn append(&self, event: impl FnOnce(&Journal) -> Result<Event>) -> Result<()> {
        let (run, token) = (RunId::generate(), CancellationToken::new());
        self.0.activate(run, &token)?;
        let _active = Active { session: Arc::clone(&self.0), sink: Arc::default() };
        let journal = self.0.journal(false).await?;
        let event = event(&journal)?;
        let (run, agent) =
            journal.read(|state| (state.run().map_or(run, |open| open.id), Arc::clone(&state.head().agent)));
        let origin = Arc::new(Origin::new(self.0.id.clone(), run, agent));
        journal.stage(&origin, self.0.env.clock.now(), event);
        journal.commit(&Emitter::new(None, Arc::clone(&self.0.env.observers))).await
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.0.id).finish_non_exhaustive()
    }
}
