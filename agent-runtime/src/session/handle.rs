//! The public handle of a session: starts runs, one at a time, and answers what paused ones wait for.

use std::{
    any::Any,
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use entourage_core::{
    Error, ErrorKind, Result, RunId, SessionId, Timestamp,
    agent::IntoAgent,
    bound,
    context::Compaction,
    event::{ApprovalDecided, Event, Origin, Signal},
    message::History,
    permission::{Answer, ApprovalId, Decision},
    provider::Model,
    run::Task,
    session::{SessionHead, SessionState},
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    deps::Deps,
    effects::tool_ask::{LONGEST, NO_KEEPER, keep, told},
    env::Env,
    run::{compact::compact_session, execute::Admission, handle::RunHandle},
    runtime::{Runtime, RuntimeBuilder},
    session::{
        below::refuse_below,
        delivery::emit::Emitter,
        journal::{Journal, apart::apart},
        live::{Entry, Live},
        questions::{answered_otherwise, asked, check_continued, closed, decider, unknown},
    },
};

/// Retries of a small write after another process was faster.
const TRIES: u32 = 16;

/// A session: runs happen in it one after another, and each sees what was said before. Cloning shares it.
#[derive(Clone)]
pub struct Session(pub(crate) Arc<Live>, pub(super) Deps);

impl Session {
    /// Creates a session for one question: known to nobody else, and kept only while it runs.
    #[must_use]
    pub fn ephemeral() -> Self {
        let env = Arc::new(RuntimeBuilder::default().env());
        Self::of(Arc::new(Live::new(env, Weak::new(), SessionId::generate(), true)))
    }

    /// Returns a handle with the values of its runtime.
    pub(crate) fn of(live: Arc<Live>) -> Self {
        let deps = live.env.deps.clone();
        Self(live, deps)
    }

    /// Returns a handle of the same session that also has `value`, for agents and tools that find it by its type:
    /// [`RunContext::deps`](entourage_core::run::RunContext::deps). It takes the place of the runtime's value of that
    /// type. Other handles are not changed.
    ///
    /// Runs that this handle starts, queues, resumes or replays have it, and so have all agents below them. So have the
    /// runs of prompts that it steers, unless they join another run, and those of queued prompts that its `resume`
    /// takes over. It is never stored: when the process is gone, give it again to the handle that resumes the run.
    /// [`Runtime::recover`] knows the values of its runtime alone.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use async_trait::async_trait;
    /// use entourage_core::{Result, agent::Agent, run::{Outcome, RunContext, Status, Task}};
    /// use entourage_runtime::Runtime;
    ///
    /// struct Tenant(&'static str);
    /// struct Greeter;
    ///
    /// #[async_trait]
    /// impl Agent for Greeter {
    ///     fn name(&self) -> &str {
    ///         "greeter"
    ///     }
    ///
    ///     async fn run(&self, _: Task, cx: &RunContext) -> Result<Outcome> {
    ///         let mut outcome = Outcome::new(Status::Completed);
    ///         outcome.text = format!("Hello, {}!", cx.deps::<Tenant>()?.0);
    ///         Ok(outcome)
    ///     }
    /// }
    ///
    /// let session = Runtime::builder().dep(Tenant("nobody")).build().session();
    /// let outcome = session.with_dep(Tenant("Ada")).start(Greeter, "Hi").outcome().await.unwrap();
    /// assert_eq!(outcome.text, "Hello, Ada!");
    /// # });
    /// ```
    #[must_use]
    pub fn with_dep<T: Any + Send + Sync>(&self, value: T) -> Self {
        Self(Arc::clone(&self.0), self.1.with(value))
    }

    pub(super) fn env(&self) -> &Arc<Env> {
        &self.0.env
    }

    /// Returns another session of the same runtime, with the values of this handle.
    pub(super) fn sibling(&self, id: SessionId) -> Result<Self> {
        Ok(Self(self.runtime()?.session_with_id(id).0, self.1.clone()))
    }

    /// Returns its runtime.
    pub(crate) fn runtime(&self) -> Result<Runtime> {
        self.0.registry.upgrade().map(Runtime).ok_or_else(|| {
            Error::new(
                ErrorKind::Config,
                "the runtime of this session is gone; keep it while its sessions are used",
            )
        })
    }

    /// Returns the session of a question or a call that is handled through this one: itself, or one below it. An id of
    /// any other session is looked for here, where it is not found.
    pub(super) async fn holding(&self, id: Option<SessionId>) -> Result<Self> {
        let Some(held) = id.filter(|id| id != self.id()) else { return Ok(self.clone()) };
        let found = self.sibling(held)?;
        let mut above = found.0.journal(false).await.map(|journal| journal.record.parent.clone());
        while let Ok(Some(parent)) = above {
            if parent == *self.id() {
                return Ok(found);
            }
            above = self.sibling(parent)?.0.journal(false).await.map(|journal| journal.record.parent.clone());
        }
        match above {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(self.clone()),
        }
    }

    /// Returns its id.
    #[must_use]
    pub fn id(&self) -> &SessionId {
        &self.0.id
    }

    /// Returns the time by the clock of its runtime, which decides about deadlines.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.0.env.clock.now()
    }

    /// Starts a run, at once or after the runs before it in this session. The run continues by itself; the handle
    /// streams its events and gives its outcome.
    ///
    /// Runs that wait begin in the order of these calls. They are stored: if the process dies, [`Runtime::recover`]
    /// finds them. They also wait behind a run that paused. [`Session::resume`] continues that run; a further call of
    /// `start` abandons it, and the queue goes on: with the oldest prompt, behind which this one waits in turn if that
    /// pauses too. If the session holds an unfinished run when a new one begins, the unfinished one is abandoned as
    /// well. A run that is abandoned ends as cancelled before the new one begins
    /// ([`RunFinished::abandoned`](entourage_core::event::RunFinished::abandoned)), and so do the runs below it: their
    /// calls are answered, and their questions are closed.
    ///
    /// The outcome of a queued prompt is [`ErrorKind::Queued`] when the prompt is stored and its run could neither
    /// begin here nor be taken back, as while the store cannot be reached: [`Runtime::recover`] runs it, so do not send
    /// it again. After any other error in the queue it does not run, except that [`ErrorKind::Timeout`] (the store does
    /// not answer) leaves that open, and so does [`ErrorKind::Store`] where the store may have failed after it had
    /// written: see [`SessionState::queue`] before you send it again.
    ///
    /// An empty prompt, a full queue and the like are errors of the outcome, and nothing is stored. So is an error of a
    /// guard on prompts ([`RuntimeBuilder::guard_prompts`]), which are called before this returns. So is a session
    /// below another one ([`ErrorKind::InvalidInput`]): it runs through its root, which gives it its scope and its
    /// budget. Must be called within a tokio runtime.
    pub fn start<Form>(&self, agent: impl IntoAgent<Form>, prompt: impl Into<Task>) -> RunHandle {
        self.0.begin(Entry::new(RunId::generate(), agent.into_agent(), &self.1), prompt.into())
    }

    /// Adds a prompt to the active run: it joins the conversation before the next model call, together with all that
    /// came meanwhile. If there is no further call, it begins a run of the same agent, which subscribers and observers
    /// see. Only a `ReactAgent` takes prompts in; after any other agent they begin runs. Bounds of the task count for a
    /// run that it begins.
    ///
    /// Returns once the prompt is stored. Dropping the future takes nothing back.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when the session has no open run: use [`Session::start`] then. [`ErrorKind::Paused`] for
    /// one that is paused or was left by its process: [`Session::resume`] continues it, and `start` would abandon it.
    /// [`ErrorKind::InvalidInput`] for a session below another one, whose agent takes prompts from its parent alone.
    /// [`ErrorKind::EmptyPrompt`], [`ErrorKind::Busy`] for a full queue or a run of another process,
    /// [`ErrorKind::Cancelled`] when the session was cancelled meanwhile, those of a guard on prompts, the store's.
    pub async fn steer(&self, prompt: impl Into<Task>) -> Result<()> {
        self.0.steer(prompt.into(), &self.1).await
    }

    /// Continues the run that a process left unfinished, or that is paused. No completed step runs again. What this
    /// runtime's run had come to when its store failed is stored first, unless another process went on with the run.
    ///
    /// Do this when the process that ran it is gone: a dead process cannot be told from a slow one. A live one is
    /// fenced off at its next append, with [`ErrorKind::Conflict`], and its calls in flight may have run by then.
    ///
    /// The outcome is [`ErrorKind::NotFound`] when there is no such run, [`ErrorKind::Conflict`] when another process
    /// was faster, [`ErrorKind::Config`] when another agent started it, [`ErrorKind::InvalidInput`] for a session below
    /// another one: resume its root, which enters its children again.
    pub fn resume<Form>(&self, agent: impl IntoAgent<Form>) -> RunHandle {
        self.0.go_on(Entry::new(RunId::generate(), agent.into_agent(), &self.1), Admission::Resume, None)
    }

    /// Cancels the active run and drops the prompts that wait. Later prompts are not affected, and an idle session is
    /// not changed. See [`RunHandle::cancel`] for the outcome of the run.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Cancels as [`Session::cancel`] does, and waits until all of it has unwound, at most for `limit`. Returns true if
    /// it has.
    pub async fn cancel_within(&self, limit: Duration) -> bool {
        let mark = self.0.cancel();
        tokio::time::timeout(limit, self.0.unwound(mark)).await.is_ok()
    }

    /// Cancels, waits until all of it has unwound, and ends the run that is still open: one that is paused, or that a
    /// process left, ends as cancelled, and so do the runs below it. The next prompt is a new task. Returns true if
    /// there was such a run.
    ///
    /// Dropping the future takes nothing back.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] when another process runs an agent here, or a run was started here meanwhile; the store's.
    pub async fn stop(&self) -> Result<bool> {
        let session = self.clone();
        apart(&self.env().tasks, Box::pin(async move { crate::session::stop::stop(&session).await })).await
    }

    /// Asks the active run to pause, if there is one: see [`RunHandle::pause`]. That may be a run that began with a
    /// prompt of [`Session::steer`]. Runs queued behind it wait until it is resumed or abandoned: see
    /// [`Session::start`]. A run that ends before its next effect has ended, and the queue goes on.
    pub fn pause(&self) {
        self.0.pause();
    }

    /// Returns true while a run, or an operation such as a compaction, is active in this process.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.0.is_busy()
    }

    /// Returns the conversation as a model sees it now; empty for a session without runs. A compaction puts a summary
    /// in the place of older messages: [`Telemetry::trace`](crate::telemetry::Telemetry::trace) has them all.
    ///
    /// # Errors
    /// The store's.
    pub async fn history(&self) -> Result<History> {
        self.read(|state| state.history().clone()).await
    }

    /// Returns the session's head, which lists show.
    ///
    /// # Errors
    /// The store's.
    pub async fn head(&self) -> Result<SessionHead> {
        self.read(|state| state.head().clone()).await
    }

    /// Returns the fold of the session's events.
    ///
    /// # Errors
    /// The store's.
    pub async fn state(&self) -> Result<SessionState> {
        self.read(SessionState::clone).await
    }

    /// Returns the id of the run that a process left unfinished or that is paused, if there is one.
    ///
    /// # Errors
    /// The store's.
    pub async fn unfinished(&self) -> Result<Option<RunId>> {
        self.read(|state| state.run().map(|run| run.id)).await
    }

    pub(super) async fn read<T: Default>(&self, read: impl FnOnce(&SessionState) -> T) -> Result<T> {
        match self.0.journal(false).await {
            Ok(journal) => Ok(journal.read(read)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(T::default()),
            Err(error) => Err(error),
        }
    }

    /// Sends the session a signal: a run that is paused for it continues with it when it is resumed. Dropping the
    /// future takes nothing back. Its value is the program's own word, without
    /// [labels](entourage_core::tool::Labels).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a value that is nested deeper than 96 levels, which no reader would take;
    /// [`ErrorKind::TooLarge`] for one of more than about 32 MiB, or a name of more than 512 bytes;
    /// [`ErrorKind::NotFound`] when the session is not stored, [`ErrorKind::Busy`] while a run is active, the store's.
    pub async fn signal(&self, name: impl Into<String>, value: Value) -> Result<()> {
        let signal = Arc::new(Signal::new(name.into(), value));
        bound::check_name(&signal.name, "the signal's name")?;
        bound::check(&signal.value, bound::VALUE).map_err(|flaw| flaw.refused("the signal's value"))?;
        self.append(move |_| Ok(Some(Event::SignalReceived(Arc::clone(&signal))))).await
    }

    /// Answers the question that paused a run, in this session or in one below it; [`Session::resume`] then continues
    /// the run. In a session below another one, resume its root: it enters its children again.
    ///
    /// The answer is bound to the exact call that was asked about and is used once, unless it allows more. The first
    /// final answer holds, also among several processes. Until the run is resumed, the same answer again changes
    /// nothing and is no error; afterwards the question is no longer open. [`Decision::by`] names who decided, and the
    /// name is stored with the decision. A refusal holds although a grant or a rule covers the call by then. Dropping
    /// the future takes nothing back.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when no such question is open, also after the run was resumed, and when the run that
    /// asked, or one above it, is over or was abandoned for a newer prompt: the error says which;
    /// [`ErrorKind::InvalidInput`] for [`Decision::Later`], [`ErrorKind::Unsupported`] for [`Decision::AllowAlways`] if
    /// the runtime has no [`grants`](crate::RuntimeBuilder::grants), their keeper's, and then the call is allowed
    /// once, and the same answer tries again,
    /// [`ErrorKind::TooLarge`] for a reason or question above 64 KiB,
    /// [`ErrorKind::Conflict`] when the question was answered otherwise: the error says who decided what,
    /// [`ErrorKind::Busy`] while a run is active, the store's.
    pub async fn decide(&self, id: &ApprovalId, answer: impl Into<Answer>) -> Result<()> {
        let answer = answer.into();
        match &answer.decision {
            Decision::Later => {
                let text = "the question is open already; answer it, or put it off until a time";
                return Err(Error::new(ErrorKind::InvalidInput, text));
            }
            Decision::AllowAlways if self.env().grants.is_none() => {
                return Err(Error::new(ErrorKind::Unsupported, NO_KEEPER));
            }
            decision if told(decision).is_some_and(|text| text.len() > LONGEST) => {
                let text = "the text of the answer is longer than 64 KiB; say it in fewer words";
                return Err(Error::new(ErrorKind::TooLarge, text));
            }
            _ => {}
        }
        let (session, id) = (self.holding(id.session()).await?, id.clone());
        apart(&self.env().tasks, Box::pin(async move { session.decided(&id, answer).await })).await
    }

    async fn decided(&self, id: &ApprovalId, answer: Answer) -> Result<()> {
        let journal = self.0.journal(false).await?;
        if journal.read(|state| state.asked(id).is_some()) {
            check_continued(self.env(), &journal, id).await?;
        }
        let question = journal.read(|state| {
            let mut open = state.questions().iter();
            open.find(|it| it.request.id == *id).map(|it| Arc::clone(&it.request))
        });
        let (always, name) = (answer.decision == Decision::AllowAlways, answer.by.clone());
        let written = self.written(|journal| {
            let (answered, digest) = journal.read(|state| state.asked(id)).ok_or_else(|| unknown(id))?;
            let Answer { decision, by, .. } = answer.clone();
            match answered {
                Some(answered) if answered == decision => return Ok(None),
                Some(answered) if !answered.is_open() => return Err(answered_otherwise(id, &answered)),
                _ => {}
            }
            let decided = ApprovalDecided::new(id.clone(), decision, digest, by, None);
            Ok(Some(Event::ApprovalDecided(Arc::new(decided))))
        });
        match written.await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(closed(self.env(), self.id(), id).await.unwrap_or(error))
            }
            Err(error) if error.kind() == ErrorKind::Conflict => {
                Err(match decider(self.env(), self.id(), id).await {
                    Some(by) => error.with("decided_by", &*by),
                    None => error,
                })
            }
            Err(error) => Err(error),
            Ok(()) if !always => Ok(()),
            Ok(()) => {
                let question = match question {
                    Some(question) => question,
                    // Answered before, and perhaps not kept.
                    None => asked(self.env(), self.id(), id).await?.ok_or_else(|| unknown(id))?,
                };
                keep(self.env(), &question, name.as_deref()).await
            }
        }
    }

    /// Makes the conversation smaller now: a summary takes the place of its older messages, which the store keeps.
    /// `model` is the agent's own; it writes the summary unless `compaction` names another one. Returns false, without
    /// a call, when nothing could be removed.
    ///
    /// Prompts that are queued meanwhile run afterwards. [`Session::cancel`], or dropping the future, leaves the
    /// conversation as it was.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] while a run is active or left unfinished, [`ErrorKind::InvalidInput`] for a session below
    /// another one, [`ErrorKind::Cancelled`], the reason that no summary was taken (the conversation is then
    /// unchanged), the store's.
    pub async fn compact(&self, compaction: &Compaction, model: &Model) -> Result<bool> {
        let cancel = CancellationToken::new();
        let _dropped = cancel.clone().drop_guard();
        let (session, compaction, model) = (self.clone(), compaction.clone(), model.clone());
        let work = async move { session.compacted(cancel, &compaction, &model).await };
        apart(&self.env().tasks, Box::pin(work)).await
    }

    async fn compacted(
        &self,
        cancel: CancellationToken,
        compaction: &Compaction,
        model: &Model,
    ) -> Result<bool> {
        let run = RunId::generate();
        let _active = self.0.claim(run, &cancel, false).await?;
        let journal = match self.0.journal(false).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            journal => journal?,
        };
        refuse_below(&self.0.env, &journal).await?;
        let env = Arc::clone(&self.0.env);
        let emitter = Emitter::new(None, &env).at(Arc::clone(&self.0), run);
        Box::pin(compact_session(env, journal, (run, emitter, cancel), compaction, model)).await
    }

    /// Stores the event that `event` derives from the session as it is, if any. When another process was faster, it is
    /// derived again.
    async fn append(
        &self,
        event: impl Fn(&Journal) -> Result<Option<Event>> + Send + Sync + 'static,
    ) -> Result<()> {
        let session = self.clone();
        // It blocks runs, so it comes to its end without its caller.
        apart(&self.env().tasks, Box::pin(async move { session.written(event).await })).await
    }

    pub(super) async fn written(
        &self,
        event: impl Fn(&Journal) -> Result<Option<Event>> + Send + Sync,
    ) -> Result<()> {
        let run = RunId::generate();
        let _active = self.0.claim(run, &CancellationToken::new(), true).await?;
        let (mut tries, mut known) = (0, self.0.created());
        loop {
            let journal = self.0.journal(false).await?;
            // Nothing was seen here of a session that was made anew under its id.
            journal.check_created(Some(*known.get_or_insert(journal.record.created)))?;
            let now = self.0.env.clock.now();
            // Only the lease shows that a child runs below another session's run.
            journal.check_unleased(now)?;
            let Some(event) = event(&journal)? else { return Ok(()) };
            let (open, agent) =
                journal.read(|state| (state.run().map(|open| open.id), Arc::clone(&state.head().agent)));
            let origin = Arc::new(Origin::new(self.0.id.clone(), open.unwrap_or(run), agent));
            journal.stage(&origin, now, event);
            let emitter = Emitter::new(None, &self.0.env).at(Arc::clone(&self.0), run);
            match journal.commit(&emitter).await {
                Err(error) if error.kind() == ErrorKind::Conflict && tries < TRIES => tries += 1,
                stored => {
                    // A run that is resumed goes on from this event as well.
                    journal.forget_recorded();
                    return stored;
                }
            }
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.0.id).finish_non_exhaustive()
    }
}
