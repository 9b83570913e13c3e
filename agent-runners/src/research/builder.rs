//! The runner and its builder.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use entourage_core::{
    Result,
    agent::{Agent, IntoAgent},
    budget::BudgetLimits,
    provider::ModelSlot,
    run::Limits,
    tool::Tool,
};
use entourage_runtime::{Session, check_agent_name};

use super::{
    Researcher,
    cache::Cache,
    plan::{self, Plan},
};
use crate::{
    ReactAgent,
    react::IntoTools,
    shelf::{Likeness, by_words},
};

/// Name of the planner.
pub(super) const PLANNER: &str = "research-planner";

/// Model calls of one task.
const STEPS: u32 = 20;

/// Time of one task.
const TASK_TIME: Duration = Duration::from_secs(600);

/// Research as an agent: a question becomes tasks, agents that only look work on them side by side, and the answer
/// joins what they found. Cloning shares it.
///
/// # Tasks
/// A planner divides the question into at most 50 tasks, each of a kind: see [`Researcher`]. Without its plan, the
/// words of the question decide: a search has three tasks (source, tests, documents), any other question one. A prompt
/// that asks for a change is refused with [`ErrorKind::InvalidInput`](entourage_core::ErrorKind::InvalidInput), by its
/// words before anything is called, or by the planner.
///
/// # Agents
/// Each task has an agent and a session of its own. At most 10 work at once, and fewer if
/// [`RuntimeBuilder::sub_agents`](entourage_runtime::RuntimeBuilder::sub_agents) allows fewer; the others wait. An
/// agent makes at most 20 model calls, has the time and the budget of [`ResearchBuilder::task_limits`], and the
/// [scope of its kind](Researcher::scope).
///
/// # Outcome
/// The answers in the order of the tasks, with failures beside them: [`Outcome::failed`] has the ids of failed tasks,
/// such as `2-doc-reader`. The only answer of one task stands alone. If no task has an answer, the run was stopped,
/// with [`StopReason::Tasks`](entourage_core::run::StopReason::Tasks).
///
/// Each task's beginning and end is recorded as a [`ResearchProgress`](crate::research::ResearchProgress). A resumed
/// run goes on with the agents that had not ended. A cancel reaches all of them. The research pauses once every agent
/// at work waits, for an approval for example.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_runners::research::Research;
/// use entourage_runtime::AgentExt;
/// use entourage_testkit::{FakeTool, ScriptedProvider};
///
/// let plans = ScriptedProvider::new().text(
///     r#"{"tasks": [{"kind": "file_searcher", "prompt": "Where is the lease renewed?"},
///                   {"kind": "doc_reader", "prompt": "What do the docs say about leases?"}]}"#,
/// );
/// let looks = ScriptedProvider::by_history().text("In run/watch.rs.");
/// let research = Research::builder("research", looks.model())
///     .planner(plans.model())
///     .tools((FakeTool::new("grep"),))
///     .build()?;
/// let report = research.ask("How do leases work?").await?;
/// assert!(report.starts_with("## 1. Where is the lease renewed? (file-searcher)\n\nIn run/watch.rs."));
/// # Ok::<_, entourage_core::Error>(())
/// # }).unwrap();
/// ```
///
/// [`Outcome::failed`]: entourage_core::run::Outcome::failed
#[derive(Clone)]
pub struct Research {
    pub(super) inner: Arc<Inner>,
    /// True if the cache is not asked.
    pub(super) anew: bool,
}

pub(super) struct Inner {
    pub(super) name: String,
    pub(super) planner: Option<Arc<dyn Agent>>,
    /// The agent of each kind, and the bounds of a task of it.
    pub(super) agents: BTreeMap<Researcher, (Arc<dyn Agent>, BudgetLimits)>,
    pub(super) cache: Option<Cache>,
}

impl Research {
    /// Starts building research called `name`, whose planner and agents use `model`; a small one is meant.
    pub fn builder(name: impl Into<String>, model: impl Into<ModelSlot>) -> ResearchBuilder {
        let model = model.into();
        ResearchBuilder {
            name: name.into(),
            planner: Some(model.clone()),
            model,
            tools: Vec::new(),
            agents: BTreeMap::new(),
            limits: BudgetLimits::none().with_time(TASK_TIME),
            cache: None,
            likeness: Arc::new(by_words),
        }
    }

    /// Returns the same research, which looks into each question anew, whatever its cache holds. What it finds is kept.
    #[must_use]
    pub fn refreshing(&self) -> Self {
        Self { anew: true, ..self.clone() }
    }
}

