//! The reason-and-act loop: call a model, run the tools that it asks for, and call it again.

mod offer;
mod prepare;
mod remind;
mod variant;

use std::{any::Any, fmt, sync::Arc};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    agent::{Agent, AgentPart},
    context::{Compaction, CompactionCause, Instructions},
    event::Event,
    message::History,
    permission::Scope,
    provider::{Model, ModelSlot, Params, ToolChoice},
    run::{Effect, Limits, ModelCall, Observation, Outcome, RunContext, Task, ToolCalls},
    session::SessionState,
    tool::{Repair, Tool, Tools, Toolset},
};
use entourage_runtime::{check_agent_name, context::shown_to};

use crate::{
    todo_tool::TodoTool,
    turn::{Action, StopWhen, Turn},
};

pub use prepare::{Prepare, Prepared, Step};

/// An agent made of a model, instructions and tools. Cloning shares the agent.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_runners::ReactAgent;
/// use entourage_runtime::AgentExt;
/// use entourage_testkit::ScriptedProvider;
///
/// let provider = ScriptedProvider::new().text("Paris.");
/// let agent = ReactAgent::builder("geographer", provider.model())
///     .instructions("You answer in one word.")
///     .build()
///     .unwrap();
/// assert_eq!(agent.ask("What is the capital of France?").await.unwrap(), "Paris.");
/// # });
/// ```
#[derive(Clone)]
pub struct ReactAgent(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    name: Box<str>,
    model: ModelSlot,
    instructions: Arc<str>,
    tools: ToolSource,
    more: Option<Box<More>>,
}

/// Settings that most agents leave at their defaults; boxed apart, so that an idle agent stays small.
#[derive(Clone, Default)]
struct More {
    params: Option<Arc<Params>>,
    scope: Scope,
    limits: Limits,
    stop_when: Arc<[StopWhen]>,
    repair: Option<Arc<dyn Repair>>,
    prepare: Option<Arc<dyn Prepare>>,
    compacts: Compacts,
    /// Id of the template that the instructions were rendered from.
    template: Option<Arc<str>>,
    description: Box<str>,
    /// True when a run that begins with an empty todo list is reminded of the list.
    reminds: bool,
    /// True when the agent may call none of its tools.
    speaks_only: bool,
}

/// Compaction of the conversation: default settings, custom settings, or none.
#[derive(Clone, Default)]
enum Compacts {
    #[default]
    ByDefault,
    As(Compaction),
    Never,
}

#[derive(Clone)]
enum ToolSource {
    Fixed(Tools),
    Dynamic(Arc<dyn Toolset>),
}

impl ReactAgent {
    /// Starts building an agent called `name` on `model`.
    pub fn builder(name: impl Into<String>, model: impl Into<ModelSlot>) -> ReactBuilder {
        ReactBuilder {
            name: name.into(),
            model: model.into(),
            instructions: Arc::default(),
            tools: Vec::new(),
            toolset: None,
            more: None,
        }
    }

    /// Returns the upper bound of this agent's permissions.
    #[must_use]
    pub fn scope(&self) -> Scope {
        self.0.more.as_ref().map_or_else(Scope::all, |more| more.scope.clone())
    }

    fn tools(&self) -> Tools {
        match &self.0.tools {
            ToolSource::Fixed(tools) => tools.clone(),
            ToolSource::Dynamic(set) => set.tools(),
        }
    }

    fn limits(&self) -> Limits {
        self.0.more.as_ref().map(|more| more.limits).unwrap_or_default()
    }

    fn compacts(&self) -> bool {
        !matches!(&self.0.more, Some(more) if matches!(more.compacts, Compacts::Never))
    }

    /// Compacts the conversation and returns true when it shrank. A compaction that leaves it as it was does not end
    /// the run.
    async fn compact(&self, cx: &RunContext, model: &Model, cause: CompactionCause) -> Result<bool> {
        let compaction = match self.0.more.as_deref() {
            Some(More { compacts: Compacts::As(compaction), .. }) => compaction.clone(),
            _ => Compaction::default(),
        };
        let (compaction, model) = (Box::new(compaction), model.clone());
        let effect = Effect::Compact { compaction, model, cause, silence: self.limits().model_silence };
        match cx.effects().perform(cx, None, effect).await? {
            Observation::Compacted(smaller) => Ok(smaller),
            _ => Err(wrong_observation()),
        }
    }

