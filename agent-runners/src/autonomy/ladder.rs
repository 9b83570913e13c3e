//! All levels of autonomy as one agent: each run picks its level by name.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    agent::{Agent, AgentPart, IntoAgent},
    context::Instructions,
    provider::ModelSlot,
    run::{Outcome, RunContext, Task},
};
use entourage_runtime::{CurrentModeUpdate, Mode, Session, check_agent_name};

use super::{
    AutonomyLevel, Discriminator, EXECUTOR, ITERATIONS, ModeState, Player, Rounds, TASK_COMPLETE,
    check::Check, claim::Claimed, complete::TaskComplete, confirm::Confirm, judge::Judge,
};

/// An agent whose work is checked as its level requires: from L1, where the executor's end is the end, to L5, where a
/// second agent with tools of its own must call the task complete. Cloning shares the agent.
///
/// # Levels
/// A run works at the level of the mode that its session had when the run began, else at the level that the agent was
/// built with. At each level the executor works in the session `<id>$$executor`, so its conversation and the todo list
/// survive a change of level. The checker has a session of its own, `<id>$$judge`, `<id>$$verifier` or
/// `<id>$$discriminator`; the session itself holds a prompt and an answer per run.
///
/// | level | checker | model calls beside the executor's own, in each round |
/// |---|---|---|
/// | `react` | nobody | none |
/// | `prompted` | the executor, asked once more | 1 |
/// | `judge` | a model without tools, on the executor's summary | 1, and 1 for the summary |
/// | `verified` | an agent that only reads | its own, and 1 for the summary |
/// | `dual` | an agent with tools of its own | its own, and 1 for the summary |
///
/// Options that add to a level: [`AutonomyBuilder::until_task_complete`] at `prompted`,
/// [`AutonomyBuilder::acceptance_criteria`] at `judge`, [`AutonomyBuilder::requires_evidence`] at the two above it.
///
/// An answer that breaks its required form is asked for once more, which costs one more call.
///
/// # Outcome
/// As [`DualAgent`](crate::DualAgent), at every level above the first: accepted, or after the last round as
/// [`StopReason::Incomplete`](entourage_core::run::StopReason::Incomplete). An answer that is no clear acceptance is a
/// rejection, and a failed check fails the run: neither ever counts as complete. A cancel pauses the run, as there, so
/// that the user can say something.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_runners::ReactAgent;
/// use entourage_runtime::Runtime;
/// use entourage_runners::{Autonomy, AutonomyLevel};
/// use entourage_testkit::ScriptedProvider;
///
/// let works = ScriptedProvider::new().text("Here: 4.").text("I computed 2 + 2 = 4.").text("Five.");
/// let judges = ScriptedProvider::named("other").text(r#"{"approved": true, "reason": "It is 4."}"#);
/// let executor = ReactAgent::builder("solver", works.model()).build().unwrap();
/// let agent = Autonomy::builder("solver", executor)
///     .judge(judges.model())
///     .level(AutonomyLevel::Judge)
///     .build()
///     .unwrap();
///
/// let session = Runtime::in_memory().session();
/// let outcome = session.start(&agent, "What is 2 + 2?").outcome().await.unwrap();
/// assert_eq!(outcome.text, "I computed 2 + 2 = 4.");
///
/// agent.set_mode(&session, "react").await.unwrap();
/// assert_eq!(session.start(&agent, "And 2 + 3?").outcome().await.unwrap().text, "Five.");
/// # });
/// ```
#[derive(Clone)]
pub struct Autonomy(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    name: Box<str>,
    level: AutonomyLevel,
    /// Rounds of each level that the agent has, in order.
    rounds: Vec<(AutonomyLevel, Rounds)>,
    crew: Crew,
    iterations: u32,
    cancel_ends: bool,
}

/// The executor and the checkers.
#[derive(Clone)]
struct Crew {
    executor: Player,
    /// True when the executor completes the task at level `prompted` by calling a tool, instead of being asked.
    claims: bool,
    judge: Option<Arc<Judge>>,
    verifier: Option<Arc<Discriminator>>,
    discriminator: Option<Arc<Discriminator>>,
}

impl Crew {
    /// Returns the check of a level; `Some(None)` for a level without a check, `None` for one that has no checker.
    fn check(&self, level: AutonomyLevel) -> Option<Option<Arc<dyn Check>>> {
        match level {
            AutonomyLevel::React => Some(None),
            AutonomyLevel::Prompted if self.claims => Some(Some(Arc::new(Claimed))),
            AutonomyLevel::Prompted => Some(Some(Arc::new(Confirm))),
            AutonomyLevel::Judge => self.judge.clone().map(|judge| Some(judge as _)),
            AutonomyLevel::Verified => self.verifier.clone().map(|verifier| Some(verifier as _)),
            AutonomyLevel::Dual => self.discriminator.clone().map(|it| Some(it as _)),
        }
    }

