//! A node of a graph that is being written: what others take from, and where its settings are made.

use std::{any::TypeId, fmt, marker::PhantomData, sync::Arc, time::Duration};

use schemars::JsonSchema;

use super::{
    Condition, Needs, NodeValue, Optional, Output,
    draft::{Draft, DraftNode},
    needs::Wiring,
    schema, work,
};
use crate::{
    agent::Agent,
    permission::Scope,
    provider::{Size, answer_rule},
    tool::schema_of,
};

/// A node that returns `T`. Others take from it, and its settings are made here; cloning gives another handle on the
/// same node.
///
/// Settings count until the graph is built.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use std::time::Duration;
///
/// use entourage_core::graph::TaskGraph;
///
/// let graph = TaskGraph::builder("report");
/// let sales = graph.step("sales", (), |()| async { Ok(vec![3_u32, 4, 5]) });
/// let total = graph
///     .step("total", &sales, |sales| async move { Ok(sales.iter().sum::<u32>()) })
///     .attempts(3)
///     .delay(Duration::from_millis(200))
///     .timeout(Duration::from_secs(10));
/// let alarm = graph.step("alarm", &total, |total| async move { Ok(format!("only {total}")) }).when(&total, |total| *total < 10);
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

    /// The node's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The same node for dependents that also run when it gives nothing: because it was skipped, failed or was cancelled.
    #[must_use]
    pub fn optional(&self) -> Optional<T> {
        Optional(self.clone())
    }

    /// Starts it only after these nodes. An agent is told what they gave, each under its id.
    pub fn after(self, nodes: impl Needs) -> Self {
        self.wired(|wiring| drop(nodes.wire(wiring)))
    }

    /// Starts it only after this node, and only when the condition holds of what that gave; otherwise it is skipped. Of
    /// several conditions all must hold. A node that takes the other's value as optional needs it from then on.
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

    /// How often it is tried at most, the first attempt included. Default 1; 3 with [`Handle::escalate`].
    pub fn attempts(self, attempts: u32) -> Self {
        self.edit(|node| node.attempts = Some(attempts))
    }

    /// How long it waits before its second attempt; twice as long before each one after it. Default: not at all.
    pub fn delay(self, delay: Duration) -> Self {
        self.edit(|node| node.delay = delay)
    }

    /// How long one attempt may take. An attempt that is stopped counts as failed. Default: no limit.
    ///
    /// It counts anew when the attempt is gone on with after a restart or a pause: how long nobody was there to work on
    /// it, or somebody was waited for, says nothing about the attempt.
    pub fn timeout(self, limit: Duration) -> Self {
        self.edit(|node| node.timeout = Some(limit))
    }

    /// How long it is expected to take. When not all that is ready can run, what the longest chain of these waits for goes
    /// first.
    pub fn expected(self, time: Duration) -> Self {
        self.edit(|node| node.expected = Some(time))
    }

    /// Names the version of what the node does. A run that is stored is not resumed with another version.
    pub fn version(self, version: impl Into<Box<str>>) -> Self {
        self.edit(|node| node.version = version.into())
    }

    /// Which provider's limit it counts to: see [`TaskGraphBuilder::provider_limit`](super::TaskGraphBuilder::provider_limit).
    pub fn provider(self, name: impl Into<Arc<str>>) -> Self {
        self.edit(|node| node.provider = Some(name.into()))
    }

    /// Keeps a digest of the schema of `T` with stored runs: one is then not resumed when the shape of `T` has changed.
    /// Titles, descriptions and the names of types do not count.
    pub fn with_schema(self) -> Self
    where
        T: JsonSchema,
    {
        self.edit(|node| node.output = Some(schema::digest(&schema_of::<T>())))
    }

    /// What its agent may do, at most. Default: what the graph's own run may.
    pub fn scope(self, scope: Scope) -> Self {
        self.edit(|node| node.agent("scope", |agent| agent.scope = scope))
    }

    /// Other agents for it, by the size of their models (LO04): the smallest begins, and an attempt that fails is repeated
    /// one size up, with the reason in the prompt. An agent that finds a task too large for it ends with an error that says
    /// why; a denial and a cancel are no reasons for a larger one. They take the place of the agent that it was made with, which goes on
    /// to give the node its name in signatures.
    pub fn escalate<A: Agent + 'static>(self, sizes: impl IntoIterator<Item = (Size, A)>) -> Self {
        let mut agents: Vec<(Option<Size>, Arc<dyn Agent>)> = Vec::new();
        agents.extend(sizes.into_iter().map(|(size, agent)| (Some(size), Arc::new(agent) as Arc<dyn Agent>)));
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
    /// Reads the agent's answer as a value: the prompt says which schema it must follow, and an answer that does not is a
    /// failed attempt. Use the handle that comes back.
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
    /// Reads each answer of an agent that works on a list as a value, as [`Handle::returns`](Handle::<String>::returns)
    /// does: an answer that does not follow the schema is a failed attempt at its item. Use the handle that comes back.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// # #[cfg(feature = "testkit")] {
    /// use entourage_core::{agent::ReactAgent, graph::TaskGraph, testkit::ScriptedProvider};
    ///
    /// let provider = ScriptedProvider::new().text("7").text("9");
    /// let critic = ReactAgent::builder("critic", provider.model()).build().unwrap();
    /// let graph = TaskGraph::builder("marks");
    /// let essays = graph.step("essays", (), |()| async { Ok(vec!["one".to_owned(), "two".to_owned()]) });
    /// let marks = graph.map_agent("marks", &essays, &critic, |essay| essay.clone()).returns::<u32>();
    /// let best = graph.step("best", &marks, |marks| async move { Ok(marks.iter().max().copied()) });
    /// let graph = graph.returning(&best).build().unwrap();
    /// assert_eq!(*graph.ask("Who is best?").await.unwrap(), Some(9));
    /// # }
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
    /// How many items of its list are worked on at once. Default: as many as the graph's own limits allow.
    pub fn at_once(self, items: usize) -> Self {
        self.edit(|node| node.map("at_once", |map| map.at_once = Some(items)))
    }

    /// An item that fails leaves a gap instead of failing the node. Use the handle that comes back.
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
