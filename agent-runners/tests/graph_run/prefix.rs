//! A run resumes from every prefix of its record that was stored when its process died.

use std::{collections::BTreeMap, sync::Arc};

use entourage_core::{
    Error, ErrorKind,
    event::Envelope,
    run::Status,
    session::{Batch, Row, SessionRecord, SessionState, SharedStore},
};
use entourage_runners::graph::{GraphReport, NodeFinished, NodeState, OnFailure, TaskGraph};
use entourage_testkit::Gate;

use crate::{
    common::{memory, process, runtime_on, stored},
    crew::{Act, Hand, ends, root},
};

fn step(
    graph: &entourage_runners::graph::TaskGraphBuilder,
    id: &str,
    fails: bool,
) -> entourage_runners::graph::Handle<u32> {
    graph.step(id, (), move |()| async move {
        if fails { Err(Error::new(ErrorKind::Tool, "as planned")) } else { Ok(1) }
    })
}

/// Builds failures with far-reaching consequences, conditions, a map and retries.
fn build(policy: OnFailure) -> TaskGraph {
    let graph = TaskGraph::builder("prefix").on_failure(policy).limit(2);
    let good = step(&graph, "good", false);
    let list = graph.step("list", &good, |_| async { Ok(vec![1_u32, 2, 3]) });
    let each = graph.map("each", &list, |item: u32| async move { Ok(item) });
    step(&graph, "behind", false).after(&each);
    let bad = step(&graph, "bad", true).attempts(2).after(&good);
    let skipped = step(&graph, "skipped", false).after(&bad);
    let deeper = step(&graph, "deeper", false).after(&skipped);
    step(&graph, "anyway", false).after(deeper.optional());
    let never = step(&graph, "never", false).when(&good, |good| *good > 1);
    step(&graph, "nor this", false).after(&never);
    graph.build().unwrap()
}

/// Stores these events as a new session.
pub(crate) async fn put(store: &SharedStore, record: SessionRecord, events: &[Envelope]) {
    let mut state = SessionState::default();
    events.iter().for_each(|event| state.apply(event));
    let rows = events.iter().cloned().map(Row::live).collect();
    let id = record.id.clone();
    store.append(&id, 0, Batch::new(7, rows, state.head().clone()).creating(record)).await.unwrap();
}

/// Creates a store with exactly these events.
pub(crate) async fn with(events: &[Envelope]) -> SharedStore {
    let store = memory();
    put(&store, SessionRecord::root(root(), events[0].at), events).await;
    store
}

#[test]
fn design_3_a_graph_goes_on_from_any_part_of_its_record() {
    for policy in [OnFailure::SkipDependents, OnFailure::Continue] {
        let (outcome, whole) = process(async {
            let store = memory();
            let run = runtime_on(&store).session_with_id(root()).start(&build(policy), "Go");
            let outcome = run.outcome().await.unwrap();
            (outcome, stored(&store, &root()).await)
        });
        assert!(whole.len() > 20, "{}", whole.len());
        for known in 1..whole.len() {
            let (again, events) = process(async {
                let store = with(&whole[..known]).await;
                let run = runtime_on(&store).session_with_id(root()).resume(&build(policy));
                (run.outcome().await.unwrap(), stored(&store, &root()).await)
            });
            assert_eq!(ends(&events), ends(&whole), "from {known} events on");
            assert_eq!(again, outcome, "from {known} events on");
            let mut last: BTreeMap<Arc<str>, u32> = BTreeMap::new();
            for event in &events {
                if let Some(end) = event.event.record::<NodeFinished>().unwrap() {
                    assert!(
                        end.micros < 60_000_000,
                        "from {known} events on: {} took {}",
                        end.node,
                        end.micros
                    );
                    if end.retry_at.is_none() {
                        *last.entry(Arc::clone(&end.node)).or_default() += 1;
                    }
                }
            }
            assert!(last.values().all(|ends| *ends == 1), "from {known} events on: {last:?}");
        }
    }
}

#[test]
fn design_3_an_agent_that_was_cancelled_on_the_way_down_is_tried_again() {
    let build = |hand: &Hand| {
        let graph = TaskGraph::builder("down");
        graph.agent("work", hand, "work");
        graph.build().unwrap()
    };
    let (above, child, below) = process(async {
        let (store, gate) = (memory(), Gate::new());
        let hand = Hand::new("hand").on("work", [Act::Wait(gate.clone())]);
        let run = runtime_on(&store).session_with_id(root()).start(&build(&hand), "Go");
        gate.arrived(1).await;
        run.cancel();
        assert_eq!(run.outcome().await.unwrap().status, Status::Cancelled);
        let events = stored(&store, &root()).await;
        let child = GraphReport::from_events(&events).unwrap().node("work").unwrap().child.clone().unwrap();
        let below = stored(&store, &child).await;
        (events, child, below)
    });
    // The process died before it could record that the cancel was its own.
    let begun = above.iter().position(|event| event.event.kind() == "record:graph.node_started").unwrap() + 1;
    process(async {
        let store = with(&above[..begun]).await;
        put(&store, SessionRecord::child(child, root(), "node", below[0].at), &below).await;
        let hand = Hand::new("hand");
        let run = runtime_on(&store).session_with_id(root()).resume(&build(&hand));
        assert_eq!(run.outcome().await.unwrap().text, "work done");
        let report = GraphReport::from_events(&stored(&store, &root()).await).unwrap();
        assert_eq!((report.nodes[0].attempts, report.nodes[0].state()), (2, NodeState::Completed));
    });
}
