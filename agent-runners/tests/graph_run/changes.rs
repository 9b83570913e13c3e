//! Changes of a graph while it runs.

use entourage_core::{Error, ErrorKind, run::Status, session::SharedStore, team::TodoStatus};
use entourage_runners::graph::{GraphControl, GraphReport, NodeState, PlanTask, SkipAs, TaskGraph};
use entourage_testkit::Gate;

use crate::{
    common::{memory, runtime_on, stored},
    crew::{Act, Hand, Log, not_done, root, secs, stored_ends},
};

/// `first` runs until its gate opens, `second` and `third` depend on it, one after the other; `ready` waits for a slot.
struct Scene {
    log: Log,
    gate: Gate,
    hand: Hand,
    other: Hand,
    graph: TaskGraph,
    store: SharedStore,
}

impl Scene {
    fn new() -> Self {
        let (log, gate) = (Log::default(), Gate::new());
        let hand = Hand::logging("hand", &log).on("first", [Act::Wait(gate.clone())]);
        let other = Hand::logging("other", &log);
        let graph = TaskGraph::builder("scene").with_agent(other.clone());
        let first = graph.agent("first", &hand, "first");
        let second = graph.agent("second", &hand, "second").after(&first);
        graph.agent("third", &hand, "third").after(&second);
        let graph = graph.build().unwrap();
        Self { log, gate, hand, other, graph, store: memory() }
    }

    fn start(&self) -> (entourage_runtime::RunHandle, GraphControl) {
        let run = runtime_on(&self.store).session_with_id(root()).start(&self.graph, "Go");
        let control = self.graph.control(&run);
        (run, control)
    }

    /// Starts it with a `second` that fails, and returns once `third` was skipped for that. Another task keeps the run
    /// going until the gate opens.
    async fn start_and_fail(&self) -> (entourage_runtime::RunHandle, GraphControl, Gate) {
        let hold = Gate::new();
        drop(self.hand.clone().on("second", [Act::Fail("no")]));
        drop(self.other.clone().on("hold", [Act::Wait(hold.clone())]));
        let (run, control) = self.start();
        self.gate.arrived(1).await;
        control.add(PlanTask::new("hold", "other", "hold on")).await.unwrap();
        self.gate.open();
        hold.arrived(1).await;
        is_skipped(&control, "third").await;
        (run, control, hold)
    }
}

