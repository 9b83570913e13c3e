//! The effects of a run on the outside, as owned values, and the observations that they give.
//!
//! Every effect passes through [`Effects`], whose local implementation performs it here and records it in the session's
//! journal.

use std::{
    any::{Any, TypeId},
    borrow::Cow,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{Limits, Outcome, RunContext, Task};
use crate::{
    Result, RunId, SessionId, Timestamp, Usage,
    agent::{Agent, IntoAgent},
    base::{Todo, setters},
    context::{Compaction, CompactionCause},
    event::{EffectKey, Event, ModelFinished, Recorded, ToolFinished},
    message::{Message, deserialize_value},
    permission::Scope,
    provider::{Model, Request},
    session::SessionState,
    tool::{Repair, Tools},
};

/// The future of a method of [`Effects`].
pub type Performing<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// One action of a run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Effect {
    /// Call a model.
    Model(Box<ModelCall>),
    /// Run tool calls of one message, as far in parallel as their footprints allow.
    Tools(Box<ToolCalls>),
    /// Start another agent in a session of its own.
    Spawn(Box<Spawn>),
    /// Run another agent in the session of this id, from its start or from where it was left, and wait for its end.
    Delegate(Box<Delegate>),
    /// Wait until any of these children ends.
    WaitAny {
        /// The children's sessions.
        children: Vec<SessionId>,
        /// Longest time to wait.
        timeout: Option<Duration>,
    },
    /// Wait for a signal, possibly for days: a run whose signal has not come is paused.
    Signal {
        /// Its name.
        name: String,
    },
    /// Wait for this long.
    Sleep(Duration),
    /// Read the clock.
    Now,
    /// Make an id.
    NewId,
    /// Make the conversation smaller, without a key: see [`SessionState::compaction_due`] and `may_retry` there.
    Compact {
        /// The settings of the compaction.
        compaction: Box<Compaction>,
        /// The agent's model.
        model: Model,
        /// The cause, which is recorded.
        cause: CompactionCause,
        /// Longest silence of the model that writes a summary.
        silence: Duration,
    },
}

/// A model call.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ModelCall {
    /// The model.
    pub model: Model,
    /// The request.
    pub request: Request,
    /// The tools behind the request's specs, against which `repair` checks calls.
    pub offered: Tools,
    /// The program's repair of invalid calls.
    pub repair: Option<Arc<dyn Repair>>,
    /// The step of the run, from 1.
    pub step: u32,
    /// Longest silence of the model, before and within its reply.
    pub silence: Duration,
    /// Template of the request's instructions; recorded with the call.
    pub template: Option<Arc<str>>,
}

impl ModelCall {
    /// Creates a call that is no step of a turn. The model is offered `tools`, which replace the request's own.
    #[must_use]
    pub fn new(model: Model, request: Request, tools: Tools) -> Self {
        let request = request.with_tools(Arc::clone(tools.specs_for(model.profile())));
        let silence = Limits::default().model_silence;
        Self { model, request, offered: tools, repair: None, step: 0, silence, template: None }
    }
}

impl ToolCalls {
    /// Creates the calls of one message, of which these have no result.
    #[must_use]
    pub fn new(message: Arc<Message>, calls: Vec<PendingCall>, offered: Tools, limits: Limits) -> Self {
        Self { message, calls, offered, limits, scope: Scope::all() }
    }
}

/// Tool calls of one message.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ToolCalls {
    /// The message that asks for the calls.
    pub message: Arc<Message>,
    /// The calls of the message to run.
    pub calls: Vec<PendingCall>,
    /// The tools that were offered.
    pub offered: Tools,
    /// Bounds on how they run.
    pub limits: Limits,
    /// Scope of the context that asks for them; they never have more than their run's.
    pub scope: Scope,
}

impl PendingCall {
    /// Creates a call that nothing began to run.
    #[must_use]
    pub fn new(index: usize) -> Self {
        Self { index, started: false, repeated: 0, late: false }
    }
}

