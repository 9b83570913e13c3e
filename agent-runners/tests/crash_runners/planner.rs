//! A planner with executors, killed at every point: no turn that ended runs again, and the plan stays the same.

use std::sync::Arc;

use async_trait::async_trait;
use entourage_core::{
    Result,
    provider::{CallContext, DeltaStream, Model, Provider, Request},
    tool::{Access, Repeat},
};
use entourage_runners::planner::Planner;
use entourage_runtime::permission::Policy;
use entourage_testkit::{
    FakeTool, ScriptedProvider,
    crash::{Life, Scenario},
};
use serde_json::{Value, json};

use crate::{survives, survives_an_engine};

fn reply(kind: &str, text: &str) -> Value {
    json!({ "type": kind, "text": text })
}

fn step(number: u32, depends_on: &[u32]) -> Value {
    json!({
        "number": number, "description": "Look.", "executor_required": true, "tools": ["view"], "depends_on": depends_on,
    })
}

/// Plays one script for the steps that fail, and another for all others.
#[derive(Debug)]
struct Executors {
    work: Arc<dyn Provider>,
    fail: Arc<dyn Provider>,
}

#[async_trait]
impl Provider for Executors {
    fn name(&self) -> &str {
        "executors"
    }

    async fn stream(&self, request: Request, cx: &CallContext) -> Result<DeltaStream> {
        let fails = request.messages.get(0).is_some_and(|message| message.text().contains("Fail."));
        if fails { self.fail.stream(request, cx).await } else { self.work.stream(request, cx).await }
    }
}

/// A planner whose executors look, ask and answer. By history: each session has its own place in a script.
fn of(life: &Life, plans: &ScriptedProvider) -> Result<Planner> {
    let work = ScriptedProvider::by_history()
        .call("view", json!({}))
        .call("reply", reply("question", "Which one?"))
        .call("reply", reply("complete", "The old one."));
    let fail = ScriptedProvider::by_history().call("reply", reply("error", "It is gone."));
    let looks = Executors { work: work.provider(), fail: fail.provider() };
    Planner::builder("assistant", life.model(&plans.model()))
        .executor(life.model(&Model::new(Arc::new(looks), "scripted")))
        .without_classifier()
        .tools(vec![
            life.tool(FakeTool::new("view").access(Access::READ)),
            life.tool(FakeTool::new("edit").access(Access::WRITE).repeat(Repeat::Once)),
        ])
        .build()
}

/// Two steps side by side, each with a question, which the planner answers. Asked in a session of its own, the
/// planner's script begins anew.
fn planner(life: &Life) -> Result<Planner> {
    let plan = json!({"steps": [step(1, &[]), step(2, &[])]});
    of(life, &ScriptedProvider::by_history().call("final_answer", plan).text("It is old."))
}

/// A plan that cannot run, one whose second step fails, and another one for that.
fn again(life: &Life) -> Result<Planner> {
    let mut fails = step(2, &[]);
    fails.as_object_mut().unwrap().insert("description".to_owned(), json!("Fail."));
    let plan = |steps: &[Value]| json!({ "steps": steps });
    let plans = ScriptedProvider::by_history()
        .call("final_answer", plan(&[step(1, &[1])]))
        .call("final_answer", plan(&[step(1, &[]), fails]))
        .call("final_answer", plan(&[step(3, &[1])]))
        .text("It is old.");
    of(life, &plans)
}

fn scenario(name: &str, make: fn(&Life) -> Result<Planner>) -> Scenario {
    let scenario = Scenario::new(name, make).prompt("First look at both, then sum up.");
    scenario.runtime(|builder| builder.policy(Policy::allow_all()).checkpoint_every(3))
}

#[test]
fn bo05_a_planner_killed_at_every_point_repeats_no_turn() {
    survives(
        &scenario("planner", planner),
        &[
            "planner.progress",
            "planner.message",
            "executor tool_finished view",
            "assistant run_finished completed",
        ],
    );
}

#[test]
fn bo05_a_planner_that_plans_again_killed_at_every_point() {
    survives(&scenario("planner-again", again), &["planner.progress", "assistant run_finished completed"]);
}

#[test]
fn bo13_a_planner_that_asks_killed_at_every_point() {
    fn asks(life: &Life) -> Result<Planner> {
        let plans = ScriptedProvider::by_history()
            .call("view", json!({}))
            .call("final_answer", json!({"questions": ["Which one?"]}));
        of(life, &plans)
    }
    survives(&scenario("planner-asks", asks), &["planner.progress", "assistant run_finished completed"]);
}

#[test]
fn bo05_a_planner_where_an_engine_performs_the_effects() {
    survives_an_engine(|| scenario("planner", planner));
}
