//! The runtime: a store, a policy, an approver and observers. Opens sessions, and starts runs in them.

pub(crate) mod recover;

use std::{any::Any, sync::Arc, time::Duration};

use entourage_core::{
    Clock, Result, SessionId, SystemClock,
    budget::BudgetLimits,
    message::Message,
    permission::{Approver, Grants},
    provider::Egress,
    run::Observer,
    session::{SessionFilter, SessionInfo, SessionStore, SharedStore, Snapshots},
    tool::ToolLayer,
};
use tokio_util::task::TaskTracker;

use crate::{
    deps::Deps,
    engine::Engine,
    env::Env,
    guards::PromptGuards,
    memory::MemoryStore,
    permission::Policy,
    session::{
        Session,
        delivery::{
            bus::{Bus, Subscription},
            emit::Watcher,
        },
        live::Registry,
    },
    titles::Titles,
};

pub use recover::{Recovery, SkipReason, Skipped};

/// Time that [`Runtime::cancel_all`] waits for runs to unwind.
const UNWIND: Duration = Duration::from_secs(5);

/// The surroundings of runs: store, policy, approver, observers. Cloning shares them.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_runners::ReactAgent;
/// use entourage_runtime::Runtime;
/// use entourage_testkit::ScriptedProvider;
///
/// let provider = ScriptedProvider::new().text("Hello!").text("You said hi.");
/// let agent = ReactAgent::builder("greeter", provider.model()).build().unwrap();
///
/// let runtime = Runtime::in_memory();
/// let session = runtime.session();
/// session.start(&agent, "Hi").outcome().await.unwrap();
/// let outcome = session.start(&agent, "What did I say?").outcome().await.unwrap();
/// assert_eq!(outcome.text, "You said hi.");
/// assert_eq!(session.history().await.unwrap().len(), 4);
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct Runtime(pub(crate) Arc<Registry>);

impl Runtime {
    /// Starts building a runtime.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    /// Creates a runtime that keeps its sessions in memory, with the default policy and without an approver.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::builder().build()
    }

    /// Creates a session. Nothing is stored until its first run begins.
    #[must_use]
    pub fn session(&self) -> Session {
        Session::of(self.0.open(SessionId::generate(), true))
    }

    /// Returns the session of this id: the stored one if there is one, otherwise a new one. `$$` is for the ids of
    /// child sessions: a new session whose id holds it is refused when something is to be stored in it.
    #[must_use]
    pub fn session_with_id(&self, id: SessionId) -> Session {
        Session::of(self.0.open(id, false))
    }

    /// Opens a stored session, to continue it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](entourage_core::ErrorKind::NotFound) when there is none of this id; the store's own
    /// errors, `Corrupt` and `NewerVersion` among them.
    pub async fn open(&self, id: &SessionId) -> Result<Session> {
        let session = self.session_with_id(id.clone());
        session.0.journal(false).await?;
        Ok(session)
    }

    /// Lists stored sessions, newest first.
    ///
    /// # Errors
    /// The store's.
    pub async fn sessions(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        self.0.store.query(filter).await
    }

    /// Cancels the run of a session, if there is one, and drops the prompts queued there. Later prompts are not
    /// affected.
    pub fn cancel(&self, session: &SessionId) {
        if let Some(session) = self.0.get(session) {
            session.cancel();
        }
    }

    /// Cancels every run, drops every queued prompt, and waits until all have unwound, at most 5 seconds. Returns true
    /// if they have.
    pub async fn cancel_all(&self) -> bool {
        let sessions = self.0.all();
        for session in &sessions {
            session.cancel();
        }
        let unwound = async {
            while !self.0.env.tasks.is_empty() {
                let tasks = self.0.env.tasks.clone();
                tasks.close();
                tasks.wait().await;
            }
        };
        let all = tokio::time::timeout(UNWIND, unwound).await.is_ok();
        self.0.env.tasks.reopen();
        all
    }

    /// Streams all events of all runs from now on, children's and streamed ones included, for a reader that may be
    /// slow.
    #[must_use]
    pub fn subscribe(&self) -> Subscription {
        Bus::subscribe(&self.0.env, self.0.env.event_buffer)
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &SharedStore {
        &self.0.store
    }
}

/// Builds a [`Runtime`].
#[must_use = "a builder does nothing until `build`"]
#[derive(Debug)]
pub struct RuntimeBuilder {
    store: Option<SharedStore>,
    clock: Arc<dyn Clock>,
    guards: PromptGuards,
    policy: Policy,
    grants: Option<Arc<dyn Grants>>,
    snapshots: Option<Arc<dyn Snapshots>>,
    approver: Option<Arc<dyn Approver>>,
    tool_layers: Vec<Arc<dyn ToolLayer>>,
    observers: Vec<Arc<dyn Observer>>,
    egress: Egress,
    deps: Deps,
    titles: Option<Titles>,
    engine: Option<Arc<dyn Engine>>,
    budget: Option<BudgetLimits>,
    lease: Duration,
    queue: usize,
    event_buffer: usize,
    checkpoint_every: u64,
    sub_agents: usize,
    readers_unasked: bool,
}

