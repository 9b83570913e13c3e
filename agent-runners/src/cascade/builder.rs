//! The cascade and its builder.

use std::{fmt, sync::Arc};

use entourage_core::{
    Error, ErrorKind, Result,
    agent::{Agent, IntoAgent},
    provider::{ModelSlot, Size},
    run::{Outcome, Task},
};
use entourage_runtime::{caught, check_agent_name};

use super::{
    CascadeStarted,
    verify::{Verifier, VerifyFn},
};
use crate::{
    ReactAgent,
    autonomy::{Discriminator, Player},
    team::TaskType,
};

/// Most agents of one cascade.
const MOST: usize = 16;

/// Several agents for one task, from cheap to dear: the next one is asked where the answer of the one before is
/// refused. Cloning shares the cascade.
///
/// # Steps
/// The cheapest agent begins, or the one that [`CascadeBuilder::starts_by_type`] chooses. An answer is checked by the
/// verifier: a closure ([`CascadeBuilder::verify`]) or an agent ([`CascadeBuilder::verified_by`]). A refused answer, an
/// error and a stop (at a limit of steps, in a loop, of an inner check) go to the next agent, which is told the reason
/// after the prompt. Without a verifier, errors and stops alone do. A denial, a cancel, a deadline and a budget never
/// escalate: the cascade then ends as the agent did.
///
/// # When it saves
/// A cheap agent of cost `c` whose answers are accepted at the rate `p`, before a dear one of cost `d`: a task costs
/// `c + (1 - p) d` on average, and the check, instead of `d`. So the cheap one pays off when `p` is more than `c / d`.
/// The page `docs/teams.md` has the SQL that tells `p`, `c` and `d` of each model and type of task.
///
/// # Sessions
/// The agent's own session holds what the user sees: a prompt and an answer per run. Each attempt, and each check by an
/// agent, has a session of its own below it. An attempt sees the earlier prompts and answers of the cascade, and
/// nothing of refused attempts but the reason. All attempts share one todo list. Changes that a refused attempt made
/// with its tools stay.
///
/// # Outcome
/// That of the agent whose answer was accepted. If the last answer is refused too, the run was stopped with
/// [`StopReason::Incomplete`](entourage_core::run::StopReason::Incomplete), with the reason; the text is that answer.
/// If the last agent fails or is stopped, the run ends in that way; so it does if the checker fails, at any attempt.
///
/// # Resume and cancel
/// Starts and ends are recorded as [`CascadeStarted`](crate::CascadeStarted) and [`CascadeStep`](crate::CascadeStep). A
/// resumed run goes on with the attempt, or the check, that had not ended. A cancel ends the run.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_runners::{Cascade, ReactAgent};
/// use entourage_runtime::AgentExt;
/// use entourage_testkit::ScriptedProvider;
///
/// let small = ScriptedProvider::new().text("About forty.");
/// let large = ScriptedProvider::new().text("42");
/// let agent = ReactAgent::builder("counter", small.model()).build()?;
///
/// let cascade = Cascade::of_models(&agent, [small.model(), large.model()])
///     .verify(|answer| match answer.text.parse::<u32>() {
///         Ok(_) => Ok(()),
///         Err(_) => Err("Answer with a number and nothing else.".to_owned()),
///     })
///     .build()?;
/// assert_eq!(cascade.ask("What is six times seven?").await?, "42");
/// # Ok::<_, entourage_core::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Cascade(pub(super) Arc<Inner>);

/// Finds the type of a task.
type KindFn = Arc<dyn Fn(&Task) -> TaskType + Send + Sync>;

pub(super) struct Inner {
    pub(super) name: String,
    /// From cheap to dear; at least one.
    pub(super) steps: Vec<Step>,
    pub(super) verifier: Verifier,
    pub(super) kind: Option<KindFn>,
    starts_by_type: bool,
}

/// An agent of a cascade, with the size of its model.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) player: Player,
    size: Size,
}

impl Step {
    /// Creates a step of the size that the program says, else of the one that its model's profile states.
    fn new(agent: Arc<dyn Agent>, size: Option<Size>) -> Self {
        let player = Player::new(agent);
        let known = || player.react().and_then(|agent| agent.model().model().profile().size);
        let size = size.or_else(known).unwrap_or(Size::M);
        Self { player, size }
    }

    /// Returns the price of a prompt token and a reply token together, in the unit of `Prices`, if it is known.
    fn price(&self) -> Option<u64> {
        let model = self.player.react()?.model().model();
        let prices = model.profile().prices.as_ref()?;
        Some(prices.input.saturating_add(prices.output))
    }
}

