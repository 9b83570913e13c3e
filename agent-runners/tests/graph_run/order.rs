//! The order in which nodes run.

use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind,
    run::{Status, StopReason},
};
use entourage_runners::graph::{
    Durations, GraphReport, NodeEnd, NodeState, OnFailure, TaskGraph, TaskGraphBuilder,
};
use entourage_testkit::Gate;

use crate::{
    common::{Fault, FaultyStore, memory, runtime_on, stored},
    crew::{Act, Hand, Log, not_done, root, secs, stored_ends},
};

/// The login form: six tasks, four agents.
struct Login {
    log: Log,
    architect: Hand,
    coder: Hand,
    tester: Hand,
    writer: Hand,
}

impl Login {
    fn new() -> Self {
        let log = Log::default();
        let hand = |name| Hand::logging(name, &log);
        let [architect, coder, tester, writer] = ["architect", "coder", "tester", "writer"].map(hand);
        Self { log, architect, coder, tester, writer }
    }

    fn builder(&self) -> TaskGraphBuilder {
        let graph = TaskGraph::builder("login");
        let design = graph.agent("design", &self.architect, "design the form");
        let backend = graph.agent("backend", &self.coder, "backend please");
        let frontend = graph.agent("frontend", &self.writer, "frontend please").after((&backend, &design));
        let tests = graph.agent("tests", &self.tester, "tests please").after((&backend, &frontend));
        graph.agent("review", &self.architect, "review it").after(&tests);
        graph.agent("docs", &self.writer, "docs please").after(&design);
        graph
    }
}

#[tokio::test(start_paused = true)]
async fn lo07_independent_nodes_overlap_and_tests_come_last() {
    let mut login = Login::new();
    let gate = Gate::new();
    login.architect = login.architect.on("design", [Act::Wait(gate.clone())]);
    login.coder = login.coder.on("backend", [Act::Wait(gate.clone())]);
    let graph = login.builder().build().unwrap();
    let store = memory();
    let run = runtime_on(&store).session_with_id(root()).start(&graph, "Build it");
    gate.arrived(2).await;
    gate.open();
    let outcome = run.outcome().await.unwrap();
    assert_eq!(outcome.text, "review:\nreview done\n\ndocs:\ndocs done");
    assert_eq!(outcome.status, Status::Completed);
    for (before, after) in [
        ("design starts", "backend ends"),
        ("backend starts", "design ends"),
        ("backend ends", "frontend starts"),
        ("design ends", "frontend starts"),
        ("frontend ends", "tests starts"),
        ("tests ends", "review starts"),
        ("design ends", "docs starts"),
    ] {
        login.log.assert_order(before, after);
    }
    // It works on two of them.
    assert_eq!(login.writer.most(), 1);
    let asked = "writer is asked: frontend please\n\n<result of=\"backend\">\nbackend done\n</result>\n\n\
                 <result of=\"design\">\ndesign done\n</result>";
    assert_eq!(login.log.count(asked), 1, "{:?}", login.log.all());
}

#[tokio::test(start_paused = true)]
async fn lo07_dependents_of_a_failed_node_are_skipped_with_a_reason_and_the_rest_runs() {
    let mut login = Login::new();
    login.coder = login.coder.on("backend", [Act::Fail("the disk is full")]);
    let graph = login.builder().build().unwrap();
    let store = memory();
    let outcome =
        runtime_on(&store).session_with_id(root()).start(&graph, "Build it").outcome().await.unwrap();
    let lists = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(not_done(&outcome), (lists(&["backend"]), vec![], lists(&["frontend", "tests", "review"])));
    assert_eq!(outcome.text, "review:\n\ndocs:\ndocs done".replace("review:\n\n", ""));
    let told = "stopped: not all tasks were done: `backend` failed (the disk is full); \
                skipped: `frontend`, `tests`, `review`";
    assert_eq!(outcome.status.to_string(), told);
    let ends = stored_ends(&store, &root()).await;
    for (node, end) in [
        ("design", "completed"),
        ("docs", "completed"),
        ("backend", "failed: the disk is full"),
        ("frontend", "skipped: backend has no output"),
        ("tests", "skipped: backend has no output"),
        ("review", "skipped: tests has no output"),
    ] {
        assert_eq!(ends[node], end, "{node}");
    }
}