/// A call that has no result yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PendingCall {
    /// Position in its message, from 0.
    pub index: usize,
    /// True if an earlier process began to run it.
    pub started: bool,
    /// Number of times in a row that the same call was made, if it is refused for that; else 0.
    #[serde(default)]
    pub repeated: u32,
    /// True if it is not run because a call before it ended the turn.
    #[serde(default)]
    pub late: bool,
}

/// Another agent to run to its end, in a session whose id follows from its place in the parent.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Delegate {
    /// The child's session.
    pub child: SessionId,
    /// The agent that runs there, and its task.
    pub spawn: Spawn,
    /// Id of the run, in a session with several; `None` for a session that has one.
    pub run: Option<RunId>,
    /// Messages that join the conversation there before the prompt, when this run of it begins.
    pub opening: Vec<Arc<Message>>,
    /// Cancels the child and nothing else. `None`: the child is cancelled with this run, and when the wait for it is
    /// dropped.
    pub cancel: Option<CancellationToken>,
    /// True if it is a part of this run and no agent beside it: it takes no slot.
    pub part_of_run: bool,
    /// True if the model calls of the child and all below it are counted together.
    pub counted: bool,
    /// Longest time that its run may take, without its wait for a slot; it is then cancelled.
    pub limit: Option<Duration>,
    /// True if nothing of the child can exist yet, by what the run recorded.
    pub anew: bool,
    /// True if an earlier run of this session may have begun it.
    pub lasting: bool,
}

impl Delegate {
    /// Creates a delegate that runs `spawn` in the session `child`, which has no other run.
    #[must_use]
    pub fn new(child: SessionId, spawn: Spawn) -> Self {
        let (run, opening, cancel, limit) = (None, Vec::new(), None, None);
        let (part_of_run, counted, anew, lasting) = (false, false, false, false);
        Self { child, spawn, run, opening, cancel, part_of_run, counted, limit, anew, lasting }
    }

    setters! {
        /// Makes it a part of this run: it starts at once, whatever else runs.
        part_of_run() sets part_of_run = true;
        /// Asks for the total use of the child and of all agents below it.
        counted() sets counted = true;
    }

    setters! {
        /// Makes it the run `run` of several that share the session's conversation. Performed again before the next
        /// one, it returns that run's outcome or continues it. The id must be recorded before the first time.
        /// [`RunContext::ask`] does that, and is answered by its own run's journal, not by the session.
        run(run: RunId) => Some(run);
        /// Cancels the child by a token, which must be a child of this run's own token. The wait then ends with the
        /// child's outcome.
        cancelled_by(cancel: CancellationToken) => Some(cancel);
        /// Cancels its run after this time. Neither the wait for a slot counts nor the time of an approver.
        within(limit: Option<Duration>) => limit;
    }

    setters! {
        /// Adds `messages` before the prompt, when the run begins. If the first of them is the model's, it stands for
        /// an answer that was never given: it joins only a conversation that ends with a message to the model.
        opening(messages: impl IntoIterator<Item = impl Into<Arc<Message>>>) sets opening = messages.into_iter().map(Into::into).collect();
    }
}

/// Another agent to start.
#[derive(Clone)]
#[non_exhaustive]
pub struct Spawn {
    /// The agent.
    pub agent: Arc<dyn Agent>,
    /// Its task.
    pub task: Task,
    /// Its scope; it never has more than its parent.
    pub scope: Scope,
    /// Purpose of its session: `child`, `summary` and the like.
    pub role: Cow<'static, str>,
    /// Title of its session; `None`: the first words of its prompt.
    pub title: Option<Arc<str>>,
    /// Its name among the [parts](Agent::parts) of the agent that starts it; `None`: its own name.
    pub part: Option<Arc<str>>,
    /// The tool that starts it, among whose parts it is then.
    pub tool: Option<Arc<str>>,
    /// True if it works on this run's todo list, instead of one of its own.
    pub shares_todos: bool,
    /// True if it is refused when it cannot begin at once, instead of waiting for a slot.
    pub at_once: bool,
}

