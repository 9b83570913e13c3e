//! The builder of graphs.

use std::{
    any::TypeId,
    collections::BTreeMap,
    fmt,
    marker::PhantomData,
    sync::{Arc, OnceLock},
};

use entourage_core::{
    ErrorKind, Result,
    agent::{Agent, IntoAgent},
    permission::Scope,
    run::Task,
};
use entourage_runtime::check_agent_name;

use super::{
    Beside, Durations, Edge, GraphInput, GraphLimits, GraphMessage, Handle, Inner, Live, Needs, News, Node,
    OnFailure, Output, Problem, ReadFn, Retries, Shape, Supervisor, TaskGraph,
    draft::{Ask, Draft, DraftAgent, DraftEdge, DraftNode, DraftWork, Links},
    needs::{
        Wiring,
        sealed::{Read, Wire},
    },
    problem::GraphError,
    validate::Check,
    work,
};

/// Builds a [`TaskGraph`]: its methods add nodes, and each returns a [`Handle`] that other nodes take from.
///
/// `O` is the type of the graph's output, see [`TaskGraphBuilder::returning`].
pub struct TaskGraphBuilder<O = String> {
    parts: Parts,
    /// Index of the node that the graph returns, with the type expected of it.
    output: Option<(usize, TypeId)>,
    returns: PhantomData<fn() -> O>,
}

