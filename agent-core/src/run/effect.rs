//! What a run may do to the world, as owned values, and what it then knows.
//!
//! Everything that a run does passes through [`Effects`]. The local implementation works on the session's journal; a
//! durable engine may stand in its place without any agent changing.

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{Limits, Outcome, RunContext, Subtree, Task};
use crate::{
    Result, RunId, SessionId, Timestamp,
    agent::Agent,
    digest::Digest,
    event::{EffectKey, Event, ModelFinished, ToolFinished},
    message::{History, Message},
    permission::Scope,
    provider::{Model, Request},
    tool::{Repair, Tools},
};

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
    /// Run another agent in the session of this id, from its start or on from where it was left, and wait for its end.
    Delegate(Box<Delegate>),
    /// Wait until any of these children ends.
    WaitAny {
        /// The children's sessions.
        children: Vec<SessionId>,
        /// Give up after this long.
        timeout: Option<Duration>,
    },
    /// Wait for a signal, possibly for days: a run whose signal has not come is paused.
    Signal {
        /// Its name.
        name: String,
    },
    /// Wait.
    Sleep(Duration),
    /// Read the clock.
    Now,
    /// Make an id.
    NewId,
}

impl Effect {
    /// What a recorded effect is compared by: everything that decides what it does.
    pub(super) fn digest(&self) -> Digest {
        let text = |value: Result<String, serde_json::Error>| value.unwrap_or_default();
        match self {
            Self::Model(call) => Digest::of([
                b"model".as_slice(),
                call.model.provider().name().as_bytes(),
                text(serde_json::to_string(&call.request)).as_bytes(),
            ]),
            Self::Tools(calls) => {
                let pieces = calls
                    .message
                    .tool_calls()
                    .flat_map(|call| [call.name.as_bytes(), call.arguments.as_str().as_bytes()]);
                Digest::of(std::iter::once(b"tools".as_slice()).chain(pieces))
            }
            Self::Spawn(spawn) => Digest::of([
                if spawn.at_once { b"try_spawn".as_slice() } else { b"spawn" },
                spawn.agent.name().as_bytes(),
                text(serde_json::to_string(&*spawn.task.prompt)).as_bytes(),
                text(serde_json::to_string(&spawn.scope)).as_bytes(),
            ]),
            Self::Delegate(delegate) => Digest::of([
                b"delegate".as_slice(),
                delegate.child.as_str().as_bytes(),
                delegate.spawn.agent.name().as_bytes(),
                text(serde_json::to_string(&*delegate.spawn.task.prompt)).as_bytes(),
                text(serde_json::to_string(&delegate.spawn.scope)).as_bytes(),
            ]),
            Self::WaitAny { children, timeout } => {
                let timeout = format!("{timeout:?}");
                let names = children.iter().map(|child| child.as_str().as_bytes());
                Digest::of([b"wait".as_slice(), timeout.as_bytes()].into_iter().chain(names))
            }
            Self::Signal { name } => Digest::of([b"signal".as_slice(), name.as_bytes()]),
            Self::Sleep(time) => Digest::of([b"sleep".as_slice(), format!("{time:?}").as_bytes()]),
            Self::Now => Digest::of([b"now".as_slice()]),
            Self::NewId => Digest::of([b"id".as_slice()]),
        }
    }
}

/// A model call.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ModelCall {
    /// The model.
    pub model: Model,
    /// What is asked.
    pub request: Request,
    /// The tools behind the request's specs: calls of others are marked.
    pub offered: Tools,
    /// The program's way to mend broken calls.
    pub repair: Option<Arc<dyn Repair>>,
    /// The step of the run, from 1.
    pub step: u32,
    /// How long the model may stay silent.
    pub silence: Duration,
    /// The template that the request's instructions were made of; recorded with the call (CW17).
    pub template: Option<Arc<str>>,
}

/// Tool calls of one message.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ToolCalls {
    /// The message that asks.
    pub message: Arc<Message>,
    /// Which of its calls.
    pub calls: Vec<PendingCall>,
    /// The tools that were offered.
    pub offered: Tools,
    /// Bounds on how they run.
    pub limits: Limits,
}

/// A call that has no result yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PendingCall {
    /// Position in its message, from 0.
    pub index: usize,
    /// Whether an earlier process began to run it.
    pub started: bool,
    /// Whether it is refused, since the same call was made over and over (CM16).
    #[serde(default)]
    pub repeated: bool,
    /// Whether it is not run, since a call before it ended the turn.
    #[serde(default)]
    pub late: bool,
}

/// Another agent to run to its end, in a session whose id follows from what asks for it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Delegate {
    /// The child's session.
    pub child: SessionId,
    /// Who runs there.
    pub spawn: Spawn,
    /// Which of several runs of that session it is; `None` for a session that has one.
    pub run: Option<RunId>,
    /// What the conversation there is told before the prompt, when this run of it begins.
    pub opening: Vec<Arc<Message>>,
    /// Cancels the child and nothing else; `None`: it ends with this run, and when whoever waits for it no longer does.
    pub cancel: Option<CancellationToken>,
    /// Whether it is a part of what this run does, and no agent beside it: it takes no place of its own (AI04).
    pub(crate) part_of_run: bool,
    /// Where the model calls of the child and all below it are counted.
    pub(crate) subtree: Option<Arc<Subtree>>,
}

