//! Plans whose run ended in the middle: the next prompt is told what they did, and what they may have done.

use std::{mem::ManuallyDrop, sync::Arc};

use entourage_core::{run::Status, session::SharedStore};
use entourage_runners::{
    graph::{NodeEnd, NodeFinished},
    planner::Planner,
};
use entourage_runtime::{MemoryStore, Session};
use entourage_testkit::{FakeTool, ScriptedProvider};
use serde_json::{Value, json};

use super::{builder, edit, events, looks, plans, reply, step, steps, stops::run_until, told, view};

/// A step of the planner's own, which writes.
pub(super) fn own(number: u32, after: &[u32]) -> Value {
    json!({"number": number, "description": format!("Note {number}."), "tools": ["edit"], "depends_on": after})
}

/// A planner that writes, looks and writes, and its tool that writes.
fn writes() -> (Planner, FakeTool, [ScriptedProvider; 2]) {
    let planner_model = plans(steps([own(1, &[]), step(2, &[1]), own(3, &[2])]))
        .call("edit", json!({}))
        .text("Noted one.")
        .call("edit", json!({}))
        .text("Noted three.")
        .text("All is done.");
    let executor_model = looks().call("view", json!({})).call("reply", reply("complete", "Seen two."));
    let tool = edit();
    let planner = builder(&planner_model, &executor_model).tools((view(), tool.clone())).build().unwrap();
    (planner, tool, [planner_model, executor_model])
}

/// Returns the prompt for a plan of the next run in this session.
async fn next_ask(session: &Session, prompt: &str) -> String {
    let ask = json!({"questions": ["Go on?"]});
    let model = ScriptedProvider::named("planner").call("view", json!({})).call("final_answer", ask);
    let other = looks();
    let planner = builder(&model, &other).tools((view(), edit())).build().unwrap();
    session.start(&planner, prompt).outcome().await.unwrap();
    told(&model, 0)
}

/// Ends a run at each of its events, and checks what the next one is told, also after one that ends at once. Returns
/// the number of ends at which the tool had written.
async fn the_next_is_told(act: fn(&Session), is_ended: fn(&Status) -> bool) -> usize {
    let mut written = 0;
    for number in 0.. {
        let store: SharedStore = Arc::new(MemoryStore::new());
        let (planner, tool, models) = writes();
        let _models = ManuallyDrop::new(models);
        let Some((runtime, session, outcome)) = run_until(&planner, &store, number, act).await else { break };
        if !is_ended(&outcome.status) {
            continue;
        }
        let ended = events(&session, &runtime).await;
        let ended = ended.iter().filter_map(|event| event.event.record::<NodeFinished>().unwrap());
        let done = ended.filter(|node| matches!(node.end, NodeEnd::Completed(_)));
        let done: Vec<_> = done.map(|node| node.node.parse::<usize>().unwrap()).collect();
        if number % 2 == 1 {
            let model = ScriptedProvider::named("planner");
            let run = session.start(&builder(&model, &model).build().unwrap(), "Stop.");
            run.cancel();
            drop(run.outcome().await);
        }
        let asked = next_ask(&session, "First look at it, then go on.").await;
        let told = |step: usize| asked.contains(["Noted one.", "Seen two.", "Noted three."][step - 1]);
        assert!(done.iter().all(|step| told(*step)), "event {number}: {done:?} {asked}");
        if tool.started() > usize::from(told(1)) + usize::from(told(3)) {
            let part = "failed, and a part of it may be done: look before it is done again:\n\n<result";
            assert!(asked.contains(part), "event {number}: {asked}");
        }
        written += usize::from(tool.started() > 0);
    }
    written
}

#[tokio::test(start_paused = true)]
async fn bo13_a_plan_that_was_cancelled_at_any_event_is_told_to_the_next_one() {
    let written = the_next_is_told(Session::cancel, |status| *status == Status::Cancelled).await;
    assert!(written > 40, "{written}");
}

#[tokio::test(start_paused = true)]
async fn bo13_a_plan_that_was_abandoned_at_any_event_is_told_to_the_next_one() {
    let written = the_next_is_told(Session::pause, |status| matches!(status, Status::Paused(_))).await;
    assert!(written > 40, "{written}");
}