impl Spawn {
    /// Creates a spawn of `agent` with its parent's scope.
    pub fn new<Form>(agent: impl IntoAgent<Form>, task: impl Into<Task>) -> Self {
        Self {
            agent: agent.into_agent(),
            task: task.into(),
            scope: Scope::all(),
            role: Cow::Borrowed("child"),
            title: None,
            part: None,
            tool: None,
            shares_todos: false,
            at_once: false,
        }
    }

    setters! {
        /// Sets the role of its session.
        with_role(role: impl Into<Cow<'static, str>>) => role.into();
        /// Sets the title of its session, unless that has one. One line of at most 80 characters.
        with_title(title: impl Into<Arc<str>>) => Some(title.into());
        /// Sets its name among the [parts](Agent::parts) of the agent that starts it. Default: its own name.
        with_part(part: impl Into<Arc<str>>) => Some(part.into());
        /// Names the tool that starts it.
        of_tool(tool: impl Into<Arc<str>>) => Some(tool.into());
    }

    setters! {
        /// Shares this run's todo list: each sees what the other changes, at once.
        sharing_todos() sets shares_todos = true;
        /// Refuses it with [`ErrorKind::TooMany`](crate::ErrorKind::TooMany) when as many agents run below the root as
        /// may: see `RuntimeBuilder::sub_agents`. For an [`Effect::Spawn`] the refusal is recorded; for an
        /// [`Effect::Delegate`] only when it has a key.
        at_once() sets at_once = true;
        /// Limits it to what `scope` admits.
        with_scope(scope: Scope) sets scope = scope;
    }
}

impl fmt::Debug for Spawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawn")
            .field("agent", &self.agent.name())
            .field("task", &self.task)
            .finish_non_exhaustive()
    }
}

/// The result of an effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[allow(clippy::large_enum_variant, reason = "made once an effect and taken apart at once")]
pub enum Observation {
    /// The model's reply; a failed or cancelled call is an error of `perform` instead.
    Model(Arc<ModelFinished>),
    /// The results, in call order.
    Tools(Vec<Arc<ToolFinished>>),
    /// The child's session.
    Spawned(SessionId),
    /// A child ended.
    Child {
        /// Its session; `None` when the wait timed out.
        child: Option<SessionId>,
        /// Its outcome.
        outcome: Option<Box<Outcome>>,
        /// Messages of the run that ended, without its prompt, as far as a compaction left them. Only for an
        /// [`Effect::Delegate`] without a key: with a key, only the outcome is recorded.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        work: Vec<Arc<Message>>,
        /// Total of the model calls of the child and of all agents below it, if it was [counted](Delegate::counted)
        /// and is known. Only without a key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        total: Option<Box<Usage>>,
    },
    /// A signal came.
    Signal(#[serde(deserialize_with = "deserialize_value")] Value),
    /// The wait is over.
    Slept,
    /// The time.
    Now(Timestamp),
    /// An id.
    Id(String),
    /// A compaction ended: true if the conversation is smaller. A summary that failed leaves it as it was.
    Compacted(bool),
}

/// Performs the effects of one run, keeps its record, and shows it.
///
/// # Contract
/// - An observation is recorded before a later effect leaves the process.
/// - An effect with a key whose observation is recorded is not performed again; a recorded key of another digest is
///   [`crate::ErrorKind::Diverged`].
/// - Dropping the future stops the effect.
/// - Once the run is over nothing is performed, recorded or shown.
/// - Deltas of a model's reply go to the run's readers directly, and not through these methods.
pub trait Effects: Send + Sync + fmt::Debug {
    /// Performs one effect. Hand-written agents pass a key, see [`RunContext::perform`].
    ///
    /// # Errors
    /// Expected failures (a tool's error, a refusal) are observations. An error is one that the run cannot continue
    /// from: a model call that failed, a store that refuses, a cancel, a pause.
    fn perform<'a>(
        &'a self,
        cx: &'a RunContext,
        key: Option<EffectKey>,
        effect: Effect,
    ) -> Performing<'a, Observation>;

