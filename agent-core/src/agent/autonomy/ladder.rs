//! The ladder of levels as one agent: which of them a run works at is picked by name.

use std::{fmt, sync::Arc};

use async_trait::async_trait;

use super::{
    AutonomyLevel, CurrentModeUpdate, Discriminator, EXECUTOR, ITERATIONS, Mode, ModeState, Rounds,
    TASK_COMPLETE, check::Check, claim::Claimed, complete::TaskComplete, confirm::Confirm, judge::Judge,
};
use crate::{
    Error, ErrorKind, Result,
    agent::{Agent, ReactAgent, answer, check_agent_name},
    context::Instructions,
    provider::ModelSlot,
    run::{Outcome, RunContext, RunHandle, Task},
    runtime::Session,
};

/// An agent whose work is checked as far as its level says: from L1, where its own end is the end, to L5, where a second
/// agent with tools of its own has to call the task complete. Cloning shares it.
///
/// # Levels
/// A run works at the level whose mode was picked for its session when it began, else at the level that the agent was
/// built with. At each level the executor works in the session `<id>$$executor`, so what it knows, and the list of what
/// is to be done, survive a change of level. Who checks has a session of its own, `<id>$$judge`, `<id>$$verifier` or
/// `<id>$$discriminator`; the session itself holds a prompt and an answer per run.
///
/// | level | who checks | model calls beside the executor's own, in each round |
/// |---|---|---|
/// | `react` | nobody | none |
/// | `prompted` | the executor, asked once more | 1 |
/// | `judge` | a model without tools, on the executor's summary | 1, and 1 for the summary |
/// | `verified` | an agent that only reads | its own, and 1 for the summary |
/// | `dual` | an agent with tools of its own | its own, and 1 for the summary |
///
/// Some levels can be asked for more: [`AutonomyBuilder::until_task_complete`] at `prompted`,
/// [`AutonomyBuilder::acceptance_criteria`] at `judge`, [`AutonomyBuilder::requires_evidence`] at the two above it.
///
/// An answer that had to be in a form and was not is asked for once more, which makes a call more.
///
/// # How it ends
/// As [`DualAgent`](crate::agent::DualAgent) does, at every level above the first: accepted, or after the last round as
/// [`StopReason::Incomplete`](crate::run::StopReason::Incomplete). What is no clear acceptance is a rejection, and a
/// check that fails ends the run as failed: neither ever counts as done. So is a cancel: a pause in which the user can
/// say something.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # #[cfg(feature = "testkit")] {
/// use entourage_core::{Runtime, agent::{Autonomy, AutonomyLevel, ReactAgent}, testkit::ScriptedProvider};
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
/// # }
/// # });
/// ```
#[derive(Clone)]
pub struct Autonomy(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    name: Box<str>,
    level: AutonomyLevel,
    /// How it works at each level that it has, in order.
    rounds: Vec<(AutonomyLevel, Rounds)>,
    crew: Crew,
    iterations: u32,
    cancel_ends: bool,
}

/// Who works and who checks.
#[derive(Clone)]
struct Crew {
    executor: ReactAgent,
    /// Whether the executor says at level `prompted` that it is done by calling a tool, instead of when it is asked.
    claims: bool,
    judge: Option<Arc<Judge>>,
    verifier: Option<Arc<Discriminator>>,
    discriminator: Option<Arc<Discriminator>>,
}

impl Crew {
    /// Who checks at a level; `None` for a level that it has nobody for.
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

    /// Who works at a level.
    fn worker(&self, level: AutonomyLevel) -> Result<ReactAgent> {
        match level {
            AutonomyLevel::Prompted if self.claims => self.executor.with_tool(Arc::new(TaskComplete::new())),
            _ => Ok(self.executor.clone()),
        }
    }

    /// The roles that somebody fills, in order.
    fn roles(&self) -> Vec<&'static str> {
        let checkers = AutonomyLevel::ALL.into_iter().filter_map(|level| self.check(level).flatten());
        let roles = checkers.map(|check| check.role()).filter(|role| *role != EXECUTOR);
        std::iter::once(EXECUTOR).chain(roles).collect()
    }

    /// Puts another model in a role.
    fn set_model(&mut self, role: &str, model: ModelSlot) -> Result<()> {
        let unknown = self.unknown(role);
        let other = |checker: &mut Option<Arc<Discriminator>>, model: ModelSlot| {
            checker.as_mut().map(|checker| *checker = Arc::new(checker.with_model(model)))
        };
        let found = match role {
            EXECUTOR => {
                self.executor = self.executor.with_model(model);
                Some(())
            }
            "judge" => self.judge.as_mut().map(|judge| *judge = Arc::new(judge.with_model(model))),
            "verifier" => other(&mut self.verifier, model),
            "discriminator" => other(&mut self.discriminator, model),
            _ => None,
        };
        found.ok_or(unknown)
    }

    fn unknown(&self, role: &str) -> Error {
        let roles: Vec<_> = self.roles().iter().map(|role| format!("`{role}`")).collect();
        let shown: String = role.chars().take(60).collect();
        let text = format!("the agent has no role `{shown}`; its roles are {}", roles.join(", "));
        Error::new(ErrorKind::InvalidInput, text)
    }
}

