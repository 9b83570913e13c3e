//! The trait of a tool, and the context of a call.

use std::{
    any::Any,
    borrow::Cow,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{Footprint, ToolError, ToolLayer, ToolOutput, ToolSpec, Tools};
use crate::{
    Digest, Error, ErrorKind, Result, RunId, SessionId,
    agent::{Agent, AgentPart},
    base::setters,
    event::{Event, Progress},
    permission::{Admission, Rules, Scope},
    run::{Delegate, Effect, Observation, Outcome, RunContext, Spawn, Task},
};

/// A tool that a model can call.
///
/// # Contract
/// - [`Tool::call`] is only called with arguments that are a JSON object and follow the tool's schema, after the
///   scope, the policy and, where needed, a person admitted the call. Patterns, formats and conditions of the schema
///   are not checked, and a property that is not required may be null.
/// - The future is dropped when the run is cancelled or the tool's time is over; everything that it started must end
///   with it (process groups, temporary files, tasks).
/// - A panic is caught and becomes an error result.
/// - The tool never blocks the thread: blocking work goes through `tokio::task::spawn_blocking`.
/// - The tool uses no effects of its run. Model calls and waits that survive a crash belong into an agent, run with
///   [`ToolContext::run_agent`].
#[async_trait]
pub trait Tool: Send + Sync {
    /// Declarations of the tool, for the model and the runtime. They do not change during a step.
    fn spec(&self) -> &ToolSpec;

    /// Runs one call.
    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError>;

    /// Footprint of one call: the paths, hosts and command that it touches. The default names none and has the declared
    /// access.
    ///
    /// The footprint decides which calls run in parallel, and the scope, the policy's patterns and approvals are
    /// applied to it. It is computed when the call is about to start, and again after an approver was asked: an answer
    /// holds for the footprint that was shown.
    ///
    /// A tool whose footprints name what its calls touch declares it with [`ToolSpec::naming_subjects`]. A
    /// tool that walks a tree names its start, and asks [`ToolContext::admission`] about each path that it reaches.
    fn footprint(&self, _arguments: &Value) -> Footprint {
        Footprint::new(self.spec().access())
    }

    /// Returns what the call would do, such as a diff, for an approver who is asked about it; nothing by default.
    ///
    /// It changes nothing. It is asked for at most 5 seconds, and its text is cut at 64 KiB and stored with the
    /// question. A panic counts as nothing.
    async fn preview(&self, _input: ToolInput, _cx: &ToolContext<'_>) -> Option<String> {
        None
    }

    /// Returns the agents that the tool runs, as [`Agent::parts`] does; none by default.
    fn parts(&self) -> Vec<AgentPart> {
        Vec::new()
    }

    /// Returns the layers around the tool, the outermost first; none by default. `entourage_runners::layered` adds one.
    fn layers(&self) -> &[Arc<dyn ToolLayer>] {
        &[]
    }
}

impl fmt::Debug for dyn Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tool({})", self.spec().name())
    }
}

#[async_trait]
impl<T: Tool + ?Sized> Tool for Arc<T> {
    fn spec(&self) -> &ToolSpec {
        (**self).spec()
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        (**self).call(input, cx).await
    }

    fn footprint(&self, arguments: &Value) -> Footprint {
        (**self).footprint(arguments)
    }

    async fn preview(&self, input: ToolInput, cx: &ToolContext<'_>) -> Option<String> {
        (**self).preview(input, cx).await
    }

    fn parts(&self) -> Vec<AgentPart> {
        (**self).parts()
    }

    fn layers(&self) -> &[Arc<dyn ToolLayer>] {
        (**self).layers()
    }
}

/// The arguments of one call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ToolInput {
    /// The arguments, a JSON object.
    pub arguments: Value,
}

impl ToolInput {
    /// Input made of `arguments`.
    #[must_use]
    pub fn new(arguments: Value) -> Self {
        Self { arguments }
    }

    /// Deserializes the arguments as `T`.
    ///
    /// # Errors
    /// [`ToolError::Tell`] with the mismatch, so that the model can correct its call.
    pub fn parse<T: DeserializeOwned>(self) -> Result<T, ToolError> {
        serde_json::from_value(self.arguments)
            .map_err(|error| ToolError::tell(format!("the arguments do not fit the tool's schema: {error}")))
    }
}

/// Returns the [`ToolContext::idempotency_key`] of a stored call: the one with index `index` of the reply that event
/// `seq` of the session recorded. `run` is `None` for a run that an older version of the library began.
#[must_use]
pub fn idempotency_key(session: &SessionId, run: Option<RunId>, seq: u64, index: usize) -> String {
    let Some(run) = run else { return format!("{session}.{seq}$${index}") };
    let (run, seq) = (run.as_u128().to_be_bytes(), seq.to_be_bytes());
    let index = u64::try_from(index).unwrap_or(u64::MAX).to_be_bytes();
    Digest::of([b"call".as_slice(), session.as_str().as_bytes(), &run, &seq, &index]).to_string()
}

/// Context of the call that a tool answers.
#[derive(Debug)]
pub struct ToolContext<'a> {
    run: RunContext,
    rules: &'a dyn Rules,
    call_id: Cow<'a, str>,
    spec: ToolSpec,
    footprint: Footprint,
    offered: Tools,
    seq: u64,
    index: usize,
    cancel: Cow<'a, CancellationToken>,
    /// True once an agent was run below this call. A re-entered call has a new context.
    delegated: AtomicBool,
}

