//! A graph that can run: validated, and never changed again.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    marker::PhantomData,
    sync::{Arc, OnceLock},
};

use entourage_core::{
    agent::{Agent, AgentPart},
    permission::Scope,
};

use super::{Beside, GraphSignature, Live, Node, Shape, Supervisor, TaskGraphBuilder, Work, signature};

/// Tasks that depend on each other, run in parallel as far as their edges and the graph's limits allow. Cloning shares
/// the graph. A graph is an [`Agent`], so it runs in sessions and can be a node of other graphs.
///
/// `O` is the type of its output: see [`TaskGraphBuilder::returning`].
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # use entourage_runners::ReactAgent;
/// # use entourage_testkit::ScriptedProvider;
/// # let one = ScriptedProvider::new().text("One form, two fields.");
/// # let two = ScriptedProvider::new().text("fn login() {}");
/// # let architect = ReactAgent::builder("architect", one.model()).build().unwrap();
/// # let coder = ReactAgent::builder("coder", two.model()).build().unwrap();
/// use entourage_runners::graph::TaskGraph;
///
/// let graph = TaskGraph::builder("login");
/// // An agent returns its answer, a step of the program any value.
/// let design = graph.agent("design", &architect, "Design the login form.");
/// let schema = graph.step("schema", (), |()| async { Ok(vec!["name", "password"].len()) });
/// // An agent is told the outputs of the nodes before it; a step gets them as typed values.
/// let backend = graph.agent("backend", &coder, "Write the backend.").after((&design, &schema)).attempts(2);
/// let tests = graph.step("tests", (&backend, schema.optional()), |(code, fields)| async move {
///     Ok(format!("{} lines, {fields:?} fields", code.lines().count()))
/// });
/// let graph = graph.limit(8).returning(&tests).build().unwrap();
///
/// assert_eq!(*graph.ask("Build a login").await.unwrap(), "1 lines, Some(2) fields");
/// # });
/// ```
pub struct TaskGraph<O = String> {
    pub(crate) inner: Arc<Inner>,
    pub(crate) output: PhantomData<fn() -> O>,
}

/// Data shared by all clones of a graph.
pub(crate) struct Inner {
    pub(crate) name: Box<str>,
    /// Nodes in the order in which they were added.
    pub(crate) nodes: Vec<Node>,
    pub(crate) by_id: HashMap<Arc<str>, usize>,
    /// All agents by name, for plans, additions and reassignments.
    pub(crate) agents: BTreeMap<Arc<str>, Arc<dyn Agent>>,
    /// Scopes that the graph's own nodes grant to their agents.
    pub(crate) granted: BTreeMap<Arc<str>, Scope>,
    pub(crate) limits: GraphLimits,
    pub(crate) on_failure: OnFailure,
    /// Index of the node whose value the graph returns.
    pub(crate) output: Option<usize>,
    pub(crate) signature: OnceLock<GraphSignature>,
    pub(crate) shape: Shape,
    pub(crate) live: Arc<Live>,
    pub(crate) supervisor: Option<Supervisor>,
    pub(crate) beside: Option<Arc<dyn Beside>>,
}

impl Inner {
    /// Returns the name of an agent at one of the graph's own nodes among the graph's parts. `None` for its own name,
    /// which another agent may have.
    pub(crate) fn part(&self, place: usize, agent: &Arc<dyn Agent>) -> Option<Arc<str>> {
        let is = |other: &Arc<dyn Agent>| std::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(agent));
        if self.agents.get(agent.name()).is_some_and(is) {
            return None;
        }
        let node = self.nodes.get(place)?;
        let Work::Agent(work) = &node.work else { return None };
        let own = work.agents.iter().any(|(_, own)| is(own));
        own.then(|| format!("{} {}", node.id, agent.name()).into())
    }

    /// Returns all agents by the names that their sessions are started by.
    pub(crate) fn parts(&self) -> Vec<AgentPart> {
        let by_name = self.agents.iter().map(|(name, agent)| (Arc::clone(name), agent));
        let at_nodes = self.nodes.iter().enumerate().flat_map(|(place, node)| {
            let agents = if let Work::Agent(work) = &node.work { work.agents.as_slice() } else { &[] };
            agents.iter().filter_map(move |(_, agent)| Some((self.part(place, agent)?, agent)))
        });
        by_name
            .chain(at_nodes)
            .chain(self.supervisor.iter().map(|it| (it.role.into(), &it.agent)))
            .map(|(name, agent)| AgentPart::Agent { name, agent: Arc::clone(agent) })
            .collect()
    }

    /// Returns the signature, computed on first use: a run that is not stored needs none.
    pub(crate) fn signature(&self) -> &GraphSignature {
        self.signature.get_or_init(|| signature::of(&self.nodes))
    }

    /// Returns the upper bound of an agent's permissions at a node that was not built for it: what all nodes built for
    /// it admit.
    pub(crate) fn granted(&self, agent: &str) -> Scope {
        self.granted.get(agent).cloned().unwrap_or_default()
    }

    /// Returns the index of the node of this id.
    pub(crate) fn place(&self, id: &str) -> Option<usize> {
        self.by_id.get(id).copied()
    }
}

/// Limits on parallel work in a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GraphLimits {
    /// Nodes in parallel.
    pub(crate) overall: usize,
    /// Nodes of one agent in parallel, unless the agent has a limit of its own.
    pub(crate) each_agent: usize,
    pub(crate) agents: BTreeMap<Arc<str>, usize>,
    pub(crate) providers: BTreeMap<Arc<str>, usize>,
}

impl Default for GraphLimits {
    fn default() -> Self {
        Self { overall: 10, each_agent: 1, agents: BTreeMap::new(), providers: BTreeMap::new() }
    }
}

/// Policy of a graph for a failed node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnFailure {
    /// Dependents are skipped, and record why; the rest continues.
    #[default]
    SkipDependents,
    /// Running nodes are cancelled, and nothing else is started.
    FailFast,
    /// Dependents run without its output. A step that requires it fails.
    Continue,
}

impl TaskGraph {
    /// Starts building a graph called `name`: 1 to 64 letters, digits, `_` and `-`, as for any agent.
    #[must_use]
    pub fn builder(name: impl Into<String>) -> TaskGraphBuilder {
        TaskGraphBuilder::new(name.into())
    }
}

impl<O> TaskGraph<O> {
    pub(crate) fn of(inner: Inner) -> Self {
        Self { inner: Arc::new(inner), output: PhantomData }
    }

    /// Iterates over the ids of its nodes, in the order in which they were added.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = &str> {
        self.inner.nodes.iter().map(|node| &*node.id)
    }

    /// Returns the signature that a stored run is compared with when it is resumed.
    #[must_use]
    pub fn signature(&self) -> &GraphSignature {
        self.inner.signature()
    }
}

impl<O> Clone for TaskGraph<O> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), output: PhantomData }
    }
}

impl<O> fmt::Debug for TaskGraph<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskGraph")
            .field("name", &self.inner.name)
            .field("nodes", &self.inner.nodes)
            .finish_non_exhaustive()
    }
}