impl fmt::Debug for Research {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Research").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

/// Builds a [`Research`].
#[must_use = "a builder does nothing until `build`"]
pub struct ResearchBuilder {
    name: String,
    model: ModelSlot,
    planner: Option<ModelSlot>,
    tools: Vec<Arc<dyn Tool>>,
    agents: BTreeMap<Researcher, Arc<dyn Agent>>,
    limits: BudgetLimits,
    cache: Option<Session>,
    likeness: Likeness,
}

impl ResearchBuilder {
    /// Adds tools of the built-in agents. Each agent is shown those that the scope of its kind admits.
    pub fn tools<Form>(mut self, tools: impl IntoTools<Form>) -> Self {
        self.tools.extend(tools.into_tools());
        self
    }

    /// Replaces the built-in agent of a kind. The agent has tools of its own, within the scope of the kind; its run,
    /// with all below it, has at most 20 model calls.
    pub fn agent<Form>(mut self, kind: Researcher, agent: impl IntoAgent<Form>) -> Self {
        self.agents.insert(kind, agent.into_agent());
        self
    }

    /// Sets the planner's model. Default: the model of the agents.
    pub fn planner(mut self, model: impl Into<ModelSlot>) -> Self {
        self.planner = Some(model.into());
        self
    }

    /// Plans by the words of the question alone, without a model call.
    pub fn without_planner(mut self) -> Self {
        self.planner = None;
        self
    }

    /// Sets the bounds of each task, which replace the default of 10 minutes. The time counts from the first step of a
    /// task's agent, without its wait for a slot.
    pub fn task_limits(mut self, limits: BudgetLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Keeps reports in `session`, one session for each project, and answers a question that is like one of the last
    /// hour with its report and the age of that, without a model call. Only reports without a failed task are kept, on
    /// questions of at most 8 KiB.
    /// [`Research::refreshing`] does not ask the cache. Default: no cache.
    ///
    /// The session is the cache's alone: a research that runs in it, or below it, is refused with
    /// [`ErrorKind::Config`](entourage_core::ErrorKind::Config).
    pub fn cache(mut self, session: &Session) -> Self {
        self.cache = Some(session.clone());
        self
    }

    /// Sets the likeness of two questions, from 0 to 1; those of at least 0.85 are alike. Default: the cosine of their
    /// sets of words. It is called within a task, once for each report of the last hour, and other tasks go on between
    /// two calls: it must not block, so an embedding is looked up here and made elsewhere.
    pub fn likeness(mut self, likeness: impl Fn(&str, &str) -> f64 + Send + Sync + 'static) -> Self {
        self.likeness = Arc::new(likeness);
        self
    }

    /// Builds the research.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](entourage_core::ErrorKind::Config) for an invalid name, and for two tools of one name.
    pub fn build(self) -> Result<Research> {
        check_agent_name(&self.name)?;
        let planner = self.planner.map(planner).transpose()?;
        let (mut given, mut agents) = (self.agents, BTreeMap::new());
        for kind in Researcher::ALL {
            let bounded = match given.remove(&kind) {
                // Its own limits are not known: its model calls are counted.
                Some(agent) => (agent, self.limits.with_model_calls(steps(&self.limits))),
                None => (built_in(kind, &self.model, &self.tools)?, self.limits),
            };
            agents.insert(kind, bounded);
        }
        let cache = self.cache.map(|session| Cache::new(session, self.likeness)).transpose()?;
        let inner = Arc::new(Inner { name: self.name, planner, agents, cache });
        Ok(Research { inner, anew: false })
    }
}

impl fmt::Debug for ResearchBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResearchBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Returns the model calls that a task may make.
fn steps(limits: &BudgetLimits) -> u64 {
    limits.model_calls.unwrap_or(u64::MAX).min(STEPS.into())
}

fn planner(model: ModelSlot) -> Result<Arc<dyn Agent>> {
    let planner = ReactAgent::builder(PLANNER, model).instructions(plan::instructions());
    Ok(Arc::new(planner.returns::<Plan>().validate(|plan, _| plan.check()).build()?))
}

fn built_in(kind: Researcher, model: &ModelSlot, tools: &[Arc<dyn Tool>]) -> Result<Arc<dyn Agent>> {
    let agent = ReactAgent::builder(kind.name(), model.clone())
        .instructions(kind.instructions())
        .tools(tools.to_vec())
        .scope(kind.scope())
        .limits(Limits::default().with_steps(STEPS));
    Ok(Arc::new(agent.build()?))
}
