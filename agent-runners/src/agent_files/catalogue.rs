//! The models, tools and agents that a program gives agents of files.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use entourage_core::{
    Error, ErrorKind, Result,
    agent::{Agent, AgentPart, IntoAgent},
    permission::Scope,
    provider::ModelSlot,
    run::Limits,
    tool::{Tool, Tools, Toolset},
};

use crate::react::IntoTools;

/// The names of the two models that each catalogue has.
pub(super) const LARGE: &str = "large";
pub(super) const SMALL: &str = "small";

/// The most that agents of files get: models, tools, MCP servers and agents by name, a scope and limits. Cloning shares
/// it.
///
/// ```
/// use entourage_core::{permission::Scope, tool::{Access, Tools}};
/// use entourage_runners::agent_files::Catalogue;
/// # let model = entourage_testkit::ScriptedProvider::new().model();
/// # let small = model.clone();
///
/// let catalogue = Catalogue::builder(model)
///     .small(small)
///     .tools(Tools::none())
///     .disabled_tools(["bash"])
///     .project_scope(Scope::read_only())
///     .build()?;
/// # Ok::<_, entourage_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Catalogue(pub(super) Arc<Inner>);

#[derive(Clone)]
pub(super) struct Inner {
    pub(super) models: BTreeMap<String, ModelSlot>,
    pub(super) tools: Tools,
    pub(super) disabled: BTreeSet<String>,
    pub(super) mcp: BTreeMap<String, Arc<dyn Toolset>>,
    pub(super) agents: BTreeMap<String, Arc<dyn Agent>>,
    pub(super) scope: Scope,
    pub(super) project_scope: Scope,
    pub(super) limits: Limits,
}

impl Catalogue {
    /// Starts a catalogue whose model `large` is `model`. So is `small`, unless it is set.
    pub fn builder(model: impl Into<ModelSlot>) -> CatalogueBuilder {
        let models = BTreeMap::from([(LARGE.to_owned(), model.into())]);
        CatalogueBuilder {
            inner: Inner {
                models,
                tools: Tools::none(),
                disabled: BTreeSet::new(),
                mcp: BTreeMap::new(),
                agents: BTreeMap::new(),
                scope: Scope::all(),
                project_scope: Scope::all(),
                limits: Limits::default(),
            },
            tools: Vec::new(),
            agents: Vec::new(),
        }
    }

    /// Returns the models, tools and agents by which an engine finds the code of an agent.
    pub(super) fn parts(&self) -> Vec<AgentPart> {
        let models = self.0.models.values().cloned().map(AgentPart::Model);
        let sets = self.0.mcp.values().map(|set| AgentPart::Tools(set.tools()));
        let agents = self.0.agents.values().map(|agent| AgentPart::agent(Arc::clone(agent)));
        models.chain([AgentPart::Tools(self.0.tools.clone())]).chain(sets).chain(agents).collect()
    }
}

impl fmt::Debug for Catalogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { models, tools, mcp, agents, .. } = &*self.0;
        f.debug_struct("Catalogue")
            .field("models", &models.keys())
            .field("tools", tools)
            .field("mcp", &mcp.keys())
            .field("agents", &agents.keys())
            .finish_non_exhaustive()
    }
}

/// Builds a [`Catalogue`].
#[must_use = "a builder does nothing until `build`"]
pub struct CatalogueBuilder {
    inner: Inner,
    tools: Vec<Arc<dyn Tool>>,
    agents: Vec<Arc<dyn Agent>>,
}

impl CatalogueBuilder {
    /// Sets the model `small`.
    pub fn small(self, model: impl Into<ModelSlot>) -> Self {
        self.model(SMALL, model)
    }

    /// Adds a model under a name, in place of another of that name.
    pub fn model(mut self, name: impl Into<String>, model: impl Into<ModelSlot>) -> Self {
        self.inner.models.insert(name.into(), model.into());
        self
    }

    /// Adds a tool.
    pub fn tool(mut self, tool: impl Tool + 'static) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// Adds tools: a tuple of tools of any types, or a list of `Arc<dyn Tool>`.
    pub fn tools<Form>(mut self, tools: impl IntoTools<Form>) -> Self {
        self.tools.extend(tools.into_tools());
        self
    }

    /// Removes tools of these names, those of MCP servers too, before any definition is looked at. A definition may
    /// still name one of them: it has it no more than others have.
    pub fn disabled_tools<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.inner.disabled.extend(names.into_iter().map(Into::into));
        self
    }

    /// Adds the tools of an MCP server, in place of another server of that name. They are looked up before each step.
    pub fn mcp(mut self, server: impl Into<String>, tools: impl Toolset + 'static) -> Self {
        self.inner.mcp.insert(server.into(), Arc::new(tools));
        self
    }

    /// Adds an agent of the program, to which agents of files may delegate. No file can take its name.
    pub fn agent<Form>(mut self, agent: impl IntoAgent<Form>) -> Self {
        self.agents.push(agent.into_agent());
        self
    }

    /// Sets the ceiling of all agents of files. Default: the scope that they run in.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.inner.scope = scope;
        self
    }

    /// Sets a further ceiling for agents whose file comes with a project, such as [`Scope::read_only`] until the user
    /// trusts it. Default: none.
    pub fn project_scope(mut self, scope: Scope) -> Self {
        self.inner.project_scope = scope;
        self
    }

    /// Sets the limits of a run, which definitions can lower.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.inner.limits = limits;
        self
    }

    /// Builds the catalogue.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an empty name, for two tools or two agents of one name, and for a limit of zero steps.
    pub fn build(self) -> Result<Catalogue> {
        let Self { mut inner, tools, agents } = self;
        let wrong = |text: String| Err(Error::new(ErrorKind::Config, text));
        if inner.models.keys().chain(inner.mcp.keys()).any(|name| name.trim().is_empty()) {
            return wrong(
                "a model or an MCP server of the catalogue has an empty name; give it one".to_owned(),
            );
        }
        if inner.limits.steps == 0 {
            return wrong("an agent needs at least one step; raise its limit of steps".to_owned());
        }
        let large = inner.models.get(LARGE).cloned();
        if let (false, Some(large)) = (inner.models.contains_key(SMALL), large) {
            inner.models.insert(SMALL.to_owned(), large);
        }
        inner.tools = Tools::new(tools)?.keep(|spec| !inner.disabled.contains(spec.name()));
        for agent in agents {
            let name = agent.name().to_owned();
            if inner.agents.insert(name.clone(), agent).is_some() {
                return wrong(format!("two agents of the catalogue are named `{name}`; rename one of them"));
            }
        }
        Ok(Catalogue(Arc::new(inner)))
    }
}

impl fmt::Debug for CatalogueBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CatalogueBuilder").finish_non_exhaustive()
    }
}
