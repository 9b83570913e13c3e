//! Plans: graphs as data, which a model can write. A plan lists tasks by id, their dependencies and their agents.

use std::{
    any::TypeId,
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use entourage_core::{ErrorKind, Result, agent::Agent, permission::Scope, provider::Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Change, Edge, Inner, Node, NodeSignature, Problem, Retries, TaskGraph, TaskGraphBuilder,
    draft::{Ask, DraftAgent, DraftNode, DraftWork, Links},
    problem::GraphError,
    signature::EdgeSignature,
    validate::is_task_id,
    work,
};

/// A graph as data: tasks with their dependencies and their agents.
///
/// Models can write one: it has a JSON schema. Nothing in it is trusted; [`Plan::graph`] says all that is wrong with it
/// at once, so that the model can be told.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use std::sync::Arc;
///
/// use entourage_core::agent::Agent;
/// use entourage_runners::ReactAgent;
/// use entourage_runners::graph::Plan;
/// use entourage_testkit::ScriptedProvider;
///
/// let coder = ReactAgent::builder("coder", ScriptedProvider::new().model()).build().unwrap();
/// let roster: Vec<Arc<dyn Agent>> = vec![Arc::new(coder)];
///
/// let plan: Plan = serde_json::from_str(
///     r#"{"tasks": [
///         {"id": "backend", "task": "Write the backend.", "agent": "coder"},
///         {"id": "tests", "task": "Test the backend.", "agent": "coder", "after": ["backend"]}
///     ]}"#,
/// ).unwrap();
/// let graph = plan.graph("login", &roster).unwrap();
/// assert_eq!(graph.nodes().collect::<Vec<_>>(), ["backend", "tests"]);
///
/// let error = plan.graph("login", &[]).unwrap_err();
/// assert!(error.to_string().contains("`backend` names the agent `coder`, which does not exist"));
/// # });
/// ```
///
/// # Plans that a model makes
/// Asked again, a model makes another plan, and a stored run of one graph is not gone on with by another
/// ([`ErrorKind::Diverged`]). So let an agent of your own make it: its model's reply is recorded like all that it does,
/// and a run that is resumed goes on with the plan that it had.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use std::sync::Arc;
///
/// use async_trait::async_trait;
/// use entourage_core::{
///     Error, ErrorKind, Result, agent::Agent, provider::Model,
///     run::{Outcome, RunContext, Task, Waited},
/// };
/// use entourage_runners::{ReactAgent, graph::Plan, typed::RunExt};
/// use entourage_runtime::Runtime;
/// use entourage_testkit::ScriptedProvider;
///
/// #[derive(Clone)]
/// struct Planner {
///     model: Model,
///     roster: Vec<Arc<dyn Agent>>,
/// }
///
/// #[async_trait]
/// impl Agent for Planner {
///     fn name(&self) -> &str {
///         "planner"
///     }
///
///     async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
///         let mut ask = format!("Plan this for the agent coder: {}", task.prompt.text());
///         for _ in 0..3 {
///             let plan: Plan = cx.generate(&self.model, ask.as_str()).await?.value;
///             let graph = match plan.graph("work", &self.roster) {
///                 Ok(graph) => graph,
///                 Err(error) => {
///                     ask.push_str(&format!("\nNot like this: {}", error.message()));
///                     continue;
///                 }
///             };
///             let work = cx.spawn(Arc::new(graph), task).await?;
///             return match cx.wait_any(&[work], None).await? {
///                 Waited::Ended { outcome, .. } => Ok(outcome),
///                 Waited::TimedOut => Err(Error::new(ErrorKind::Timeout, "the work took too long")),
///             };
///         }
///         let text = "the model wrote no plan that can run; say what is to be done in other words";
///         Err(Error::new(ErrorKind::InvalidInput, text))
///     }
/// }
///
/// let plans = ScriptedProvider::new()
///     .text(r#"{"tasks": [{"id": "form", "task": "Write the form.", "agent": "designer"}]}"#)
///     .text(r#"{"tasks": [{"id": "form", "task": "Write the form.", "agent": "coder"}]}"#);
/// let works = ScriptedProvider::new().text("<form></form>");
/// let coder = ReactAgent::builder("coder", works.model()).build().unwrap();
/// let planner = Planner { model: plans.model(), roster: vec![Arc::new(coder)] };
/// let session = Runtime::builder().build().session();
/// assert_eq!(session.start(&planner, "A login form").outcome().await.unwrap().text, "<form></form>");
/// # });
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "A plan: tasks, the tasks that each of them comes after, and the agent of each.")]
pub struct Plan {
    /// The tasks. Those that do not come after each other are done at the same time.
    pub tasks: Vec<PlanTask>,
}