/// Returns the name of the agent at a place, from 1, among the parts.
pub(super) fn part_of(step: u32) -> String {
    format!("step {step}")
}

impl Cascade {
    /// Starts building a cascade called `name`, without agents.
    pub fn builder(name: impl Into<String>) -> CascadeBuilder {
        CascadeBuilder {
            name: name.into(),
            steps: Vec::new(),
            order: Order::AsAdded,
            verifier: None,
            kind: None,
            starts_by_type: false,
        }
    }

    /// Starts building a cascade of one agent on each of these models, from cheap to dear. It has the agent's name, so
    /// it stands wherever the agent stood.
    pub fn of_models<M: Into<ModelSlot>>(
        agent: &ReactAgent,
        models: impl IntoIterator<Item = M>,
    ) -> CascadeBuilder {
        let steps = models.into_iter().map(|model| agent.with_model(model));
        steps.fold(Self::builder(agent.name()), CascadeBuilder::step)
    }

    /// Returns the step at a place, from 1.
    ///
    /// # Errors
    /// [`ErrorKind::Diverged`] when the cascade is shorter than the one that recorded the place.
    pub(super) fn step(&self, step: u32) -> Result<&Step> {
        let place = usize::try_from(step).ok().and_then(|step| step.checked_sub(1));
        place.and_then(|place| self.0.steps.get(place)).ok_or_else(|| {
            let text = "the run began with a longer cascade; resume it with the one that began it";
            Error::new(ErrorKind::Diverged, text).with("step", step.to_string())
        })
    }

    /// Returns the agent of an attempt that has begun.
    ///
    /// # Errors
    /// [`ErrorKind::Diverged`] when the cascade has another agent at its place now.
    pub(super) fn player(&self, started: &CascadeStarted) -> Result<&Player> {
        let player = &self.step(started.step)?.player;
        if *player.name() == *started.agent {
            return Ok(player);
        }
        let text = format!(
            "attempt {} of the run began with the agent `{}`; resume it with the cascade that began it",
            started.attempt, started.agent
        );
        Err(Error::new(ErrorKind::Diverged, text).with("agent", player.name()))
    }

    /// Returns the type of a task, if the program says it.
    pub(super) fn kind(&self, task: &Task) -> Result<Option<TaskType>> {
        let Some(kind) = &self.0.kind else { return Ok(None) };
        caught(|| kind(task)).map(Some).map_err(|panic| {
            Error::new(ErrorKind::Internal, format!("finding the type of the task panicked: {panic}"))
        })
    }

    /// Returns the place of the first attempt's agent, from 1. A type for which none is large enough begins with the
    /// last one.
    pub(super) fn first(&self, kind: Option<TaskType>) -> u32 {
        let Some(kind) = kind.filter(|_| self.0.starts_by_type) else { return 1 };
        let steps = &self.0.steps;
        let size = kind.size(steps.iter().map(|step| step.size));
        let place = steps.iter().position(|step| Some(step.size) == size);
        let place = place.map_or(steps.len(), |place| place.saturating_add(1));
        u32::try_from(place).unwrap_or(1)
    }
}

impl fmt::Debug for Cascade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cascade")
            .field("name", &self.0.name)
            .field("steps", &self.0.steps)
            .field("verifier", &self.0.verifier)
            .finish_non_exhaustive()
    }
}

/// Order of the agents.
#[derive(Debug, Clone, Copy)]
enum Order {
    AsAdded,
    BySize,
    ByPrice,
}

/// A verifier that is not checked yet.
#[derive(Clone)]
enum Draft {
    Closure(VerifyFn),
    Agent(Player),
}

/// Builds a [`Cascade`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct CascadeBuilder {
    name: String,
    steps: Vec<Step>,
    order: Order,
    verifier: Option<Draft>,
    kind: Option<KindFn>,
    starts_by_type: bool,
}

impl CascadeBuilder {
    /// Adds an agent, dearer than those before it. The size of a [`ReactAgent`] is that of its model's profile; any
    /// other agent, and one of an unknown size, is M.
    pub fn step<Form>(mut self, agent: impl IntoAgent<Form>) -> Self {
        self.steps.push(Step::new(agent.into_agent(), None));
        self
    }

    /// Adds an agent of this size.
    pub fn step_of<Form>(mut self, size: Size, agent: impl IntoAgent<Form>) -> Self {
        self.steps.push(Step::new(agent.into_agent(), Some(size)));
        self
    }

