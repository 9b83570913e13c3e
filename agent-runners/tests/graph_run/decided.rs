//! Whatever a run decides is stored before its outcome: the record, the live report and the outcome tell the same.

use std::collections::BTreeSet;

use entourage_core::{
    Error, ErrorKind,
    event::Envelope,
    run::{Outcome, Status, StopReason},
    session::SharedStore,
};
use entourage_runners::graph::{
    Change, GraphChanged, GraphControl, GraphReport, NodeEnd, NodeFinished, NodeReport, NodeStarted,
    NodeState, SkipAs, SkipCause, TaskGraph, TaskGraphBuilder,
};
use entourage_runtime::RunHandle;
use entourage_testkit::Gate;

use crate::{
    common::{Meddles, memory, process, runtime_on, stored},
    crew::{Act, Hand, Log, root, secs},
    prefix::with,
};

/// A store that takes one event at a time, so that a process may die between any two.
#[derive(Debug)]
pub(crate) struct Single(pub(crate) SharedStore);

impl Meddles for Single {
    fn inner(&self) -> &SharedStore {
        &self.0
    }

    fn largest_batch(&self) -> usize {
        1
    }
}

/// Checks that a stored report and the outcome of a graph without an output node agree.
pub(crate) fn assert_agree(report: &GraphReport, outcome: &Outcome) {
    let names = |is: fn(&NodeEnd) -> bool| -> BTreeSet<&str> {
        let nodes = report.nodes.iter().filter(|node| !node.id.contains('['));
        nodes.filter(|node| node.end.as_ref().is_some_and(is)).map(|node| &*node.id).collect()
    };
    let told = [
        names(|end| matches!(end, NodeEnd::Failed(_))),
        names(|end| matches!(end, NodeEnd::Cancelled)),
        names(|end| matches!(end, NodeEnd::Skipped(SkipCause::Blocked(_)))),
    ];
    let ended = match &outcome.status {
        Status::Stopped(StopReason::Tasks { failed, cancelled, skipped }) => [
            failed.iter().map(|failed| &*failed.task).collect(),
            cancelled.iter().map(|id| &**id).collect(),
            skipped.iter().map(|id| &**id).collect(),
        ],
        _ => Default::default(),
    };
    assert_eq!(told, ended, "failed, cancelled and skipped: {report}");
}

/// Returns how the nodes stand, in words. Whether an attempt waits for its slot after a restart is not recorded.
pub(crate) fn stand(report: &GraphReport) -> BTreeSet<String> {
    let words = |node: &NodeReport| {
        let end = node.end.as_ref().map_or_else(|| "open".to_owned(), ToString::to_string);
        format!("{}: {end}, after {} attempts", node.id, node.attempts)
    };
    report.nodes.iter().map(words).collect()
}

fn fails(graph: &TaskGraphBuilder, id: &str) -> entourage_runners::graph::Handle<u32> {
    graph.step(id, (), |()| async { Err::<u32, _>(Error::new(ErrorKind::Tool, "as planned")) })
}

fn holds(graph: &TaskGraphBuilder, gate: &Gate) {
    let gate = gate.clone();
    graph.step("hold", (), move |()| {
        let gate = gate.clone();
        async move {
            gate.pass().await;
            Ok(1_u32)
        }
    });
}