/// One task of a [`Plan`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "One task of a plan.")]
#[non_exhaustive]
pub struct PlanTask {
    /// Its name in the plan, such as "backend": 1 to 64 letters, digits, `_`, `-` and `.`, no spaces.
    pub id: String,
    /// What is to be done. Whoever does it sees this, and the results of the tasks that it comes after.
    pub task: String,
    /// The name of the agent that does it.
    pub agent: String,
    /// The ids of the tasks whose results it needs.
    #[serde(default)]
    pub after: Vec<String>,
    /// About how many seconds it will take, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_seconds: Option<u32>,
    /// Upper bound of its permissions: for programs only, absent from the schema that models see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub scope: Option<Scope>,
}

impl PlanTask {
    /// Creates a task for the agent called `agent`.
    #[must_use]
    pub fn new(id: impl Into<String>, agent: impl Into<String>, task: impl Into<String>) -> Self {
        let (id, task, agent) = (id.into(), task.into(), agent.into());
        Self { id, task, agent, after: Vec::new(), expected_seconds: None, scope: None }
    }

    /// Returns the same task with its agent's permissions narrowed to `scope`. It never widens them.
    #[must_use]
    pub fn with_scope(mut self, scope: Scope) -> Self {
        self.scope = Some(match self.scope {
            None => scope,
            Some(own) => own.narrow(&scope),
        });
        self
    }

    /// Returns the same task, run after these other ones.
    #[must_use]
    pub fn after<S: Into<String>>(mut self, tasks: impl IntoIterator<Item = S>) -> Self {
        self.after.extend(tasks.into_iter().map(Into::into));
        self
    }

    /// Returns the change that is recorded when the task is added to a running graph.
    pub(crate) fn change(&self) -> Change {
        let edge =
            |from: &String| EdgeSignature { from: from.as_str().into(), conditional: false, optional: false };
        let node = NodeSignature {
            id: self.id.as_str().into(),
            after: self.after.iter().map(edge).collect(),
            agent: Some(self.agent.as_str().into()),
            version: Box::default(),
            output: None,
        };
        let (task, expected_seconds) = (self.task.clone(), self.expected_seconds);
        Change::Add { node: Box::new(node), task, expected_seconds, scope: self.scope.clone() }
    }

    /// Checks the task by itself.
    fn check(&self, roster: &BTreeMap<Arc<str>, Arc<dyn Agent>>, problems: &mut Vec<Problem>) {
        let id: Arc<str> = cut(&self.id);
        check_words(&id, &self.task, self.after.len(), problems);
        if !roster.contains_key(&*self.agent) {
            problems.push(Problem::UnknownAgent { node: Some(id), agent: cut(&self.agent) });
        }
    }
}

/// Checks a task of whoever does it.
fn check_words(id: &Arc<str>, task: &str, after: usize, problems: &mut Vec<Problem>) {
    if !is_task_id(id) {
        problems.push(Problem::BadName { what: "task", name: Arc::clone(id) });
    }
    if task.trim().is_empty() {
        problems.push(Problem::NoTask { node: Arc::clone(id) });
    }
    if after > Plan::MAX_TASKS {
        let (what, limit) = ("dependencies of one task", Plan::MAX_TASKS);
        problems.push(Problem::TooMany { what, count: after, limit });
    }
}