    /// Orders the agents by size, smallest first. Default: they stay in the order in which they were added.
    pub fn by_size(mut self) -> Self {
        self.order = Order::BySize;
        self
    }

    /// Orders the agents by the prices of their models, cheapest first: the price of a prompt token and of a reply
    /// token together. Each must be a [`ReactAgent`] whose model's profile states prices.
    pub fn by_price(mut self) -> Self {
        self.order = Order::ByPrice;
        self
    }

    /// Sets a closure that says whether an answer will do, and otherwise why not; the reason is told to the next agent,
    /// in at most 4,000 characters. A panic refuses the answer. It replaces an agent that verifies.
    ///
    /// It is called once for each attempt, and again only where the process died before its answer was stored. It may
    /// block: it is called on a thread for such work. A cancel of the run, or its deadline, does not wait for it; the
    /// thread is its own until it returns.
    pub fn verify(mut self, verify: impl Fn(&Outcome) -> Result<(), String> + Send + Sync + 'static) -> Self {
        self.verifier = Some(Draft::Closure(Arc::new(verify)));
        self
    }

    /// Sets an agent that checks each answer, as the checker of a [`DualAgent`](crate::DualAgent) does: a
    /// [`ReactAgent`] accepts by calling the tool `task_complete`, which it is given here, and any other agent answers
    /// with a [`Verdict`](crate::Verdict) as JSON. It replaces a closure that verifies. An answer that is no clear
    /// acceptance is a refusal, with the checker's text as the reason.
    pub fn verified_by<Form>(mut self, checker: impl IntoAgent<Form>) -> Self {
        self.verifier = Some(Draft::Agent(Player::new(checker.into_agent())));
        self
    }

    /// Sets a closure that finds the type of a task, which is recorded with each attempt, for statistics. A panic fails
    /// the run.
    pub fn task_type(mut self, kind: impl Fn(&Task) -> TaskType + Send + Sync + 'static) -> Self {
        self.kind = Some(Arc::new(kind));
        self
    }

    /// Begins with the agent of the size that [`TaskType::size`] chooses for the type of the task, instead of the
    /// cheapest one; with the last one when none is large enough. It needs [`CascadeBuilder::task_type`].
    pub fn starts_by_type(mut self) -> Self {
        self.starts_by_type = true;
        self
    }

    /// Builds the cascade.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an invalid name, no agent or more than 16, prices that are needed and not known, a
    /// start by type without [`CascadeBuilder::task_type`], and a checker that has a tool `task_complete` of its own or
    /// a scope that does not admit it.
    pub fn build(self) -> Result<Cascade> {
        check_agent_name(&self.name)?;
        let config = |text: String| Err(Error::new(ErrorKind::Config, text));
        match self.steps.len() {
            0 => return config("a cascade needs an agent; add one with `step`".to_owned()),
            steps if steps > MOST => {
                return config(format!(
                    "a cascade has at most {MOST} agents, and this one {steps}; leave some out"
                ));
            }
            _ => {}
        }
        if self.starts_by_type && self.kind.is_none() {
            let text = "a cascade that starts by the type of a task must know it; set `task_type`";
            return config(text.to_owned());
        }
        let steps = ordered(self.steps, self.order)?;
        let verifier = match self.verifier {
            None => Verifier::Nobody,
            Some(Draft::Closure(verify)) => Verifier::Closure(verify),
            Some(Draft::Agent(checker)) => {
                Verifier::Agent(Arc::new(Discriminator::new(&checker, false, None)?.able()?))
            }
        };
        let (name, kind, starts_by_type) = (self.name, self.kind, self.starts_by_type);
        Ok(Cascade(Arc::new(Inner { name, steps, verifier, kind, starts_by_type })))
    }
}

fn ordered(mut steps: Vec<Step>, order: Order) -> Result<Vec<Step>> {
    match order {
        Order::AsAdded => {}
        Order::BySize => steps.sort_by_key(|step| step.size),
        Order::ByPrice => {
            if let Some(unknown) = steps.iter().find(|step| step.price().is_none()) {
                let text = "the price of an agent is not known, so it has no place by price; give its model's profile \
                            prices, or order the agents by hand";
                return Err(Error::new(ErrorKind::Config, text).with("agent", unknown.player.name()));
            }
            steps.sort_by_key(Step::price);
        }
    }
    Ok(steps)
}

impl fmt::Debug for CascadeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CascadeBuilder")
            .field("name", &self.name)
            .field("steps", &self.steps)
            .finish_non_exhaustive()
    }
}
