//! Two agents: one works, the other checks, and only the checker may call the task complete.

use std::{fmt, sync::Arc};

use async_trait::async_trait;

use super::{
    Agent, ReactAgent,
    autonomy::{Discriminator, EXECUTOR, ITERATIONS, Rounds, TASK_COMPLETE, check::Check},
    check_agent_name,
};
use crate::{
    Error, ErrorKind, Result,
    provider::ModelSlot,
    run::{Outcome, RunContext, RunHandle, Task},
    runtime::Session,
};

/// Two agents on one task. The executor works; then it sums up; then the discriminator, which has tools of its own, looks
/// whether the summary is true and the task done. It ends the task with its tool `task_complete`, or what it says goes
/// back to the executor, for at most [`DualBuilder::iterations`] rounds. Cloning shares it.
///
/// # Sessions
/// The agent's own session holds what the user sees: a prompt and an answer per run. Each of the two works in a session
/// below it, `<id>$$executor` and `<id>$$discriminator`, and goes on there with the next prompt. Nothing but summaries
/// and feedback crosses; the list of what is to be done is one for both. What the discriminator's tools showed is kept with
/// its verdict, in the event [`PhaseFinished`](crate::event::PhaseFinished).
/// Another pair that is started in the same session goes on in the same two conversations; a task that the first one left
/// open is then given up.
///
/// # How it ends
/// - Completed: the discriminator said so. The text is the executor's summary of its last turn.
/// - [`StopReason::Incomplete`](crate::run::StopReason::Incomplete) after the last round, with the newest feedback; the
///   text is the executor's newest summary.
/// - As one of the two ended, when that failed, was refused leave, or used up a budget: that is never completion. A turn
///   that reached its own limit of steps, or went in circles, is checked as it is.
///
/// # Cancel
/// A cancelled run ends as paused, once all below it has unwound: the next prompt of this agent in the session goes to the
/// executor as the user's feedback, in the same round, and [`Session::resume`] begins the phase anew that was cut off. See
/// [`DualBuilder::cancel_ends`] and [`Session::stop`] for an end. Below another agent a cancel is always the end.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # #[cfg(feature = "testkit")] {
/// use entourage_core::{agent::{DualAgent, ReactAgent}, testkit::ScriptedProvider};
/// use serde_json::json;
///
/// let works = ScriptedProvider::new().text("Written.").text("I wrote `add`, untested.").text("Tested.").text("`add` works.");
/// let checks = ScriptedProvider::named("other")
///     .text("Run it once.")
///     .call("task_complete", json!({"summary": "I ran it."}));
/// let executor = ReactAgent::builder("coder", works.model()).build().unwrap();
/// let discriminator = ReactAgent::builder("reviewer", checks.model()).build().unwrap();
/// let pair = DualAgent::builder("pair", executor, discriminator).iterations(3).build().unwrap();
/// assert_eq!(pair.ask("Write a function that adds.").await.unwrap(), "`add` works.");
/// # }
/// # });
/// ```
#[derive(Clone)]
pub struct DualAgent(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    name: Box<str>,
    executor: ReactAgent,
    discriminator: Arc<Discriminator>,
    rounds: Rounds,
}

impl DualAgent {
    /// Starts building an agent called `name` out of two.
    pub fn builder(name: impl Into<String>, executor: ReactAgent, discriminator: ReactAgent) -> DualBuilder {
        DualBuilder {
            name: name.into(),
            executor,
            discriminator,
            iterations: ITERATIONS,
            read_only: false,
            requires_evidence: false,
            cancel_ends: false,
        }
    }

    /// Asks one thing, in memory, and returns the answer's text. What it knew is gone afterwards.
    ///
    /// # Errors
    /// As [`ReactAgent::ask`]; a task that was never called complete is [`ErrorKind::Tool`].
    pub async fn ask(&self, prompt: impl Into<Task>) -> Result<String> {
        super::answer(self.start(prompt)).await
    }

    /// Asks one thing, in memory, and returns the run: a stream of both agents' events and one outcome.
    pub fn start(&self, prompt: impl Into<Task>) -> RunHandle {
        Session::ephemeral().start(self, prompt)
    }

