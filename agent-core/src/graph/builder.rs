//! Graphs as programs write them.

use std::{
    any::TypeId,
    collections::BTreeMap,
    fmt,
    marker::PhantomData,
    sync::{Arc, OnceLock},
};

use super::{
    Durations, Edge, GraphInput, GraphLimits, GraphMessage, Handle, Inner, Live, Needs, Node, OnFailure,
    Output, Problem, ReadFn, Retries, Shape, TaskGraph,
    draft::{Ask, Draft, DraftAgent, DraftEdge, DraftNode, DraftWork, Links},
    needs::{
        Wiring,
        sealed::{Read, Wire},
    },
    problem::GraphError,
    validate::Check,
    work,
};
use crate::{
    ErrorKind, Result,
    agent::{Agent, check_agent_name},
    permission::Scope,
    run::Task,
};

/// Makes a [`TaskGraph`]: nodes are added by its methods, and each gives back a [`Handle`] that others take from.
///
/// `O` is what the graph comes to, see [`TaskGraphBuilder::returning`].
pub struct TaskGraphBuilder<O = String> {
    parts: Parts,
    /// The node that it returns, with the type that is expected of it.
    output: Option<(usize, TypeId)>,
    returns: PhantomData<fn() -> O>,
}

/// All but what it comes to.
struct Parts {
    name: String,
    draft: Arc<Draft>,
    roster: Vec<Arc<dyn Agent>>,
    limits: GraphLimits,
    on_failure: OnFailure,
    durations: Durations,
    problems: Vec<Problem>,
    /// What kind of error a graph is that cannot run.
    refused: ErrorKind,
}

impl TaskGraphBuilder {
    pub(super) fn new(name: String) -> Self {
        let parts = Parts {
            name,
            draft: Arc::default(),
            roster: Vec::new(),
            limits: GraphLimits::default(),
            on_failure: OnFailure::default(),
            durations: Durations::default(),
            problems: Vec::new(),
            refused: ErrorKind::Config,
        };
        Self { parts, output: None, returns: PhantomData }
    }

    /// A graph that somebody else than the program wrote: one that cannot run is a bad input, not a bad configuration.
    pub(super) fn of_plan(name: String) -> Self {
        let mut builder = Self::new(name);
        builder.parts.refused = ErrorKind::InvalidInput;
        builder
    }

    /// The graph comes to what this node returns. Without it, it comes to the text of the nodes on which no other
    /// depends.
    pub fn returning<O: Output>(mut self, node: &Handle<O>) -> TaskGraphBuilder<O> {
        if !Arc::ptr_eq(&self.parts.draft, &node.draft) {
            let (graph, dependency) = (self.parts.name.as_str().into(), Arc::clone(&node.id));
            self.parts.problems.push(Problem::Foreign { node: graph, dependency });
        }
        let output = Some((node.place, TypeId::of::<O>()));
        TaskGraphBuilder { parts: self.parts, output, returns: PhantomData }
    }
}

impl<O> TaskGraphBuilder<O> {
    /// The text that the graph is given when it is run.
    #[must_use]
    pub fn input(&self) -> GraphInput {
        GraphInput(())
    }

    /// The message that the graph is given when it is run: its text, and the images and documents that come with it.
    #[must_use]
    pub fn message(&self) -> GraphMessage {
        GraphMessage(())
    }

