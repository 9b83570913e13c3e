//! The runner and its builder.

use std::{fmt, sync::Arc};

use entourage_core::{
    Error, ErrorKind, Result,
    agent::Agent,
    context::Instructions,
    provider::{ModelSlot, Params},
    run::Limits,
    tool::{Access, Tool, Tools},
};
use entourage_runtime::check_agent_name;

use super::{
    ConversationLimits, PartBudgets,
    budget::{check, tokens, tokens_of},
    conversation::Conversation,
    execution::{EXECUTOR, Execution},
    guard::{TurnLimits, Within},
    plan::Draft,
    prompts,
    reply::Reply,
    run::{PLANNER, Part},
    strategy::Analysis,
};
use crate::{
    ReactAgent,
    layered::layered,
    react::{IntoTools, ReactBuilder, joined},
};

/// Default number of plans after the first.
const REPLANS: u32 = 1;

/// Default number of executors that work at once.
const AT_ONCE: usize = 5;

/// A planner with executors: it answers, works, or makes a plan whose steps cheap models look into side by side.
/// Cloning shares it.
///
/// # Strategy
/// The executors' model classifies each request: an answer without tools, one or two operations that the planner does
/// with its tools, or a plan. Where its answer contradicts itself, its counts decide; where it fails, the words of the
/// request: see [`PlannerBuilder::without_classifier`].
///
/// # Plan
/// The planner looks with its read tools and gives numbered [steps](crate::planner::PlannedStep). A plan that cannot
/// run, or is too long, goes back to it once, with all that is wrong. The steps run as a
/// [`TaskGraph`](crate::graph::TaskGraph), each after those that it depends on, and is given their results. If a step
/// fails, those that depend on it are skipped; the planner then makes another plan for what is left, and what is done
/// is kept ([`PlannerBuilder::max_replans`]). A refusal, and the end of what bounds the run, are final: no other plan
/// follows.
///
/// A run that is not completed leaves its request open: each later run in the session is told the steps of its plans,
/// until a plan that goes on with them is completed.
///
/// # Permissions
/// Executors only look: a tool is a read tool by its [`Access`], not by its name. An executor is shown the read tools
/// of its step alone; any other call is answered with an error, and nothing runs. A plan that gives an executor another
/// tool is refused. Steps that change something are the planner's own, one at a time.
///
/// # Conversations
/// An executor is given its step and works in turns. By the tool `reply` it asks the planner, tells how far it is, or
/// ends the step. See [`ConversationLimits`] and [`PartBudgets`] for the bounds.
///
/// # Sessions
/// The planner's own session holds what the user sees: a prompt and an answer per run. It works in the child
/// `<id>$$planner`, which knows all that was said in earlier runs; requests are classified in `<id>$$strategy`, and
/// plans executed in `<id>$$plan`. The module describes the records.
///
/// # Outcome
/// - Completed: the answer. [`Outcome::failed`](entourage_core::run::Outcome::failed) has optional steps that failed.
/// - Completed, with questions to the user, where the planner looked and cannot plan without them. The next prompt goes
///   on from there.
/// - [`StopReason::Tasks`](entourage_core::run::StopReason::Tasks), with the answer from what was found, if a step that
///   is not optional was not done.
/// - Failed, if no plan could be made, or the planner's model failed before that. Where it fails at the answer, the
///   results of the steps are the answer.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_runners::planner::Planner;
/// use entourage_runtime::{AgentExt, Runtime, permission::Policy};
/// use entourage_testkit::{FakeTool, ScriptedProvider};
/// use entourage_core::tool::Access;
/// use serde_json::json;
///
/// let steps = json!({"steps": [
///     {"number": 1, "description": "Find the lease.", "executor_required": true, "tools": ["grep"]},
///     {"number": 2, "description": "Find its tests.", "executor_required": true, "tools": ["grep"]},
/// ]});
/// let plans = ScriptedProvider::new().call("final_answer", steps).text("In run/watch.rs, tested.");
/// let looks = ScriptedProvider::by_history()
///     .call("grep", json!({}))
///     .call("reply", json!({"type": "complete", "text": "Found."}));
/// let planner = Planner::builder("assistant", plans.model())
///     .executor(looks.model())
///     .without_classifier()
///     .tools((FakeTool::new("grep").access(Access::READ),))
///     .build()?;
/// let runtime = Runtime::builder().policy(Policy::allow_all()).build();
/// let run = runtime.session().start(&planner, "First find the lease, then its tests.");
/// assert_eq!(run.outcome().await?.text, "In run/watch.rs, tested.");
/// # Ok::<_, entourage_core::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Planner(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) name: String,
    strategy: Option<Arc<dyn Agent>>,
    steps: Arc<dyn Agent>,
    work: Arc<dyn Agent>,
    answer: Arc<dyn Agent>,
    synthesis: Arc<dyn Agent>,
    plan: Arc<dyn Agent>,
    /// The agent `plan`.
    pub(super) execution: Arc<Execution>,
    pub(super) tools: Tools,
    pub(super) reads: Access,
    pub(super) limits: ConversationLimits,
    pub(super) budgets: PartBudgets,
    pub(super) max_replans: u32,
}