    /// Records the value that `make` returns for the session's state and the number of its event. With a key, a value
    /// that is recorded under it is compared instead; another one is [`crate::ErrorKind::Diverged`].
    ///
    /// # Errors
    /// Those of `make`; an error of a value that cannot be stored, or of a run that is over.
    fn append(
        &self,
        cx: &RunContext,
        key: Option<EffectKey>,
        make: &mut dyn FnMut(&SessionState, u64) -> Result<Recorded>,
    ) -> Result<()>;

    /// Stores and delivers all that was recorded.
    ///
    /// # Errors
    /// The store's; an error of a run that is over.
    fn commit<'a>(&'a self, cx: &'a RunContext) -> Performing<'a, ()>;

    /// Lets prompts that wait for the run join its conversation. When nobody waits, the future is ready and allocates
    /// nothing. A run that is over lets nothing in.
    ///
    /// # Errors
    /// Errors of a place outside this process, where prompts wait.
    fn steer<'a>(&'a self, cx: &'a RunContext) -> Performing<'a, ()>;

    /// Adds a message of the program's own to the conversation, between two steps. One that this run recorded before
    /// it was interrupted is not added again.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidInput`] for a message that is no user's, while a tool call waits for its result, and
    /// in a run that is over.
    fn remind(&self, cx: &RunContext, message: Arc<Message>) -> Result<()>;

    /// Calls `read` once, on the session's state: this run's prompt and all that it recorded are in it. Nothing is
    /// copied.
    fn read(&self, read: &mut dyn FnMut(&SessionState));

    /// Returns the events that this run recorded before it was interrupted; empty for a new one.
    fn recorded(&self) -> Arc<[Event]>;

    /// Returns the values that come next in the record of a replay; none in a run that does its own work. An agent
    /// that goes on where its record ends asks for them before it goes on.
    ///
    /// # Errors
    /// The one that stopped the replayed run where no value comes next.
    fn replayed<'a>(&'a self, cx: &'a RunContext) -> Performing<'a, Vec<Recorded>>;

    /// Returns the todo list that the run works on: its session's own, or the one of the run above.
    fn todos(&self) -> Vec<Todo>;

    /// Replaces that list. It is stored when the future is ready.
    ///
    /// # Errors
    /// The store's; an error of a run that is over.
    fn set_todos<'a>(&'a self, cx: &'a RunContext, todos: Vec<Todo>) -> Performing<'a, ()>;

    /// Returns the program's value of this type, of those that the run was given: see [`RunContext::deps`].
    fn dep(&self, of: TypeId) -> Option<Arc<dyn Any + Send + Sync>>;

    /// Returns the time. It may flow into records and waits, never into a decision: see [`RunContext::now`].
    fn time(&self) -> Timestamp;

    /// Checks that the run is not over.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidInput`] when it is.
    fn check(&self) -> Result<()>;

    /// True when the run was asked to pause, or its record pauses here in a replay. It then begins nothing new.
    fn is_pausing(&self) -> bool;

    /// True when a store, a listener or a replay reads what is recorded. A record without a reader may be left out.
    fn has_readers(&self) -> bool;

    /// True when what is recorded is stored, so that it must be possible to store it.
    fn is_stored(&self) -> bool;

    /// Returns the number of agents that may run at once below the root of this run.
    fn sub_agents(&self) -> usize;

    /// Shows an event that is not stored, such as progress. Best effort; any other event is left out.
    fn show(&self, cx: &RunContext, shown: Event);
}

/// Returns the error of an effect in a tool's call. Calls of one step run side by side, and one that ended is not run
/// again: a number in the order of their effects would name another effect after a restart.
pub(super) fn no_effects() -> crate::Error {
    let text = "a tool's call has no effects of its run; let an agent make them, and run it below the call with \
                `ToolContext::run_agent`";
    crate::Error::new(crate::ErrorKind::Unsupported, text)
}
