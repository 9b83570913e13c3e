//! Graphs and the limit on agents that work in parallel below one root: neither blocks the other.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Result,
    agent::Agent,
    run::{Outcome, RunContext, Status, Task},
};
use entourage_runners::{
    AgentTool, ReactAgent,
    graph::{NodeState, TaskGraph},
};
use entourage_runtime::Runtime;
use entourage_runtime::permission::Policy;
use entourage_testkit::{self as testkit, ScriptedProvider};
use serde_json::json;
use tokio::time::Instant;

/// Works for a second, and counts its parallel runs.
#[derive(Clone, Default)]
struct Second(Arc<Mutex<Shift>>);

#[derive(Default)]
struct Shift {
    now: usize,
    most: usize,
    began: Vec<String>,
}

impl Second {
    fn most(&self) -> usize {
        self.0.lock().unwrap().most
    }

    fn began(&self) -> Vec<String> {
        self.0.lock().unwrap().began.clone()
    }
}

#[async_trait]
impl Agent for Second {
    fn name(&self) -> &'static str {
        "second"
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        let prompt = task.prompt.text();
        {
            let mut shift = self.0.lock().unwrap();
            shift.now += 1;
            shift.most = shift.most.max(shift.now);
            shift.began.push(prompt.split_whitespace().next().unwrap().to_owned());
        }
        let slept = cx.sleep(Duration::from_secs(1)).await;
        self.0.lock().unwrap().now -= 1;
        slept.map(|()| Outcome::completed("done"))
    }
}

fn few(at_once: usize) -> Runtime {
    testkit::runtime().policy(Policy::allow_all()).sub_agents(at_once).build()
}

fn wide(name: &str, nodes: usize, agent: &(impl Agent + Clone + 'static)) -> TaskGraph {
    let graph = TaskGraph::builder(name).limit(nodes).limit_each_agent(nodes);
    for node in 0..nodes {
        graph.agent(format!("{name}{node}"), agent, format!("{name}{node}"));
    }
    graph.build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn ai04_a_graph_with_more_agents_than_places_ends_in_their_order() {
    for in_memory_alone in [false, true] {
        let second = Second::default();
        let graph = wide("n", 34, &second);
        let start = Instant::now();
        let outcome = match in_memory_alone {
            true => graph.run("Go").await.unwrap().outcome,
            false => testkit::runtime().build().session().start(&graph, "Go").outcome().await.unwrap(),
        };
        assert_eq!(outcome.status, Status::Completed);
        assert_eq!((second.most(), start.elapsed().as_secs()), (10, 4));
        assert_eq!(second.began(), (0..34).map(|node| format!("n{node}")).collect::<Vec<_>>());
    }
}

/// Builds an agent that delegates its task to `second`, as a tool.
fn lead(second: &Second) -> ReactAgent {
    let provider = ScriptedProvider::by_history().call("second", json!({"prompt": "below"})).text("Done.");
    let tool = AgentTool::new(second.clone()).with_name("second");
    ReactAgent::builder("lead", provider.model()).tool(tool).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn ai04_graphs_in_graphs_with_agents_below_agents_never_wait_for_each_other() {
    for places in [1, 2, 3, 7] {
        let second = Second::default();
        let inner = TaskGraph::builder("inner").limit(5).limit_each_agent(5);
        for node in 0..4 {
            inner.agent(format!("lead{node}"), &lead(&second), "Lead.");
            inner.agent(format!("work{node}"), &second, "work");
        }
        let inner = inner.build().unwrap();
        let outer = TaskGraph::builder("outer").limit(9).limit_each_agent(9);
        let graphs: Vec<_> = (0..3).map(|node| outer.graph(format!("graph{node}"), &inner, "Go")).collect();
        let last = outer.agent("last", &lead(&second), "Lead.").after(&graphs);
        let outer = outer.returning(&last).build().unwrap();
        let start = Instant::now();
        let outcome = few(places).session().start(&outer, "Go").outcome().await.unwrap();
        assert_eq!((&outcome.status, &*outcome.text), (&Status::Completed, "Done."), "{places} places");
        assert_eq!(second.began().len(), 3 * 8 + 1);
        assert_eq!(second.most(), places, "all places are used, and no more");
        assert!(start.elapsed().as_secs() >= (25 / places) as u64);
    }
}

#[tokio::test(start_paused = true)]
async fn ai04_a_graph_that_is_cancelled_while_its_agents_wait_for_places_ends() {
    let second = Second::default();
    let graph = wide("n", 20, &second);
    let runtime = few(3);
    let run = runtime.session().start(&graph, "Go");
    while second.began().len() < 3 {
        tokio::task::yield_now().await;
    }
    run.cancel();
    assert_eq!(run.outcome().await.unwrap().status, Status::Cancelled);
    assert_eq!((second.began().len(), second.0.lock().unwrap().now), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn the_critical_path_goes_first_when_pool_slots_are_scarce() {
    let second = Second::default();
    let graph = TaskGraph::builder("path").limit(9).limit_each_agent(9);
    let first = graph.agent("first", &second, "first").expected(Duration::from_secs(9));
    for node in 0..6 {
        graph.agent(format!("short{node}"), &second, format!("short{node}"));
    }
    graph.agent("second", &second, "second").after(&first).expected(Duration::from_secs(9));
    let graph = graph.build().unwrap();
    let outcome = few(2).session().start(&graph, "Go").outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Completed);
    assert_eq!(second.began()[..3], ["first", "short0", "second"], "{:?}", second.began());
}

#[tokio::test(start_paused = true)]
async fn the_time_of_an_attempt_begins_when_it_has_a_place() {
    let second = Second::default();
    let graph = TaskGraph::builder("late").limit(9).limit_each_agent(9);
    for node in 0..6 {
        graph.agent(format!("n{node}"), &second, format!("n{node}")).timeout(Duration::from_millis(1_500));
    }
    let graph = graph.build().unwrap();
    let runtime = few(2);
    let run = runtime.session().start(&graph, "Go");
    let control = graph.control(&run);
    while second.began().len() < 2 {
        tokio::task::yield_now().await;
    }
    let report = control.report().await.unwrap();
    assert_eq!((report.count(NodeState::Running), report.count(NodeState::Pending)), (2, 4));
    assert_eq!(run.outcome().await.unwrap().status, Status::Completed);

    // Other agents of the same tree have the slots.
    let inner = TaskGraph::builder("inner").limit_each_agent(3);
    for node in 0..3 {
        inner.agent(format!("n{node}"), &second, "work").timeout(Duration::from_millis(1_500));
    }
    let inner = inner.build().unwrap();
    let outer = TaskGraph::builder("outer").limit_each_agent(3);
    for node in 0..3 {
        outer.graph(format!("graph{node}"), &inner, "Go");
    }
    let start = Instant::now();
    let outcome = few(2).session().start(&outer.build().unwrap(), "Go").outcome().await.unwrap();
    assert_eq!((outcome.status, start.elapsed().as_secs()), (Status::Completed, 5));
}