impl Inner {
    /// Makes the rounds anew, after its crew changed.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the executor has a tool of its own where it is to be given one of that name.
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

    /// The level that a session's mode stands for.
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
    /// Starts building an agent called `name` whose work `executor` does.
    pub fn builder(name: impl Into<String>, executor: ReactAgent) -> AutonomyBuilder {
        AutonomyBuilder {
            name: name.into(),
            executor,
            level: AutonomyLevel::default(),
            judge: None,
            judge_instructions: None,
            verifier: None,
            discriminator: None,
            options: Options::default(),
            iterations: ITERATIONS,
            cancel_ends: false,
        }
    }

    /// The level at which runs work unless their session's mode says otherwise.
    #[must_use]
    pub fn level(&self) -> AutonomyLevel {
        self.0.level
    }

    /// The levels that it has what they need for, in order.
    pub fn levels(&self) -> impl Iterator<Item = AutonomyLevel> + '_ {
        self.0.rounds.iter().map(|(level, _)| *level)
    }

    /// The same agent at another level.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a level that it lacks somebody for.
    pub fn at(&self, level: AutonomyLevel) -> Result<Self> {
        self.0.rounds(level)?;
        Ok(Self(Arc::new(Inner { level, ..(*self.0).clone() })))
    }

    /// The same agent with another model for one role: `executor`, `judge`, `verifier` or `discriminator` (CW11). Start a
    /// session's runs with it, and they use that model. Nothing of the model but its name and its service's is stored.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a role that nobody fills, listing those that somebody does.
    pub fn with_model(&self, role: &str, model: impl Into<ModelSlot>) -> Result<Self> {
        let mut inner = (*self.0).clone();
        inner.crew.set_model(role, model.into())?;
        inner.arrange()?;
        Ok(Self(Arc::new(inner)))
    }

    /// Its levels as modes to pick from.
    #[must_use]
    pub fn modes(&self) -> Vec<Mode> {
        self.levels().map(AutonomyLevel::mode).collect()
    }

    /// The modes of a session, and the one that its next run works in.
    ///
    /// # Errors
    /// The store's.
    pub async fn mode_state(&self, session: &Session) -> Result<ModeState> {
        let current = session.mode().await?.unwrap_or_else(|| self.0.level.as_str().into());
        Ok(ModeState::new(current, self.modes()))
    }

    /// Picks the mode, and so the level, that the session's next run works in; a run under way is not affected (CW12).
    ///
    /// # Errors
    /// Those of [`Session::set_mode`]: [`ErrorKind::InvalidInput`] for a mode that is none of [`Autonomy::modes`].
    pub async fn set_mode(&self, session: &Session, mode: &str) -> Result<CurrentModeUpdate> {
        session.set_mode(mode, &self.modes()).await
    }

    /// Asks one thing, in memory, and returns the answer's text. What it knew is gone afterwards.
    ///
    /// # Errors
    /// As [`ReactAgent::ask`]; a task that was never accepted is [`ErrorKind::Tool`].
    pub async fn ask(&self, prompt: impl Into<Task>) -> Result<String> {
        answer(self.start(prompt)).await
    }

    /// Asks one thing, in memory, and returns the run: a stream of events of all who work on it, and one outcome.
    pub fn start(&self, prompt: impl Into<Task>) -> RunHandle {
        Session::ephemeral().start(self, prompt)
    }
}

#[async_trait]
impl Agent for Autonomy {
    fn name(&self) -> &str {
        &self.0.name
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
    executor: ReactAgent,
    level: AutonomyLevel,
    judge: Option<ModelSlot>,
    judge_instructions: Option<Instructions>,
    verifier: Option<ReactAgent>,
    discriminator: Option<ReactAgent>,
    options: Options,
    iterations: u32,
    cancel_ends: bool,
}

/// What is more than a level asks for, each at a level of its own.
#[derive(Debug, Clone, Copy, Default)]
struct Options {
    claims: bool,
    criteria: bool,
    evidence: bool,
}

impl AutonomyBuilder {
    /// The level at which runs work unless their session's mode says otherwise. Default: [`AutonomyLevel::React`].
    pub fn level(mut self, level: AutonomyLevel) -> Self {
        self.level = level;
        self
    }