    /// The same with another model for one role: `executor`, or `discriminator` (`verifier` when it only reads).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a role that it does not have, listing those that it has.
    pub fn with_model(&self, role: &str, model: impl Into<ModelSlot>) -> Result<Self> {
        let mut inner = (*self.0).clone();
        let checker = inner.discriminator.role();
        match role {
            EXECUTOR => inner.executor = inner.executor.with_model(model),
            _ if role == checker => inner.discriminator = Arc::new(inner.discriminator.with_model(model)),
            _ => {
                let text =
                    format!("the agent has no role `{role}`; its roles are `{EXECUTOR}` and `{checker}`");
                return Err(Error::new(ErrorKind::InvalidInput, text).with("agent", &*inner.name));
            }
        }
        inner.rounds = inner.rounds.of(inner.executor.clone(), Arc::clone(&inner.discriminator) as _);
        Ok(Self(Arc::new(inner)))
    }
}

#[async_trait]
impl Agent for DualAgent {
    fn name(&self) -> &str {
        &self.0.name
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        self.0.rounds.run(&task, cx).await
    }
}

impl fmt::Debug for DualAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DualAgent")
            .field("name", &self.0.name)
            .field("rounds", &self.0.rounds)
            .finish_non_exhaustive()
    }
}

/// Builds a [`DualAgent`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct DualBuilder {
    name: String,
    executor: ReactAgent,
    discriminator: ReactAgent,
    iterations: u32,
    read_only: bool,
    requires_evidence: bool,
    cancel_ends: bool,
}

impl DualBuilder {
    /// Rounds of work and check, at least 1. Default 10. A turn of each agent has that agent's own limit of steps.
    pub fn iterations(mut self, iterations: u32) -> Self {
        self.iterations = iterations;
        self
    }

    /// The checker may only read (L4). Its session is then `<id>$$verifier`. Default: it may do what the whole may.
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// The discriminator can call the task complete only in a turn in which it looked: another of its tools must have given
    /// it a result that is no error; that of the list of what is to be done is no look. A claim without one is answered with
    /// an error result, and it can look then. So [`Verdict::evidence`](crate::agent::Verdict::evidence) of what was accepted
    /// is never empty.
    ///
    /// Default: its word is enough, since not all work can be looked at with tools; an empty
    /// [`Verdict::evidence`](crate::agent::Verdict::evidence) then says that nothing was looked at.
    pub fn requires_evidence(mut self) -> Self {
        self.requires_evidence = true;
        self
    }

    /// A cancelled run is over, and the next prompt a new task. Default: the run is paused.
    pub fn cancel_ends(mut self) -> Self {
        self.cancel_ends = true;
        self
    }

    /// The agent.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a name that is none, no rounds, a tool called `task_complete` in one of the agents, a
    /// discriminator whose scope does not admit that tool, which it is given here, or one that is to look and has no tool to
    /// look with.
    pub fn build(self) -> Result<DualAgent> {
        check_agent_name(&self.name)?;
        if self.iterations == 0 {
            return Err(Error::new(
                ErrorKind::Config,
                "a checked task needs at least one round; set `iterations` to 1 or more",
            ));
        }
        if self.executor.tool_set().get(TASK_COMPLETE).is_some() {
            let text = "the executor has a tool `task_complete`, which is the checker's alone; rename it";
            return Err(Error::new(ErrorKind::Config, text));
        }
        let discriminator = Discriminator::new(&self.discriminator, self.requires_evidence)?;
        let discriminator = if self.read_only { discriminator.read_only() } else { discriminator };
        let discriminator = Arc::new(discriminator.able()?);
        let rounds = Rounds::new(self.executor.clone(), Some(Arc::clone(&discriminator) as _))
            .iterations(self.iterations)
            .cancel_ends(self.cancel_ends);
        Ok(DualAgent(Arc::new(Inner {
            name: self.name.into(),
            executor: self.executor,
            discriminator,
            rounds,
        })))
    }
}