#[tokio::test(start_paused = true)]
async fn lo07_fail_fast_stops_running_nodes_and_starts_no_others() {
    let log = Log::default();
    let slow = Hand::logging("slow", &log).on("slow", [Act::Hang]);
    let bad = Hand::logging("bad", &log).on("bad", [Act::Sleep(secs(1)), Act::Fail("no")]);
    let graph = TaskGraph::builder("fast").on_failure(OnFailure::FailFast);
    let first = graph.agent("slow", &slow, "slow");
    graph.agent("bad", &bad, "bad");
    graph.agent("later", &bad, "later").after(&first);
    let run = graph.build().unwrap().run("Go").await.unwrap();
    assert_eq!(not_done(&run.outcome), (vec!["bad".into()], vec!["slow".into(), "later".into()], vec![]));
    assert_eq!((log.count("slow is cancelled"), log.count("later starts")), (1, 0));
    assert_eq!(slow.running(), 0, "it waits for what unwinds");
}

#[tokio::test(start_paused = true)]
async fn lo07_fail_fast_stops_what_was_to_begin_in_the_same_moment() {
    let late = Hand::new("late").on("late", [Act::Hang]);
    let graph = TaskGraph::builder("fast").on_failure(OnFailure::FailFast);
    graph.step("bad", (), |()| async { Err::<(), _>(Error::new(ErrorKind::Tool, "no")) });
    graph.agent("late", &late, "late");
    let run = graph.build().unwrap().run("Go").await.unwrap();
    assert_eq!(not_done(&run.outcome), (vec!["bad".into()], vec!["late".into()], vec![]));
    assert_eq!(late.log.count("late starts"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_ends_the_run_and_all_that_it_began() {
    let mut failed = 0;
    for at in 0..40 {
        let login = Login::new();
        let graph = login.builder().build().unwrap();
        let store = FaultyStore::new(&memory(), at, Fault::Fail);
        let ended = runtime_on(&(store as _)).session_with_id(root()).start(&graph, "Go").outcome().await;
        let hands = [&login.architect, &login.coder, &login.tester, &login.writer];
        assert!(hands.iter().all(|hand| hand.running() == 0), "at append {at}");
        match ended {
            Ok(outcome) => assert_eq!(outcome.status, Status::Completed),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Store, "at append {at}");
                failed += 1;
            }
        }
    }
    assert!(failed > 10, "{failed}");
}

#[tokio::test(start_paused = true)]
async fn design_3_nothing_begins_before_what_came_before_is_stored() {
    for at in 0..=5 {
        let log = Log::default();
        let graph = TaskGraph::builder("chain");
        let step = |id: &'static str| {
            let log = log.clone();
            graph.step(id, (), move |()| {
                log.note(id);
                async { Ok(()) }
            })
        };
        let mut last = step("n0");
        for id in ["n1", "n2", "n3", "n4"] {
            last = step(id).after(&last);
        }
        let graph = graph.build().unwrap();
        let store = FaultyStore::new(&memory(), at, Fault::Fail);
        let ended = runtime_on(&(store as _)).session_with_id(root()).start(&graph, "Go").outcome().await;
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::Store);
        assert_eq!(log.all().len(), at.min(5), "one of them for each append that succeeded");
    }
}