impl Inner {
    pub(super) fn agent(&self, part: Part) -> Option<&Arc<dyn Agent>> {
        match part {
            Part::Strategy => self.strategy.as_ref(),
            Part::Steps => Some(&self.steps),
            Part::Work => Some(&self.work),
            Part::Answer => Some(&self.answer),
            Part::Synthesis => Some(&self.synthesis),
            Part::Plan => Some(&self.plan),
        }
    }
}

impl Planner {
    /// Starts building a planner called `name`, which plans and answers with `model`.
    pub fn builder(name: impl Into<String>, model: impl Into<ModelSlot>) -> PlannerBuilder {
        PlannerBuilder {
            name: name.into(),
            model: model.into(),
            executor: None,
            classifies: true,
            tools: Vec::new(),
            reads: Access::READ,
            instructions: None,
            location: String::new(),
            profile: String::new(),
            limits: ConversationLimits::default(),
            budgets: PartBudgets::default(),
            max_replans: REPLANS,
            at_once: AT_ONCE,
        }
    }
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planner").field("name", &self.0.name).finish_non_exhaustive()
    }
}

/// Builds a [`Planner`].
#[must_use = "a builder does nothing until `build`"]
pub struct PlannerBuilder {
    name: String,
    model: ModelSlot,
    executor: Option<ModelSlot>,
    classifies: bool,
    tools: Vec<Arc<dyn Tool>>,
    reads: Access,
    instructions: Option<Instructions>,
    location: String,
    profile: String,
    limits: ConversationLimits,
    budgets: PartBudgets,
    max_replans: u32,
    at_once: usize,
}

impl PlannerBuilder {
    /// Sets the model of executors, which classifies requests too; a small one is meant. Default: the planner's.
    pub fn executor(mut self, model: impl Into<ModelSlot>) -> Self {
        self.executor = Some(model.into());
        self
    }

    /// Adds tools. The planner has all of them, an executor the read tools of its step.
    pub fn tools<Form>(mut self, tools: impl IntoTools<Form>) -> Self {
        self.tools.extend(tools.into_tools());
        self
    }

    /// Counts tools that talk to other machines among the read tools, if they need no other access than to read. A
    /// request can carry what was read: executors then need tools whose hosts you trust.
    pub fn executors_use_network(mut self) -> Self {
        self.reads |= Access::NETWORK;
        self
    }

    /// Replaces the planner's built-in instructions `entourage/planner`.
    pub fn instructions(mut self, instructions: impl Into<Instructions>) -> Self {
        self.instructions = Some(instructions.into());
        self
    }

    /// Sets the text about the place that the planner works in, such as a project, which joins its instructions.
    pub fn location(mut self, text: impl Into<String>) -> Self {
        self.location = text.into();
        self
    }

    /// Sets the text about the user, which joins the planner's instructions.
    pub fn profile(mut self, text: impl Into<String>) -> Self {
        self.profile = text.into();
        self
    }

    /// Chooses the strategy by the words of a request alone, without a model call: words of a sequence, such as `then`,
    /// or more than 50 words make a plan; anything else the planner does with its tools.
    pub fn without_classifier(mut self) -> Self {
        self.classifies = false;
        self
    }