    /// The model that judges at level `judge`.
    pub fn judge(mut self, model: impl Into<ModelSlot>) -> Self {
        self.judge = Some(model.into());
        self
    }

    /// What the judge is told, instead of the words that come with the library. What it is to answer is said apart.
    pub fn judge_instructions(mut self, instructions: impl Into<Instructions>) -> Self {
        self.judge_instructions = Some(instructions.into());
        self
    }

    /// The agent that checks at level `verified`, where it may only read. Default: the discriminator.
    pub fn verifier(mut self, agent: ReactAgent) -> Self {
        self.verifier = Some(agent);
        self
    }

    /// The agent that checks at level `dual`, with the tools that it has.
    pub fn discriminator(mut self, agent: ReactAgent) -> Self {
        self.discriminator = Some(agent);
        self
    }

    /// At level `prompted` the executor is not asked whether it is done: it is given the tool `task_complete`, and a turn that
    /// ends without a call of it is followed by another one, for as many rounds as there may be (R14). The round makes no call
    /// more than the executor's own; its answer is the summary that it calls the tool with. Default: it is asked.
    pub fn until_task_complete(mut self) -> Self {
        self.options.claims = true;
        self
    }

    /// At level `judge` the judge's model first writes down what counts as done, from the request alone and before the work
    /// begins: at most 12 criteria, which the executor is told (R14). It then judges criterion by criterion, and what does
    /// not meet each of them is rejected, whatever else it says. That is one call more a task, made once: they are kept with
    /// [`CheckedTask`](crate::agent::CheckedTask). A judge that writes none fails the run before anything was done. Default: it
    /// judges by the request.
    pub fn acceptance_criteria(mut self) -> Self {
        self.options.criteria = true;
        self
    }

    /// At the levels `verified` and `dual` whoever checks must have looked before it calls the task complete: see
    /// [`DualBuilder::requires_evidence`](crate::agent::DualBuilder::requires_evidence). Default: its word is enough.
    pub fn requires_evidence(mut self) -> Self {
        self.options.evidence = true;
        self
    }

    /// Rounds of work and check, at least 1. Default 10. A turn of each agent has that agent's own limit of steps.
    pub fn iterations(mut self, iterations: u32) -> Self {
        self.iterations = iterations;
        self
    }

    /// A cancelled run is over, and the next prompt a new task. Default: the run is paused.
    pub fn cancel_ends(mut self) -> Self {
        self.cancel_ends = true;
        self
    }

    /// The agent. It has each level that somebody was named for, whichever it is built at.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a name that is none, no rounds, a level that nobody was named for, instructions or criteria
    /// for a judge that there is not, evidence required of a checker that there is not or that has no tool to look with, a tool
    /// called `task_complete` in an agent, or one that is to call that tool and whose scope does not admit it.
    pub fn build(self) -> Result<Autonomy> {
        self.is_sound()?;
        let Options { claims, criteria, evidence } = self.options;
        let verifier = self.verifier.as_ref().or(self.discriminator.as_ref());
        let verifier = verifier.map(|agent| Discriminator::new(agent, evidence)?.read_only().able());
        let discriminator = self.discriminator.as_ref();
        let discriminator = discriminator.map(|agent| Discriminator::new(agent, evidence)?.able());
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

    /// What can be said before anything is made of it.
    fn is_sound(&self) -> Result<()> {
        check_agent_name(&self.name)?;
        let Options { claims, criteria, evidence } = self.options;
        let checked = self.verifier.is_some() || self.discriminator.is_some();
        let own = self.executor.tool_set().get(TASK_COMPLETE).is_some();
        let problem = if self.iterations == 0 {
            "a checked task needs at least one round"
        } else if self.judge.is_none() && self.judge_instructions.is_some() {
            "there are instructions for a judge, and no judge; add its model with `judge`"
        } else if self.judge.is_none() && criteria {
            "there is no judge to write down criteria; add its model with `judge`"
        } else if !checked && evidence {
            "evidence is required, and nobody checks; add one with `verifier` or `discriminator`"
        } else if (checked || claims) && own {
            "the executor has a tool of its own called `task_complete`; rename it"
        } else if claims && !self.executor.scope().has_tool(TASK_COMPLETE) {
            "the executor's scope does not admit the tool `task_complete`; add its name"
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Config, problem))
    }
}
