//! Changes followed by crashes: the next process does what the one before would have done.

use entourage_core::{
    event::Envelope,
    run::{Outcome, Pause, Status},
    session::SharedStore,
};
use entourage_runners::graph::{
    GraphControl, GraphReport, NodeFinished, NodeState, PlanTask, SkipAs, TaskGraph,
};
use entourage_testkit::Gate;
use serde_json::json;

use crate::{
    common::{memory, process, runtime_on, stored},
    crew::{Act, Hand, Log, not_done, root, secs, stored_ends},
};

async fn resumed(store: &SharedStore, graph: &TaskGraph) -> Outcome {
    runtime_on(store).session_with_id(root()).resume(graph).outcome().await.unwrap()
}

fn open() -> Gate {
    let gate = Gate::new();
    gate.open();
    gate
}

/// Builds `second` after `first`; `first` is skipped, then retried, and fails while `second` is running.
fn overtaken(log: &Log, start: &Gate, gate: &Gate) -> TaskGraph {
    let hand = Hand::logging("hand", log)
        .on("zero", [Act::Wait(start.clone())])
        .on("first", [Act::Fail("after all not")])
        .on("second", [Act::Wait(gate.clone())]);
    let graph = TaskGraph::builder("overtaken").limit_each_agent(2);
    let zero = graph.agent("zero", &hand, "zero");
    let first = graph.agent("first", &hand, "first").after(&zero);
    let second = graph.agent("second", &hand, "second").after(&first);
    graph.agent("third", &hand, "third").after(&second);
    graph.build().unwrap()
}

async fn overtake(store: &SharedStore, log: &Log, gate: &Gate) -> entourage_runtime::RunHandle {
    let start = Gate::new();
    let graph = overtaken(log, &start, gate);
    let session = runtime_on(store).session_with_id(root());
    let run = session.start(&graph, "Go");
    let control = graph.control(&run);
    start.arrived(1).await;
    control.skip("first", SkipAs::Satisfied).await.unwrap();
    gate.arrived(1).await;
    control.retry("first").await.unwrap();
    start.open();
    while control.report().await.unwrap().node("first").unwrap().state() != NodeState::Failed {
        tokio::task::yield_now().await;
    }
    run
}

#[test]
fn lo13_an_attempt_in_flight_survives_crashes_and_failed_dependencies() {
    let expected = (vec!["first".to_owned()], vec![], vec![]);
    // The reference run, without a crash.
    let (store, log) = (memory(), Log::default());
    process(async {
        let gate = Gate::new();
        let run = overtake(&store, &log, &gate).await;
        gate.open();
        let outcome = run.outcome().await.unwrap();
        assert_eq!((not_done(&outcome), &*outcome.text), (expected.clone(), "third done"));
    });
    let (store, log) = (memory(), Log::default());
    process(async {
        overtake(&store, &log, &Gate::new()).await.detach();
    });
    process(async {
        let gate = Gate::new();
        let graph = overtaken(&log, &open(), &gate);
        runtime_on(&store).session_with_id(root()).resume(&graph).detach();
        gate.arrived(1).await;
    });
    process(async {
        let outcome = resumed(&store, &overtaken(&log, &open(), &open())).await;
        assert_eq!((not_done(&outcome), &*outcome.text), (expected, "third done"));
        let report = GraphReport::from_events(&stored(&store, &root()).await).unwrap();
        assert_eq!(report.node("second").unwrap().attempts, 1, "one attempt, which went on twice");
    });
}