impl<'a> ToolContext<'a> {
    /// Creates the context of a call of `run`, for whoever performs its effects. Its `place` is the number of the event
    /// that asked for it, and its index among the calls of that event; ids and keys are derived from it.
    #[must_use]
    pub fn new(
        run: &'a RunContext,
        rules: &'a dyn Rules,
        call_id: &'a str,
        spec: &ToolSpec,
        footprint: Footprint,
        (seq, index): (u64, usize),
    ) -> Self {
        Self {
            run: run.of_call((seq, index)),
            rules,
            call_id: Cow::Borrowed(call_id),
            spec: spec.clone(),
            footprint,
            offered: Tools::none(),
            seq,
            index,
            cancel: Cow::Borrowed(run.cancellation()),
            delegated: AtomicBool::new(false),
        }
    }

    setters! {
        /// The same context, in which no agent can be run: nobody has allowed the call yet.
        before_approval() sets delegated = AtomicBool::new(true);
        /// Sets the tools that were offered with the called one. Default: none.
        offering(tools: &Tools) sets offered = tools.clone();
    }
}

impl ToolContext<'_> {
    /// The run that asks, for its scope, budget, history and todo list.
    ///
    /// The effects of a hand-written agent, such as [`RunContext::call_model`] and [`RunContext::spawn`], fail here
    /// with [`ErrorKind::Unsupported`]: calls of one step run side by side, so their effects have no order that holds
    /// after a restart. A tool that needs effects puts them into an agent and runs that with
    /// [`ToolContext::run_agent`].
    pub fn run(&self) -> &RunContext {
        &self.run
    }

    /// The session that asks.
    pub fn session(&self) -> &SessionId {
        self.run.session()
    }

    /// Returns the program's own value of type `T`, as [`RunContext::deps`] does.
    ///
    /// # Errors
    /// A fatal one when there is none: no model can mend that.
    pub fn deps<T: Any + Send + Sync>(&self) -> Result<Arc<T>, ToolError> {
        self.run.deps().map_err(ToolError::Fatal)
    }

    /// The id of the call, as chosen by the model's service. Do not build paths or keys from it.
    pub fn call_id(&self) -> &str {
        &self.call_id
    }

    /// Key that is the same for every try of this call, in any process, and different for any other call, even in a
    /// later session of the same id. Pass it on to services that can deduplicate. 32 hexadecimal digits without meaning
    /// of their own.
    ///
    /// A run that an older version of the library began keeps the keys of that version to its end: the session's id and
    /// the call's place in it.
    pub fn idempotency_key(&self) -> String {
        let named = self.run.read(|state| state.run().is_none_or(|run| run.named_by_run));
        idempotency_key(self.session(), named.then(|| self.run.run()), self.seq, self.index)
    }

    /// Id of the child session, for a call that runs an agent.
    pub fn child_session(&self) -> Result<SessionId> {
        self.session().child(self.seq, u64::try_from(self.index).unwrap_or(u64::MAX))
    }

    /// Admission by the run's scope and rules of places that the call reaches and its footprint does not name, such as
    /// the files below a directory.
    pub fn admission(&self) -> Admission {
        Admission::new(self.run.scope(), self.rules, &self.spec, &self.footprint)
    }

    /// Returns what the call was judged to touch.
    pub fn footprint(&self) -> &Footprint {
        &self.footprint
    }

    /// Returns the tools that were offered with the called one, deferred ones too. The scope may hide some of them.
    pub fn offered(&self) -> &Tools {
        &self.offered
    }

    /// Token that is cancelled with the run. The future of the call is dropped soon after.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Runs another agent to its end below this call, in a session of its own. A failure is an outcome with that
    /// status.
    ///
    /// The session's id is derived from the call, and its title from the agent's name. So a tool that declares
    /// [`Repeat::Resume`](crate::tool::Repeat::Resume) goes on with the same child after a restart, and a child that
    /// was paused is resumed. A call can run one agent; use a hand-written agent for more.
    /// # Errors
    /// A pause of the child, to be passed on with `?`; [`ErrorKind::InvalidInput`] for a second agent in one call, or a
    /// tree that is too deep; a store's error.
    pub async fn run_agent(
        &self,
        agent: Arc<dyn Agent>,
        task: impl Into<Task>,
        scope: Scope,
    ) -> Result<Outcome, ToolError> {
        let child = self.child_session().map_err(ToolError::Fatal)?;
        if self.delegated.swap(true, Ordering::Relaxed) {
            let text =
                "a tool call runs one agent, and this one did; run more of them from a hand-written agent";
            let error = Error::new(ErrorKind::InvalidInput, text).with("tool_call", self.call_id());
            return Err(ToolError::Fatal(error));
        }
        // The default title would be the first words of a prompt that a model wrote.
        let title = format!("Sub-agent {}", agent.name());
        let spawn = Spawn::new(agent, task).with_scope(scope).with_title(title).of_tool(self.spec.name());
        let delegate = Effect::Delegate(Box::new(Delegate::new(child, spawn))).scoped(self.run.scope());
        match self.run.effects().perform(&self.run, None, delegate).await {
            Ok(Observation::Child { outcome: Some(outcome), .. }) => Ok(*outcome),
            Ok(_) => Err(ToolError::Fatal(Error::new(ErrorKind::Internal, "a child gave no outcome"))),
            Err(error) => Err(ToolError::Fatal(error)),
        }
    }

    /// Reports the progress of the call to observers of the run. Not stored.
    pub fn progress(&self, text: impl Into<String>) {
        let progress = Progress { call: self.call_id.to_string(), text: text.into() };
        self.run.effects().show(&self.run, Event::Progress(Arc::new(progress)));
    }
}
