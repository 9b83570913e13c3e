//! The reason-and-act loop: call a model, run the tools that it asks for, and call it again.

mod drive;
mod guard;
mod into_tools;
mod offer;
mod params;
mod plan;
mod prepare;
mod typed;
mod variant;

use std::{fmt, sync::Arc};

use entourage_core::{
    Error, ErrorKind, Result,
    context::{Compaction, Instructions},
    permission::Scope,
    provider::{ModelSlot, Params},
    run::Limits,
    tool::{Repair, Tool, Tools, Toolset},
};
use entourage_runtime::check_agent_name;

use guard::AnswerGuards;
use params::OwnParams;
use prepare::Instruct;

use crate::{combined::Combined, loops::LoopDetection, todo_tool::TodoTool, turn::StopWhen, typed::Rule};

pub(crate) use guard::Bar;
pub use into_tools::IntoTools;
pub(crate) use plan::plan_prompt;
pub(crate) use prepare::joined;
pub use prepare::{Prepare, Prepared, Step};
pub(crate) use typed::Typed;
pub use typed::{TypedAgent, TypedBuilder};

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
    params: Option<Arc<OwnParams>>,
    scope: Scope,
    limits: Limits,
    loops: LoopDetection,
    stop_when: Arc<[StopWhen]>,
    repair: Option<Arc<dyn Repair>>,
    instruct: Option<Instruct>,
    prepare: Option<Arc<dyn Prepare>>,
    compacts: Compacts,
    /// Id of the template that the instructions were rendered from.
    template: Option<Arc<str>>,
    description: Box<str>,
    /// True when a run that begins with an empty todo list is reminded of the list.
    reminds: bool,
    /// True when the agent may call none of its tools.
    speaks_only: bool,
    /// True when a run only looks until its plan is approved.
    plans: bool,
    /// The rule of answers that must be values.
    rule: Option<Arc<Rule>>,
    guards: AnswerGuards,
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
            sets: Vec::new(),
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
    sets: Vec<Arc<dyn Toolset>>,
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

    /// Sets a hook that writes more instructions for each step, after the fixed ones: a text, or a rendered template,
    /// whose id is then recorded too. An empty text adds nothing.
    ///
    /// The text must follow from the step alone (its number; the state, the mode, the todo list and the
    /// [`deps`](entourage_core::run::RunContext::deps) of its run), so that a resumed run sends the same. A text that
    /// changes often costs the service's prompt cache: put what never changes into
    /// [`instructions`](ReactBuilder::instructions). A hook set by [`prepare`](ReactBuilder::prepare) comes after it.
    ///
    /// An error of the hook, such as that of a missing value, fails the run.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use entourage_runners::ReactAgent;
    /// use entourage_runtime::Runtime;
    /// use entourage_testkit::ScriptedProvider;
    ///
    /// struct Customer(&'static str);
    ///
    /// let provider = ScriptedProvider::new().text("Hello!");
    /// let agent = ReactAgent::builder("clerk", provider.model())
    ///     .instructions("You are a clerk.")
    ///     .instructions_with(|step| Ok(format!("You talk to {}.", step.run.deps::<Customer>()?.0)))
    ///     .build()
    ///     .unwrap();
    /// let session = Runtime::in_memory().session().with_dep(Customer("Ada"));
    /// session.start(&agent, "Hi").outcome().await.unwrap();
    /// assert_eq!(&*provider.requests()[0].instructions, "You are a clerk.\n\nYou talk to Ada.");
    /// # });
    /// ```
    pub fn instructions_with<T: Into<Instructions>>(
        mut self,
        write: impl Fn(&Step) -> Result<T> + Send + Sync + 'static,
    ) -> Self {
        self.more().instruct = Some(Arc::new(move |step| write(step).map(Into::into)));
        self
    }

    /// Adds a tool.
    pub fn tool(mut self, tool: impl Tool + 'static) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// Adds tools: a tuple of tools of any types, one alone as well, or a list of `Arc<dyn Tool>`.
    pub fn tools<Form>(mut self, tools: impl IntoTools<Form>) -> Self {
        self.tools.extend(tools.into_tools());
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

    /// Adds the tools of a set that is queried before each step. Of several tools of one name the agent has the first:
    /// a fixed one, then that of the set that was given first.
    pub fn toolset(mut self, set: impl Toolset + 'static) -> Self {
        self.sets.push(Arc::new(set));
        self
    }

    /// Sets sampling, limits, reasoning, caching and metadata; absent values come from the model.
    pub fn params(mut self, params: Params) -> Self {
        self.more().params = Some(Arc::new(OwnParams::new(params)));
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

    /// Sets the loop detection.
    pub fn loops(mut self, loops: LoopDetection) -> Self {
        self.more().loops = loops;
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
    /// [`ErrorKind::Config`] for an invalid name, two fixed tools of one name, or a limit of zero steps.
    pub fn build(self) -> Result<ReactAgent> {
        check_agent_name(&self.name)?;
        if self.more.as_ref().is_some_and(|more| more.limits.steps == 0) {
            return Err(Error::new(
                ErrorKind::Config,
                "an agent needs at least one step; raise its limit of steps",
            ));
        }
        let fixed = Tools::new(self.tools)?;
        let mut sets = self.sets;
        let tools = match sets.pop() {
            None => ToolSource::Fixed(fixed),
            Some(only) if sets.is_empty() && fixed.is_empty() => ToolSource::Dynamic(only),
            Some(last) => {
                sets.insert(0, Arc::new(fixed));
                sets.push(last);
                ToolSource::Dynamic(Arc::new(Combined::new(sets)))
            }
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
