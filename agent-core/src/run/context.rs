//! The context of a run. It carries what narrows on the way down (scope, budget, cancellation), and nothing that could
//! widen it.

use std::{
    any::{Any, TypeId, type_name},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    Delegate, Effect, Effects, Limits, ModelCall, Observation, Outcome, PendingCall, Spawn, Task, ToolCalls,
    waited::{Child, Waited},
};
use crate::{
    Digest, Error, ErrorKind, Result, RunId, SessionId, Timestamp,
    agent::IntoAgent,
    base::bound,
    budget::Budget,
    event::{EffectKey, ModelFinished, Origin},
    message::{Arguments, History, Message, Part, Role, ToolCall, ToolResult},
    permission::Scope,
    provider::{Model, Request},
    team::Todo,
    tool::{CallId, Tools},
};

/// The context of one run. Cloning shares it.
///
/// It works until its run ends, is paused or is cancelled, in this process. After that a clone does nothing more: each
/// effect is refused with [`ErrorKind::InvalidInput`], effects in flight are cancelled, and nothing is recorded.
///
/// # Writing an agent by hand
/// An agent that uses [`RunContext::call_model`], [`RunContext::spawn`] and the other effects survives a crash without
/// further work: on resume it runs again from its top, and each effect whose observation is recorded is answered from
/// the journal. There is one rule: what the agent does must follow from its input and its observations, not from the
/// clock, the environment, random numbers or the order of a hash map. If it asks for something other than what is
/// recorded, it gets [`ErrorKind::Diverged`].
///
/// | what it wants | how |
/// |---|---|
/// | a model's reply | [`call_model`](Self::call_model) |
/// | a tool's result | [`call_tool`](Self::call_tool) |
/// | agents side by side | [`spawn`](Self::spawn), and [`wait_any`](Self::wait_any) for one of them |
/// | a conversation with another agent | [`ask`](Self::ask) |
/// | to wait, for days too | [`sleep`](Self::sleep), [`signal`](Self::signal) |
/// | the time, an id | [`now`](Self::now), [`new_id`](Self::new_id) |
/// | values of its own in the record | [`record`](Self::record) |
#[derive(Clone)]
pub struct RunContext {
    inner: Arc<Inner>,
    seen_from: SeenFrom,
}

/// The place from which a run is seen. It is small, since each run holds its context.
#[derive(Debug, Clone, Copy)]
enum SeenFrom {
    Run,
    Call { seq: u64, index: u32 },
}

/// The bounds that a run is given from above.
#[derive(Debug, Clone)]
struct Given {
    scope: Scope,
    cancel: CancellationToken,
    /// `None` when nothing is bounded.
    budget: Option<Budget>,
}

struct Inner {
    origin: Arc<Origin>,
    parent: Option<SessionId>,
    given: Given,
    effects: Arc<dyn Effects>,
    ordinal: AtomicU64,
    /// The context that this one narrows: both number their effects together.
    wider: Option<RunContext>,
}

impl RunContext {
    /// Creates the context of a run, for whoever performs its effects. `parent` is the session above it; without a
    /// `budget` nothing is bounded.
    #[must_use]
    pub fn new(
        origin: Arc<Origin>,
        parent: Option<SessionId>,
        scope: Scope,
        budget: Option<Budget>,
        cancel: CancellationToken,
        effects: Arc<dyn Effects>,
    ) -> Self {
        let (ordinal, given) = (AtomicU64::new(0), Given { scope, cancel, budget });
        let inner = Inner { origin, parent, given, effects, ordinal, wider: None };
        Self { inner: Arc::new(inner), seen_from: SeenFrom::Run }
    }

    /// Returns the session of this run.
    pub fn session(&self) -> &SessionId {
        &self.inner.origin.session
    }

    /// Returns the id of this run.
    pub fn run(&self) -> RunId {
        self.inner.origin.run
    }

    /// Returns the session above; `None` in a root.
    pub fn parent(&self) -> Option<&SessionId> {
        self.inner.parent.as_ref()
    }

    /// Returns the agents from the root down to this one, joined by `/`.
    pub fn agent(&self) -> &str {
        &self.inner.origin.agent
    }

    /// Returns the id of this run's mode, which is fixed: the one that was picked for its session when the run began.
    /// `None` when none was.
    pub fn mode(&self) -> Option<Arc<str>> {
        self.read(|state| state.run().and_then(|run| run.mode.clone()))
    }

    /// Returns the scope of this run: the most that may be done here.
    pub fn scope(&self) -> &Scope {
        &self.inner.given.scope
    }

