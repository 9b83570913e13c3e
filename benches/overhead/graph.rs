//! Graphs whose nodes do nothing, so that only the scheduling is measured, beside a hand-written scheduler with a slot
//! per node.
//!
//! A graph is layers of 100 nodes, each of which depends on all nodes of the layer before it: 90,100 edges for 1,000
//! nodes.

use std::{
    hint::black_box,
    path::Path,
    sync::{Arc, OnceLock},
};

use async_trait::async_trait;
use entourage::store::{Durability, SqliteStore};
use entourage_core::{
    Result,
    agent::Agent,
    run::{Outcome, RunContext, Status, Task},
    session::SharedStore,
};
use entourage_runners::graph::{Handle, TaskGraph};
use entourage_runtime::{AgentExt, RunHandle, Runtime};
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use serde_json::{Value, json};
use tokio::runtime::Runtime as Tokio;

use crate::{Pair, Work, median, ours, pair};

const WIDTH: usize = 100;

type Node = Box<dyn Fn() -> BoxFuture<'static, Value> + Send + Sync>;

/// The floor: a node is a boxed function, its result stays in its slot, and an edge is a counter that goes down.
struct Slots {
    nodes: Vec<Node>,
    next: Vec<Vec<usize>>,
    missing: Vec<usize>,
}

impl Slots {
    fn new<F: Future<Output = Value> + Send + 'static>(
        layers: usize,
        node: impl Fn(usize) -> F + Send + Sync + Clone + 'static,
    ) -> Self {
        let count = layers * WIDTH;
        let (mut next, mut missing) = (vec![Vec::new(); count], vec![0; count]);
        for (from, next) in next.iter_mut().enumerate().take(count - WIDTH) {
            let below = (from / WIDTH + 1) * WIDTH;
            next.extend(below..below + WIDTH);
            next.iter().for_each(|to| missing[*to] += 1);
        }
        let boxed = |place| {
            let node = node.clone();
            Box::new(move || node(place).boxed()) as Node
        };
        let nodes = (0..count).map(boxed).collect();
        Self { nodes, next, missing }
    }

    async fn run(&self) -> usize {
        let mut missing = self.missing.clone();
        let values: Vec<OnceLock<Value>> = self.nodes.iter().map(|_| OnceLock::new()).collect();
        let mut running = FuturesUnordered::new();
        let begin = |place: usize| {
            let node = self.nodes[place]();
            async move { (place, node.await) }.boxed()
        };
        (0..missing.len()).filter(|place| missing[*place] == 0).for_each(|place| running.push(begin(place)));
        while let Some((place, value)) = running.next().await {
            values[place].set(value).unwrap();
            for to in &self.next[place] {
                missing[*to] -= 1;
                if missing[*to] == 0 {
                    running.push(begin(*to));
                }
            }
        }
        black_box(&values).iter().filter(|value| value.get().is_some()).count()
    }
}

pub(crate) fn floor_steps(layers: usize) -> impl Work + Clone {
    let slots = Arc::new(Slots::new(layers, |place| async move { json!(place) }));
    move || {
        let slots = Arc::clone(&slots);
        async move { assert_eq!(slots.run().await, layers * WIDTH) }
    }
}

/// Adds the layers with `add`, which gets the number of a node and the layer before it.
fn layered<T>(layers: usize, add: impl Fn(usize, &[Handle<T>]) -> Handle<T>) {
    let mut before = Vec::new();
    for layer in 0..layers {
        before = (layer * WIDTH..(layer + 1) * WIDTH).map(|place| add(place, &before)).collect();
    }
}

/// A graph in which every node gets the results of the whole layer before it.
fn steps(layers: usize, limit: usize) -> TaskGraph {
    let graph = TaskGraph::builder("layers").limit(limit);
    layered(layers, |place, before: &[Handle<usize>]| {
        graph.step(format!("n{place}"), before, move |given| {
            black_box(given);
            async move { Ok(place) }
        })
    });
    graph.build().unwrap()
}

/// The same graph, run by a program that only wants its result.
pub(crate) fn our_steps(layers: usize, limit: usize) -> impl Work + Clone {
    whole(steps(layers, limit))
}

fn whole(graph: TaskGraph) -> impl Work + Clone {
    move || {
        let graph = graph.clone();
        async move {
            let run = graph.run("go").await.unwrap();
            assert_eq!(black_box(run.outcome).status, Status::Completed);
        }
    }
}

/// The same in a session: every event is stored, and read as it comes.
fn our_watched_steps(store: Option<SharedStore>) -> impl Work + Clone {
    let graph = steps(10, 1_000);
    let runtime = match store {
        Some(store) => Runtime::builder().shared_store(store).build(),
        None => Runtime::in_memory(),
    };
    move || {
        let (graph, runtime) = (graph.clone(), runtime.clone());
        async move {
            let session = runtime.session();
            let mut run = session.start(&graph, "go");
            let mut nodes = 0;
            while let Some(event) = run.next().await {
                nodes += usize::from(event.event.kind() == "record:graph.node_finished");
            }
            assert_eq!((nodes, run.outcome().await.unwrap().status), (1_000, Status::Completed));
            runtime.store().delete(session.id()).await.unwrap();
        }
    }
}