impl TaskGraphBuilder {
    /// Adds a task for agents by the sizes of their models, as [`Handle::escalate`](super::Handle::escalate) takes
    /// them.
    pub(crate) fn add_item(
        &self,
        id: &str,
        after: &[Arc<str>],
        task: &str,
        mut agents: Vec<(Size, Arc<dyn Agent>)>,
        expected_seconds: Option<u32>,
    ) {
        let id = cut(id);
        let mut links = Links::new(&id);
        check_words(&id, task, after.len(), &mut links.problems);
        links.named.extend(after.iter().take(Plan::MAX_TASKS).map(|id| (*cut(id)).to_owned()));
        agents.sort_by_key(|(size, _)| *size);
        let work = DraftWork::Agent(worker(Vec::new(), task, Scope::all()));
        let mut node = DraftNode::new(links, TypeId::of::<String>(), work);
        node.escalate(agents.into_iter().map(|(size, agent)| (Some(size), agent)).collect());
        node.expected = expected_seconds.map(|seconds| Duration::from_secs(seconds.into()));
        self.push(node);
    }
}

impl Plan {
    /// Maximum number of tasks of a plan, and of dependencies of one task.
    pub const MAX_TASKS: usize = 1_000;

    /// Builds the graph called `name`, in which the agents of `roster` do these tasks. Of two agents of one name the
    /// first counts.
    ///
    /// # Errors
    /// Those of [`Plan::builder`], and those of [`TaskGraphBuilder::build`] with [`ErrorKind::InvalidInput`].
    pub fn graph(&self, name: impl Into<String>, roster: &[Arc<dyn Agent>]) -> Result<TaskGraph> {
        self.builder(name, roster)?.build()
    }

    /// Returns the builder of the graph, for other limits or another failure policy, and for the settings of its nodes,
    /// which [`TaskGraphBuilder::node`] finds.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use entourage_core::{Result, agent::Agent, provider::Size};
    /// # use entourage_runners::ReactAgent;
    /// # use entourage_runners::graph::{Plan, TaskGraph};
    /// # type Agents = [Arc<dyn Agent>];
    /// # fn example(plan: &Plan, roster: &Agents, small: &ReactAgent, large: &ReactAgent) -> Result<TaskGraph> {
    /// let graph = plan.builder("work", roster)?.provider_limit("local", 2);
    /// for node in plan.tasks.iter().filter_map(|task| graph.node::<String>(&task.id)) {
    ///     let sizes = [(Size::S, small.clone()), (Size::L, large.clone())];
    ///     node.timeout(Duration::from_secs(600)).provider("local").escalate(sizes);
    /// }
    /// graph.build()
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when there are more than [`Plan::MAX_TASKS`] tasks; [`GraphError::of`] lists the
    /// problem. Other problems (invalid ids, empty tasks, unknown agents or dependencies, cycles) are found by
    /// [`TaskGraphBuilder::build`].
    pub fn builder(&self, name: impl Into<String>, roster: &[Arc<dyn Agent>]) -> Result<TaskGraphBuilder> {
        let name = name.into();
        let mut agents = BTreeMap::new();
        for agent in roster {
            agents.entry(agent.name().into()).or_insert_with(|| Arc::clone(agent));
        }
        if self.tasks.len() > Self::MAX_TASKS {
            let count = self.tasks.len();
            let many = Problem::TooMany { what: "tasks", count, limit: Self::MAX_TASKS };
            return Err(GraphError::into_error(&name, ErrorKind::InvalidInput, vec![many]));
        }
        let mut builder = TaskGraphBuilder::of_plan(name);
        for task in &self.tasks {
            let mut links = Links::new(&cut(&task.id));
            task.check(&agents, &mut links.problems);
            links.named.extend(task.after.iter().take(Self::MAX_TASKS).map(|id| (*cut(id)).to_owned()));
            let agents =
                agents.get(&*task.agent).map(|agent| (None, Arc::clone(agent))).into_iter().collect();
            let scope = task.scope.clone().unwrap_or_default();
            let work = DraftWork::Agent(worker(agents, &task.task, scope));
            let mut node = DraftNode::new(links, TypeId::of::<String>(), work);
            node.expected = task.expected_seconds.map(|seconds| Duration::from_secs(seconds.into()));
            builder.push(node);
        }
        for agent in agents.into_values() {
            builder = builder.with_agent(agent);
        }
        Ok(builder)
    }
}