    /// Returns the budget of this run and of all that it starts; `None` when nothing is bounded, here or above.
    ///
    /// The run's model calls and tool calls are charged to it as they are made: the agent need not do that. What an
    /// agent reserves by itself is known to this process alone; a resumed run has forgotten it.
    pub fn budget(&self) -> Option<&Budget> {
        self.inner.given.budget.as_ref()
    }

    /// Returns the token that is cancelled when the run is, and when it is over: tasks that it left must stop then.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.inner.given.cancel
    }

    /// Returns the implementation that performs this run's effects.
    pub fn effects(&self) -> &Arc<dyn Effects> {
        &self.inner.effects
    }

    /// Returns the program's own value of type `T`, such as a pool of connections or a tenant: the one that the
    /// session's handle has, or else the runtime's (`Session::with_dep`, `RuntimeBuilder::dep`). Agents below this run
    /// have the same values.
    ///
    /// Such values are never stored. A run that continues in another process has those that it is given there.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], with the type's name, when there is none.
    pub fn deps<T: Any + Send + Sync>(&self) -> Result<Arc<T>> {
        let found = self.effects().dep(TypeId::of::<T>());
        found.and_then(|value| value.downcast().ok()).ok_or_else(|| {
            let name = type_name::<T>();
            let text = format!(
                "the run was given no value of type `{name}`; give one with `RuntimeBuilder::dep`, or with \
                 `Session::with_dep` on the handle that starts or resumes the run"
            );
            Error::new(ErrorKind::Config, text)
        })
    }

    /// Returns the conversation up to now, the prompt included.
    pub fn history(&self) -> History {
        self.read(|state| state.history().clone())
    }

    /// Gives another agent a task in the child session of this role, and waits for its outcome. Each call is one more
    /// run of that session, so under the same role the agent knows what was said before. The session outlives this run.
    /// Other roles are other conversations.
    ///
    /// The agent has at most this context's scope: `cx.narrowed(&scope).ask(..)` gives it less. A failure is an outcome
    /// with that status. If this run is cancelled, the agent's run ends as cancelled.
    ///
    /// A resumed run is answered from its journal for each call that had returned, and continues the one that was in
    /// flight. Make one call after another, also for different roles; for agents side by side use
    /// [`RunContext::spawn`].
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for an invalid role (see [`SessionId::in_role`]); [`ErrorKind::Paused`], to be
    /// passed on with `?`, when the other agent is paused; [`ErrorKind::Diverged`] when something else is recorded at
    /// this place; a store's error.
    pub async fn ask<Form>(
        &self,
        role: &str,
        agent: impl IntoAgent<Form>,
        task: impl Into<Task>,
    ) -> Result<Outcome> {
        let child = self.session().in_role(role)?;
        // The id of the run must be known before it begins, and again after a restart.
        let run = RunId::parse(&self.new_id().await?)?;
        let spawn = Spawn::new(agent, task).with_role(role.to_owned());
        match self.perform(Effect::Delegate(Box::new(Delegate::new(child, spawn).run(run)))).await? {
            Observation::Child { outcome: Some(outcome), .. } => Ok(*outcome),
            other => Err(unexpected(&other)),
        }
    }

    /// Adds a message of the program's own to the conversation, between two steps: the model reads it, and nobody sent
    /// it. A resumed run does not add a message again that it has recorded.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a message that is no user's, while a tool call waits for its result, and in a
    /// run that is over; [`ErrorKind::TooLarge`] for one that cannot be stored.
    pub fn remind(&self, message: impl Into<Message>) -> Result<()> {
        self.check_effects()?;
        self.effects().remind(self, Arc::new(message.into()))
    }

    /// Lets prompts that came while the agent worked join the conversation. An agent calls it between two steps, when
    /// no tool call of its last message waits for a result. Prompts that nobody lets in get a run of their own.
    ///
    /// # Errors
    /// Those of the effects; a run that is over lets nothing in, and that is no error.
    pub async fn steer(&self) -> Result<()> {
        self.check_effects()?;
        self.effects().steer(self).await
    }

    /// Returns the todo list as it was last set, by any run that shares it.
    pub fn todos(&self) -> Vec<Todo> {
        self.effects().todos()
    }

    /// Replaces the whole list. When this returns, it is stored, and every run that shares the list sees it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when this run is over, the store's.
    pub async fn set_todos(&self, todos: Vec<Todo>) -> Result<()> {
        self.effects().set_todos(self, todos).await
    }

    /// Returns a context of the same run with at most what `scope` admits. A context can only narrow.
    #[must_use]
    pub fn narrowed(&self, scope: &Scope) -> Self {
        let inner = &self.inner;
        let narrowed = Inner {
            origin: Arc::clone(&inner.origin),
            parent: inner.parent.clone(),
            given: Given { scope: inner.given.scope.narrow(scope), ..inner.given.clone() },
            effects: Arc::clone(&inner.effects),
            ordinal: AtomicU64::new(0),
            wider: Some(self.clone()),
        };
        Self { inner: Arc::new(narrowed), seen_from: self.seen_from }
    }

    /// Returns the context that a tool call, and a layer around it, sees: the same run, without effects. `place` is
    /// that of [`ToolContext::new`](crate::tool::ToolContext::new).
    pub fn of_call(&self, place: (u64, usize)) -> Self {
        let (seq, index) = place;
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        Self { inner: Arc::clone(&self.inner), seen_from: SeenFrom::Call { seq, index } }
    }

    /// Returns the id of the tool call that sees its run by this context; `None` in the run itself. Each try of the
    /// call has the same, in any process.
    pub fn call(&self) -> Option<CallId> {
        let SeenFrom::Call { seq, index } = self.seen_from else { return None };
        Some(CallId::new(self.session(), self.run(), seq, usize::try_from(index).unwrap_or(usize::MAX)))
    }

    /// Returns the key of the next effect of a hand-written agent.
    pub(super) fn next_key(&self, digest: Digest) -> EffectKey {
        let own = || EffectKey::new(self.inner.ordinal.fetch_add(1, Ordering::Relaxed), digest);
        self.inner.wider.as_ref().map_or_else(own, |wider| wider.next_key(digest))
    }

    /// Refuses effects in a tool's call.
    pub(super) fn check_effects(&self) -> Result<()> {
        match self.seen_from {
            SeenFrom::Run => Ok(()),
            SeenFrom::Call { .. } => Err(super::effect::no_effects()),
        }
    }

    /// Performs one effect of a hand-written agent, or answers it from the journal.
    ///
    /// Effects are numbered in the order of these calls, so they must not be raced against each other: start
    /// concurrent work with [`RunContext::spawn`] and wait for it with [`RunContext::wait_any`].
    ///
    /// # Errors
    /// Those of [`Effects::perform`]; [`ErrorKind::Unsupported`] in a tool's call, see
    /// [`ToolContext::run`](crate::tool::ToolContext::run).
    pub async fn perform(&self, effect: Effect) -> Result<Observation> {
        self.check_effects()?;
        if let Effect::Signal { name } = &effect {
            // Such a signal could not be sent.
            bound::check_name(name, "the signal's name")?;
        }
        // The scope above a child is no part of what it is compared by.
        let key = self.next_key(effect.digest());
        self.inner.effects.perform(self, Some(key), effect.scoped(self.scope())).await
    }

    /// Calls a model, which sees nothing but the request: [`Model::request`] makes one of a text, a message or a
    /// [`History`].
    ///
    /// ```
    /// # use entourage_core::{Result, provider::Model, run::RunContext};
    /// # async fn example(cx: &RunContext, model: &Model) -> Result<String> {
    /// let reply = cx.call_model(model, model.request("How many legs has a spider?")).await?;
    /// # Ok(reply.message.text())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The model's error, or [`ErrorKind::Cancelled`].
    pub async fn call_model(&self, model: &Model, request: Request) -> Result<Arc<ModelFinished>> {
        self.call_model_with(model, request, Tools::none()).await
    }

    /// Calls a model that is offered `tools`, which replace the request's own tools.
    ///
    /// # Errors
    /// The model's error, or [`ErrorKind::Cancelled`].
    pub async fn call_model_with(
        &self,
        model: &Model,
        request: Request,
        tools: Tools,
    ) -> Result<Arc<ModelFinished>> {
        let call = ModelCall::new(model.clone(), request, tools);
        match self.perform(Effect::Model(Box::new(call))).await? {
            Observation::Model(reply) => Ok(reply),
            other => Err(unexpected(&other)),
        }
    }

    /// Runs one tool of `tools`, under the same scope, policy and approver as a model's call.
    ///
    /// # Errors
    /// A fatal tool error, a cancel, a pause. A tool that fails otherwise gives an error result.
    pub async fn call_tool(&self, tools: &Tools, name: &str, arguments: &Value) -> Result<ToolResult> {
        let call = ToolCall::new("call_0", name, Arguments::from(arguments));
        let calls = ToolCalls {
            message: Arc::new(Message::new(Role::Assistant, vec![Part::ToolCall(call)])),
            calls: vec![PendingCall { index: 0, started: false, repeated: 0, late: false }],
            offered: tools.clone(),
            limits: Limits::default(),
            scope: Scope::all(),
        };
        match self.perform(Effect::Tools(Box::new(calls))).await? {
            Observation::Tools(results) => match results.first() {
                Some(call) => Ok((*call.result).clone()),
                None => Err(Error::new(ErrorKind::Internal, "a tool call gave no result")),
            },
            other => Err(unexpected(&other)),
        }
    }

    /// Starts another agent in a child session. It runs beside this agent, once there is a slot for it, and has at most
    /// this run's scope.
    ///
    /// # Errors
    /// [`ErrorKind::Diverged`], or a store's error.
    pub async fn spawn<Form>(&self, agent: impl IntoAgent<Form>, task: impl Into<Task>) -> Result<Child> {
        self.spawn_in(agent, task, Scope::all()).await
    }

    /// Starts another agent, which may do at most what `scope` and this run's own scope both admit.
    ///
    /// # Errors
    /// As [`RunContext::spawn`].
    pub async fn spawn_in<Form>(
        &self,
        agent: impl IntoAgent<Form>,
        task: impl Into<Task>,
        scope: Scope,
    ) -> Result<Child> {
        self.start(Spawn::new(agent, task).with_scope(scope)).await
    }

    /// Starts another agent if it can begin at once. [`RunContext::spawn`] lets it wait for a slot instead.
    ///
    /// # Errors
    /// [`ErrorKind::TooMany`] when as many agents run below the root as may
    /// (`RuntimeBuilder::sub_agents`); a resumed run gets the same error again. Otherwise as [`RunContext::spawn`].
    pub async fn try_spawn<Form>(&self, agent: impl IntoAgent<Form>, task: impl Into<Task>) -> Result<Child> {
        self.start(Spawn::new(agent, task).at_once()).await
    }

    async fn start(&self, spawn: Spawn) -> Result<Child> {
        match self.perform(Effect::Spawn(Box::new(spawn))).await? {
            Observation::Spawned(session) => Ok(Child(session)),
            other => Err(unexpected(&other)),
        }
    }

    /// Waits until any of `children` ends, or `timeout` is over. A child that failed is an outcome with that status,
    /// not an error.
    ///
    /// # Errors
    /// [`ErrorKind::Paused`] when all that are left are paused; [`ErrorKind::InvalidInput`] for no children. If a
    /// child's end cannot be known, its error, after which the run can perform no effect: [`ErrorKind::Diverged`], or
    /// the reason that its session cannot be read or written.
    pub async fn wait_any(&self, children: &[Child], timeout: Option<Duration>) -> Result<Waited> {
        if children.is_empty() {
            return Err(Error::new(ErrorKind::InvalidInput, "there is no child to wait for"));
        }
        let sessions = children.iter().map(|child| child.0.clone()).collect();
        match self.perform(Effect::WaitAny { children: sessions, timeout }).await? {
            Observation::Child { child: Some(child), outcome: Some(outcome), .. } => {
                let place = children.iter().position(|it| it.0 == child);
                let index = place.ok_or_else(|| Error::new(ErrorKind::Internal, "an unknown child ended"))?;
                Ok(Waited::Ended { index, outcome: *outcome })
            }
            Observation::Child { .. } => Ok(Waited::TimedOut),
            other => Err(unexpected(&other)),
        }
    }

    /// Waits for a signal, which may take days. If it has not come, the run ends as paused; when it is resumed after
    /// the signal came, this returns the signal's value.
    ///
    /// # Errors
    /// [`ErrorKind::Paused`], to be passed on with `?`; [`ErrorKind::TooLarge`] for a name of more than 512 bytes, as
    /// in `Session::signal`.
    pub async fn signal(&self, name: impl Into<String>) -> Result<Value> {
        match self.perform(Effect::Signal { name: name.into() }).await? {
            Observation::Signal(value) => Ok(value),
            other => Err(unexpected(&other)),
        }
    }

    /// Waits for `time`; after a restart, for what is left of it.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`].
    pub async fn sleep(&self, time: Duration) -> Result<()> {
        self.perform(Effect::Sleep(time)).await.map(drop)
    }

    /// Returns the time, the same again after a restart.
    ///
    /// # Errors
    /// [`ErrorKind::Diverged`].
    pub async fn now(&self) -> Result<Timestamp> {
        match self.perform(Effect::Now).await? {
            Observation::Now(now) => Ok(now),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns a new id, the same again after a restart.
    ///
    /// # Errors
    /// [`ErrorKind::Diverged`].
    pub async fn new_id(&self) -> Result<String> {
        match self.perform(Effect::NewId).await? {
            Observation::Id(id) => Ok(id),
            other => Err(unexpected(&other)),
        }
    }
}

impl fmt::Debug for RunContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunContext")
            .field("origin", &self.inner.origin)
            .field("scope", self.scope())
            .finish_non_exhaustive()
    }
}

fn unexpected(observation: &Observation) -> Error {
    Error::new(ErrorKind::Internal, "the effects answered with an observation of another kind")
        .with("observation", format!("{observation:?}"))
}