    /// Compacts the conversation after the service refused the step for its length. Returns true when it shrank, so
    /// that the step can be retried.
    async fn make_room(&self, cx: &RunContext, turn: &mut Turn) -> Result<bool> {
        if !self.compacts() || !cx.read(SessionState::may_retry) {
            return Ok(false);
        }
        let smaller = self.compact(cx, &self.0.model.model(), CompactionCause::Overflow).await?;
        if smaller {
            cx.read(|state| state.run().map(|run| turn.try_again(run)));
        }
        Ok(smaller)
    }

    /// Builds the call of the next step, with all settings read afresh.
    fn next_call(&self, step: u32, history: History, model: Model) -> Box<ModelCall> {
        let more = self.0.more.as_deref();
        let params = more.and_then(|more| more.params.as_ref());
        let mut plan = Prepared {
            instructions: Instructions::new(
                Arc::clone(&self.0.instructions),
                more.and_then(|more| more.template.clone()),
            ),
            messages: history,
            tools: self.tools(),
            tool_choice: ToolChoice::Auto,
            model,
        };
        if let Some(prepare) = more.and_then(|more| more.prepare.as_ref()) {
            prepare.prepare(&Step { number: step }, &mut plan);
        }
        let Prepared { model, instructions, messages, tools, tool_choice } = plan;
        let mut request = model.request(shown_to(&messages, model.profile()));
        let (instructions, template) = instructions.into_parts();
        request.instructions = instructions;
        let speaks_only = more.is_some_and(|more| more.speaks_only);
        request.tool_choice = if speaks_only { ToolChoice::None } else { tool_choice };
        if let Some(params) = params {
            request.params = Arc::new((**params).clone().or(model.params()));
        }
        let specs = Arc::clone(tools.specs());
        let mut call = ModelCall::new(model, request, if speaks_only { Tools::none() } else { tools });
        call.request.tools = specs;
        call.repair = more.and_then(|more| more.repair.clone());
        (call.step, call.silence, call.template) = (step, self.limits().model_silence, template);
        Box::new(call)
    }

    /// Returns the next action of the turn. Kept apart from [`Agent::run`], so that no part of an action lives across
    /// an `.await`: that keeps the future small and cheap to allocate.
    fn next(&self, turn: &Turn, cx: &RunContext, offered: &mut Option<Tools>) -> Next {
        if turn.is_over() {
            return if turn.overflowed() { Next::Overflow } else { Next::Finish };
        }
        match turn.action() {
            Action::CallModel(step) => Next::Model(step),
            Action::CallTools { message, calls } => {
                // After a restart the tools offered before are unknown: assume those that would be offered now.
                let now = || self.next_call(turn.steps(), cx.history(), self.0.model.model()).offered;
                let offered = offered.get_or_insert_with(now).clone();
                Next::Tools(Box::new(ToolCalls::new(message, calls, offered, self.limits())))
            }
            Action::Finish(_) => Next::Finish,
        }
    }
}

#[async_trait]
impl Agent for ReactAgent {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn description(&self) -> &str {
        self.0.more.as_ref().map_or("", |more| &more.description)
    }

    fn parts(&self) -> Vec<AgentPart> {
        let mut parts = vec![AgentPart::Model(self.0.model.clone()), AgentPart::Tools(self.tools())];
        if let Some(More { compacts: Compacts::As(compaction), .. }) = self.0.more.as_deref() {
            parts.push(AgentPart::Model(compaction.summariser(&self.0.model.model()).into()));
        }
        parts.extend(self.0.more.iter().filter_map(|more| more.repair.clone().map(AgentPart::Repair)));
        parts
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }

