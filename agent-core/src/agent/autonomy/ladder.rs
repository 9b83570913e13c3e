//! The ladder of levels as one agent: which of them a run works at is picked by name.

use std::{fmt, sync::Arc};

use async_trait::async_trait;

use super::{
    AutonomyLevel, CurrentModeUpdate, Discriminator, EXECUTOR, ITERATIONS, Mode, ModeState, Rounds,
    TASK_COMPLETE, check::Check, confirm::Confirm, judge::Judge,
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
    judge: Option<Arc<Judge>>,
    verifier: Option<Arc<Discriminator>>,
    discriminator: Option<Arc<Discriminator>>,
}

impl Crew {
    /// Who checks at a level; `None` for a level that it has nobody for.
    fn check(&self, level: AutonomyLevel) -> Option<Option<Arc<dyn Check>>> {
        match level {
            AutonomyLevel::React => Some(None),
            AutonomyLevel::Prompted => Some(Some(Arc::new(Confirm))),
            AutonomyLevel::Judge => self.judge.clone().map(|judge| Some(judge as _)),
            AutonomyLevel::Verified => self.verifier.clone().map(|verifier| Some(verifier as _)),
            AutonomyLevel::Dual => self.discriminator.clone().map(|it| Some(it as _)),
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
    fn arrange(&mut self) {
        let rounds = AutonomyLevel::ALL.into_iter().filter_map(|level| {
            let check = self.crew.check(level)?;
            let rounds = Rounds::new(self.crew.executor.clone(), check);
            Some((level, rounds.iterations(self.iterations).cancel_ends(self.cancel_ends)))
        });
        self.rounds = rounds.collect();
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
        inner.arrange();
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
    iterations: u32,
    cancel_ends: bool,
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
    /// [`ErrorKind::Config`] for a name that is none, no rounds, a level that nobody was named for, instructions for a
    /// judge that there is not, a tool called `task_complete` in an agent, or a checker whose scope does not admit that tool.
    pub fn build(self) -> Result<Autonomy> {
        check_agent_name(&self.name)?;
        let refuse = |text| Err(Error::new(ErrorKind::Config, text));
        if self.iterations == 0 {
            return refuse("a checked task needs at least one round");
        }
        if self.judge.is_none() && self.judge_instructions.is_some() {
            return refuse("there are instructions for a judge, and no judge; add its model with `judge`");
        }
        let verifier = self.verifier.as_ref().or(self.discriminator.as_ref());
        if verifier.is_some() && self.executor.tool_set().get(TASK_COMPLETE).is_some() {
            return refuse(
                "the executor has a tool `task_complete`, which is the checker's alone; rename it",
            );
        }
        let verifier = verifier.map(Discriminator::new).transpose()?;
        let discriminator = self.discriminator.as_ref().map(Discriminator::new).transpose()?;
        let instructions = self.judge_instructions;
        let crew = Crew {
            executor: self.executor,
            judge: self.judge.map(|model| Arc::new(Judge::new(model, instructions))),
            verifier: verifier.map(|verifier| Arc::new(verifier.read_only())),
            discriminator: discriminator.map(Arc::new),
        };
        let (level, iterations, cancel_ends) = (self.level, self.iterations, self.cancel_ends);
        let mut inner =
            Inner { name: self.name.into(), level, rounds: Vec::new(), crew, iterations, cancel_ends };
        inner.arrange();
        inner.rounds(level)?;
        Ok(Autonomy(Arc::new(inner)))
    }
}