/// Everything but the output.
struct Parts {
    name: String,
    draft: Arc<Draft>,
    roster: Vec<Arc<dyn Agent>>,
    limits: GraphLimits,
    on_failure: OnFailure,
    durations: Durations,
    supervisor: Option<Supervisor>,
    live: Arc<Live>,
    beside: Option<Arc<dyn Beside>>,
    problems: Vec<Problem>,
    /// Error kind of an invalid graph.
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
            supervisor: None,
            live: Arc::default(),
            beside: None,
            problems: Vec::new(),
            refused: ErrorKind::Config,
        };
        Self { parts, output: None, returns: PhantomData }
    }

    /// Creates a builder for a graph that is input to the program: an invalid one is a bad input, not a bad
    /// configuration.
    pub(super) fn of_plan(name: String) -> Self {
        let mut builder = Self::new(name);
        builder.parts.refused = ErrorKind::InvalidInput;
        builder
    }

    /// Makes this node's value the graph's output. By default the output is the text of the nodes on which no other
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
    /// Returns the text that the graph is given when it runs, as an input for nodes.
    #[must_use]
    pub fn input(&self) -> GraphInput {
        GraphInput(())
    }

    /// Returns the message that the graph is given when it runs (its text, images and documents), as an input for
    /// nodes.
    #[must_use]
    pub fn message(&self) -> GraphMessage {
        GraphMessage(())
    }

    /// Adds a step of the program itself: `run` is given the inputs that `needs` declares, and its output goes to the
    /// dependents.
    ///
    /// A step sees nothing but its inputs, so a resumed run can start it again: a step that was running when its
    /// process died runs anew, a completed one never does. Write a step that calls models or tools, or that waits, as
    /// an [`Agent`]: then each of its own steps is recorded.
    pub fn step<N, T, F, Fut>(&self, id: impl AsRef<str>, needs: N, run: F) -> Handle<T>
    where
        N: Needs,
        T: Output,
        F: Fn(N::Given) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        self.add(id.as_ref(), |wiring| DraftWork::Step(work::step(needs.wire(wiring), run)))
    }

    /// Adds an agent. Its prompt is `text`, followed by the outputs of the nodes before it, each under its id; add
    /// those with [`Handle::after`]. An agent without dependencies also gets the text that the graph was given, with
    /// its images and documents; any other agent gets these when it comes after [`TaskGraphBuilder::input`].
    pub fn agent<Form>(
        &self,
        id: impl AsRef<str>,
        agent: impl IntoAgent<Form>,
        text: impl Into<Arc<str>>,
    ) -> Handle<String> {
        let work = worker(agent.into_agent(), Ask::Text(text.into()), work::read_text());
        self.add(id.as_ref(), |_| DraftWork::Agent(work))
    }

    /// Adds an agent whose task the program makes from the outputs of other nodes. It sees that task and nothing else:
    /// for images and documents that the graph was given, take [`TaskGraphBuilder::message`].
    pub fn agent_with<N, K, F, Form>(
        &self,
        id: impl AsRef<str>,
        agent: impl IntoAgent<Form>,
        needs: N,
        task: F,
    ) -> Handle<String>
    where
        N: Needs,
        K: Into<Task>,
        F: Fn(N::Given) -> K + Send + Sync + 'static,
    {
        self.shared_agent_with(id.as_ref(), agent.into_agent(), needs, task)
    }

    /// The same for an agent that several nodes share: it has one name among the parts of the graph.
    pub(crate) fn shared_agent_with<N, K, F>(
        &self,
        id: &str,
        agent: Arc<dyn Agent>,
        needs: N,
        task: F,
    ) -> Handle<String>
    where
        N: Needs,
        K: Into<Task>,
        F: Fn(N::Given) -> K + Send + Sync + 'static,
    {
        self.add(id, |wiring| {
            DraftWork::Agent(worker(agent, made(needs.wire(wiring), task), work::read_text()))
        })
    }

    /// Adds a nested graph, which is given `text` as agents are, images and documents included. The node returns the
    /// nested graph's output.
    pub fn graph<P: Output>(
        &self,
        id: impl AsRef<str>,
        graph: &TaskGraph<P>,
        text: impl Into<Arc<str>>,
    ) -> Handle<P> {
        let work = worker(Arc::new(graph.clone()), Ask::Text(text.into()), work::read_graph::<P>());
        self.add(id.as_ref(), |_| DraftWork::Agent(work))
    }

    /// Adds a nested graph whose task the program makes from the outputs of other nodes.
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
            DraftWork::Agent(worker(
                Arc::new(graph.clone()),
                made(needs.wire(wiring), task),
                work::read_graph::<P>(),
            ))
        })
    }

    /// Adds a step of the program that runs for each item of a list that another node returns, as many in parallel as
    /// the limits allow. The results are in the order of the items.
    ///
    /// An item counts towards the limits like a node. An item that fails, after its attempts, fails the node: see
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

    /// Adds an agent that works on each item of a list that another node returns; `task` makes its task from the item,
    /// which it is given by value, as a step of [`TaskGraphBuilder::map`] is.
    /// The answers are in the order of the items, as text unless [`Handle::returns`](Handle::<Vec<String>>::returns)
    /// changes that. An agent works on one item at a time, unless it has a higher limit: see
    /// [`TaskGraphBuilder::agent_limit`].
    pub fn map_agent<T, K, F, Form>(
        &self,
        id: impl AsRef<str>,
        items: &Handle<Vec<T>>,
        agent: impl IntoAgent<Form>,
        task: F,
    ) -> Handle<Vec<String>>
    where
        T: Output + Clone,
        K: Into<Task>,
        F: Fn(T) -> K + Send + Sync + 'static,
    {
        self.add(id.as_ref(), |wiring| {
            let reader = items.wire(wiring);
            let tasks = move |inputs: &_| {
                let items = Arc::unwrap_or_clone(reader.read(inputs)?);
                Ok(items.into_iter().map(|item| task(item).into()).collect())
            };
            let worker = worker(agent.into_agent(), Ask::Text(Arc::default()), work::read_text());
            DraftWork::MapAgent(worker, Arc::new(tasks), work::map_agent::<String>())
        })
    }

    /// Returns a handle on the node of this id, to change its settings or take from it; `None` when there is no such
    /// node that returns `T`. It serves nodes that other code added: those of a [`Plan`](super::Plan) return `String`.
    #[must_use]
    pub fn node<T: Output>(&self, id: &str) -> Option<Handle<T>> {
        Handle::find(&self.parts.draft, id)
    }

    /// Sets how many nodes run in parallel, at most. Default 10.
    #[must_use]
    pub fn limit(mut self, nodes: usize) -> Self {
        self.parts.limits.overall = nodes;
        self
    }

    /// Sets how many nodes each agent works on in parallel, at most. Default 1.
    ///
    /// Agents are identified by name alone: two agents of one name count as one here, and a node that is added for the
    /// name or reassigned to it goes to the one that was named first. Give different agents different names.
    #[must_use]
    pub fn limit_each_agent(mut self, nodes: usize) -> Self {
        self.parts.limits.each_agent = nodes;
        self
    }

    /// Sets how many nodes the agent of this name works on in parallel, at most.
    #[must_use]
    pub fn agent_limit(mut self, agent: impl Into<Arc<str>>, nodes: usize) -> Self {
        self.parts.limits.agents.insert(agent.into(), nodes);
        self
    }

    /// Sets how many nodes of this provider run in parallel, at most: those that name it with [`Handle::provider`].
    #[must_use]
    pub fn provider_limit(mut self, provider: impl Into<Arc<str>>, nodes: usize) -> Self {
        self.parts.limits.providers.insert(provider.into(), nodes);
        self
    }

    /// Sets the policy for failed nodes. Default: dependents are skipped, the rest continues.
    #[must_use]
    pub fn on_failure(mut self, policy: OnFailure) -> Self {
        self.parts.on_failure = policy;
        self
    }

    /// Sets the durations of earlier runs, as the expected durations of nodes that declare none.
    #[must_use]
    pub fn durations(mut self, durations: &Durations) -> Self {
        self.parts.durations = durations.clone();
        self
    }

    /// Makes an agent without a node known: while the graph runs, nodes can be added for it or reassigned to it. Its
    /// permissions are then those of the graph's own run, or those that the node or the task admits.
    #[must_use]
    pub fn with_agent<Form>(mut self, agent: impl IntoAgent<Form>) -> Self {
        self.parts.roster.push(agent.into_agent());
        self
    }

    /// Makes `agent` watch the graph. Whenever a node has failed for good it is asked what to do, in a session of the
    /// role `supervisor`, and the steps of its answer are taken while the other nodes run on. Its answers are
    /// [`Interventions`](super::Interventions), as of a [`TypedAgent`](crate::TypedAgent). It is asked at most 5 times
    /// in one run, once at a time; the graph does not end before it has answered. Without an answer the graph goes on
    /// as it is.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use entourage_runners::ReactAgent;
    /// use entourage_runners::graph::{Interventions, TaskGraph};
    /// use entourage_testkit::ScriptedProvider;
    /// use serde_json::json;
    ///
    /// let steps = json!({"steps": [{"do": "reassign", "task": "form", "to": "ann"}]});
    /// let boss = ScriptedProvider::new().text(steps.to_string());
    /// let boss = ReactAgent::builder("boss", boss.model()).returns::<Interventions>().build()?;
    /// let ann = ScriptedProvider::new().text("<form></form>");
    /// let ann = ReactAgent::builder("ann", ann.model()).build()?;
    /// // This one has no answer.
    /// let bob = ReactAgent::builder("bob", ScriptedProvider::new().model()).build()?;
    ///
    /// let graph = TaskGraph::builder("page").with_agent(&ann).supervisor(&boss);
    /// graph.agent("form", &bob, "Write the form.");
    /// assert_eq!(*graph.build()?.ask("A page").await?, "<form></form>");
    /// # Ok::<_, entourage_core::Error>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn supervisor<Form>(self, agent: impl IntoAgent<Form>) -> Self {
        let ask = Arc::new(|news: &News| Ok(Task::new(news.text())));
        self.supervised_by(Supervisor::new(agent.into_agent(), "supervisor", ask))
    }

    pub(crate) fn supervised_by(mut self, supervisor: Supervisor) -> Self {
        self.parts.supervisor = Some(supervisor);
        self
    }

    /// Sets what goes on beside the nodes.
    pub(crate) fn beside(mut self, beside: Arc<dyn Beside>) -> Self {
        self.parts.beside = Some(beside);
        self
    }

    /// Makes the runs of the graph known to controls of these.
    pub(crate) fn live(mut self, live: &Arc<Live>) -> Self {
        self.parts.live = Arc::clone(live);
        self
    }

    /// Builds the graph.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when it cannot run; [`GraphError::of`] then lists all problems.
    pub fn build(self) -> Result<TaskGraph<O>> {
        let Parts { name, draft, roster, limits, on_failure, durations, mut problems, refused, .. } =
            self.parts;
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
            live: self.parts.live,
            supervisor: self.parts.supervisor,
            beside: self.parts.beside,
        }))
    }

    pub(super) fn push(&self, node: DraftNode) {
        self.parts.draft.push(node);
    }

    pub(super) fn add<T: Output>(
        &self,
        id: &str,
        work: impl FnOnce(&mut Wiring<'_>) -> DraftWork,
    ) -> Handle<T> {
        let mut links = Links::new(id);
        let work = work(&mut Wiring { draft: &self.parts.draft, links: &mut links, values: true });
        Handle::add(&self.parts.draft, DraftNode::new(links, TypeId::of::<T>(), work))
    }
}

