//! Two agents on one task: an executor works, a discriminator checks, and only the discriminator may complete the task.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    agent::{Agent, AgentPart, IntoAgent},
    context::Instructions,
    provider::ModelSlot,
    run::{Outcome, RunContext, Task},
};
use entourage_runtime::check_agent_name;

use crate::{
    autonomy::{Discriminator, EXECUTOR, ITERATIONS, Player, Rounds, check::Check, verdict_form},
    person::Person,
};

/// Two agents on one task, in rounds of work and check. The executor works, then summarizes. The discriminator, with
/// tools of its own, checks whether the summary is true and the task complete. It completes the task by calling its
/// tool `task_complete`; any other answer goes back to the executor as feedback, for at most
/// [`DualBuilder::iterations`] rounds. Cloning shares the agent.
///
/// # Any agent
/// Both are [`ReactAgent`](crate::ReactAgent)s as a rule; a graph, another pair or an agent of your own
/// does as well:
/// - An executor that is no `ReactAgent` is not asked for a summary: the answer of its run is what is checked.
/// - A checker that is no `ReactAgent` is not given the tool. Its prompt holds the user's words and the report, and its
///   answer must be a [`Verdict`](crate::Verdict) as one JSON object and nothing else, such as
///   `{"accepted": false, "reason": "The tests fail."}`; an agent of your own returns
///   `Ok(Verdict::rejected(…).into())`. Any other answer is a rejection, with the answer as feedback.
///
/// # Sessions
/// The agent's own session holds what the user sees: a prompt and an answer per run. The two agents work in the child
/// sessions `<id>$$executor` and `<id>$$discriminator`, and continue there with the next prompt. Only summaries and
/// feedback cross between the two; both share one todo list. The results of the discriminator's tools are kept with its
/// verdict, in the record [`PhaseFinished`](crate::checked::PhaseFinished). Another pair started in the same session
/// continues the same two conversations and abandons a task that the first one left open.
///
/// # Outcome
/// - Completed: the discriminator accepted. The text is the executor's summary of its last phase.
/// - [`StopReason::Incomplete`](entourage_core::run::StopReason::Incomplete) after the last round, with the newest
///   feedback; the text is the executor's newest summary.
/// - With the status of the executor or the discriminator, when that agent failed, was denied permission or exhausted a
///   budget: never as completed. A phase that reached its agent's step limit or ran in a loop is checked as it is.
///
/// # Cancel
/// A cancelled run ends as paused, once everything below it has unwound. The next prompt of this agent in the session
/// reaches the executor as the user's feedback, in the same round;
/// [`Session::resume`](entourage_runtime::Session::resume) instead restarts the phase that was cut off. To end a run
/// for good, see [`DualBuilder::cancel_ends`] and [`Session::stop`](entourage_runtime::Session::stop). Below another
/// agent a cancel always ends the run.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_runners::ReactAgent;
/// use entourage_runners::DualAgent;
/// use entourage_runtime::AgentExt;
/// use entourage_testkit::ScriptedProvider;
/// use serde_json::json;
///
/// let works = ScriptedProvider::new()
///     .text("Written.")
///     .text("I wrote `add`, untested.")
///     .text("Tested.")
///     .text("`add` works.");
/// let checks = ScriptedProvider::named("other")
///     .text("Run it once.")
///     .call("task_complete", json!({"summary": "I ran it."}));
/// let executor = ReactAgent::builder("coder", works.model()).build().unwrap();
/// let discriminator = ReactAgent::builder("reviewer", checks.model()).build().unwrap();
/// let pair = DualAgent::builder("pair", executor, discriminator).iterations(3).build().unwrap();
/// assert_eq!(pair.ask("Write a function that adds.").await.unwrap(), "`add` works.");
/// # });
/// ```
#[derive(Clone)]
pub struct DualAgent(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    name: Box<str>,
    executor: Player,
    discriminator: Arc<Discriminator>,
    rounds: Rounds,
}

impl DualAgent {
    /// Starts building an agent called `name` from two agents of any kind.
    pub fn builder<Executor, Checker>(
        name: impl Into<String>,
        executor: impl IntoAgent<Executor>,
        discriminator: impl IntoAgent<Checker>,
    ) -> DualBuilder {
        DualBuilder {
            name: name.into(),
            executor: Player::new(executor.into_agent()),
            discriminator: Player::new(discriminator.into_agent()),
            iterations: ITERATIONS,
            read_only: false,
            requires_evidence: false,
            cancel_ends: false,
            instructions: None,
        }
    }