    fn begins_with_an_effect(&self) -> bool {
        self.0.more.as_ref().is_none_or(|more| more.prepare.is_none())
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        drop(task);
        let limits = self.limits();
        let stop_when = self.0.more.as_ref().map(|more| Arc::clone(&more.stop_when)).unwrap_or_default();
        let mut turn = Turn::new(limits.steps).stop_when(stop_when).loops(limits.loops);
        let narrowed = self
            .0
            .more
            .as_ref()
            .filter(|more| !more.scope.contains(cx.scope()))
            .map(|more| cx.narrowed(&more.scope));
        let cx = narrowed.as_ref().unwrap_or(cx);
        let effects = cx.effects();
        let recorded = effects.recorded();
        recorded.iter().for_each(|event| turn.apply(event));
        if turn.steps() == 0 && self.0.more.as_ref().is_some_and(|more| more.reminds) {
            remind::of_todos(cx, &recorded);
        }
        drop(recorded);
        let mut offered: Option<Tools> = None;
        let mut shown = offer::Offer::default();
        loop {
            match self.next(&turn, cx, &mut offered) {
                Next::Model(step) => {
                    cx.steer().await?;
                    let mut model = self.0.model.model();
                    if self.compacts() && is_compaction_due(cx, &model) {
                        Box::pin(self.compact(cx, &model, CompactionCause::Threshold)).await?;
                        model = self.0.model.model();
                        cx.steer().await?;
                    }
                    let mut call = self.next_call(step, cx.history(), model);
                    shown.restrict(&mut call.request, cx.scope());
                    offered = Some(call.offered.clone());
                    let error = match effects.perform(cx, None, Effect::Model(call)).await {
                        Ok(Observation::Model(reply)) => {
                            turn.apply(&Event::ModelFinished(reply));
                            continue;
                        }
                        Ok(_) => return Err(wrong_observation()),
                        Err(error) => error,
                    };
                    if error.kind() != ErrorKind::ContextOverflow
                        || !Box::pin(self.make_room(cx, &mut turn)).await?
                    {
                        return Err(error);
                    }
                }
                Next::Tools(calls) => match effects.perform(cx, None, Effect::Tools(calls)).await? {
                    Observation::Tools(results) => {
                        results.into_iter().for_each(|result| turn.apply(&Event::ToolFinished(result)));
                    }
                    _ => return Err(wrong_observation()),
                },
                // The process died after the refusal, before it could compact or fail.
                Next::Overflow => {
                    if !Box::pin(self.make_room(cx, &mut turn)).await? {
                        return finished(&turn);
                    }
                }
                Next::Finish => return finished(&turn),
            }
        }
    }
}

fn is_compaction_due(cx: &RunContext, model: &Model) -> bool {
    cx.read(|state| state.compaction_due(cx.session(), model.profile().context_window))
}

/// Next action of a run.
enum Next {
    Model(u32),
    Tools(Box<ToolCalls>),
    /// The run ended because the conversation is too long.
    Overflow,
    Finish,
}

fn finished(turn: &Turn) -> Result<Outcome> {
    match turn.action() {
        Action::Finish(outcome) => Ok(outcome),
        Action::CallModel(_) | Action::CallTools { .. } => {
            Err(Error::new(ErrorKind::Internal, "a finished turn requested another action"))
        }
    }
}

fn wrong_observation() -> Error {
    Error::new(ErrorKind::Internal, "unexpected kind of observation")
}

impl fmt::Debug for ReactAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReactAgent")
            .field("name", &self.0.name)
            .field("model", &self.0.model)
            .finish_non_exhaustive()
    }
}

/// Builds a [`ReactAgent`].
#[must_use = "a builder does nothing until `build`"]
pub struct ReactBuilder {
    name: String,
    model: ModelSlot,
    instructions: Arc<str>,
    tools: Vec<Arc<dyn Tool>>,
    toolset: Option<Arc<dyn Toolset>>,
    more: Option<Box<More>>,
}