/// An agent that does nothing.
#[derive(Clone)]
struct Idle;

#[async_trait]
impl Agent for Idle {
    fn name(&self) -> &str {
        "idle"
    }

    async fn run(&self, _: Task, _: &RunContext) -> Result<Outcome> {
        Ok(Outcome::completed("done"))
    }
}

/// The same scheduler with an agent per node, each in a session of its own, since there is no cheaper way to run one.
fn floor_agents<F: Future<Output = Value> + Send + 'static>(
    run: impl Fn() -> F + Clone + Send + Sync + 'static,
) -> impl Work + Clone {
    let slots = Arc::new(Slots::new(10, move |_| run()));
    move || {
        let slots = Arc::clone(&slots);
        async move { assert_eq!(slots.run().await, 1_000) }
    }
}

async fn text(run: RunHandle) -> Value {
    Value::String(run.outcome().await.unwrap().text)
}

fn agents(agent: &(impl Agent + Clone + 'static)) -> TaskGraph {
    let graph = TaskGraph::builder("agents").limit(1_000).limit_each_agent(1_000);
    layered(10, |place, before: &[Handle<String>]| {
        graph.agent_with(format!("n{place}"), agent, before, |given| {
            black_box(given);
            "go"
        })
    });
    graph.build().unwrap()
}

/// Agents that make one call, without a store.
fn calls() -> (impl Work + Clone, impl Work + Clone) {
    let agent = ours::agent(&ours::model(0, 0, 0), &[]);
    (
        floor_agents({
            let agent = agent.clone();
            move || text(agent.start("go"))
        }),
        whole(agents(&agent)),
    )
}

/// Agents that do nothing, with a store in memory: sessions of hand-written agents are always stored.
fn idlers() -> (impl Work + Clone, impl Work + Clone) {
    let runtime = Runtime::in_memory();
    let floor = floor_agents(move || {
        let session = runtime.session();
        let runtime = runtime.clone();
        async move {
            let text = text(session.start(&Idle, "go")).await;
            runtime.store().delete(session.id()).await.unwrap();
            text
        }
    });
    let (graph, runtime) = (agents(&Idle), Runtime::in_memory());
    let ours = move || {
        let (graph, runtime) = (graph.clone(), runtime.clone());
        async move {
            let session = runtime.session();
            assert!(session.start(&graph, "go").outcome().await.unwrap().is_completed());
            runtime.store().delete(session.id()).await.unwrap();
        }
    };
    (floor, ours)
}

/// Prints the times of whole graphs per node.
fn stated(name: &str, pair: &Pair) {
    let node = |times: &[f64]| median(times.to_vec()) * 1e6 / 1_000.0;
    println!("{name}: {:.2} µs a node, floor {:.2} µs", node(&pair.ours), node(&pair.floor));
}

async fn sqlite(path: &Path) -> SharedStore {
    Arc::new(SqliteStore::builder(path).durability(Durability::PowerLoss).build().await.unwrap())
}

pub(crate) fn measure(results: &mut Vec<String>, tokio: &Tokio, samples: usize) {
    let mut compare = |name: &str, ours: Pair| {
        stated(name, &ours);
        results.push(format!("ratio {name} {:.2}", ours.ratio()));
    };
    compare("graph1000", pair(tokio, samples, floor_steps(10), our_steps(10, 1_000)));
    stated(
        "graph1000 with the limit of 10 nodes at once",
        &pair(tokio, samples, floor_steps(10), our_steps(10, 10)),
    );
    let few = samples.min(31);
    compare("graph1000_watched", pair(tokio, few, floor_steps(10), our_watched_steps(None)));
    let directory = tempfile::tempdir().unwrap();
    let sqlite = tokio.block_on(sqlite(&directory.path().join("graph.db")));
    compare("graph1000_sqlite", pair(tokio, few, floor_steps(10), our_watched_steps(Some(sqlite))));
    let (floor, ours) = calls();
    compare("graph_agents", pair(tokio, few, floor, ours));
    let (floor, ours) = idlers();
    compare("graph_agents_idle", pair(tokio, few, floor, ours));
    let ours = pair(tokio, few, our_steps(10, 1_000), our_steps(100, 1_000)).ratio();
    let floor = pair(tokio, few, floor_steps(10), floor_steps(100)).ratio();
    println!("10,000 nodes over 1,000: {ours:.2}, floor {floor:.2}");
    results.push(format!("ratio graph_growth {ours:.2}"));
}
