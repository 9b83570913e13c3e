//! Whatever of a run's record was stored when its process died, the run goes on from there.

use std::{collections::BTreeMap, sync::Arc};

use entourage_core::{
    Error, ErrorKind,
    event::{Envelope, Event},
    graph::{OnFailure, TaskGraph},
    session::{Batch, Row, SessionRecord, SessionState, SharedStore},
};

use crate::{
    common::{memory, process, runtime_on, stored},
    crew::{ends, root},
};

fn step(
    graph: &entourage_core::graph::TaskGraphBuilder,
    id: &str,
    fails: bool,
) -> entourage_core::graph::Handle<u32> {
    graph.step(id, (), move |()| async move {
        if fails { Err(Error::new(ErrorKind::Tool, "as planned")) } else { Ok(1) }
    })
}

/// Failures whose consequences reach far, conditions, a map and attempts that are repeated.
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

/// A store that has these events and no others.
async fn with(events: &[Envelope]) -> SharedStore {
    let store = memory();
    let mut state = SessionState::default();
    events.iter().for_each(|event| state.apply(event));
    let rows = events.iter().cloned().map(Row::live).collect();
    let record = SessionRecord::root(root(), events[0].at);
    store.append(&root(), 0, Batch::new(7, rows, state.head().clone()).creating(record)).await.unwrap();
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
                if let Event::NodeFinished(end) = &event.event
                    && end.retry_at.is_none()
                {
                    *last.entry(Arc::clone(&end.node)).or_default() += 1;
                }
            }
            assert!(last.values().all(|ends| *ends == 1), "from {known} events on: {last:?}");
        }
    }
}
