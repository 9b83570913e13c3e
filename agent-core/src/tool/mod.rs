//! What agents can do: the [`Tool`] trait, what a tool declares about itself, and sets of tools.
//!
//! Nothing here runs a tool or decides whether it may run: see `run` and `permission`.

mod arguments;
mod from_fn;
mod output;
mod spec;
mod toolset;

pub use arguments::{Repair, check_call, make_ids_unique, repair_json, validate};
pub use from_fn::{FnTool, from_fn, schema_of, typed};
pub use output::{IntoToolOutput, Json, ToolError, ToolOutput};
pub use spec::{Access, Footprint, Repeat, ToolSpec};
pub use toolset::{Combined, Filtered, Renamed, Tools, Toolset, ToolsetExt};

use std::{
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

use crate::{
    Error, ErrorKind, Result, RunId, SessionId,
    agent::Agent,
    digest::Digest,
    permission::{Admission, Scope},
    run::{Delegate, Effect, Observation, Outcome, RunContext, Spawn, Task},
};

/// Something that a model can ask for.
///
/// # Contract
/// - [`Tool::call`] is only called with arguments that are a JSON object holding every required key, after the
///   scope, the policy and, where needed, a person admitted the call.
/// - The future is dropped when the run is cancelled or the tool's time is over; whatever it started must end with
///   it (process groups, temporary files, tasks).
/// - A panic is caught and becomes an error result.
/// - The tool never blocks the thread: work that does goes through `tokio::task::spawn_blocking`.
#[async_trait]
pub trait Tool: Send + Sync {
    /// What the model and the runtime know about the tool. Does not change during a step.
    fn spec(&self) -> &ToolSpec;

    /// Runs one call.
    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError>;

    /// What this very call touches. The default is the declared access and nothing else.
    ///
    /// One footprint serves what may run in parallel, what the scope admits, what the policy's patterns match and
    /// what an approval shows. It is asked for when the call is about to start, and again after somebody was asked about
    /// it: an answer holds for the footprint that was shown.
    ///
    /// A tool that names what each call touches declares it with [`ToolSpec::naming_subjects`]; one that walks a tree
    /// names its start, and asks [`ToolContext::admission`] about what it comes to.
    fn footprint(&self, _arguments: &Value) -> Footprint {
        Footprint::new(self.spec().access())
    }
}

impl fmt::Debug for dyn Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tool({})", self.spec().name())
    }
}

/// A shared tool is a tool.
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
}

/// The arguments of one call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ToolInput {
    /// A JSON object.
    pub arguments: Value,
}

impl ToolInput {
    /// Input made of `arguments`.
    #[must_use]
    pub fn new(arguments: Value) -> Self {
        Self { arguments }
    }

    /// The arguments as `T`.
    ///
    /// # Errors
    /// [`ToolError::Tell`] with what does not fit, so that the model can mend its call.
    pub fn parse<T: DeserializeOwned>(self) -> Result<T, ToolError> {
        serde_json::from_value(self.arguments)
            .map_err(|error| ToolError::tell(format!("the arguments do not fit the tool's schema: {error}")))
    }
}

/// What names a tool call for services outside: of the run when that names its calls, else of the session alone.
pub(crate) fn call_key(session: &SessionId, run: Option<RunId>, seq: u64, index: usize) -> String {
    let Some(run) = run else { return format!("{session}.{seq}$${index}") };
    let (run, seq) = (run.as_u128().to_be_bytes(), seq.to_be_bytes());
    let index = u64::try_from(index).unwrap_or(u64::MAX).to_be_bytes();
    Digest::of([b"call".as_slice(), session.as_str().as_bytes(), &run, &seq, &index]).to_string()
}

/// What a tool may know about the call it answers.
#[derive(Debug)]
pub struct ToolContext<'a> {
    pub(crate) run: &'a RunContext,
    pub(crate) call_id: Cow<'a, str>,
    pub(crate) spec: ToolSpec,
    pub(crate) footprint: Footprint,
    pub(crate) seq: u64,
    pub(crate) index: usize,
    pub(crate) cancel: Cow<'a, CancellationToken>,
    /// Whether an agent was run below this call; a call that is re-entered has a context of its own.
    pub(crate) delegated: AtomicBool,
}

impl ToolContext<'_> {
    /// The run that asks. A tool that runs an agent makes the child's context from it, which can only narrow.
    #[must_use]
    pub fn run(&self) -> &RunContext {
        self.run
    }

    /// The session that asks.
    #[must_use]
    pub fn session(&self) -> &SessionId {
        self.run.session()
    }

    /// The id of the call, as chosen by the model's service. Do not build paths or keys from it.
    #[must_use]
    pub fn call_id(&self) -> &str {
        &self.call_id
    }

    /// The same for every try of this call, in any process, and different for any other, also in a later session of the
    /// same id: pass it on to services that can deduplicate. 32 hexadecimal digits, which say nothing by themselves.
    ///
    /// A run that an older version of the library began keeps the keys of that version to its end: an id of the session and
    /// the call's place in it.
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        let named = self.run.journal().read(|state| state.run().is_none_or(|run| run.named_by_run));
        call_key(self.session(), named.then(|| self.run.run()), self.seq, self.index)
    }

    /// The session of the agent that this call runs, if it runs one.
    pub(crate) fn child_session(&self) -> Result<SessionId> {
        self.session().child(self.seq, u64::try_from(self.index).unwrap_or(u64::MAX))
    }

    /// What the run's scope and rules say about what the call comes to and its footprint does not name, such as the files
    /// below a directory.
    #[must_use]
    pub fn admission(&self) -> Admission {
        Admission::new(self.run.scope(), &self.run.env().policy, &self.spec, &self.footprint)
    }

    /// Cancelled when the run is. The future of the call is dropped soon after.
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Runs another agent below this call, in a session of its own, to its end; a failure is an outcome with that status.
    ///
    /// The session's id follows from the call, and its title from the agent's name. So a tool that declares [`Repeat::Resume`] goes on with the same child
    /// after a restart, and one that is paused in it is resumed there. One agent a call: use a hand-written agent for more.
    ///
    /// # Errors
    /// A pause of the child, to be passed on with `?`; [`ErrorKind::InvalidInput`] for a
    /// second agent in one call, or too deep a tree; a store's error.
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
        // The first words of a prompt would be a model's.
        let title = format!("Sub-agent {}", agent.name());
        let delegate = Delegate::new(child, Spawn::new(agent, task).within(scope).titled(title));
        let effects = self.run.effects();
        match effects.perform(self.run, None, Effect::Delegate(Box::new(delegate))).await {
            Ok(Observation::Child { outcome: Some(outcome), .. }) => Ok(*outcome),
            Ok(_) => Err(ToolError::Fatal(Error::new(ErrorKind::Internal, "a child gave no outcome"))),
            Err(error) => Err(ToolError::Fatal(error)),
        }
    }

    /// Tells whoever watches the run how far the call has come. Not stored.
    pub fn progress(&self, text: impl Into<String>) {
        self.run.progress(&self.call_id, text.into());
    }
}
