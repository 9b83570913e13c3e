//! The place where one life of a run works: its record, and its surroundings in this process.

use std::{
    collections::{HashSet, VecDeque},
    future::{Future, poll_fn, ready},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
};

use entourage_core::{
    Error, ErrorKind, ErrorRecord, Result, Timestamp,
    budget::Budget,
    event::{EffectKey, Envelope, Event, LabelsAdded, MessageAdded, Origin, TodosChanged, WarningRaised},
    message::{Message, Role},
    permission::Scope,
    provider::WarningKind,
    run::{Effects, Performing, RunContext},
    session::SessionState,
    team::Todo,
    tool::{Labels, ToolSpec},
};
use futures_util::future::Either;
use tokio::task::coop;
use tokio_util::sync::CancellationToken;

use crate::{
    deps::Deps,
    effects::{
        asked::Newest,
        snapshot::RootRun,
        stopwatch::{CallClocks, Stopped, Stopwatch},
        subtree::Subtree,
    },
    env::Env,
    session::{
        delivery::emit::Emitter,
        journal::{Journal, flight::send_off, life::Life, weight::check_message},
    },
};

/// A todo list, by its owner: the session that keeps it, and the run there.
#[derive(Debug, Clone)]
pub(crate) struct TodoList {
    journal: Arc<Journal>,
    origin: Arc<Origin>,
}

/// The bounds that a run is given from above.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    pub(crate) scope: Scope,
    pub(crate) cancel: CancellationToken,
    /// `None` when nothing is bounded.
    pub(crate) budget: Option<Budget>,
}

/// The record of one life of a run, and its surroundings. The run's effects own it.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) env: Arc<Env>,
    pub(crate) origin: Arc<Origin>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) emitter: Emitter,
    pub(crate) todos: TodoList,
    /// Counter of its model calls; `None` when nobody needs it.
    pub(crate) subtree: Option<Arc<Subtree>>,
    /// The clock of the time limits that the run is under.
    pub(crate) clock: Option<Arc<Stopwatch>>,
    /// The clocks of the limits of its calls.
    pub(super) call_clocks: CallClocks,
    /// The program's values for its agents and tools.
    pub(crate) deps: Deps,
    /// The root's run that this one is, or is below.
    pub(crate) root: Arc<RootRun>,
    pub(crate) life: Life,
    /// True if its calls answer rules that ask about more than one place: see [`reads_unasked`].
    ///
    /// [`reads_unasked`]: crate::permission::reads_unasked
    pub(crate) reads_unasked: bool,
    /// The newest request of the run.
    pub(crate) newest: Newest,
    /// Names of tools that a warning was given about.
    warned: Mutex<HashSet<Box<str>>>,
    /// Model calls of this life that are neither a step nor a keyed effect.
    loose: AtomicU64,
    /// The error of a child whose end cannot be known.
    lost: OnceLock<ErrorRecord>,
}

impl Site {
    /// Returns the place of a run with a todo list of its own, whose calls nobody counts.
    pub(crate) fn new(env: Arc<Env>, journal: Arc<Journal>, origin: Arc<Origin>, emitter: Emitter) -> Self {
        Self {
            todos: TodoList { journal: Arc::clone(&journal), origin: Arc::clone(&origin) },
            env,
            root: RootRun::of(&origin),
            origin,
            journal,
            emitter,
            subtree: None,
            clock: None,
            call_clocks: CallClocks::default(),
            deps: Deps::default(),
            life: Life::default(),
            reads_unasked: false,
            newest: Newest::default(),
            warned: Mutex::default(),
            loose: AtomicU64::default(),
            lost: OnceLock::new(),
        }
    }

    /// Returns the clock of the limits that a child is under which `cx` starts: that of the call, or of the run. `None`
    /// where no limit can be above it, or nobody is asked.
    pub(crate) fn clock_of_child(&self, cx: &RunContext) -> Option<Arc<Stopwatch>> {
        self.env.approver.as_ref()?;
        match cx.call() {
            Some(call) => Some(self.call_clocks.begin(call, self.clock.as_ref())),
            None => self.clock.clone(),
        }
    }

    /// Stops the clocks of the limits that the run is under, until the returned guard is dropped: somebody is asked.
    pub(super) fn stop_clocks(&self) -> Option<Stopped> {
        self.clock.as_ref().map(Stopwatch::stop)
    }

    /// Records that the session reads text of these labels, unless it did before.
    pub(crate) fn read_labelled(&self, labels: Labels) {
        if !self.read(SessionState::labels).contains(labels) {
            self.note(Event::LabelsAdded(LabelsAdded::new(labels)));
        }
    }