impl Delegate {
    /// `spawn`, run in the session `child`, which has no other run.
    #[must_use]
    pub fn new(child: SessionId, spawn: Spawn) -> Self {
        Self { child, spawn, run: None, opening: Vec::new(), cancel: None, part_of_run: false, subtree: None }
    }

    /// The same as a part of this run: it starts at once, whatever else runs.
    pub(crate) fn part_of_run(mut self) -> Self {
        self.part_of_run = true;
        self
    }

    /// The same, with the model calls of the child and all below it counted in `subtree`.
    pub(crate) fn counted_in(mut self, subtree: Arc<Subtree>) -> Self {
        self.subtree = Some(subtree);
        self
    }

    /// The same as one run of several that follow each other in the session: the conversation goes on. Performed again
    /// before the next one, it gives what that run ended with, or goes on with it; the id is to be recorded before the first
    /// time. [`RunContext::ask`] does that, and is not answered by the session but by its own run's journal.
    #[must_use]
    pub fn run(mut self, run: RunId) -> Self {
        self.run = Some(run);
        self
    }

    /// The same, with `messages` before the prompt, when the run begins. When the first of them is the model's, it stands
    /// for an answer that was never given: it joins only a conversation that ends with a message to the model.
    #[must_use]
    pub fn opening(mut self, messages: impl IntoIterator<Item = impl Into<Arc<Message>>>) -> Self {
        self.opening = messages.into_iter().map(Into::into).collect();
        self
    }

    /// The same, cancelled by `token`, which is to be a child of this run's own: the wait then ends with what the child
    /// ended with.
    #[must_use]
    pub fn cancelled_by(mut self, token: CancellationToken) -> Self {
        self.cancel = Some(token);
        self
    }
}

/// Another agent to start.
#[derive(Clone)]
#[non_exhaustive]
pub struct Spawn {
    /// Who.
    pub agent: Arc<dyn Agent>,
    /// What it is given.
    pub task: Task,
    /// What it may do, at most; it never has more than its parent.
    pub scope: Scope,
    /// What its session is for: `child`, `summary` and the like.
    pub role: Cow<'static, str>,
    /// What its session is called; `None`: by the first words of what it is given.
    pub title: Option<Arc<str>>,
    /// Whether it works on this run's list of what is to be done, instead of one of its own.
    pub shares_todos: bool,
    /// Whether it is refused when it could not begin at once (AI04), instead of waiting for its turn.
    pub at_once: bool,
}

impl Spawn {
    /// An agent that may do what its parent may.
    pub fn new(agent: Arc<dyn Agent>, task: impl Into<Task>) -> Self {
        Self {
            agent,
            task: task.into(),
            scope: Scope::all(),
            role: Cow::Borrowed("child"),
            title: None,
            shares_todos: false,
            at_once: false,
        }
    }

    /// The same, in a session of this role.
    #[must_use]
    pub fn role(mut self, role: impl Into<Cow<'static, str>>) -> Self {
        self.role = role.into();
        self
    }

    /// The same, in a session of this title, unless it has one. One line of at most 80 characters.
    #[must_use]
    pub fn titled(mut self, title: impl Into<Arc<str>>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// The same, on this run's list of what is to be done: each sees what the other changes, at once (CW07).
    #[must_use]
    pub fn sharing_todos(mut self) -> Self {
        self.shares_todos = true;
        self
    }

    /// The same, refused with [`ErrorKind::TooMany`](crate::ErrorKind::TooMany) when as many agents run below the root
    /// as may: see [`RuntimeBuilder::sub_agents`](crate::RuntimeBuilder::sub_agents). For an [`Effect::Spawn`] the refusal
    /// is recorded; for an [`Effect::Delegate`] only when it has a key.
    #[must_use]
    pub fn at_once(mut self) -> Self {
        self.at_once = true;
        self
    }

    /// The same with at most what `scope` admits.
    #[must_use]
    pub fn within(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
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

/// What a run knows after an effect.
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
        /// What it ended with.
        outcome: Option<Box<Outcome>>,
        /// What was said in the run that ended, its prompt aside, as far as a compaction left it. Known for an
        /// [`Effect::Delegate`] without a key alone: what is recorded of one with a key is its outcome.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        work: Vec<Arc<Message>>,
    },
    /// A signal came.
    Signal(Value),
    /// The wait is over.
    Slept,
    /// The time.
    Now(Timestamp),
    /// An id.
    Id(String),
}

/// Performs effects and records what was observed before anything acts on it.
///
/// # Contract
/// - An observation is recorded before a later effect leaves the process.
/// - An effect with a key whose observation is recorded is not performed again; a recorded key of another digest is
///   [`crate::ErrorKind::Diverged`].
/// - Dropping the future stops the effect.
#[async_trait]
pub trait Effects: Send + Sync + fmt::Debug {
    /// Performs one effect. Hand-written agents pass a key, see [`RunContext::perform`].
    ///
    /// # Errors
    /// Expected failures (a tool's error, a refusal) are observations. Errors are for what the run cannot go on from:
    /// a model call that failed, a store that refuses, a cancel, a pause.
    async fn perform(&self, cx: &RunContext, key: Option<EffectKey>, effect: Effect) -> Result<Observation>;

    /// The conversation up to now, this run's prompt included. Cheap: the history is shared.
    fn history(&self) -> History;

    /// What this run recorded before it was interrupted; empty for a new one.
    fn recorded(&self) -> Vec<Event>;
}
