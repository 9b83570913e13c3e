//! Figures of the work on steps, and the record that observers read.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use entourage_core::{
    event::{Envelope, Event},
    provider::FinishReason,
    run::Observer,
};
use entourage_runners::planner::{StepExecution, StepStatus};
use entourage_runtime::permission::Policy;
use entourage_testkit::{self as testkit, FakeTool, Script};
use serde_json::json;

use super::{REQUEST, builder, edit, looks, plans, reply, run, step, steps, view};

#[tokio::test(start_paused = true)]
async fn bo11_the_figures_of_each_step_are_those_of_the_script() {
    let own = json!({"number": 3, "description": "Write it.", "tools": ["edit"], "depends_on": [1]});
    let used = |script: Script, input, output| script.usage(input, output).finish(FinishReason::ToolCalls);
    let said =
        |text: &str, input, output| Script::new().text(text).usage(input, output).finish(FinishReason::Stop);
    let planner_model = plans(steps([step(1, &[]), step(2, &[]), own, step(4, &[2])]))
        .step(said("The old one.", 5, 2))
        .step(used(Script::new().call("edit", &json!({})), 7, 1))
        .step(said("Written.", 8, 1))
        .text("It failed.");
    let executor_model = looks()
        .step(used(Script::new().call("reply", &reply("question", "Which?")), 100, 10))
        .step(used(Script::new().call("view", &json!({})), 110, 11))
        .step(used(
            Script::new().delay(Duration::from_secs(3)).call("reply", &reply("complete", "Seen.")),
            120,
            12,
        ))
        // The second step hangs in its second call.
        .step(used(Script::new().call("view", &json!({})), 50, 5))
        .step(used(
            Script::new().delay(Duration::from_secs(100)).call("reply", &reply("complete", "Late.")),
            60,
            6,
        ));
    let planner = builder(&planner_model, &executor_model).tools((view(), edit())).build().unwrap();
    let (outcome, events) = run(&planner, REQUEST).await;
    assert!(!outcome.is_completed());
    let mut rows = StepExecution::of(&events).unwrap();
    rows.sort_by_key(|row| row.number);
    let figures: Vec<_> = rows
        .iter()
        .map(|row| {
            (row.number, row.status, row.agent.as_str(), row.tool_calls, row.messages, row.time.as_secs())
        })
        .collect();
    assert_eq!(
        figures,
        [
            (1, StepStatus::Completed, "executor", 1, 4, 3),
            (2, StepStatus::Failed, "executor", 1, 2, 60),
            (3, StepStatus::Completed, "planner", 1, 0, 0),
        ],
        "the fourth never began"
    );
    let totals: Vec<_> = rows.iter().map(|row| row.usage.total()).collect();
    assert_eq!(totals[0], Some(100 + 10 + 110 + 11 + 120 + 12 + 5 + 2));
    assert_eq!(totals[2], Some(7 + 1 + 8 + 1));
    // From the same events in any order of sessions.
    let mut turned: Vec<Envelope> = events.clone();
    turned.sort_by(|a, b| b.origin.session.as_str().cmp(a.origin.session.as_str()));
    let mut again = StepExecution::of(&turned).unwrap();
    again.sort_by_key(|row| row.number);
    assert_eq!(rows, again);
}

#[tokio::test(start_paused = true)]
async fn bo11_a_step_is_closed_by_a_cancel_too() {
    let planner_model = plans(steps([step(1, &[])]));
    let executor_model = looks().call("view", json!({}));
    let tool = FakeTool::new("view").hanging();
    let planner = builder(&planner_model, &executor_model).tools((tool.clone(),)).build().unwrap();
    let runtime = super::runtime();
    let session = runtime.session();
    let run = session.start(&planner, REQUEST);
    // The clock moves on only when all of them wait.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(tool.running(), 1);
    let rows = StepExecution::of(&super::events(&session, &runtime).await).unwrap();
    assert_eq!((rows.len(), rows[0].status, rows[0].messages), (1, StepStatus::Executing, 1));
    run.cancel();
    drop(run.outcome().await);
    let rows = StepExecution::of(&super::events(&session, &runtime).await).unwrap();
    assert_eq!((rows.len(), rows[0].status, rows[0].messages), (1, StepStatus::Failed, 1));
}

/// Notes what is recorded.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Observer for Log {
    fn on_event(&self, event: &Envelope) {
        if let Event::Recorded(record) = &event.event {
            self.0.lock().unwrap().push(format!("{} {}", record.name(), record.summary()));
        }
    }
}

#[derive(Debug)]
struct Fails;

impl Observer for Fails {
    fn on_event(&self, _: &Envelope) {
        panic!("the log is full");
    }
}

#[tokio::test(start_paused = true)]
async fn bo12_the_dialogue_is_told_to_observers_and_one_that_fails_stops_nothing() {
    let planner_model = plans(steps([step(1, &[])])).text("The old one.").text("Done.");
    let executor_model = looks()
        .call("reply", reply("question", "Which tree?"))
        .call("reply", reply("complete", "It stands."));
    let planner = builder(&planner_model, &executor_model).tools((view(),)).build().unwrap();
    let log = Log::default();
    let runtime =
        testkit::runtime().policy(Policy::allow_all()).observer(Fails).observer(log.clone()).build();
    let outcome = runtime.session().start(&planner, REQUEST).outcome().await.unwrap();
    assert_eq!(outcome.text, "Done.");
    let told = log.0.lock().unwrap().clone();
    let expected = [
        "planner.progress complex, by the words of the request",
        "planner.progress plan 1 has 1 steps",
        "graph.started ",
        "graph.node_started begins 1",
        "planner.message turn 1 of 10, task_assignment: Step 1: Look at 1.",
        "planner.message turn 1 of 10, question: Which tree?",
        "planner.message turn 2 of 10, clarification: The old one.",
        "planner.message turn 2 of 10, task_complete: It stands.",
        "graph.node_finished 1 completed: It stands.",
        "planner.progress plan 1 completed, 1 of 1 steps done",
    ];
    assert_eq!(told.len(), expected.len(), "{told:#?}");
    for (line, begins) in told.iter().zip(expected) {
        assert!(line.starts_with(begins), "{line}: {begins}");
    }
}