impl ReactBuilder {
    /// Says what the agent is for, in one or two sentences, to whoever may delegate to it: it becomes a part of the
    /// description of an [`AgentTool`](crate::AgentTool).
    pub fn description(mut self, text: impl Into<Box<str>>) -> Self {
        self.more().description = text.into();
        self
    }

    /// Sets the system instructions: a text, or a rendered template, whose id is then recorded with every call.
    pub fn instructions(mut self, instructions: impl Into<Instructions>) -> Self {
        let (text, template) = instructions.into().into_parts();
        self.instructions = text;
        if template.is_some() || self.more.is_some() {
            self.more().template = template;
        }
        self
    }

    /// Adds a tool.
    pub fn tool(mut self, tool: impl Tool + 'static) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// Adds tools.
    pub fn tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        self.tools.extend(tools);
        self
    }

    /// Adds the tool `todos`, which lets the agent keep the session's todo list.
    ///
    /// A run that begins with an empty list, and is not below another agent, is reminded of it once. The reminder is a
    /// message of the conversation, so each request still extends the one before.
    pub fn todos(mut self) -> Self {
        self.more().reminds = true;
        self.tool(TodoTool::new())
    }

    /// Takes the tools from a set that is queried before each step, instead of fixed ones.
    pub fn toolset(mut self, set: impl Toolset + 'static) -> Self {
        self.toolset = Some(Arc::new(set));
        self
    }

    /// Sets sampling, limits, reasoning, caching and metadata; absent values come from the model.
    pub fn params(mut self, params: Params) -> Self {
        self.more().params = Some(Arc::new(params));
        self
    }

    /// Sets the upper bound of this agent's permissions. Default: the scope that it runs in.
    ///
    /// The model is shown only tools that this scope and the surrounding one can ever admit.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.more().scope = scope;
        self
    }

    /// Sets the limits of a run.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.more().limits = limits;
        self
    }

    /// Ends a run when any of these conditions holds after a step.
    pub fn stop_when(mut self, conditions: impl IntoIterator<Item = StopWhen>) -> Self {
        self.more().stop_when = conditions.into_iter().collect();
        self
    }

    /// Repairs calls that cannot be run as received, before the built-in repair of broken JSON.
    pub fn repair(mut self, repair: impl Repair + 'static) -> Self {
        self.more().repair = Some(Arc::new(repair));
        self
    }

    /// Adds a hook that changes each request before it is sent.
    pub fn prepare(mut self, prepare: impl Prepare + 'static) -> Self {
        self.more().prepare = Some(Arc::new(prepare));
        self
    }

    /// Sets how the conversation is compacted when it nears the model's window. Default: [`Compaction::new`]; when the
    /// window is unknown, it compacts only after a request was refused.
    pub fn compaction(mut self, compaction: Compaction) -> Self {
        self.more().compacts = Compacts::As(compaction);
        self
    }

    /// Disables compaction: a run whose conversation outgrows the window fails.
    pub fn without_compaction(mut self) -> Self {
        self.more().compacts = Compacts::Never;
        self
    }

    fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    /// Builds the agent.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an invalid name, two tools of one name, both fixed tools and a set, or a limit of zero
    /// steps.
    pub fn build(self) -> Result<ReactAgent> {
        check_agent_name(&self.name)?;
        if self.more.as_ref().is_some_and(|more| more.limits.steps == 0) {
            return Err(Error::new(
                ErrorKind::Config,
                "an agent needs at least one step; raise its limit of steps",
            ));
        }
        let tools = match self.toolset {
            Some(_) if !self.tools.is_empty() => {
                return Err(Error::new(
                    ErrorKind::Config,
                    "an agent has fixed tools or a toolset; combine them with `Combined` to have both",
                ));
            }
            Some(set) => ToolSource::Dynamic(set),
            None => ToolSource::Fixed(Tools::new(self.tools)?),
        };
        Ok(ReactAgent(Arc::new(Inner {
            name: self.name.into(),
            model: self.model,
            instructions: self.instructions,
            tools,
            more: self.more,
        })))
    }
}

impl fmt::Debug for ReactBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReactBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}