    /// Creates the context of the run.
    pub(crate) fn context(&self, given: Given, effects: Arc<dyn Effects>) -> RunContext {
        let Given { scope, cancel, budget } = given;
        let (origin, parent) = (Arc::clone(&self.origin), self.journal.parent().cloned());
        RunContext::new(origin, parent, scope, budget, cancel, effects)
    }

    /// Returns the clock's time.
    pub(crate) fn now(&self) -> Timestamp {
        self.env.clock.now()
    }

    /// Reads the session's state.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&SessionState) -> T) -> T {
        self.journal.read(read)
    }

    /// Adds an event of the run. Returns its number.
    ///
    /// # Errors
    /// Those of [`Life::check`].
    pub(crate) fn stage(&self, at: Timestamp, event: Event) -> Result<u64> {
        self.journal.stage_in(&self.life, &self.origin, at, event)
    }

    /// Adds an event of the run at the clock's time; does nothing in a run that is over. The caller learns of that by
    /// its commit, or by the result of its effect. Returns the event's number.
    pub(crate) fn note(&self, event: Event) -> u64 {
        self.note_at(self.now(), event)
    }

    /// Adds an event of the run, as [`Site::note`] does.
    pub(crate) fn note_at(&self, at: Timestamp, event: Event) -> u64 {
        self.stage(at, event).unwrap_or_default()
    }

    /// Returns the number of the run's first event, which names its children.
    pub(crate) fn run_seq(&self) -> u64 {
        self.read(|state| state.run().map(|run| run.seq)).unwrap_or_default()
    }

    /// Returns the lasting name of a step's calls: the number of the event of the message (or of the run), and the
    /// index of the first call.
    pub(crate) fn place_of_calls(&self, key: Option<EffectKey>) -> (u64, usize) {
        match key {
            None => (self.read(|state| state.step().map(|step| step.seq)).unwrap_or_default(), 0),
            Some(key) => (self.run_seq(), usize::try_from(key.ordinal).unwrap_or(usize::MAX)),
        }
    }

    /// Returns a number for a model call that is neither a step nor a keyed effect: no other in any life of the run has
    /// it.
    pub(crate) fn loose_call(&self) -> u64 {
        let count = self.loose.fetch_add(1, Ordering::Relaxed) & 0xffff;
        (self.journal.seq() << 16) | count
    }

    /// Adds an event of the run that `make` derives from the current state, as [`Journal::stage_with`] does.
    ///
    /// # Errors
    /// Those of [`Life::check`] and of `make`; nothing is added then.
    pub(crate) fn stage_with(
        &self,
        at: Timestamp,
        make: impl FnOnce(&SessionState) -> Result<Event>,
    ) -> Result<u64> {
        self.journal.stage_with(&self.life, &self.origin, at, make)
    }

    /// Stores and delivers all that was staged.
    ///
    /// # Errors
    /// Those of [`Life::check`], the store's.
    pub(crate) fn commit(&self) -> impl Future<Output = Result<()>> + Send + '_ {
        match self.life.check() {
            Ok(()) => Either::Left(self.journal.commit(&self.emitter)),
            Err(over) => Either::Right(ready(Err(over))),
        }
    }

    /// Stores and delivers all that was staged. Where nothing is stored and nobody is waited for, it allocates nothing.
    ///
    /// # Errors
    /// As [`Site::commit`].
    pub(crate) fn commit_boxed(&self) -> Performing<'_, ()> {
        if self.life.is_over() || self.journal.store.is_some() {
            return Box::pin(self.commit());
        }
        match self.journal.hand_over(&self.emitter) {
            Some(left) => Box::pin(async move {
                send_off(left, &self.emitter).await;
                self.commit().await
            }),
            // A future without a size, and so without an allocation.
            None if matches!(self.journal.wants_more(), Ok(false)) => Box::pin(poll_fn(|task| {
                std::task::ready!(coop::poll_proceed(task)).made_progress();
                Poll::Ready(Ok(()))
            })),
            None => Box::pin(self.commit()),
        }
    }

    /// Adds prompts that came meanwhile to the conversation. Must be called between steps, when no call is open.
    pub(crate) fn fold_prompts(&self) -> Performing<'_, ()> {
        match self.emitter.session() {
            _ if self.life.is_over() || !self.emitter.is_of_root() => {}
            Some(session) => session.fold(&self.journal, &self.origin),
            // In a replay they join where they did.
            None => drop(self.journal.follow(|script, state| script.fold(state))),
        }
        // A future without a size, and so without an allocation.
        Box::pin(poll_fn(|_| Poll::Ready(Ok(()))))
    }

    /// Adds a message of the program's own, unless `recorded` has it.
    ///
    /// # Errors
    /// As [`Effects::remind`].
    pub(crate) fn remind(&self, recorded: &[Event], message: Arc<Message>) -> Result<()> {
        let is_it = |event: &Event| matches!(event, Event::MessageAdded(it) if it.queued.is_none() && it.message == message);
        if recorded.iter().any(is_it) {
            return self.life.check();
        }
        check_message(&message)?;
        let refused = |text: &str| Err(Error::new(ErrorKind::InvalidInput, text.to_owned()));
        if message.role() != Role::User {
            return refused("only a user's message joins the conversation so; make it with `Message::user`");
        }
        if self.read(|state| state.step().is_some()) {
            return refused("a tool call waits for its result; add the message between two steps");
        }
        let added = MessageAdded::new(message, None);
        self.stage(self.now(), Event::MessageAdded(Arc::new(added))).map(drop)
    }

    /// Delivers an event that is not stored.
    pub(crate) fn show(&self, shown: Event) {
        if self.life.is_over() || shown.is_stored() {
            return;
        }
        let envelope = Envelope::new(Arc::clone(&self.origin), self.journal.seq(), self.now(), shown);
        self.emitter.emit(&mut VecDeque::from([envelope]));
    }

    /// Warns, once for each tool in a life of the run, of rules that cannot be matched against its calls.
    pub(crate) fn warn_of_rules<'t>(&self, tools: impl IntoIterator<Item = &'t ToolSpec>) {
        let policy = &self.env.policy;
        if policy.rules().all(|rule| rule.subject.is_none()) {
            return;
        }
        for spec in tools.into_iter().filter(|spec| {
            self.warned.lock().unwrap_or_else(PoisonError::into_inner).insert(spec.name().into())
        }) {
            let rules: Vec<_> = policy.unmatchable(spec).map(|rule| format!("`{rule}`")).collect();
            if rules.is_empty() {
                continue;
            }
            let text = format!(
                "the tool `{}` does not declare that it names what its calls touch, so these rules cannot be matched \
                 against them: {}. What they deny or ask holds for each of them that names nothing, what they allow for none; write \
                 rules for the whole tool, or declare `ToolSpec::naming_subjects` where its footprints name all",
                spec.name(),
                rules.join(", "),
            );
            let warning = WarningRaised::new(WarningKind::Rule, spec.name().into(), text.into(), None);
            self.note(Event::WarningRaised(Arc::new(warning)));
        }
    }

    /// Returns the error of a child whose end cannot be known: its code differs, or its session cannot be read or
    /// written. Nothing is recorded of it, so the run gets nothing more, and ends with this error.
    pub(crate) fn lost(&self) -> Option<Error> {
        self.lost.get().map(ErrorRecord::to_error)
    }

    /// Keeps the error of a child whose end cannot be known, unless one is known. Returns the one that is kept.
    pub(crate) fn lose(&self, error: ErrorRecord) -> Error {
        self.lost.get_or_init(|| error).to_error()
    }

    /// Returns the todo list. Whoever reads the list of another session reads what those had read who wrote it.
    pub(crate) fn todos(&self) -> Vec<Todo> {
        if !Arc::ptr_eq(&self.todos.journal, &self.journal) {
            self.read_labelled(self.todos.journal.read(SessionState::labels));
        }
        self.todos.journal.read(|state| state.todos().to_vec())
    }

    /// Replaces the todo list.
    ///
    /// # Errors
    /// Those of [`Life::check`], the store's.
    pub(crate) async fn set_todos(&self, todos: Vec<Todo>) -> Result<()> {
        let TodoList { journal, origin: owner } = &self.todos;
        let origin = Origin::new(owner.session.clone(), owner.run, Arc::clone(&self.origin.agent));
        let origin = Arc::new(origin);
        let labels = self.read(SessionState::labels);
        // Before the list, which nobody may read without them.
        if !journal.read(SessionState::labels).contains(labels) {
            let added = Event::LabelsAdded(LabelsAdded::new(labels));
            journal.stage_in(&self.life, &origin, self.now(), added)?;
        }
        let changed = Event::TodosChanged(Arc::new(TodosChanged::new(todos)));
        journal.stage_in(&self.life, &origin, self.now(), changed)?;
        journal.commit(&self.emitter).await
    }

    /// Ends this life: each effect of its contexts is refused from now on.
    pub(crate) fn end(&self, cancelled: bool) {
        self.journal.end(&self.life, cancelled);
    }
}