pub(super) fn worker(agent: Arc<dyn Agent>, ask: Ask, read: ReadFn) -> DraftAgent {
    DraftAgent { agents: vec![(None, agent)], ask, read, scope: Scope::all(), form: None }
}

pub(super) fn made<R: Read, K: Into<Task>>(
    reader: R,
    task: impl Fn(R::Given) -> K + Send + Sync + 'static,
) -> Ask {
    Ask::Made(Arc::new(move |inputs| Ok(task(reader.read(inputs)?).into())))
}

/// Returns the agents of the nodes and the other ones by name; of two with one name, the first.
fn all_agents(nodes: &[DraftNode], others: Vec<Arc<dyn Agent>>) -> BTreeMap<Arc<str>, Arc<dyn Agent>> {
    let of_nodes = nodes.iter().flat_map(|node| match &node.work {
        DraftWork::Agent(work) | DraftWork::MapAgent(work, ..) => work.agents.as_slice(),
        DraftWork::Step(_) | DraftWork::Map(_) => &[],
    });
    let mut agents: BTreeMap<Arc<str>, _> = BTreeMap::new();
    for agent in of_nodes.map(|(_, agent)| Arc::clone(agent)).chain(others) {
        // A name is copied once, however many nodes there are.
        if !agents.contains_key(agent.name()) {
            agents.insert(Arc::from(agent.name()), agent);
        }
    }
    agents
}

/// Returns the scope that the nodes grant each agent: what all of its nodes admit.
fn granted(nodes: &[DraftNode]) -> BTreeMap<Arc<str>, Scope> {
    let mut granted: BTreeMap<Arc<str>, Scope> = BTreeMap::new();
    for node in nodes {
        let (DraftWork::Agent(work) | DraftWork::MapAgent(work, ..)) = &node.work else { continue };
        for (_, agent) in &work.agents {
            match granted.get_mut(agent.name()) {
                Some(scope) => *scope = scope.narrow(&work.scope),
                None => drop(granted.insert(agent.name().into(), work.scope.clone())),
            }
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