    /// Returns the executor at a level.
    fn worker(&self, level: AutonomyLevel) -> Result<Player> {
        match &self.executor {
            Player::React(react) if self.claims && level == AutonomyLevel::Prompted => {
                Ok(Player::React(react.with_tool(Arc::new(TaskComplete::of(react)))?))
            }
            executor => Ok(executor.clone()),
        }
    }

    /// Returns the filled roles, in order.
    fn roles(&self) -> Vec<&'static str> {
        let checkers = AutonomyLevel::ALL.into_iter().filter_map(|level| self.check(level).flatten());
        let roles = checkers.map(|check| check.role()).filter(|role| *role != EXECUTOR);
        std::iter::once(EXECUTOR).chain(roles).collect()
    }

    /// Sets the model of a role.
    fn set_model(&mut self, role: &str, model: ModelSlot) -> Result<()> {
        let unknown = self.unknown(role);
        let checker = match role {
            EXECUTOR => {
                self.executor = self.executor.with_model(model)?;
                return Ok(());
            }
            "judge" => {
                let judge = self.judge.as_mut().ok_or(unknown)?;
                *judge = Arc::new(judge.with_model(model));
                return Ok(());
            }
            "verifier" => &mut self.verifier,
            "discriminator" => &mut self.discriminator,
            _ => return Err(unknown),
        };
        let checker = checker.as_mut().ok_or(unknown)?;
        *checker = Arc::new(checker.with_model(model)?);
        Ok(())
    }

    fn unknown(&self, role: &str) -> Error {
        let roles: Vec<_> = self.roles().iter().map(|role| format!("`{role}`")).collect();
        let shown: String = role.chars().take(60).collect();
        let text = format!("the agent has no role `{shown}`; its roles are {}", roles.join(", "));
        Error::new(ErrorKind::InvalidInput, text)
    }
}

impl Inner {
    /// Rebuilds the rounds after the crew changed.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the executor has a tool with the name of one that it is to be given.
    fn arrange(&mut self) -> Result<()> {
        let checks =
            AutonomyLevel::ALL.into_iter().filter_map(|level| Some((level, self.crew.check(level)?)));
        let rounds = checks.map(|(level, check)| {
            let rounds = Rounds::new(self.crew.worker(level)?, check);
            Ok((level, rounds.iterations(self.iterations).cancel_ends(self.cancel_ends)))
        });
        self.rounds = rounds.collect::<Result<_>>()?;
        Ok(())
    }

    fn rounds(&self, level: AutonomyLevel) -> Result<&Rounds> {
        let found = self.rounds.iter().find(|(it, _)| *it == level);
        found.map(|(_, rounds)| rounds).ok_or_else(|| lacking(level).with("agent", &*self.name))
    }

    /// Returns the level of a session's mode.
    fn level_of(&self, mode: &str) -> Result<AutonomyLevel> {
        let found = self.rounds.iter().map(|(level, _)| *level).find(|level| level.as_str() == mode);
        found.ok_or_else(|| {
            let ids: Vec<_> = self.rounds.iter().map(|(level, _)| format!("`{level}`")).collect();
            let text = format!(
                "the session is in the mode `{mode}`, which this agent does not have; set one of {} and ask again",
                ids.join(", ")
            );
            Error::new(ErrorKind::Config, text).with("agent", &*self.name)
        })
    }
}

fn lacking(level: AutonomyLevel) -> Error {
    let text = match level {
        AutonomyLevel::Judge => "the level `judge` needs a model that judges; add one with `judge`",
        AutonomyLevel::Verified => {
            "the level `verified` needs an agent that checks; add one with `verifier` or `discriminator`"
        }
        _ => "the level `dual` needs an agent that checks; add one with `discriminator`",
    };
    Error::new(ErrorKind::Config, text)
}

impl Autonomy {
    /// Starts building an agent called `name` whose work is done by `executor`: any agent, as in a
    /// [`DualAgent`](crate::DualAgent).
    pub fn builder<Form>(name: impl Into<String>, executor: impl IntoAgent<Form>) -> AutonomyBuilder {
        AutonomyBuilder {
            name: name.into(),
            executor: Player::new(executor.into_agent()),
            level: AutonomyLevel::default(),
            judge: None,
            judge_instructions: None,
            discriminator_instructions: None,
            verifier: None,
            discriminator: None,
            options: Options::default(),
            iterations: ITERATIONS,
            cancel_ends: false,
        }
    }

