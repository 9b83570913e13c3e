//! Pauses and cancels of a planner at every event, and two processes that go on with one.

use std::{mem::ManuallyDrop, sync::Arc};

use entourage_core::{
    run::{Outcome, Status},
    session::{SessionFilter, SharedStore},
};
use entourage_runners::planner::{Planner, StepExecution, StepStatus};
use entourage_runtime::{MemoryStore, Runtime, Session, permission::Policy};
use entourage_testkit::{self as testkit, FakeTool, ScriptedProvider};
use serde_json::json;

use super::{REQUEST, builder, edit, events, looks, plans, reply, step, steps, view};
use crate::at_event::AtEvent;

/// A planner whose request takes a question, two tools and two steps, and its tools.
fn pair() -> (Planner, [FakeTool; 2], [ScriptedProvider; 2]) {
    let own = json!({"number": 2, "description": "Note it.", "tools": ["edit"], "depends_on": [1]});
    let planner_model = plans(steps([step(1, &[]), own]))
        .text("The old one.")
        .call("edit", json!({}))
        .text("Noted.")
        .text("All is done.");
    let executor_model = looks()
        .call("final_answer", json!({"strategy": "complex", "estimated_operations": 3}))
        .call("reply", reply("question", "Which?"))
        .call("view", json!({}))
        .text("Half of it")
        .call("reply", reply("complete", "It stands."));
    let tools = [view(), edit()];
    let planner = Planner::builder("assistant", planner_model.model())
        .executor(executor_model.model())
        .executors_at_once(1)
        .max_replans(0)
        .tools((tools[0].clone(), tools[1].clone()))
        .build()
        .unwrap();
    (planner, tools, [planner_model, executor_model])
}

/// One whose first plan fails and whose second does not.
fn again() -> (Planner, [FakeTool; 2], [ScriptedProvider; 2]) {
    let own = json!({"number": 3, "description": "Note it.", "tools": ["edit"], "depends_on": [1]});
    let planner_model = plans(steps([step(1, &[]), step(2, &[])]))
        .call("final_answer", steps([step(3, &[9])]))
        .call("final_answer", steps([own]))
        .call("edit", json!({}))
        .text("Noted.")
        .text("All is done.");
    let executor_model = looks()
        .call("view", json!({}))
        .call("reply", reply("complete", "It stands."))
        .call("reply", reply("error", "No."));
    let tools = [view(), edit()];
    let planner = builder(&planner_model, &executor_model)
        .max_replans(1)
        .tools((tools[0].clone(), tools[1].clone()))
        .build()
        .unwrap();
    (planner, tools, [planner_model, executor_model])
}

type Made = fn() -> (Planner, [FakeTool; 2], [ScriptedProvider; 2]);

/// Runs the request, and does something to the session at the event of this number. Returns the outcome; `None` if
/// there were fewer events.
pub(super) async fn run_until(
    planner: &Planner,
    store: &SharedStore,
    number: usize,
    act: fn(&Session),
) -> Option<(Runtime, Session, Outcome)> {
    let at = AtEvent::new(number, act);
    let runtime = testkit::runtime()
        .policy(Policy::allow_all())
        .shared_store(Arc::clone(store))
        .observer(at.clone())
        .build();
    let session = runtime.session();
    at.watch(&session);
    let outcome = session.start(planner, REQUEST).outcome().await.unwrap();
    at.was_reached().then_some((runtime, session, outcome))
}

fn memory() -> SharedStore {
    Arc::new(MemoryStore::new())
}

async fn is_open(session: &Session) -> bool {
    session.unfinished().await.unwrap().is_some()
}

#[tokio::test(start_paused = true)]
async fn attack_46_a_planner_paused_at_every_event_goes_on_and_repeats_nothing() {
    use StepStatus::{Completed, Failed};
    pauses(pair, &[(1, Completed), (2, Completed)]).await;
    pauses(again, &[(1, Completed), (2, Failed), (3, Completed)]).await;
}

async fn pauses(make: Made, expected: &[(u32, StepStatus)]) {
    let mut paused = 0;
    for number in 0.. {
        let (planner, [view, edit], models) = make();
        let run = run_until(&planner, &memory(), number, Session::pause).await;
        let Some((runtime, session, mut outcome)) = run else { break };
        paused += usize::from(matches!(outcome.status, Status::Paused(_)));
        while matches!(outcome.status, Status::Paused(_)) {
            outcome = session.resume(&planner).outcome().await.unwrap();
        }
        assert_eq!((outcome.status, outcome.text.as_str()), (Status::Completed, "All is done."), "{number}");
        assert_eq!((view.started(), edit.started()), (1, 1), "{number}");
        assert!(!is_open(&session).await, "{number}");
        models.iter().for_each(ScriptedProvider::verify);
        let rows = StepExecution::of(&events(&session, &runtime).await).unwrap();
        let ends: Vec<_> = rows.iter().map(|row| (row.number, row.status)).collect();
        assert_eq!(ends, expected, "{number}");
    }
    assert!(paused > 20, "{paused}");
}

#[tokio::test(start_paused = true)]
async fn attack_46_a_planner_cancelled_at_every_event_ends_and_leaves_nothing() {
    for make in [pair as Made, again] {
        cancels(make).await;
    }
}

async fn cancels(make: Made) {
    let mut cancelled = 0;
    for number in 0.. {
        let (planner, [view, edit], models) = make();
        // Not all of their replies are asked for.
        let _models = ManuallyDrop::new(models);
        let Some((runtime, session, outcome)) = run_until(&planner, &memory(), number, Session::cancel).await
        else {
            break;
        };
        assert!(matches!(outcome.status, Status::Cancelled | Status::Completed), "{number}: {outcome}");
        cancelled += usize::from(outcome.status == Status::Cancelled);
        assert_eq!((view.running(), edit.running()), (0, 0), "{number}");
        for info in runtime.store().query(&SessionFilter::tree(session.id().clone())).await.unwrap() {
            let below = runtime.open(&info.record.id).await.unwrap();
            assert!(!is_open(&below).await, "{number}: {}", info.record.id);
        }
        let rows = StepExecution::of(&events(&session, &runtime).await).unwrap();
        assert!(rows.iter().all(|row| row.status != StepStatus::Executing), "{number}: {rows:?}");
    }
    assert!(cancelled > 20, "{cancelled}");
}

#[tokio::test(start_paused = true)]
async fn attack_09_of_two_processes_that_resume_a_planner_one_goes_on() {
    let mut paused = 0;
    for number in 0.. {
        let ((planner, [view, edit], models), store) = (pair(), memory());
        let Some((runtime, session, outcome)) = run_until(&planner, &store, number, Session::pause).await
        else {
            break;
        };
        if !matches!(outcome.status, Status::Paused(_)) {
            continue;
        }
        paused += 1;
        drop(runtime);
        let process =
            || testkit::runtime().policy(Policy::allow_all()).shared_store(Arc::clone(&store)).build();
        let (one, other) = (process(), process());
        let resume = async |runtime: &Runtime| {
            let session = runtime.open(session.id()).await.unwrap();
            session.resume(&planner).outcome().await
        };
        let ends = tokio::join!(resume(&one), resume(&other));
        let done = [&ends.0, &ends.1].into_iter().flatten().filter(|it| it.text == "All is done.").count();
        assert_eq!(done, 1, "{number}: {ends:?}");
        assert_eq!((view.started(), edit.started()), (1, 1), "{number}");
        models.iter().for_each(ScriptedProvider::verify);
    }
    assert!(paused > 20, "{paused}");
}