    /// A step of the program itself: `run` is given what `needs` states and what it returns is what its dependents get.
    ///
    /// It sees nothing but its inputs, so a resumed run can begin it again: one that was under way when its process died
    /// runs anew, one that was done never does. A step that calls models or tools, or waits, is an
    /// [`Agent`]: then each of its own steps is recorded.
    pub fn step<N, T, F, Fut>(&self, id: impl AsRef<str>, needs: N, run: F) -> Handle<T>
    where
        N: Needs,
        T: Output,
        F: Fn(N::Given) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        self.add(id.as_ref(), |wiring| DraftWork::Step(work::step(needs.wire(wiring), run)))
    }

    /// An agent. It is asked `text`, and told what the nodes before it gave, each under its id: add them with
    /// [`Handle::after`]. One that depends on nothing is told what the graph was given, and sees the images and documents
    /// that came with it; any other one is and does when it comes after [`TaskGraphBuilder::input`].
    pub fn agent(
        &self,
        id: impl AsRef<str>,
        agent: &(impl Agent + Clone + 'static),
        text: impl Into<Arc<str>>,
    ) -> Handle<String> {
        let work = worker(agent, Ask::Text(text.into()), work::read_text());
        self.add(id.as_ref(), |_| DraftWork::Agent(work))
    }

    /// An agent whose task the program makes of what other nodes gave. It sees that task and nothing else: images and
    /// documents that the graph was given are in [`TaskGraphBuilder::message`].
    pub fn agent_with<N, K, F>(
        &self,
        id: impl AsRef<str>,
        agent: &(impl Agent + Clone + 'static),
        needs: N,
        task: F,
    ) -> Handle<String>
    where
        N: Needs,
        K: Into<Task>,
        F: Fn(N::Given) -> K + Send + Sync + 'static,
    {
        self.add(id.as_ref(), |wiring| {
            DraftWork::Agent(worker(agent, made(needs.wire(wiring), task), work::read_text()))
        })
    }

    /// Another graph, which is given `text` as agents are, images and documents included. What it comes to is what the node returns.
    pub fn graph<P: Output>(
        &self,
        id: impl AsRef<str>,
        graph: &TaskGraph<P>,
        text: impl Into<Arc<str>>,
    ) -> Handle<P> {
        let work = worker(graph, Ask::Text(text.into()), work::read_graph::<P>());
        self.add(id.as_ref(), |_| DraftWork::Agent(work))
    }

    /// Another graph, whose task the program makes of what other nodes gave.
    pub fn graph_with<P, N, K, F>(
        &self,
        id: impl AsRef<str>,
        graph: &TaskGraph<P>,
        needs: N,
        task: F,
    ) -> Handle<P>
    where
        P: Output,
        N: Needs,
        K: Into<Task>,
        F: Fn(N::Given) -> K + Send + Sync + 'static,
    {
        self.add(id.as_ref(), |wiring| {
            DraftWork::Agent(worker(graph, made(needs.wire(wiring), task), work::read_graph::<P>()))
        })
    }

    /// The same step of the program for each item of a list that another node returns, as many at once as the limits
    /// allow. The results come in the order of the items.
    ///
    /// An item counts to the limits as a node does. One that fails, after its attempts, fails the node: see
    /// [`Handle::partial`].
    pub fn map<T, U, F, Fut>(&self, id: impl AsRef<str>, items: &Handle<Vec<T>>, run: F) -> Handle<Vec<U>>
    where
        T: Output + Clone,
        U: Output + Clone,
        F: Fn(T) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<U>> + Send + 'static,
    {
        self.add(id.as_ref(), |wiring| DraftWork::Map(work::map(items.wire(wiring), run)))
    }

    /// An agent for each item of a list that another node returns; `task` says what it is asked. The answers come in the
    /// order of the items, as text unless [`Handle::returns`](Handle::<Vec<String>>::returns) says otherwise. An agent works on one item at a time, unless it has a higher limit: see
    /// [`TaskGraphBuilder::agent_limit`].
    pub fn map_agent<T, K, F>(
        &self,
        id: impl AsRef<str>,
        items: &Handle<Vec<T>>,
        agent: &(impl Agent + Clone + 'static),
        task: F,
    ) -> Handle<Vec<String>>
    where
        T: Output,
        K: Into<Task>,
        F: Fn(&T) -> K + Send + Sync + 'static,
    {
        self.add(id.as_ref(), |wiring| {
            let reader = items.wire(wiring);
            let tasks =
                move |inputs: &_| Ok(reader.read(inputs)?.iter().map(|item| task(item).into()).collect());
            let worker = worker(agent, Ask::Text(Arc::default()), work::read_text());
            DraftWork::MapAgent(worker, Arc::new(tasks), work::map_agent::<String>())
        })
    }

    /// A handle on the node of this id, to make its settings or take from it; `None` when there is none that returns `T`.
    /// For nodes that somebody else added: those of a [`Plan`](super::Plan) return `String`.
    #[must_use]
    pub fn node<T: Output>(&self, id: &str) -> Option<Handle<T>> {
        Handle::find(&self.parts.draft, id)
    }

    /// How many nodes run at once, at most. Default 10.
    #[must_use]
    pub fn limit(mut self, nodes: usize) -> Self {
        self.parts.limits.overall = nodes;
        self
    }

    /// How many nodes each agent works on at once, at most. Default 1.
    ///
    /// Agents are told apart by their names alone: two of one name count as one here, and where a node is added for
    /// the name or given to it, the one that was named first works on it. Name them differently if they are not the same.
    #[must_use]
    pub fn limit_each_agent(mut self, nodes: usize) -> Self {
        self.parts.limits.each_agent = nodes;
        self
    }

    /// How many nodes the agent of this name works on at once, at most.
    #[must_use]
    pub fn agent_limit(mut self, agent: impl Into<Arc<str>>, nodes: usize) -> Self {
        self.parts.limits.agents.insert(agent.into(), nodes);
        self
    }

    /// How many nodes of this provider run at once, at most: those that name it with [`Handle::provider`].
    #[must_use]
    pub fn provider_limit(mut self, provider: impl Into<Arc<str>>, nodes: usize) -> Self {
        self.parts.limits.providers.insert(provider.into(), nodes);
        self
    }

    /// What is done when a node fails. Default: what depends on it is skipped, the rest goes on.
    #[must_use]
    pub fn on_failure(mut self, policy: OnFailure) -> Self {
        self.parts.on_failure = policy;
        self
    }

    /// How long its nodes took in earlier runs: what is expected of those that do not say it themselves.
    #[must_use]
    pub fn durations(mut self, durations: &Durations) -> Self {
        self.parts.durations = durations.clone();
        self
    }

    /// Makes an agent known that no node is for yet: nodes can be added for it while the graph runs, or be given to it. It
    /// may then do what the graph's own run may, or what the node or the task admits.
    #[must_use]
    pub fn with_agent(mut self, agent: impl Agent + 'static) -> Self {
        self.parts.roster.push(Arc::new(agent));
        self
    }

    /// The graph.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when it cannot run; [`GraphError::of`] then lists all that is wrong with it.
    pub fn build(self) -> Result<TaskGraph<O>> {
        let Parts { name, draft, roster, limits, on_failure, durations, mut problems, refused } = self.parts;
        let mut nodes = draft.take();
        if check_agent_name(&name).is_err() {
            problems.push(Problem::BadName { what: "graph", name: name.as_str().into() });
        }
        if let Some((place, gives)) = self.output
            && nodes.get(place).is_some_and(|node| node.gives != gives)
        {
            problems.push(Problem::Retyped { node: name.as_str().into() });
        }
        let (agents, granted) = (all_agents(&nodes, roster), granted(&nodes));
        let (problems, by_id) = Check { nodes: &mut nodes, problems }.all(&agents, &limits);
        if !problems.is_empty() {
            return Err(GraphError::into_error(&name, refused, problems));
        }
        let ids: Vec<_> = nodes.iter().map(|node| Arc::clone(&node.links.id)).collect();
        Ok(TaskGraph::of(Inner {
            name: name.into(),
            nodes: nodes.into_iter().map(|node| finished(node, &ids, &durations)).collect(),
            by_id,
            agents,
            granted,
            limits,
            on_failure,
            output: self.output.map(|(place, _)| place),
            signature: OnceLock::new(),
            shape: Shape::default(),
            live: Live::default(),
        }))
    }

    pub(super) fn push(&self, node: DraftNode) {
        self.parts.draft.push(node);
    }

    fn add<T: Output>(&self, id: &str, work: impl FnOnce(&mut Wiring<'_>) -> DraftWork) -> Handle<T> {
        let mut links = Links::new(id);
        let work = work(&mut Wiring { draft: &self.parts.draft, links: &mut links, values: true });
        Handle::add(&self.parts.draft, DraftNode::new(links, TypeId::of::<T>(), work))
    }
}

pub(super) fn worker(agent: &(impl Agent + Clone + 'static), ask: Ask, read: ReadFn) -> DraftAgent {
    let agent: Arc<dyn Agent> = Arc::new(agent.clone());
    DraftAgent { agents: vec![(None, agent)], ask, read, scope: Scope::all(), form: None }
}

fn made<R: Read, K: Into<Task>>(reader: R, task: impl Fn(R::Given) -> K + Send + Sync + 'static) -> Ask {
    Ask::Made(Arc::new(move |inputs| Ok(task(reader.read(inputs)?).into())))
}

/// The agents of the nodes and the other ones; of two of one name the first.
fn all_agents(nodes: &[DraftNode], others: Vec<Arc<dyn Agent>>) -> BTreeMap<Arc<str>, Arc<dyn Agent>> {
    let of_nodes = nodes.iter().flat_map(|node| match &node.work {
        DraftWork::Agent(work) | DraftWork::MapAgent(work, ..) => work.agents.as_slice(),
        DraftWork::Step(_) | DraftWork::Map(_) => &[],
    });
    let mut agents = BTreeMap::new();
    for agent in of_nodes.map(|(_, agent)| Arc::clone(agent)).chain(others) {
        agents.entry(agent.name().into()).or_insert(agent);
    }
    agents
}

/// What the nodes grant their agents: to each what all of its nodes admit.
fn granted(nodes: &[DraftNode]) -> BTreeMap<Arc<str>, Scope> {
    let mut granted: BTreeMap<Arc<str>, Scope> = BTreeMap::new();
    for node in nodes {
        let (DraftWork::Agent(work) | DraftWork::MapAgent(work, ..)) = &node.work else { continue };
        for (_, agent) in &work.agents {
            let scope = granted.entry(agent.name().into()).or_insert_with(Scope::all);
            *scope = scope.narrow(&work.scope);
        }
    }
    granted
}

fn finished(node: DraftNode, ids: &[Arc<str>], durations: &Durations) -> Node {
    let names = node.links.edges.iter().filter_map(|edge| ids.get(edge.from).cloned()).collect();
    let edge = |edge: DraftEdge| Edge {
        from: edge.from,
        optional: edge.optional,
        needed: edge.needed,
        when: edge.when,
    };
    let expected = node.expected.or_else(|| durations.expected(&node.links.id));
    let work = node.work.finish(names, node.links.input);
    Node {
        id: node.links.id,
        edges: node.links.edges.into_iter().map(edge).collect(),
        work,
        retry: Retries { attempts: node.attempts.unwrap_or(1), delay: node.delay },
        timeout: node.timeout,
        expected,
        version: node.version,
        output: node.output,
        provider: node.provider,
    }
}

impl<O> fmt::Debug for TaskGraphBuilder<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskGraphBuilder").field("name", &self.parts.name).finish_non_exhaustive()
    }
}