    /// Returns the level of runs whose session has no mode.
    #[must_use]
    pub fn level(&self) -> AutonomyLevel {
        self.0.level
    }

    /// Returns the levels that the agent has a checker for, in order.
    pub fn levels(&self) -> impl Iterator<Item = AutonomyLevel> + '_ {
        self.0.rounds.iter().map(|(level, _)| *level)
    }

    /// Returns the same agent at another level.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a level without a checker.
    pub fn at(&self, level: AutonomyLevel) -> Result<Self> {
        self.0.rounds(level)?;
        Ok(Self(Arc::new(Inner { level, ..(*self.0).clone() })))
    }

    /// Returns the same agent with another model for one role: `executor`, `judge`, `verifier` or `discriminator`. Runs
    /// started with the returned agent use that model. Of the model, only its name and its service's name are stored.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a role that is not filled, or filled with an agent that is no
    /// [`ReactAgent`](crate::ReactAgent); the message lists those that are filled.
    pub fn with_model(&self, role: &str, model: impl Into<ModelSlot>) -> Result<Self> {
        let mut inner = (*self.0).clone();
        inner.crew.set_model(role, model.into())?;
        inner.arrange()?;
        Ok(Self(Arc::new(inner)))
    }

    /// Returns the levels as modes to pick from.
    #[must_use]
    pub fn modes(&self) -> Vec<Mode> {
        self.levels().map(AutonomyLevel::mode).collect()
    }

    /// Returns the modes of a session, and the one of its next run.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn mode_state(&self, session: &Session) -> Result<ModeState> {
        let current = session.mode().await?.unwrap_or_else(|| self.0.level.as_str().into());
        Ok(ModeState::new(current, self.modes()))
    }

    /// Sets the mode, and so the level, of the session's next run; a running one is not affected.
    ///
    /// # Errors
    /// Those of [`Session::set_mode`]: [`ErrorKind::InvalidInput`] for a mode that is none of [`Autonomy::modes`].
    pub async fn set_mode(&self, session: &Session, mode: &str) -> Result<CurrentModeUpdate> {
        session.set_mode(mode, &self.modes()).await
    }
}

#[async_trait]
impl Agent for Autonomy {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn description(&self) -> &str {
        self.0.crew.executor.description()
    }

    fn parts(&self) -> Vec<AgentPart> {
        let rounds: Vec<_> = self.levels().filter_map(|level| self.0.rounds(level).ok()).collect();
        rounds.iter().flat_map(|rounds| rounds.parts()).collect()
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        let level = match cx.mode() {
            Some(mode) => self.0.level_of(&mode)?,
            None => self.0.level,
        };
        self.0.rounds(level)?.run(&task, cx).await
    }
}