impl Default for RuntimeBuilder {
    fn default() -> Self {
        Self {
            store: None,
            clock: Arc::new(SystemClock),
            guards: PromptGuards::default(),
            policy: Policy::new(),
            grants: None,
            snapshots: None,
            approver: None,
            tool_layers: Vec::new(),
            observers: Vec::new(),
            egress: Egress::Any,
            deps: Deps::default(),
            titles: None,
            engine: None,
            budget: None,
            lease: Duration::from_secs(30),
            queue: 1_000,
            event_buffer: 4_096,
            checkpoint_every: 512,
            sub_agents: 10,
            readers_unasked: false,
        }
    }
}

impl RuntimeBuilder {
    /// Sets the store of the sessions. Default: in memory.
    pub fn store(mut self, store: impl SessionStore + 'static) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Sets a store that others use too.
    pub fn shared_store(mut self, store: SharedStore) -> Self {
        self.store = Some(store);
        self
    }

    /// Sets the rules about tool calls. Default: reading is allowed, anything else is asked for.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the approver. Without one, a call that must be asked for pauses its run.
    pub fn approver(mut self, approver: impl Approver + 'static) -> Self {
        self.approver = Some(Arc::new(approver));
        self
    }

    /// Sets the keeper of the calls that approvers allow always. Without one, [`Decision::AllowAlways`] is refused.
    ///
    /// [`Decision::AllowAlways`]: entourage_core::permission::Decision::AllowAlways
    pub fn grants(mut self, grants: impl Grants + 'static) -> Self {
        self.grants = Some(Arc::new(grants));
        self
    }

    /// Sets the keeper of what prompts change outside of their session, such as the files of a directory. Before the
    /// first call of a run, or of an agent below it, that may change something, it takes a snapshot, to which
    /// [`Session::rewind`] goes back. Calls that may are those that declare write or execute access. If a snapshot
    /// cannot be taken, the call does not run, and the model is told why.
    pub fn snapshots(mut self, snapshots: impl Snapshots + 'static) -> Self {
        self.snapshots = Some(Arc::new(snapshots));
        self
    }

    /// Adds a guard on prompts, after those that were added before. Each prompt that enters a session of this runtime
    /// from outside passes through it before anything is stored: those of [`Session::start`] and [`Session::steer`],
    /// also while they wait in the queue, and each user message of [`Session::begin_with`]. What the guard returns is
    /// what is stored and what models see. After an error nothing is stored or run, and the caller gets the error.
    ///
    /// The guard is called where the prompt comes in, so it must be quick. It may be asked about a prompt that is
    /// refused afterwards, such as one for a full queue.
    ///
    /// Not guarded are the prompts that agents and plans give to agents below: they are the arguments of tool calls,
    /// which pass tool layers, or of graphs. So are answers, decisions and signals. A stored prompt passed the guards
    /// when it came, and is not guarded again when a run resumes, a session is forked, or another process takes the
    /// queue over.
    ///
    /// A guard that panics refuses ([`ErrorKind::Internal`]). So does one that returns a blank prompt
    /// ([`ErrorKind::EmptyPrompt`]) or no user message ([`ErrorKind::InvalidInput`]).
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use entourage_core::message::Message;
    /// use entourage_runners::ReactAgent;
    /// use entourage_runtime::Runtime;
    /// use entourage_testkit::ScriptedProvider;
    ///
    /// let provider = ScriptedProvider::new().text("Hello!");
    /// let agent = ReactAgent::builder("greeter", provider.model()).build().unwrap();
    /// let runtime = Runtime::builder()
    ///     .guard_prompts(|prompt| Ok(Message::user(prompt.text().replace("4711", "****"))))
    ///     .build();
    /// runtime.session().start(&agent, "My code is 4711").outcome().await.unwrap();
    /// assert_eq!(provider.requests()[0].messages.last().unwrap().text(), "My code is ****");
    /// # });
    /// ```
    ///
    /// [`ErrorKind::Internal`]: entourage_core::ErrorKind::Internal
    /// [`ErrorKind::EmptyPrompt`]: entourage_core::ErrorKind::EmptyPrompt
    /// [`ErrorKind::InvalidInput`]: entourage_core::ErrorKind::InvalidInput
    pub fn guard_prompts(
        mut self,
        guard: impl Fn(Message) -> Result<Message> + Send + Sync + 'static,
    ) -> Self {
        self.guards.add(guard);
        self
    }

    /// Adds a layer around all tools, inside those that were added before. A tool's own layers are inside these.
    pub fn tool_layer(mut self, layer: impl ToolLayer + 'static) -> Self {
        self.tool_layers.push(Arc::new(layer));
        self
    }

    /// Adds an observer, which sees every event.
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    /// Bounds what each run of a root session may use, with all that it starts, unless its task says otherwise
    /// ([`Task::with_budget`](entourage_core::run::Task::with_budget)). Default: no bounds.
    pub fn budget(mut self, limits: BudgetLimits) -> Self {
        self.budget = Some(limits);
        self
    }

    /// Sets the clock. Default: the system's clock.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sets the hosts that model calls may connect to. Default: all.
    pub fn egress(mut self, egress: Egress) -> Self {
        self.egress = egress;
        self
    }

    /// Adds a value of the program's own type for its agents and tools, which find it by that type:
    /// [`RunContext::deps`](entourage_core::run::RunContext::deps). One that [`Session::with_dep`] gives wins. Of two
    /// values of one type the later one counts; an `Arc<T>` is another type than `T`.
    ///
    /// It is never stored and is part of no `Debug` output: a run that continues in another process gets what the
    /// runtime has there. Model calls are not given it. It is behind the scope, the policy and the approver of a call,
    /// and changes none of them.
    pub fn dep<T: Any + Send + Sync>(mut self, value: T) -> Self {
        self.deps = self.deps.with(value);
        self
    }

    /// Gives each root session a title, beside its first run. Default: the first words of its first prompt.
    pub fn titles(mut self, titles: Titles) -> Self {
        self.titles = Some(titles);
        self
    }

    /// Sets an engine, which gives each run its effects. Default: they are performed in this process.
    pub fn effects(mut self, engine: impl Engine + 'static) -> Self {
        self.engine = Some(Arc::new(engine));
        self
    }

    /// Sets the time after which a run's lease on its session expires unless it is renewed; a live run renews it well
    /// before. Default 30 seconds: that long after a process died, others may recover its runs. Times are those of the
    /// processes' clocks: a process that dies with its clock ahead leaves a lease until the others' clocks are there.
    pub fn lease(mut self, time: Duration) -> Self {
        self.lease = time;
        self
    }

    /// Sets the number of prompts that may wait in one session; more are refused. Default 1,000.
    pub fn queue(mut self, prompts: usize) -> Self {
        self.queue = prompts;
        self
    }

    /// Sets the number of events that a subscriber may lag behind before it misses some; at least 1. Default 4,096.
    pub fn event_buffer(mut self, events: usize) -> Self {
        self.event_buffer = events;
        self
    }

    /// Sets the smallest number of events between two checkpoints of a session; a long conversation has more between
    /// them. Default 512.
    pub fn checkpoint_every(mut self, events: u64) -> Self {
        self.checkpoint_every = events;
        self
    }

    /// Sets the number of agents that may run at once below one run of a root session; at least 1. Default 10.
    ///
    /// Further ones wait for a slot, in the order in which they were started. An agent that waits for others below it
    /// lends its slot, so nesting cannot deadlock. The parts of a run take no slot: titles, summaries, and the phases
    /// of a `DualAgent`.
    pub fn sub_agents(mut self, at_once: usize) -> Self {
        self.sub_agents = at_once;
        self
    }

    /// Allows each call that an approver would be asked about, of agents that only read below an agent that only looks:
    /// the scope of the one above has nothing beyond reading, starting agents and asking the user, as in plan mode and
    /// with [`Preset::Read`](crate::permission::Preset::Read), and that of the reader nothing beyond reading. For
    /// research while a plan is made. Default: they ask like any agent.
    ///
    /// Rules that deny, rules that ask about a subject and layers that ask hold as ever. Each call records that it was
    /// allowed by this. It is decided when the reader is started, and again where another process resumes it.
    pub fn auto_approve_readers(mut self) -> Self {
        self.readers_unasked = true;
        self
    }

    /// Builds the runtime.
    #[must_use]
    pub fn build(mut self) -> Runtime {
        let store = self.store.get_or_insert_with(|| Arc::new(MemoryStore::new()));
        let store = Arc::clone(store);
        Runtime(Arc::new(Registry::new(Arc::new(self.env()), store)))
    }

    pub(crate) fn env(self) -> Env {
        Env {
            store: self.store,
            clock: self.clock,
            guards: self.guards,
            policy: self.policy,
            grants: self.grants,
            snapshots: self.snapshots,
            auto_approved: Default::default(),
            approver: self.approver,
            tool_layers: self.tool_layers,
            observers: match self.observers {
                none if none.is_empty() => Arc::default(),
                observers => observers.into_iter().map(Watcher::new).collect(),
            },
            egress: self.egress,
            deps: self.deps,
            tasks: TaskTracker::new(),
            bus: Bus::default(),
            unstored: Default::default(),
            queue: self.queue,
            event_buffer: self.event_buffer,
            titles: self.titles,
            engine: self.engine,
            budget: self.budget,
            owner: crate::random::random(),
            lease: self.lease,
            checkpoint_every: self.checkpoint_every.max(1),
            sub_agents: self.sub_agents.max(1),
            readers_unasked: self.readers_unasked,
            texts: Default::default(),
        }
    }
}