#[tokio::test(start_paused = true)]
async fn lo07_continue_runs_dependents_and_the_outcome_lists_failures() {
    let bad = Hand::new("bad").on("bad", [Act::Fail("no")]);
    let good = Hand::new("good");
    let graph = TaskGraph::builder("on").on_failure(OnFailure::Continue);
    let first = graph.agent("bad", &bad, "bad");
    let last = graph.agent("good", &good, "good").after(&first);
    let graph = graph.returning(&last).build().unwrap();
    let run = graph.run("Go").await.unwrap();
    assert_eq!(run.outcome.status, Status::Completed);
    assert_eq!(*run.outcome.failed, [Arc::from("bad")]);
    assert_eq!(run.output.as_deref().map(String::as_str), Some("good done"));
    assert_eq!(good.log.count("good is asked: good"), 1);
}

#[tokio::test(start_paused = true)]
async fn lo07_limits_hold_overall_per_agent_and_per_provider() {
    let log = Log::default();
    let one = Hand::logging("one", &log);
    let two = Hand::logging("two", &log);
    let mut plan = (one.clone(), two.clone());
    for node in 0..12 {
        let (hand, rest) = if node % 2 == 0 { (plan.0, plan.1) } else { (plan.1, plan.0) };
        let hand = hand.on(&format!("n{node}"), [Act::Sleep(secs(1))]);
        plan = if node % 2 == 0 { (hand, rest) } else { (rest, hand) };
    }
    let build = |overall, service| {
        let graph = TaskGraph::builder("limits").limit(overall).agent_limit("one", 3).limit_each_agent(2);
        for node in 0..12 {
            let id = format!("n{node}");
            graph.agent(&id, if node % 2 == 0 { &one } else { &two }, id.as_str()).provider("service");
        }
        graph.provider_limit("service", service).build().unwrap()
    };
    let time = tokio::time::Instant::now();
    build(12, 12).run("Go").await.unwrap();
    assert_eq!((one.most(), two.most()), (3, 2));
    assert_eq!(time.elapsed().as_secs(), 3);
    for (overall, service) in [(1, 12), (12, 1)] {
        let hands = [&one, &two];
        for node in 0..12 {
            drop(hands[node % 2].clone().on(&format!("n{node}"), [Act::Sleep(secs(1))]));
        }
        let time = tokio::time::Instant::now();
        build(overall, service).run("Go").await.unwrap();
        assert_eq!(time.elapsed().as_secs(), 12);
    }
}

#[tokio::test(start_paused = true)]
async fn lo07_a_cancel_stops_running_nodes_and_cancels_the_rest() {
    let mut login = Login::new();
    let gate = Gate::new();
    login.coder = login.coder.on("backend", [Act::Wait(gate.clone())]);
    let graph = login.builder().build().unwrap();
    let store = memory();
    let session = runtime_on(&store).session_with_id(root());
    let run = session.start(&graph, "Build it");
    gate.arrived(1).await;
    while login.log.count("docs ends") == 0 {
        tokio::task::yield_now().await;
    }
    run.cancel();
    assert_eq!(run.outcome().await.unwrap().status, Status::Cancelled);
    assert_eq!(login.coder.running(), 0);
    let ends = stored_ends(&store, &root()).await;
    assert_eq!((&*ends["design"], &*ends["docs"]), ("completed", "completed"));
    for node in ["backend", "frontend", "tests", "review"] {
        assert_eq!(ends[node], "cancelled", "{node}");
    }
}

#[tokio::test(start_paused = true)]
async fn lo07_a_deadline_stops_the_graph() {
    let slow = Hand::new("slow").on("slow", [Act::Hang]);
    let graph = TaskGraph::builder("late");
    graph.agent("slow", &slow, "slow");
    let graph = graph.build().unwrap();
    let runtime = crate::common::open_runtime();
    let session = runtime.session();
    let start = entourage_core::Timestamp::from_micros(1_767_225_600_000_000);
    let task = entourage_core::run::Task::new("Go").with_deadline(start.after(secs(5)));
    let outcome = session.start(&graph, task).outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Stopped(StopReason::Deadline));
    assert_eq!(slow.running(), 0);
}