impl fmt::Debug for Autonomy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Autonomy")
            .field("name", &self.0.name)
            .field("level", &self.0.level)
            .field("levels", &self.levels().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Builds an [`Autonomy`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct AutonomyBuilder {
    name: String,
    executor: Player,
    level: AutonomyLevel,
    judge: Option<ModelSlot>,
    judge_instructions: Option<Instructions>,
    discriminator_instructions: Option<Instructions>,
    verifier: Option<Player>,
    discriminator: Option<Player>,
    options: Options,
    iterations: u32,
    cancel_ends: bool,
}

/// Options beyond what a level requires, each for certain levels.
#[derive(Debug, Clone, Copy, Default)]
struct Options {
    claims: bool,
    criteria: bool,
    evidence: bool,
}

impl AutonomyBuilder {
    /// Sets the level of runs whose session has no mode. Default: [`AutonomyLevel::React`].
    pub fn level(mut self, level: AutonomyLevel) -> Self {
        self.level = level;
        self
    }

    /// Sets the model that judges at level `judge`.
    pub fn judge(mut self, model: impl Into<ModelSlot>) -> Self {
        self.judge = Some(model.into());
        self
    }

    /// Replaces the judge's built-in instructions. The form of its answer is described apart from them.
    pub fn judge_instructions(mut self, instructions: impl Into<Instructions>) -> Self {
        self.judge_instructions = Some(instructions.into());
        self
    }

    /// Sets the agent that checks at level `verified`, where it may only read. Default: the discriminator.
    pub fn verifier<Form>(mut self, agent: impl IntoAgent<Form>) -> Self {
        self.verifier = Some(Player::new(agent.into_agent()));
        self
    }

    /// Replaces the built-in instructions `entourage/discriminator`, which come before those of the verifier and of the
    /// discriminator. An agent that is no [`ReactAgent`](crate::ReactAgent) has none.
    pub fn discriminator_instructions(mut self, instructions: impl Into<Instructions>) -> Self {
        self.discriminator_instructions = Some(instructions.into());
        self
    }

    /// Sets the agent that checks at level `dual`, with its own tools.
    pub fn discriminator<Form>(mut self, agent: impl IntoAgent<Form>) -> Self {
        self.discriminator = Some(Player::new(agent.into_agent()));
        self
    }

    /// Lets the executor itself, a [`ReactAgent`](crate::ReactAgent), complete the task at level
    /// `prompted`: it is given the tool `task_complete` instead of being asked. A phase that ends without a call of it
    /// is followed by another, up to the limit of rounds. A round then makes no model call beside the executor's own;
    /// the answer is the summary in the call. Default: it is asked.
    pub fn until_task_complete(mut self) -> Self {
        self.options.claims = true;
        self
    }

    /// Makes the judge's model write acceptance criteria at level `judge`, from the request alone and before the work
    /// begins. The executor is told the criteria, at most 12. The judge then decides criterion by criterion, and work
    /// that does not meet all of them is rejected, whatever else it says. This costs one more call per task: the
    /// criteria are kept with [`CheckedTask`](crate::CheckedTask). A judge that writes none fails the run before
    /// any work is done. Default: it judges by the request.
    pub fn acceptance_criteria(mut self) -> Self {
        self.options.criteria = true;
        self
    }

    /// Requires that the checker used its tools before it calls the task complete, at the levels `verified` and `dual`:
    /// see [`DualBuilder::requires_evidence`](crate::DualBuilder::requires_evidence). Default: not required.
    pub fn requires_evidence(mut self) -> Self {
        self.options.evidence = true;
        self
    }

    /// Sets the number of rounds of work and check, at least 1. Default 10. Each phase has the step limit of its agent.
    pub fn iterations(mut self, iterations: u32) -> Self {
        self.iterations = iterations;
        self
    }

    /// Makes a cancel end the run; the next prompt is a new task. Default: the run is paused.
    pub fn cancel_ends(mut self) -> Self {
        self.cancel_ends = true;
        self
    }

    /// Builds the agent. It has every level that it has a checker for, whichever level it is built at.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an invalid name, zero rounds, a level without its checker, instructions or criteria
    /// without a judge, evidence required without a checker or of one that has no tool to gather it, an agent with a
    /// tool of its own called `task_complete`, or an agent that is given that tool and whose scope does not admit it.
    pub fn build(self) -> Result<Autonomy> {
        self.is_sound()?;
        let Options { claims, criteria, evidence } = self.options;
        let verifier = self.verifier.as_ref().or(self.discriminator.as_ref());
        let checking = |agent| Discriminator::new(agent, evidence, self.discriminator_instructions.as_ref());
        let verifier = verifier.map(|agent| checking(agent)?.read_only().able());
        let discriminator = self.discriminator.as_ref();
        let discriminator = discriminator.map(|agent| checking(agent)?.able());
        let instructions = self.judge_instructions;
        let judge = |model| Arc::new(Judge::new(model, instructions).by_criteria(criteria));
        let crew = Crew {
            executor: self.executor,
            claims,
            judge: self.judge.map(judge),
            verifier: verifier.transpose()?.map(Arc::new),
            discriminator: discriminator.transpose()?.map(Arc::new),
        };
        let (level, iterations, cancel_ends) = (self.level, self.iterations, self.cancel_ends);
        let mut inner =
            Inner { name: self.name.into(), level, rounds: Vec::new(), crew, iterations, cancel_ends };
        inner.arrange()?;
        inner.rounds(level)?;
        Ok(Autonomy(Arc::new(inner)))
    }

    /// Checks everything that needs nothing built.
    fn is_sound(&self) -> Result<()> {
        check_agent_name(&self.name)?;
        let Options { claims, criteria, evidence } = self.options;
        let checked = self.verifier.is_some() || self.discriminator.is_some();
        let own = self.executor.claims();
        let problem = if self.iterations == 0 {
            "a checked task needs at least one round"
        } else if self.judge.is_none() && self.judge_instructions.is_some() {
            "there are instructions for a judge, and no judge; add its model with `judge`"
        } else if self.judge.is_none() && criteria {
            "there is no judge to write down criteria; add its model with `judge`"
        } else if !checked && evidence {
            "evidence is required, but there is no checker; add one with `verifier` or `discriminator`"
        } else if (checked || claims) && own {
            "the executor has a tool of its own called `task_complete`; rename it"
        } else if claims && self.executor.react().is_none() {
            "only a `ReactAgent` can be given the tool `task_complete`; build the executor as one, or let it be asked"
        } else if claims && !self.executor.react().is_some_and(|it| it.scope().has_tool(TASK_COMPLETE)) {
            "the executor's scope does not admit the tool `task_complete`; add its name"
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Config, problem))
    }
}