    /// Starts building an agent called `name` whose work a person checks, called `person`, in place of a model.
    ///
    /// Each check hands the executor's report to that person, as [`person`](crate::person()) does, and the run pauses.
    /// The answer is a [`Verdict`](crate::Verdict): one as JSON, such as `{"accepted": false, "reason": "Too long."}`,
    /// or `Verdict::rejected("Too long.")`. `Session::answer` refuses any other answer, and a rejection without a
    /// reason, with [`ErrorKind::InvalidInput`]; the check still waits then. An accepted task is complete, and the
    /// reason of a rejection goes to the executor as feedback, for at most [`DualBuilder::iterations`] rounds.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use entourage_runners::{DualAgent, ReactAgent, Verdict};
    /// use entourage_runtime::{Runtime, Waiting};
    /// use entourage_testkit::ScriptedProvider;
    ///
    /// let works = ScriptedProvider::new().text("Written.").text("I wrote the page.");
    /// let writer = ReactAgent::builder("writer", works.model()).build().unwrap();
    /// let pair = DualAgent::reviewed_by("pair", writer, "ada").build().unwrap();
    ///
    /// let runtime = Runtime::in_memory();
    /// let session = runtime.session();
    /// session.start(&pair, "Write the page").outcome().await.unwrap();
    /// let pending = runtime.pending().await.unwrap();
    /// let ids = pending.iter().filter_map(|it| match &it.waits_for {
    ///     Waiting::Call { id, .. } => Some(id),
    ///     _ => None,
    /// });
    /// let id = ids.last().unwrap();
    /// assert!(runtime.answer(id, "Fine!").await.is_err(), "no verdict");
    /// runtime.answer(id, Verdict::accepted("It is there.")).await.unwrap();
    /// assert_eq!(session.resume(&pair).outcome().await.unwrap().text, "I wrote the page.");
    /// # });
    /// ```
    pub fn reviewed_by<Executor>(
        name: impl Into<String>,
        executor: impl IntoAgent<Executor>,
        person: impl Into<Box<str>>,
    ) -> DualBuilder {
        Self::builder(name, executor, Person::new(person).answering(verdict_form()))
    }

    /// Returns the same agent with another model for one role: `executor`, or `discriminator` (`verifier` when it is
    /// read-only).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for an unknown role, whose message lists the roles, and for an agent that is no
    /// [`ReactAgent`](crate::ReactAgent).
    pub fn with_model(&self, role: &str, model: impl Into<ModelSlot>) -> Result<Self> {
        let mut inner = (*self.0).clone();
        let checker = inner.discriminator.role();
        match role {
            EXECUTOR => inner.executor = inner.executor.with_model(model)?,
            _ if role == checker => inner.discriminator = Arc::new(inner.discriminator.with_model(model)?),
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

    fn description(&self) -> &str {
        self.0.executor.description()
    }

    fn begins_with_an_effect(&self) -> bool {
        true
    }

    fn parts(&self) -> Vec<AgentPart> {
        self.0.rounds.parts().collect()
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
    executor: Player,
    discriminator: Player,
    iterations: u32,
    read_only: bool,
    requires_evidence: bool,
    cancel_ends: bool,
    instructions: Option<Instructions>,
}

impl DualBuilder {
    /// Sets the number of rounds of work and check, at least 1. Default 10. Each phase has the step limit of its agent.
    pub fn iterations(mut self, iterations: u32) -> Self {
        self.iterations = iterations;
        self
    }

    /// Restricts the checker to [`Scope::read_only`](entourage_core::permission::Scope::read_only) (L4): it keeps all
    /// of its tools that only read. Its session is then `<id>$$verifier`. Default: it has the scope of the whole agent.
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Replaces the built-in instructions `entourage/discriminator`, which come before the discriminator's own and tell
    /// it to see for itself. A discriminator that is no [`ReactAgent`](crate::ReactAgent) has none.
    pub fn discriminator_instructions(mut self, instructions: impl Into<Instructions>) -> Self {
        self.instructions = Some(instructions.into());
        self
    }

    /// Requires at least one successful tool result (of a tool other than `todos`) in the same phase before the
    /// discriminator may complete the task. A premature call is answered with an error result, and the discriminator
    /// can then use its tools. So [`Verdict::evidence`](crate::Verdict::evidence) of an accepted task is never
    /// empty.
    ///
    /// Default: not required, since not all work can be inspected with tools; an empty
    /// [`Verdict::evidence`](crate::Verdict::evidence) then shows that nothing was inspected.
    pub fn requires_evidence(mut self) -> Self {
        self.requires_evidence = true;
        self
    }

    /// Makes a cancel end the run; the next prompt is a new task. Default: the run is paused.
    pub fn cancel_ends(mut self) -> Self {
        self.cancel_ends = true;
        self
    }

    /// Builds the agent.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an invalid name, zero rounds, a tool called `task_complete` in one of the agents (the
    /// discriminator is given it here), a discriminator whose scope does not admit that tool, or one that must show
    /// evidence and has no tool to gather it, such as a person.
    pub fn build(self) -> Result<DualAgent> {
        check_agent_name(&self.name)?;
        if self.iterations == 0 {
            return Err(Error::new(
                ErrorKind::Config,
                "a checked task needs at least one round; set `iterations` to 1 or more",
            ));
        }
        if self.executor.claims() {
            let text = "the executor has a tool `task_complete`, which is the checker's alone; rename it";
            return Err(Error::new(ErrorKind::Config, text));
        }
        let discriminator =
            Discriminator::new(&self.discriminator, self.requires_evidence, self.instructions.as_ref())?;
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
