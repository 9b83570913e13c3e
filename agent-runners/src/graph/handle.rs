//! The handle of a node in a graph under construction: other nodes take from it, and the node's settings are made on
//! it.

use std::{any::TypeId, fmt, marker::PhantomData, sync::Arc, time::Duration};

use entourage_core::{
    agent::{Agent, IntoAgent},
    permission::Scope,
    provider::Size,
    tool::schema_of,
};
use schemars::JsonSchema;

use super::{
    Condition, Needs, NodeValue, Optional, Output,
    draft::{Draft, DraftNode},
    needs::Wiring,
    schema, work,
};
use crate::typed::answer_rule;

/// A node that returns `T`. Other nodes take from it, and its settings are made here. Cloning gives another handle on
/// the same node.
///
/// Settings take effect until the graph is built.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use std::time::Duration;
///
/// use entourage_runners::graph::TaskGraph;
///
/// let graph = TaskGraph::builder("report");
/// let sales = graph.step("sales", (), |()| async { Ok(vec![3_u32, 4, 5]) });
/// let total = graph
///     .step("total", &sales, |sales| async move { Ok(sales.iter().sum::<u32>()) })
///     .attempts(3)
///     .delay(Duration::from_millis(200))
///     .timeout(Duration::from_secs(10));
/// let alarm = graph
///     .step("alarm", &total, |total| async move { Ok(format!("only {total}")) })
///     .when(&total, |total| *total < 10);
/// # let _ = alarm;
/// let graph = graph.build().unwrap();
/// assert_eq!(graph.nodes().collect::<Vec<_>>(), ["sales", "total", "alarm"]);
/// # });
/// ```
pub struct Handle<T> {
    pub(super) draft: Arc<Draft>,
    pub(super) place: usize,
    pub(super) id: Arc<str>,
    gives: PhantomData<fn() -> T>,
}

impl<T: Output> Handle<T> {
    pub(super) fn add(draft: &Arc<Draft>, node: DraftNode) -> Self {
        let id = Arc::clone(&node.links.id);
        let place = draft.push(node);
        Self { draft: Arc::clone(draft), place, id, gives: PhantomData }
    }

    pub(super) fn find(draft: &Arc<Draft>, id: &str) -> Option<Self> {
        let (place, id) = draft.find(id, TypeId::of::<T>())?;
        Some(Self { draft: Arc::clone(draft), place, id, gives: PhantomData })
    }

    /// Returns the node's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the node as an optional input: dependents also run when it gives no value because it was skipped, failed
    /// or was cancelled.
    #[must_use]
    pub fn optional(&self) -> Optional<T> {
        Optional(self.clone())
    }

    /// Starts the node only after these nodes. An agent is told their outputs, each under its id.
    pub fn after(self, nodes: impl Needs) -> Self {
        self.wired(|wiring| drop(nodes.wire(wiring)))
    }

    /// Starts the node only after `node`, and only when the condition holds for that node's output; otherwise it is
    /// skipped. All of several conditions must hold. A dependency that was optional becomes required.
    pub fn when<U: Output>(
        self,
        node: &Handle<U>,
        holds: impl Fn(&U) -> bool + Send + Sync + 'static,
    ) -> Self {
        let condition: Condition = Arc::new(move |value: &NodeValue| match value.peek() {
            Some(value) => Ok(holds(value)),
            None => Ok(holds(&*value.get()?)),
        });
        let takes = TypeId::of::<U>();
        self.wired(|wiring| {
            if let Some(edge) = wiring.edge_from(node) {
                wiring.links.condition(edge, condition, takes);
            }
        })
    }

    /// Sets how many attempts it has, the first one included. A denial, a cancel, and the end of a budget or a deadline
    /// are followed by no other one. Default 1; with [`Handle::escalate`] one per agent, at most 3.
    pub fn attempts(self, attempts: u32) -> Self {
        self.edit(|node| node.attempts = Some(attempts))
    }

    /// Sets the delay before the second attempt; it doubles before each later one. Default: none.
    pub fn delay(self, delay: Duration) -> Self {
        self.edit(|node| node.delay = delay)
    }

    /// Sets the time limit of one attempt. An attempt that exceeds it is stopped and counts as failed. Default: no
    /// limit.
    ///
    /// The time starts anew when the attempt continues after a restart or a pause: time in which no process worked on
    /// it, or in which it waited for an answer, says nothing about the attempt. Nor does the time count in which an
    /// approver is asked about what its agent does.
    pub fn timeout(self, limit: Duration) -> Self {
        self.edit(|node| node.timeout = Some(limit))
    }

    /// Sets the expected duration. When slots are scarce, the ready node with the longest expected path to the end of
    /// the graph goes first.
    pub fn expected(self, time: Duration) -> Self {
        self.edit(|node| node.expected = Some(time))
    }

    /// Sets the version of the node's work. A stored run is not resumed with another version.
    pub fn version(self, version: impl Into<Box<str>>) -> Self {
        self.edit(|node| node.version = version.into())
    }

    /// Sets the provider whose limit it counts towards: see
    /// [`TaskGraphBuilder::provider_limit`](super::TaskGraphBuilder::provider_limit).
    pub fn provider(self, name: impl Into<Arc<str>>) -> Self {
        self.edit(|node| node.provider = Some(name.into()))
    }

    /// Stores a digest of the schema of `T` with runs: a stored run is then not resumed when the shape of `T` has
    /// changed. Titles, descriptions and names of types do not count.
    pub fn with_schema(self) -> Self
    where
        T: JsonSchema,
    {
        self.edit(|node| node.output = Some(schema::digest(&schema_of::<T>())))
    }