    /// Sets the limits of plans, of conversations with executors, and of replies.
    pub fn limits(mut self, limits: ConversationLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the budgets of input tokens.
    pub fn budgets(mut self, budgets: PartBudgets) -> Self {
        self.budgets = budgets;
        self
    }

    /// Sets how many plans may follow the first one of a run, for what it left undone. Default 1.
    pub fn max_replans(mut self, plans: u32) -> Self {
        self.max_replans = plans;
        self
    }

    /// Sets how many executors work at once, at most. Default 5.
    pub fn executors_at_once(mut self, executors: usize) -> Self {
        self.at_once = executors;
        self
    }

    /// Builds the planner.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an invalid name, two tools of one name or one called `reply` or `final_answer`, a
    /// limit of zero, a temperature that is negative or no number, and a part that is over its budget, whose name is in
    /// the error.
    pub fn build(self) -> Result<Planner> {
        check_agent_name(&self.name)?;
        self.limits.check()?;
        if self.at_once == 0 {
            let text = "a planner needs an executor that works; set `executors_at_once` to 1 or more";
            return Err(Error::new(ErrorKind::Config, text));
        }
        let tools = Tools::new(self.tools.clone())?;
        let instructions = self.instructed()?;
        self.check_budgets(&tools)?;
        let execution = Arc::new(Execution {
            executor: Arc::new(Conversation {
                executor: Arc::new(self.executor_agent()?),
                planner: Arc::new(self.planner(&instructions, self.answer_params()).build()?),
                limits: self.limits,
            }),
            planner: Arc::new(self.worker(&instructions)?),
            reads: self.reads,
            limits: self.limits,
            budgets: self.budgets,
            at_once: self.at_once,
        });
        let synthesis = Params::default().with_max_output(self.limits.synthesis_output);
        Ok(Planner(Arc::new(Inner {
            strategy: self.classifier()?,
            steps: self.steps(&instructions)?,
            work: Arc::new(self.worker(&instructions)?),
            answer: Arc::new(self.planner(&instructions, Params::default()).build()?),
            synthesis: Arc::new(self.planner(&instructions, synthesis).build()?),
            plan: Arc::clone(&execution) as Arc<dyn Agent>,
            execution,
            tools,
            reads: self.reads,
            limits: self.limits,
            budgets: self.budgets,
            max_replans: self.max_replans,
            name: self.name,
        })))
    }

    /// Returns the planner's instructions, with the texts about its place and its user.
    fn instructed(&self) -> Result<Instructions> {
        let (budgets, about) = (&self.budgets, [&self.location, &self.profile]);
        check("planner location", tokens(&self.location), budgets.planner_location)?;
        check("planner profile", tokens(&self.profile), budgets.planner_profile)?;
        let own = self.instructions.clone().unwrap_or_else(prompts::planner);
        check("planner system", tokens(prompts::planning(&own).text()), budgets.planner_system)?;
        let texts = about.into_iter().filter(|text| !text.trim().is_empty());
        Ok(texts.fold(own, |all, text| joined(&all, &Instructions::new(text.as_str().into(), None))))
    }

    fn check_budgets(&self, tools: &Tools) -> Result<()> {
        let budgets = &self.budgets;
        check("executor system", tokens(prompts::executor().text()), budgets.executor_system)?;
        for tool in tools.iter().filter(|tool| self.reads.contains(tool.spec().access())) {
            let part = format!("executor tools: {}", tool.spec().name());
            check(&part, tokens_of(tool.spec()), budgets.executor_tools)?;
        }
        Ok(())
    }

    fn answer_params(&self) -> Params {
        let limits = &self.limits;
        Params::default().with_max_output(limits.answer_output).with_temperature(limits.answer_temperature)
    }

    /// Returns the planner without tools.
    fn planner(&self, instructions: &Instructions, params: Params) -> ReactBuilder {
        ReactAgent::builder(PLANNER, self.model.clone())
            .instructions(instructions.clone())
            .params(params)
            .prepare(Within { tokens: self.budgets.planner_conversation, keeps_first: false })
    }

    /// Returns the planner with all tools.
    fn worker(&self, instructions: &Instructions) -> Result<ReactAgent> {
        self.planner(instructions, Params::default()).tools(self.tools.clone()).build()
    }

    fn steps(&self, instructions: &Instructions) -> Result<Arc<dyn Agent>> {
        let params = Params::default().with_max_output(self.limits.plan_output);
        let steps = self.planner(&prompts::planning(instructions), params).tools(self.tools.clone());
        Ok(Arc::new(steps.returns::<Draft>().repairs(0).build()?))
    }

    fn executor_model(&self) -> ModelSlot {
        self.executor.clone().unwrap_or_else(|| self.model.clone())
    }

    fn classifier(&self) -> Result<Option<Arc<dyn Agent>>> {
        if !self.classifies {
            return Ok(None);
        }
        let classifier = ReactAgent::builder("strategy", self.executor_model())
            .instructions(prompts::strategy())
            // Each request by itself.
            .prepare(Within { tokens: 0, keeps_first: false });
        Ok(Some(Arc::new(classifier.returns::<Analysis>().repairs(0).build()?)))
    }

    fn executor_agent(&self) -> Result<ReactAgent> {
        let limits = &self.limits;
        let guarded = |tool: &Arc<dyn Tool>| -> Arc<dyn Tool> {
            Arc::new(layered(Arc::clone(tool), TurnLimits::from(limits)))
        };
        let params = Params::default()
            .with_max_output(limits.executor_output)
            .with_temperature(limits.executor_temperature);
        let conversation = Within { tokens: self.budgets.executor_conversation(), keeps_first: true };
        ReactAgent::builder(EXECUTOR, self.executor_model())
            .instructions(prompts::executor())
            .params(params)
            // Calls are bounded on their own; a step more is the reply.
            .limits(Limits::default().with_steps(limits.tool_calls.saturating_add(2)))
            .prepare(conversation)
            .tools(self.tools.iter().map(guarded).collect::<Vec<_>>())
            .tool(Reply::new())
            .build()
    }
}

impl fmt::Debug for PlannerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlannerBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}