async fn until(control: &GraphControl, node: &str, state: NodeState) {
    while control.report().await.unwrap().node(node).unwrap().state() != state {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn lo13_the_end_of_a_node_whose_wait_for_a_retry_was_in_vain_is_stored() {
    for holds_on in [true, false] {
        let gate = Gate::new();
        let graph = TaskGraph::builder("vain");
        let bad = fails(&graph, "bad");
        let next = fails(&graph, "next").attempts(2).delay(secs(10)).after(&bad);
        graph.step("last", (), |()| async { Ok(1_u32) }).after(&next);
        holds(&graph, &gate);
        let graph = graph.build().unwrap();
        let store = memory();
        let session = runtime_on(&store).session_with_id(root());
        let run = session.start(&graph, "Go");
        let control = graph.control(&run);
        gate.arrived(1).await;
        until(&control, "last", NodeState::Skipped).await;
        control.skip("bad", SkipAs::Satisfied).await.unwrap();
        while control.report().await.unwrap().node("next").unwrap().attempts == 0 {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(secs(1)).await;
        control.retry("bad").await.unwrap();
        if holds_on {
            // The wait is over while others go on.
            tokio::time::sleep(secs(20)).await;
            let live = control.report().await.unwrap();
            assert_eq!(stand(&live), stand(&GraphReport::of(&session).await.unwrap()));
            assert_eq!(live.node("last").unwrap().state(), NodeState::Skipped);
        }
        gate.open();
        let outcome = run.outcome().await.unwrap();
        let report = GraphReport::of(&session).await.unwrap();
        assert_agree(&report, &outcome);
        assert!(report.nodes.iter().all(|node| node.end.is_some()), "{report}");
    }
}

fn skips(gate: &Gate) -> TaskGraph {
    let graph = TaskGraph::builder("skips");
    let bad = fails(&graph, "bad");
    let next = graph.step("next", (), |()| async { Ok(1_u32) }).after(&bad);
    graph.step("last", (), |()| async { Ok(1_u32) }).after(&next);
    holds(&graph, gate);
    graph.build().unwrap()
}

#[test]
fn lo13_a_skip_of_what_failed_is_told_whole_from_any_part_of_its_record() {
    let whole = process(async {
        let (store, gate) = (memory(), Gate::new());
        let graph = skips(&gate);
        let run = runtime_on(&store).session_with_id(root()).start(&graph, "Go");
        let control = graph.control(&run);
        gate.arrived(1).await;
        until(&control, "last", NodeState::Skipped).await;
        control.skip("bad", SkipAs::Satisfied).await.unwrap();
        until(&control, "last", NodeState::Completed).await;
        gate.open();
        assert_eq!(run.outcome().await.unwrap().status, Status::Completed);
        stored(&store, &root()).await
    });
    let is_skip = |event: &Envelope| {
        let changed = event.event.record::<GraphChanged>().unwrap();
        changed.is_some_and(|changed| matches!(changed.change, Change::Skip { .. }))
    };
    for known in 1..whole.len() {
        let (outcome, events) = process(async {
            let (store, gate) = (with(&whole[..known]).await, Gate::new());
            gate.open();
            let run = runtime_on(&store).session_with_id(root()).resume(&skips(&gate));
            (run.outcome().await.unwrap(), stored(&store, &root()).await)
        });
        let report = GraphReport::from_events(&events).unwrap();
        assert_agree(&report, &outcome);
        let skipped = whole[..known].iter().any(is_skip);
        assert_eq!(outcome.is_completed(), skipped, "from {known} events on");
        assert_numbers(&events);
    }
}

/// Checks that each attempt begins once and ends at most once.
pub(crate) fn assert_numbers(events: &[Envelope]) {
    let (mut begun, mut ended) = (BTreeSet::new(), BTreeSet::new());
    for event in events {
        if let Some(start) = event.event.record::<NodeStarted>().unwrap() {
            assert!(begun.insert((start.node.to_string(), start.attempt)), "{} begins twice", start.node);
        }
        if let Some(end) = event.event.record::<NodeFinished>().unwrap().filter(|end| end.attempt > 0) {
            assert!(
                ended.insert((end.node.to_string(), end.attempt)),
                "{} {} ends twice",
                end.node,
                end.attempt
            );
        }
    }
    assert!(ended.is_subset(&begun), "{begun:?} {ended:?}");
}

#[test]
fn lo13_an_attempt_that_was_given_away_unwinds_in_a_later_process_with_its_own_agent() {
    // The first one gives it away twice; the last one has it skipped meanwhile.
    for further in [None, Some("hand"), Some("skip")] {
        let (store, log) = (memory(), Log::default());
        let build = |hand: Hand, log: &Log| {
            let graph = TaskGraph::builder("given").with_agent(Hand::logging("other", log));
            graph.agent("first", &hand, "first");
            graph.build().unwrap()
        };
        process(async {
            let gate = Gate::new();
            let graph = build(Hand::new("hand").on("first", [Act::Deaf(gate.clone())]), &log);
            let run: RunHandle = runtime_on(&store).session_with_id(root()).start(&graph, "Go");
            let control = graph.control(&run);
            gate.arrived(1).await;
            control.reassign("first", "other").await.unwrap();
            match further {
                Some("skip") => control.skip("first", SkipAs::Satisfied).await.unwrap(),
                Some(agent) => control.reassign("first", agent).await.unwrap(),
                None => {}
            }
            // The process dies while the attempt unwinds.
            drop(run);
        });
        let (outcome, report) = process(async {
            let session = runtime_on(&store).session_with_id(root());
            let outcome = session.resume(&build(Hand::logging("hand", &log), &log)).outcome().await.unwrap();
            (outcome, GraphReport::of(&session).await.unwrap())
        });
        assert_eq!(outcome.status, Status::Completed);
        let first = report.node("first").unwrap();
        match further {
            Some("skip") => assert_eq!((first.state(), first.attempts), (NodeState::Skipped, 1)),
            again => {
                let by = again.unwrap_or("other");
                assert_eq!(
                    (first.attempts, first.agent.as_deref(), &*outcome.text),
                    (2, Some(by), "first done")
                );
                let asked = format!("{by} is asked: first");
                assert!(log.all().iter().any(|it| it.starts_with(&asked)), "{:?}", log.all());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rp06_a_map_that_is_tried_again_has_its_items_once() {
    let tries = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let (gate, again) = (Gate::new(), Gate::new());
    let graph = TaskGraph::builder("maps");
    let list = graph.step("list", (), |()| async { Ok(vec![1_u32, 2, 3]) });
    let second = again.clone();
    graph.map("each", &list, move |item: u32| {
        let (tries, second) = (std::sync::Arc::clone(&tries), second.clone());
        async move {
            if item == 2 && tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 {
                return Err(Error::new(ErrorKind::Tool, "as planned"));
            }
            if item == 2 {
                second.pass().await;
            }
            Ok(item)
        }
    });
    holds(&graph, &gate);
    let graph = graph.build().unwrap();
    let store = memory();
    let session = runtime_on(&store).session_with_id(root());
    let run = session.start(&graph, "Go");
    let control = graph.control(&run);
    until(&control, "each", NodeState::Failed).await;
    control.retry("each").await.unwrap();
    again.arrived(1).await;
    for over in [false, true] {
        if over {
            again.open();
            until(&control, "each", NodeState::Completed).await;
        }
        let (live, told) = (control.report().await.unwrap(), GraphReport::of(&session).await.unwrap());
        assert_eq!(stand(&live), stand(&told));
        assert_eq!((live.nodes.len(), live.count(NodeState::Failed)), (6, 0), "{live}");
        assert_eq!(control.todos().await.unwrap().len(), 6);
    }
    gate.open();
    assert_agree(&GraphReport::of(&session).await.unwrap(), &run.outcome().await.unwrap());
}