async fn is_skipped(control: &GraphControl, node: &str) {
    while control.report().await.unwrap().node(node).unwrap().state() != NodeState::Skipped {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn lo13_a_pending_task_is_skipped_and_its_dependents_choose() {
    for (dependents, third) in
        [(SkipAs::Satisfied, "completed"), (SkipAs::Blocked, "skipped: second has no output")]
    {
        let scene = Scene::new();
        let (run, control) = scene.start();
        scene.gate.arrived(1).await;
        control.skip("second", dependents).await.unwrap();
        assert_eq!(control.report().await.unwrap().node("second").unwrap().state(), NodeState::Skipped);
        scene.gate.open();
        let outcome = run.outcome().await.unwrap();
        let ends = stored_ends(&scene.store, &root()).await;
        assert_eq!((&*ends["second"], &*ends["third"]), ("skipped: on request", third));
        assert_eq!(scene.log.count("second starts"), 0);
        match dependents {
            SkipAs::Satisfied => {
                assert_eq!(outcome.status, Status::Completed);
                assert_eq!(scene.log.count("hand is asked: third"), 1, "nothing of it is in the prompt");
            }
            _ => assert_eq!(not_done(&outcome).2, ["third"]),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lo13_a_running_task_is_cancelled_then_skipped() {
    let scene = Scene::new();
    let (run, control) = scene.start();
    scene.gate.arrived(1).await;
    control.skip("first", SkipAs::Satisfied).await.unwrap();
    let again = control.skip("first", SkipAs::Satisfied).await;
    if let Err(error) = again {
        assert!(matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::NotFound), "{error}");
    } else {
        panic!("it is being stopped already");
    }
    assert_eq!(run.outcome().await.unwrap().text, "third done");
    assert_eq!(scene.log.count("first is cancelled"), 1);
    scene.log.assert_order("first is cancelled", "second starts");
    assert_eq!(stored_ends(&scene.store, &root()).await["first"], "skipped: on request");
}

#[tokio::test(start_paused = true)]
async fn lo13_a_waiting_task_is_skipped_at_once() {
    let hand = Hand::new("hand").on("first", [Act::Fail("not yet")]);
    let graph = TaskGraph::builder("waits");
    let first = graph.agent("first", &hand, "first").attempts(2).delay(secs(3_600));
    graph.agent("second", &hand, "second").after(&first);
    let graph = graph.build().unwrap();
    let run = graph.start("Go");
    let control = graph.control(&run);
    tokio::time::sleep(secs(1)).await;
    control.skip("first", SkipAs::Satisfied).await.unwrap();
    let start = tokio::time::Instant::now();
    assert_eq!(run.outcome().await.unwrap().text, "second done");
    assert!(start.elapsed() < secs(1), "nobody waits for its next attempt");
}

#[tokio::test(start_paused = true)]
async fn lo13_terminal_nodes_cannot_be_skipped_and_unknown_nodes_are_errors() {
    let scene = Scene::new();
    let gate = Gate::new();
    drop(scene.hand.clone().on("second", [Act::Wait(gate.clone())]));
    let (run, control) = scene.start();
    scene.gate.open();
    gate.arrived(1).await;
    for (made, kind) in [
        (control.skip("first", SkipAs::Satisfied).await, ErrorKind::InvalidInput),
        (control.cancel("first").await, ErrorKind::InvalidInput),
        (control.retry("first").await, ErrorKind::InvalidInput),
        (control.reassign("first", "other").await, ErrorKind::InvalidInput),
        (control.retry("second").await, ErrorKind::InvalidInput),
        (control.skip("nowhere", SkipAs::Satisfied).await, ErrorKind::NotFound),
        (control.reassign("third", "nobody").await, ErrorKind::NotFound),
        (control.add(PlanTask::new("third", "hand", "again")).await, ErrorKind::InvalidInput),
        (control.add(PlanTask::new("new", "nobody", "do")).await, ErrorKind::InvalidInput),
        (control.add(PlanTask::new("new", "hand", "do").after(["nowhere"])).await, ErrorKind::InvalidInput),
    ] {
        assert_eq!(made.unwrap_err().kind(), kind);
    }
    gate.open();
    assert_eq!(run.outcome().await.unwrap().text, "third done");
    let changed = stored(&scene.store, &root()).await;
    assert!(changed.iter().all(|event| event.event.kind() != "record:graph.changed"), "nothing was changed");
    let error = control.cancel("third").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

#[tokio::test(start_paused = true)]
async fn lo13_skip_as_satisfied_is_refused_for_a_required_value() {
    let gate = Gate::new();
    let graph = TaskGraph::builder("needs");
    let held = gate.clone();
    let first = graph.step("first", (), move |()| {
        let held = held.clone();
        async move {
            held.pass().await;
            Ok(1_u32)
        }
    });
    graph.step("second", &first, |first| async move { Ok(*first) });
    let graph = graph.build().unwrap();
    let run = graph.start("Go");
    let control = graph.control(&run);
    gate.arrived(1).await;
    let error = control.skip("first", SkipAs::Satisfied).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    control.skip("first", SkipAs::Blocked).await.unwrap();
    assert_eq!(not_done(&run.outcome().await.unwrap()).2, ["second"]);
}

#[tokio::test(start_paused = true)]
async fn lo13_a_task_goes_to_another_agent_before_it_begins_and_while_it_runs() {
    let scene = Scene::new();
    let (run, control) = scene.start();
    scene.gate.arrived(1).await;
    control.reassign("third", "other").await.unwrap();
    control.reassign("first", "other").await.unwrap();
    assert_eq!(run.outcome().await.unwrap().text, "third done");
    assert_eq!(scene.log.count("first is cancelled"), 1);
    let asked: Vec<_> = scene.log.all().into_iter().filter(|it| it.contains("is asked: first")).collect();
    assert_eq!(asked.len(), 2);
    assert!(asked[0].starts_with("hand") && asked[1].starts_with("other"), "{asked:?}");
    assert!(scene.log.all().iter().any(|it| it.starts_with("other is asked: third")));
    assert_eq!(scene.other.most(), 1);
    let report = GraphReport::from_events(&stored(&scene.store, &root()).await).unwrap();
    assert_eq!(report.node("first").unwrap().agent.as_deref(), Some("other"));
    assert_eq!((report.node("first").unwrap().attempts, report.node("third").unwrap().attempts), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn lo13_a_task_that_waits_for_somebody_goes_on_with_another_agent() {
    let scene = Scene::new();
    let hold = Gate::new();
    drop(scene.other.clone().on("hold", [Act::Wait(hold.clone())]));
    drop(scene.hand.clone().on("second", [Act::Signal("never")]));
    let (run, control) = scene.start();
    scene.gate.arrived(1).await;
    control.add(PlanTask::new("hold", "other", "hold on")).await.unwrap();
    scene.gate.open();
    hold.arrived(1).await;
    while scene.log.count("second starts") == 0 || scene.hand.running() > 0 {
        tokio::task::yield_now().await;
    }
    control.reassign("second", "other").await.unwrap();
    hold.open();
    let outcome = run.outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Completed, "nobody sent the signal");
    assert!(scene.log.all().iter().any(|it| it.starts_with("other is asked: second")));
}

#[tokio::test(start_paused = true)]
async fn lo13_tasks_are_added_behind_what_is_over_what_runs_and_what_is_new() {
    let scene = Scene::new();
    let (run, control) = scene.start();
    scene.gate.arrived(1).await;
    control.add(PlanTask::new("docs", "other", "docs please").after(["first"])).await.unwrap();
    control.add(PlanTask::new("print", "other", "print them").after(["docs", "third"])).await.unwrap();
    control.add(PlanTask::new("alone", "other", "alone now")).await.unwrap();
    let report = control.report().await.unwrap();
    let ids: Vec<_> = report.nodes.iter().map(|node| &*node.id).collect();
    assert_eq!(ids, ["first", "second", "third", "docs", "print", "alone"]);
    scene.gate.open();
    let outcome = run.outcome().await.unwrap();
    assert_eq!(outcome.text, "print:\nprint done\n\nalone:\nalone done");
    scene.log.assert_order("first ends", "docs starts");
    scene.log.assert_order("third ends", "print starts");
    let asked = "other is asked: docs please\n\n<result of=\"first\">\nfirst done\n</result>";
    assert_eq!(scene.log.count(asked), 1, "{:?}", scene.log.all());
}

#[tokio::test(start_paused = true)]
async fn lo13_what_failed_is_tried_again_and_what_was_skipped_for_it_is_pending_again() {
    let scene = Scene::new();
    let log = scene.log.clone();
    let (run, control, hold) = scene.start_and_fail().await;
    assert_eq!(
        control.retry("third").await.unwrap_err().kind(),
        ErrorKind::InvalidInput,
        "second comes first"
    );
    let again = Gate::new();
    drop(scene.hand.clone().on("second", [Act::Wait(again.clone())]));
    control.retry("second").await.unwrap();
    let report = GraphReport::from_events(&stored(&scene.store, &root()).await).unwrap();
    assert_eq!(report.node("third").unwrap().state(), NodeState::Pending, "whoever reads the record knows");
    again.open();
    hold.open();
    assert_eq!(run.outcome().await.unwrap().status, Status::Completed);
    assert_eq!((log.count("second starts"), log.count("third starts")), (2, 1));
    let report = GraphReport::from_events(&stored(&scene.store, &root()).await).unwrap();
    assert_eq!(report.count(NodeState::Completed), 4);
}

#[tokio::test(start_paused = true)]
async fn lo13_what_failed_is_skipped_and_what_was_skipped_for_it_goes_on() {
    let scene = Scene::new();
    let (run, control, hold) = scene.start_and_fail().await;
    // It has no other effect than the failure.
    let blocked = control.skip("second", SkipAs::Blocked).await.unwrap_err();
    control.skip("second", SkipAs::Satisfied).await.unwrap();
    let again = control.skip("second", SkipAs::Satisfied).await.unwrap_err();
    assert_eq!([blocked.kind(), again.kind()], [ErrorKind::InvalidInput; 2]);
    hold.open();
    assert_eq!(run.outcome().await.unwrap().status, Status::Completed);
    let ends = stored_ends(&scene.store, &root()).await;
    assert_eq!((&*ends["second"], &*ends["third"]), ("skipped: on request", "completed"));
    assert_eq!(scene.log.count("second starts"), 1);
    let report = GraphReport::of(&runtime_on(&scene.store).session_with_id(root())).await.unwrap();
    assert_eq!(report.count(NodeState::Failed), 0, "whoever reads the record knows");
}

#[tokio::test(start_paused = true)]
async fn lo13_what_failed_is_not_skipped_where_a_step_needs_its_value() {
    let hold = Gate::new();
    let graph = TaskGraph::builder("needs");
    let first = graph.step("first", (), |()| async { Err::<u32, _>(not_yet()) });
    graph.step("second", &first, |first| async move { Ok(*first) });
    let held = hold.clone();
    graph.step("hold", (), move |()| {
        let held = held.clone();
        async move {
            held.pass().await;
            Ok(())
        }
    });
    let graph = graph.build().unwrap();
    let run = graph.start("Go");
    let control = graph.control(&run);
    hold.arrived(1).await;
    is_skipped(&control, "second").await;
    let error = control.skip("first", SkipAs::Satisfied).await.unwrap_err();
    assert!(error.message().contains("SkipAs::Blocked"), "{error}");
    hold.open();
    assert_eq!(not_done(&run.outcome().await.unwrap()).2, ["second"]);
}

fn not_yet() -> Error {
    Error::new(ErrorKind::InvalidInput, "not yet")
}

#[tokio::test(start_paused = true)]
async fn lo13_cancelling_a_task_skips_its_dependents() {
    let scene = Scene::new();
    let (run, control) = scene.start();
    scene.gate.arrived(1).await;
    control.cancel("first").await.unwrap();
    let outcome = run.outcome().await.unwrap();
    assert_eq!(not_done(&outcome), (vec![], vec!["first".into()], vec!["second".into(), "third".into()]));
    assert_eq!(scene.hand.running(), 0);
}

#[tokio::test(start_paused = true)]
async fn r32_the_todo_list_is_a_view_of_the_graph() {
    let scene = Scene::new();
    let (run, control) = scene.start();
    scene.gate.arrived(1).await;
    control.cancel("third").await.unwrap();
    let todos = control.todos().await.unwrap();
    let shown: Vec<_> = todos.iter().map(|todo| (&*todo.content, todo.status)).collect();
    assert_eq!(
        shown,
        [
            ("first", TodoStatus::InProgress),
            ("second", TodoStatus::Pending),
            ("third", TodoStatus::Cancelled)
        ]
    );
    scene.gate.open();
    drop(run.outcome().await.unwrap());
    let stored = GraphReport::from_events(&stored(&scene.store, &root()).await).unwrap();
    let statuses: Vec<_> = stored.todos().iter().map(|todo| todo.status).collect();
    assert_eq!(statuses, [TodoStatus::Completed, TodoStatus::Completed, TodoStatus::Cancelled]);
}

#[tokio::test(start_paused = true)]
async fn a_change_is_stored_when_its_method_returns() {
    let scene = Scene::new();
    let (run, control) = scene.start();
    scene.gate.arrived(1).await;
    control.skip("third", SkipAs::Blocked).await.unwrap();
    let events = stored(&scene.store, &root()).await;
    let kinds: Vec<_> = events.iter().rev().take(2).map(|event| event.event.kind()).collect();
    assert_eq!(kinds, ["record:graph.node_finished", "record:graph.changed"]);
    run.cancel();
    drop(run.outcome().await);
}

#[tokio::test(start_paused = true)]
async fn a_control_of_a_handle_waits_for_its_run_to_begin() {
    let (gate, other) = (Gate::new(), Gate::new());
    let hand = Hand::new("hand").on("first", [Act::Wait(gate.clone())]).on("first", [Act::Wait(other)]);
    let graph = TaskGraph::builder("chores");
    let first = graph.agent("first", &hand, "first");
    graph.agent("second", &hand, "second").after(&first);
    let graph = graph.build().unwrap();
    let session = runtime_on(&memory()).session_with_id(root());
    let one = session.start(&graph, "One");
    graph.control(&one).skip("second", SkipAs::Satisfied).await.unwrap();
    // The next run waits in the queue, and a change of it must not reach the first one.
    let two = session.start(&graph, "Two");
    let three = session.start(&graph, "Three");
    let (of_two, of_three) = (graph.control(&two), graph.control(&three));
    let later = tokio::spawn(async move { of_two.skip("first", SkipAs::Satisfied).await });
    tokio::time::sleep(secs(1)).await;
    assert!(!later.is_finished(), "its run is queued");
    three.cancel();
    assert_eq!(three.outcome().await.unwrap().status, Status::Cancelled);
    assert_eq!(of_three.report().await.unwrap_err().kind(), ErrorKind::NotFound, "it never began");
    gate.open();
    assert!(one.outcome().await.unwrap().is_completed());
    later.await.unwrap().unwrap();
    assert_eq!(two.outcome().await.unwrap().text, "second done");
    assert_eq!(graph.control_in(&root()).report().await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_over_without_a_value_is_retried_by_whom_it_is_given_to() {
    for end in [NodeState::Failed, NodeState::Skipped, NodeState::Cancelled] {
        let (log, gate, hold) = (Log::default(), Gate::new(), Gate::new());
        let acts =
            if end == NodeState::Failed { vec![Act::Fail("no")] } else { vec![Act::Wait(gate.clone())] };
        let hand = Hand::logging("hand", &log).on("first", acts);
        let other = Hand::logging("other", &log).on("hold", [Act::Wait(hold.clone())]);
        let graph = TaskGraph::builder("over");
        graph.agent("hold", &other, "hold");
        let first = graph.agent("first", &hand, "first");
        graph.agent("next", &hand, "next").after(&first);
        let (graph, store) = (graph.build().unwrap(), memory());
        let run = runtime_on(&store).session_with_id(root()).start(&graph, "Go");
        let control = graph.control(&run);
        hold.arrived(1).await;
        match end {
            NodeState::Skipped => control.skip("first", SkipAs::Blocked).await.unwrap(),
            NodeState::Cancelled => control.cancel("first").await.unwrap(),
            _ => {}
        }
        is_skipped(&control, "next").await;
        assert_eq!(control.report().await.unwrap().node("first").unwrap().state(), end);
        let changes = async || {
            let stored = stored(&store, &root()).await;
            stored.iter().filter(|event| event.event.kind() == "record:graph.changed").count()
        };
        // It was skipped for another task, which is to be retried first.
        let before = changes().await;
        let refused = control.reassign("next", "other").await.unwrap_err();
        assert_eq!((refused.kind(), changes().await), (ErrorKind::InvalidInput, before), "{refused}");
        assert!(refused.message().contains("retry it first"), "{refused}");

        control.reassign("first", "other").await.unwrap();
        hold.open();
        assert!(run.outcome().await.unwrap().is_completed(), "{end}");
        assert_eq!(log.count("other is asked: first\n\n<task>\nGo\n</task>"), 1, "{:?}", log.all());
        assert_eq!((log.count("next starts"), changes().await), (1, before + 2), "{end}");
    }
}