#[tokio::test(start_paused = true)]
async fn when_slots_are_scarce_the_critical_path_goes_first() {
    let log = Log::default();
    let graph = TaskGraph::builder("path").limit(1);
    let step = |id: &'static str| {
        let log = log.clone();
        graph.step(id, (), move |()| {
            log.note(id);
            async { Ok(()) }
        })
    };
    step("short");
    let long = step("long").expected(secs(5));
    let link = step("link").after(&long).expected(secs(5));
    step("end").after(&link);
    step("other").expected(secs(7));
    graph.build().unwrap().run("Go").await.unwrap();
    assert_eq!(log.all(), ["long", "other", "link", "short", "end"]);
}

#[tokio::test(start_paused = true)]
async fn lo07_what_an_earlier_run_took_says_which_path_is_the_critical_one() {
    let log = Log::default();
    let build = |durations: &Durations| {
        let hand = Hand::logging("hand", &log)
            .on("long", [Act::Sleep(secs(5))])
            .on("short", [Act::Sleep(secs(1))])
            .on("bad", [Act::Sleep(secs(9)), Act::Fail("no")]);
        let graph = TaskGraph::builder("learns").durations(durations);
        for id in ["bad", "short", "long"] {
            graph.agent(id, &hand, id);
        }
        let list = graph.step("list", (), |()| async { Ok(vec![1_u32]) });
        graph.map("each", &list, |item| async move { Ok(item) });
        graph.build().unwrap()
    };
    let mut durations = Durations::new();
    let store = memory();
    runtime_on(&store).session_with_id(root()).start(&build(&durations), "Go").outcome().await.unwrap();
    durations.learn_from(&GraphReport::from_events(&stored(&store, &root()).await).unwrap());
    let learned =
        ["long", "short", "bad", "each", "each[0]"].map(|id| durations.expected(id).map(|it| it.as_secs()));
    assert_eq!(learned, [Some(5), Some(1), None, Some(0), None]);
    log.assert_order("short starts", "long starts");
    let before = log.all().len();
    build(&durations).run("Go").await.unwrap();
    let order: Vec<_> = log.all().drain(before..).filter(|it| it.ends_with("starts")).collect();
    // A node of unknown duration counts as one second; then the node added first goes first.
    assert_eq!(order, ["long starts", "bad starts", "short starts"]);
}

#[tokio::test(start_paused = true)]
async fn a_graph_that_nobody_watches_leaves_no_events_and_tells_all_in_its_report() {
    let hand = Hand::new("hand").on("two", [Act::Sleep(secs(3)), Act::Fail("no")]);
    let graph = TaskGraph::builder("direct");
    let one = graph.step("one", (), |()| async { Ok(1_u32) });
    let two = graph.agent("two", &hand, "two").after(&one);
    let three = graph.agent("three", &hand, "three").after(&two);
    let graph = graph.returning(&three).build().unwrap();
    let run = graph.run("Go").await.unwrap();
    assert!(run.output.is_none());
    let report = run.report();
    let states: Vec<_> = report.nodes.iter().map(|node| (&*node.id, node.state(), node.attempts)).collect();
    assert_eq!(
        states,
        [("one", NodeState::Completed, 1), ("two", NodeState::Failed, 1), ("three", NodeState::Skipped, 0)]
    );
    assert!(
        matches!(&report.node("one").unwrap().end, Some(NodeEnd::Completed(one)) if one.to_text() == "1")
    );
    let error = graph.ask("Go").await.map(|answer| answer.to_string());
    assert_eq!(error.unwrap(), "three done", "the second run has no plan to fail");
    let hand = Hand::new("hand").on("two", [Act::Fail("no")]);
    let graph = TaskGraph::builder("direct");
    graph.agent("two", &hand, "two");
    let error = graph.build().unwrap().ask("Go").await.unwrap_err();
    assert!(error.kind() == ErrorKind::Stopped && error.message().contains("`two` failed (no)"), "{error}");
}