fn worker(agents: Vec<(Option<Size>, Arc<dyn Agent>)>, task: &str, scope: Scope) -> DraftAgent {
    let (ask, read) = (Ask::Text(task.into()), work::read_text());
    DraftAgent { agents, ask, read, scope, form: None }
}

/// Truncates a name of any length to one character beyond the longest valid one.
fn cut(name: &str) -> Arc<str> {
    match name.char_indices().nth(65) {
        Some((end, _)) => name.get(..end).unwrap_or_default().into(),
        None => name.into(),
    }
}

impl Inner {
    /// Builds the node that a recorded [`Change::Add`] adds to a run of this graph. `place` finds nodes, earlier
    /// additions included.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] with all problems of the node.
    pub(crate) fn added(
        &self,
        node: &NodeSignature,
        task: &str,
        scope: Option<&Scope>,
        place: impl Fn(&str) -> Option<usize>,
    ) -> Result<Node> {
        let after = node.after.iter().map(|edge| &*edge.from);
        let words = PlanTask::new(&*node.id, node.agent.as_deref().unwrap_or_default(), task).after(after);
        let mut problems = Vec::new();
        words.check(&self.agents, &mut problems);
        if place(&node.id).is_some() {
            problems.push(Problem::Duplicate { node: cut(&node.id) });
        }
        let (mut edges, mut names, mut known) = (Vec::new(), Vec::new(), HashSet::new());
        for edge in &node.after {
            match place(&edge.from) {
                Some(from) if !known.insert(from) => {}
                Some(from) => {
                    edges.push(Edge { from, optional: edge.optional, needed: false, when: None });
                    names.push(Arc::clone(&edge.from));
                }
                None => problems
                    .push(Problem::UnknownDependency { node: cut(&node.id), dependency: cut(&edge.from) }),
            }
        }
        if !problems.is_empty() {
            return Err(GraphError::into_error(&self.name, ErrorKind::InvalidInput, problems));
        }
        let agent = self.agents.get(&*words.agent).map(|agent| (None, Arc::clone(agent)));
        let granted = self.granted(&words.agent);
        let scope = scope.map_or(granted.clone(), |scope| granted.narrow(scope));
        Ok(Node {
            id: Arc::clone(&node.id),
            edges,
            work: DraftWork::Agent(worker(agent.into_iter().collect(), task, scope)).finish(names, false),
            retry: Retries::default(),
            timeout: None,
            expected: None,
            version: node.version.clone(),
            output: node.output,
            provider: None,
        })
    }
}

impl TaskGraph {
    /// Builds the graph called `name` of a plan: see [`Plan::graph`].
    ///
    /// # Errors
    /// Those of [`Plan::graph`].
    pub fn from_plan(name: impl Into<String>, plan: &Plan, roster: &[Arc<dyn Agent>]) -> Result<Self> {
        plan.graph(name, roster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entourage_core::tool::schema_of;
    use entourage_testkit::assert_plain_text;

    #[test]
    fn the_schema_that_a_model_sees_is_plain() {
        assert_plain_text(&schema_of::<Plan>().to_string());
        assert_plain_text(&schema_of::<PlanTask>().to_string());
    }
}