    /// Sets the upper bound of its agent's permissions. Default: the scope of the graph's own run.
    pub fn scope(self, scope: Scope) -> Self {
        self.edit(|node| node.agent("scope", |agent| agent.scope = scope))
    }

    /// Sets other agents for the node, by the size of their models. The smallest begins, and a failed attempt is
    /// retried one size up, with the reason in the prompt. Of several agents of one size, the first that is free makes
    /// the attempt. An agent that finds a task too large for it should end with an error that says why; a denial, a
    /// cancel, and the end of a budget or a deadline do not escalate. These agents replace the one that the node was
    /// made with; the smallest one names the node's agent in signatures.
    pub fn escalate<Form, A: IntoAgent<Form>>(self, sizes: impl IntoIterator<Item = (Size, A)>) -> Self {
        let mut agents: Vec<(Option<Size>, Arc<dyn Agent>)> = Vec::new();
        agents.extend(sizes.into_iter().map(|(size, agent)| (Some(size), agent.into_agent())));
        agents.sort_by_key(|(size, _)| *size);
        self.edit(|node| node.escalate(agents))
    }

    fn edit(self, change: impl FnOnce(&mut DraftNode)) -> Self {
        self.draft.edit(self.place, change);
        self
    }

    fn wired(self, change: impl FnOnce(&mut Wiring<'_>)) -> Self {
        let draft = Arc::clone(&self.draft);
        self.edit(|node| change(&mut Wiring { draft: &draft, links: &mut node.links, values: false }))
    }
}

impl Handle<String> {
    /// Parses the agent's answer as a value. The prompt states the schema, and an answer that does not follow it is a
    /// failed attempt. Use the returned handle.
    pub fn returns<T: Output + JsonSchema>(self) -> Handle<T> {
        let schema = schema_of::<T>();
        self.draft.edit(self.place, |node| {
            node.agent("returns", |agent| {
                agent.read = work::read_answer::<T>();
                agent.form = Some(answer_rule(&schema).into());
            });
            node.retype(TypeId::of::<String>(), TypeId::of::<T>());
            node.output = Some(schema::digest(&schema));
        });
        self.retyped()
    }
}

impl Handle<Vec<String>> {
    /// Parses each answer of an agent that works on a list as a value, as
    /// [`Handle::returns`](Handle::<String>::returns) does: an answer that does not follow the schema is a failed
    /// attempt at its item. Use the returned handle.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use entourage_runners::ReactAgent;
    /// use entourage_runners::graph::TaskGraph;
    /// use entourage_testkit::ScriptedProvider;
    ///
    /// let provider = ScriptedProvider::new().text("7").text("9");
    /// let critic = ReactAgent::builder("critic", provider.model()).build().unwrap();
    /// let graph = TaskGraph::builder("marks");
    /// let essays = graph.step("essays", (), |()| async { Ok(vec!["one".to_owned(), "two".to_owned()]) });
    /// let marks = graph.map_agent("marks", &essays, &critic, |essay| essay).returns::<u32>();
    /// let best = graph.step("best", &marks, |marks| async move { Ok(marks.iter().max().copied()) });
    /// let graph = graph.returning(&best).build().unwrap();
    /// assert_eq!(*graph.ask("Who is best?").await.unwrap(), Some(9));
    /// # });
    /// ```
    pub fn returns<T: Output + Clone + JsonSchema>(self) -> Handle<Vec<T>> {
        let schema = schema_of::<T>();
        self.draft.edit(self.place, |node| {
            node.agent("returns", |agent| {
                agent.read = work::read_answer::<T>();
                agent.form = Some(answer_rule(&schema).into());
            });
            node.map("returns", |map| map.gather = work::gather_all::<T>());
            node.retype(TypeId::of::<Vec<String>>(), TypeId::of::<Vec<T>>());
            node.output = Some(schema::digest(&schema_of::<Vec<T>>()));
        });
        self.retyped()
    }
}

impl<T: Output + Clone> Handle<Vec<T>> {
    /// Sets how many items of its list are processed in parallel. Default: as many as the graph's own limits allow.
    pub fn at_once(self, items: usize) -> Self {
        self.edit(|node| node.map("at_once", |map| map.at_once = Some(items)))
    }

    /// Lets an item that fails leave a gap instead of failing the node. Use the returned handle.
    ///
    /// An item that nobody may try again, such as one that a person refused, leaves a gap too: only the record tells it
    /// from other gaps. The node fails with it if no item has an output. Then no agent around the graph tries the node
    /// again ([`StopReason::is_final`](entourage_core::run::StopReason::is_final)).
    pub fn partial(self) -> Handle<Vec<Option<T>>> {
        self.draft.edit(self.place, |node| {
            node.map("partial", |map| {
                map.all = false;
                map.gather = work::gather_some::<T>();
            });
            node.retype(TypeId::of::<Vec<T>>(), TypeId::of::<Vec<Option<T>>>());
        });
        self.retyped()
    }
}

impl<T> Handle<T> {
    fn retyped<U>(self) -> Handle<U> {
        Handle { draft: self.draft, place: self.place, id: self.id, gives: PhantomData }
    }
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        let (draft, id) = (Arc::clone(&self.draft), Arc::clone(&self.id));
        Self { draft, place: self.place, id, gives: PhantomData }
    }
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({:?})", self.id)
    }
}
