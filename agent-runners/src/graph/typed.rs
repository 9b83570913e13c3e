//! Typed agents as nodes: their values reach the dependents as they are.

use std::sync::Arc;

use entourage_core::run::Task;
use schemars::JsonSchema;

use super::{
    Handle, Needs, Output, TaskGraphBuilder,
    builder::{made, worker},
    draft::{Ask, DraftWork},
    needs::sealed::{Read, Wire},
    work,
};
use crate::TypedAgent;

impl<O> TaskGraphBuilder<O> {
    /// Adds an agent that answers with a value, which goes to the dependents. It is given `text` as
    /// [`TaskGraphBuilder::agent`] gives it. The agent repairs its answers within an attempt; without a value the
    /// attempt failed.
    ///
    /// The digest of the value's schema is stored with runs, as [`Handle::with_schema`] does.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use entourage_runners::{ReactAgent, graph::TaskGraph};
    /// use entourage_testkit::ScriptedProvider;
    ///
    /// let provider = ScriptedProvider::new().text("[3, 4]");
    /// let counter = ReactAgent::builder("counter", provider.model()).returns::<Vec<u32>>().build().unwrap();
    /// let graph = TaskGraph::builder("report");
    /// let sales = graph.typed_agent("sales", &counter, "Count the sales.");
    /// let total = graph.step("total", &sales, |sales| async move { Ok(sales.iter().sum::<u32>()) });
    /// let graph = graph.returning(&total).build().unwrap();
    /// assert_eq!(*graph.ask("How many?").await.unwrap(), 7);
    /// # });
    /// ```
    pub fn typed_agent<T: Output + JsonSchema>(
        &self,
        id: impl AsRef<str>,
        agent: &TypedAgent<T>,
        text: impl Into<Arc<str>>,
    ) -> Handle<T> {
        let work = worker(Arc::new(agent.clone()), Ask::Text(text.into()), work::read_typed::<T>());
        self.add(id.as_ref(), |_| DraftWork::Agent(work)).with_schema()
    }

    /// Adds an agent that answers with a value, and whose task the program makes from the outputs of other nodes, as
    /// [`TaskGraphBuilder::agent_with`] does.
    pub fn typed_agent_with<T, N, K, F>(
        &self,
        id: impl AsRef<str>,
        agent: &TypedAgent<T>,
        needs: N,
        task: F,
    ) -> Handle<T>
    where
        T: Output + JsonSchema,
        N: Needs,
        K: Into<Task>,
        F: Fn(N::Given) -> K + Send + Sync + 'static,
    {
        self.add(id.as_ref(), |wiring| {
            let ask = made(needs.wire(wiring), task);
            DraftWork::Agent(worker(Arc::new(agent.clone()), ask, work::read_typed::<T>()))
        })
        .with_schema()
    }

    /// Adds an agent that answers with a value for each item of a list that another node returns, as
    /// [`TaskGraphBuilder::map_agent`] does. The values are in the order of the items.
    pub fn map_typed_agent<T, U, K, F>(
        &self,
        id: impl AsRef<str>,
        items: &Handle<Vec<T>>,
        agent: &TypedAgent<U>,
        task: F,
    ) -> Handle<Vec<U>>
    where
        T: Output,
        U: Output + Clone + JsonSchema,
        K: Into<Task>,
        F: Fn(&T) -> K + Send + Sync + 'static,
    {
        self.add(id.as_ref(), |wiring| {
            let reader = items.wire(wiring);
            let tasks =
                move |inputs: &_| Ok(reader.read(inputs)?.iter().map(|item| task(item).into()).collect());
            let ask = Ask::Text(Arc::default());
            let worker = worker(Arc::new(agent.clone()), ask, work::read_typed::<U>());
            DraftWork::MapAgent(worker, Arc::new(tasks), work::map_agent::<U>())
        })
        .with_schema()
    }
}
