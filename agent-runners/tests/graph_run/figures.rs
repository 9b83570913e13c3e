//! The usage and cost of a node: those of its agent and of everything below it.

use std::sync::Arc;

use async_trait::async_trait;
use entourage_core::{
    Money, Prices, Result, Usage,
    provider::{CallContext, DeltaStream, Model, Profile, Provider, Request},
    session::{SessionFilter, SharedStore},
};
use entourage_runners::{
    AgentTool, DualAgent, ReactAgent,
    graph::{GraphReport, TaskGraph},
};
use entourage_testkit::ScriptedProvider;
use serde_json::json;

use crate::{
    common::{Fault, FaultyStore, memory, process, runtime_on, stored, until_killed},
    crew::root,
};

/// Builds a node for a pair of agents, one for an agent with an agent as its tool, and one for a nested graph.
fn graph(priced: bool) -> TaskGraph {
    let model = |provider: ScriptedProvider| -> Model {
        let mut profile = Profile::default();
        profile.prices = priced.then(|| Prices::per_million_micros(3, 15));
        provider.model().with_profile(profile)
    };
    let agent = |name: &str, provider| ReactAgent::builder(name, model(provider)).build().unwrap();
    let script = ScriptedProvider::by_history;
    let executor = agent("executor", script().text("Done.").text("It is done."));
    let checker = agent("checker", script().call("task_complete", json!({"summary": "Seen."})));
    let pair = DualAgent::builder("pair", executor, checker).build().unwrap();
    let lead = script().call("agent", json!({"prompt": "Help."})).text("Helped.");
    let lead = ReactAgent::builder("lead", model(lead))
        .tool(AgentTool::new(agent("helper", script().text("Here."))))
        .build()
        .unwrap();
    let inner = TaskGraph::builder("inner");
    inner.agent("in", &agent("worker", script().text("In.")), "Work.");
    let inner = inner.build().unwrap();
    let outer = TaskGraph::builder("outer");
    let paired = outer.agent("paired", &pair, "Work.");
    let led = outer.agent("led", &lead, "Work.").after(&paired);
    outer.agent("nested", &inner, "Work.").after(&led);
    outer.build().unwrap()
}

async fn report(store: &SharedStore) -> GraphReport {
    GraphReport::from_events(&stored(store, &root()).await).unwrap()
}

fn figures(report: &GraphReport) -> Vec<(Usage, Option<Money>)> {
    report.nodes.iter().map(|node| (node.usage, node.cost)).collect()
}

/// Returns the usage and cost of `count` calls of 10 tokens in and 5 out.
fn calls(count: u64, priced: bool) -> (Usage, Option<Money>) {
    (Usage::new(10 * count, 5 * count), priced.then(|| Money::from_pico(count * (10 * 3 + 5 * 15))))
}

#[tokio::test]
async fn attack_27_a_nodes_figures_count_what_is_below_it_and_unknown_is_never_0() {
    for priced in [true, false] {
        let store = memory();
        let graph = graph(priced);
        let session = runtime_on(&store).session_with_id(root());
        assert!(session.start(&graph, "Go").outcome().await.unwrap().is_completed());
        let report = report(&store).await;
        assert_eq!(figures(&report), [calls(3, priced), calls(3, priced), calls(1, priced)]);
        assert_eq!((report.usage(), report.cost()), calls(7, priced));
        let (table, drawn) = (report.to_string(), report.mermaid());
        assert_eq!(table.contains("unknown"), !priced, "{table}");
        assert_eq!(drawn.contains("45 tokens, cost unknown"), !priced, "{drawn}");
        assert!(!table.contains("$0 ") && !table.ends_with("$0") && !drawn.contains("$0\""), "{table}");
    }
}

#[tokio::test]
async fn attack_27_without_a_store_the_figures_are_the_same() {
    let report = graph(false).run("Go").await.unwrap().report();
    assert_eq!(figures(&report), [calls(3, false), calls(3, false), calls(1, false)]);
}

#[test]
fn attack_27_a_resumed_run_counts_what_earlier_lives_of_a_node_used() {
    let mut deaths = 0;
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        for at in 0.. {
            let inner = memory();
            let faulty = FaultyStore::new(&inner, at, fault);
            let killed = faulty.killed.clone();
            let lived = process(until_killed(
                async {
                    let store = Arc::clone(&faulty) as SharedStore;
                    runtime_on(&store)
                        .session_with_id(root())
                        .start(&graph(true), "Go")
                        .outcome()
                        .await
                        .unwrap()
                },
                &killed,
            ));
            process(async {
                let session = runtime_on(&inner).session_with_id(root());
                if session.unfinished().await.unwrap().is_some() {
                    assert!(session.resume(&graph(true)).outcome().await.unwrap().is_completed());
                }
                let infos = inner.query(&SessionFilter::all()).await.unwrap();
                if infos.is_empty() {
                    return;
                }
                let usage: Usage = infos.iter().map(|info| info.head.usage).sum();
                // A call that a death cut has no known cost, and so has no sum that holds it.
                let cost: Option<Money> = infos.iter().map(|info| info.head.cost).sum();
                let report = report(&inner).await;
                assert_eq!((report.usage(), report.cost()), (usage, cost), "{fault:?} at append {at}");
            });
            if lived.is_some() {
                break;
            }
            deaths += 1;
        }
    }
    assert!(deaths >= 20, "{deaths}");
}

/// A service that panics once it is called.
#[derive(Debug)]
struct Panics;

#[async_trait]
impl Provider for Panics {
    fn name(&self) -> &'static str {
        "panics"
    }

    async fn stream(&self, _: Request, _: &CallContext) -> Result<DeltaStream> {
        panic!("the service panics");
    }
}

#[tokio::test]
async fn attack_27_a_call_that_never_ended_has_an_unknown_cost() {
    let store = memory();
    let worker = ReactAgent::builder("worker", Model::new(Arc::new(Panics), "m")).build().unwrap();
    let graph = TaskGraph::builder("outer");
    let items = graph.step("items", (), |()| async { Ok(vec![1_u64]) });
    let each = graph.map_agent("each", &items, &worker, |item| format!("Item {item}")).partial();
    let graph = graph.returning(&each).build().unwrap();
    let session = runtime_on(&store).session();
    session.start(&graph, "Go").outcome().await.unwrap();
    let report = GraphReport::from_events(&stored(&store, session.id()).await).unwrap();
    assert_eq!((report.node("each[0]").unwrap().cost, report.cost()), (None, None));
}