#[test]
fn lo13_an_attempt_that_goes_on_is_not_skipped_for_what_fails_later() {
    let (store, log) = (memory(), Log::default());
    process(async {
        let (start, gate) = (Gate::new(), Gate::new());
        let graph = overtaken(&log, &start, &gate);
        let run = runtime_on(&store).session_with_id(root()).start(&graph, "Go");
        let control = graph.control(&run);
        run.detach();
        start.arrived(1).await;
        control.skip("first", SkipAs::Satisfied).await.unwrap();
        gate.arrived(1).await;
        control.retry("first").await.unwrap();
    });
    // The first node waits for `zero` again, fails after it, and the other node ends after that.
    for last in [false, true] {
        process(async {
            let gate = if last { open() } else { Gate::new() };
            let graph = overtaken(&log, &open(), &gate);
            let run = runtime_on(&store).session_with_id(root()).resume(&graph);
            if last {
                let outcome = run.outcome().await.unwrap();
                assert_eq!((not_done(&outcome).0, &*outcome.text), (vec!["first".to_owned()], "third done"));
                return;
            }
            let control = graph.control(&run);
            run.detach();
            gate.arrived(1).await;
            while control.report().await.unwrap().node("first").unwrap().state() != NodeState::Failed {
                tokio::task::yield_now().await;
            }
        });
    }
}

#[test]
fn lo13_a_reassigned_node_with_a_failed_dependency_is_skipped_once() {
    let (store, log) = (memory(), Log::default());
    let ends = |events: &[Envelope]| {
        let end = |event: &Envelope| {
            let end = event.event.record::<NodeFinished>().unwrap().filter(|end| &*end.node == "second")?;
            Some((end.end.to_string(), end.retry_at.is_some()))
        };
        events.iter().filter_map(end).collect::<Vec<_>>()
    };
    let expected = [("cancelled".to_owned(), true), ("skipped: first has no output".to_owned(), false)];
    process(async {
        let gate = Gate::new();
        let start = Gate::new();
        let graph = overtaken(&log, &start, &gate);
        let run = runtime_on(&store).session_with_id(root()).start(&graph, "Go");
        let control = graph.control(&run);
        start.arrived(1).await;
        control.add(PlanTask::new("last", "hand", "last").after(["zero"])).await.unwrap();
        control.skip("first", SkipAs::Satisfied).await.unwrap();
        gate.arrived(1).await;
        control.retry("first").await.unwrap();
        start.open();
        while control.report().await.unwrap().node("first").unwrap().state() != NodeState::Failed {
            tokio::task::yield_now().await;
        }
        control.reassign("second", "hand").await.unwrap();
        let outcome = run.outcome().await.unwrap();
        let lists = (vec!["first".to_owned()], vec![], vec!["second".to_owned(), "third".to_owned()]);
        assert_eq!(not_done(&outcome), lists);
        assert_eq!(ends(&stored(&store, &root()).await), expected);
    });
}

/// Builds two agents that wait for an answer, with one slot; `one` first waits at the gate.
fn waiting(log: &Log, gate: &Gate) -> TaskGraph {
    let hand = Hand::logging("hand", log)
        .on("one", [Act::Wait(gate.clone()), Act::Signal("go")])
        .on("two", [Act::Signal("go")]);
    let graph = TaskGraph::builder("waiting").limit(1).with_agent(Hand::logging("other", log));
    graph.agent("one", &hand, "one");
    graph.agent("two", &hand, "two");
    graph.build().unwrap()
}

async fn pause(store: &SharedStore, log: &Log) {
    let session = runtime_on(store).session_with_id(root());
    let outcome = session.start(&waiting(log, &open()), "Go").outcome().await.unwrap();
    assert!(matches!(outcome.status, Status::Paused(Pause::Signal { .. })), "{outcome:?}");
}

/// Resumes, makes a change while `one` has the slot and `two` waits for it, and runs to the next pause.
async fn meanwhile(store: &SharedStore, log: &Log, change: impl AsyncFnOnce(&GraphControl)) {
    let gate = Gate::new();
    let graph = waiting(log, &gate);
    let run = runtime_on(store).session_with_id(root()).resume(&graph);
    let control = graph.control(&run);
    gate.arrived(1).await;
    change(&control).await;
    gate.open();
    assert!(matches!(run.outcome().await.unwrap().status, Status::Paused(_)));
}

/// Sends `one` its signal, and runs to the end.
async fn finish(store: &SharedStore, log: &Log) -> GraphReport {
    let report = GraphReport::from_events(&stored(store, &root()).await).unwrap();
    let child = report.node("one").unwrap().child.clone().unwrap();
    runtime_on(store).open(&child).await.unwrap().signal("go", json!("now")).await.unwrap();
    let outcome = resumed(store, &waiting(log, &open())).await;
    assert_eq!((outcome.status, &*outcome.text), (Status::Completed, "one:\n\"now\"\n\ntwo:\ntwo done"));
    GraphReport::from_events(&stored(store, &root()).await).unwrap()
}

#[test]
fn lo13_a_resumed_attempt_waiting_for_a_slot_restarts_when_reassigned() {
    let (store, log) = (memory(), Log::default());
    process(pause(&store, &log));
    process(async {
        meanwhile(&store, &log, async |control| control.reassign("two", "other").await.unwrap()).await;
        assert_eq!(log.count("other is asked: two\n\n<task>\nGo\n</task>"), 1, "{:?}", log.all());
    });
    process(async {
        let report = finish(&store, &log).await;
        assert_eq!((report.node("one").unwrap().attempts, report.node("two").unwrap().attempts), (1, 2));
    });
}

#[test]
fn lo13_a_resumed_attempt_waiting_for_a_slot_can_be_skipped_and_retried() {
    let (store, log) = (memory(), Log::default());
    process(pause(&store, &log));
    process(meanwhile(&store, &log, async |control| {
        control.skip("two", SkipAs::Blocked).await.unwrap();
        // Given to somebody else, it is retried.
        control.reassign("two", "other").await.unwrap();
    }));
    process(async {
        assert_eq!(finish(&store, &log).await.node("two").unwrap().attempts, 2);
    });
}

#[test]
fn lo13_a_node_reassigned_before_a_crash_restarts_with_the_new_agent() {
    let (store, log) = (memory(), Log::default());
    let build = |acts: Vec<Act>| {
        let hand = Hand::logging("hand", &log).on("one", acts);
        let graph = TaskGraph::builder("given").with_agent(Hand::logging("other", &log));
        graph.agent("one", &hand, "one");
        graph.build().unwrap()
    };
    process(async {
        let deaf = Gate::new();
        let graph = build(vec![Act::Deaf(deaf.clone())]);
        let run = runtime_on(&store).session_with_id(root()).start(&graph, "Go");
        let control = graph.control(&run);
        run.detach();
        deaf.arrived(1).await;
        control.reassign("one", "other").await.unwrap();
        assert!(stored_ends(&store, &root()).await.is_empty(), "its slot is held");
    });
    process(async {
        let outcome = resumed(&store, &build(vec![Act::Hang])).await;
        assert_eq!((outcome.status, &*outcome.text), (Status::Completed, "one done"));
        let asked: Vec<_> = log.all().into_iter().filter(|it| it.contains("is asked")).collect();
        let by = |name: &str| asked.iter().filter(|it| it.starts_with(name)).count();
        assert_eq!((by("hand"), by("other")), (1, 1), "{asked:?}");
        let report = GraphReport::from_events(&stored(&store, &root()).await).unwrap();
        assert_eq!(report.nodes[0].attempts, 2);
    });
}

#[test]
fn lo13_a_task_that_is_added_keeps_what_is_expected_of_it_also_after_a_death() {
    let (store, log) = (memory(), Log::default());
    let build = |gate: &Gate| {
        let hand = Hand::logging("hand", &log).on("first", [Act::Wait(gate.clone())]);
        let graph = TaskGraph::builder("urgent").limit(1);
        graph.agent("first", &hand, "first").expected(secs(7_200));
        graph.agent("plain", &hand, "plain").expected(secs(60));
        graph.build().unwrap()
    };
    process(async {
        let gate = Gate::new();
        let graph = build(&gate);
        let run = runtime_on(&store).session_with_id(root()).start(&graph, "Go");
        let control = graph.control(&run);
        run.detach();
        gate.arrived(1).await;
        for (id, seconds) in [("short", 30), ("long", 3_600)] {
            let mut task = PlanTask::new(id, "hand", id);
            task.expected_seconds = Some(seconds);
            control.add(task).await.unwrap();
        }
    });
    process(async {
        let outcome = resumed(&store, &build(&open())).await;
        assert_eq!(outcome.status, Status::Completed);
        log.assert_order("long ends", "plain starts");
        log.assert_order("plain ends", "short starts");
    });
}
