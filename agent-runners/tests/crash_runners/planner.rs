//! A planner with executors, killed at every point: no turn that ended runs again, and the plan stays the same.

use entourage_core::{
    Result,
    tool::{Access, Repeat},
};
use entourage_runners::planner::Planner;
use entourage_runtime::permission::Policy;
use entourage_testkit::{
    FakeTool, ScriptedProvider,
    crash::{self, Life, Scenario},
};
use serde_json::{Value, json};

use crate::{memory, survives};

fn reply(kind: &str, text: &str) -> Value {
    json!({ "type": kind, "text": text })
}

fn step(number: u32, depends_on: &[u32]) -> Value {
    json!({
        "number": number, "description": "Look.", "executor_required": true, "tools": ["view"], "depends_on": depends_on,
    })
}

/// A planner whose executors look, ask and answer. By history: each session has its own place in a script.
fn of(life: &Life, plans: &ScriptedProvider) -> Result<Planner> {
    let looks = ScriptedProvider::by_history()
        .call("view", json!({}))
        .call("reply", reply("question", "Which one?"))
        .call("reply", reply("complete", "The old one."));
    Planner::builder("assistant", life.model(&plans.model()))
        .executor(life.model(&looks.model()))
        .without_classifier()
        .tools(vec![
            life.tool(FakeTool::new("view").access(Access::READ)),
            life.tool(FakeTool::new("edit").access(Access::WRITE).repeat(Repeat::Once)),
        ])
        .build()
}

/// Two steps side by side, each with a question, which the planner answers. In a session of its own a planner's first
/// words are a plan, whatever it is asked: that plan is its answer.
fn planner(life: &Life) -> Result<Planner> {
    let plan = json!({"steps": [step(1, &[]), step(2, &[])]}).to_string();
    of(life, &ScriptedProvider::by_history().text(plan).text("It is old."))
}

/// A plan that cannot run, one whose second step fails, and another one for that.
fn again(life: &Life) -> Result<Planner> {
    let mut fails = step(2, &[]);
    fails["tools"] = json!([]);
    fails["description"] = json!("Look elsewhere.");
    let bad = json!({"steps": [step(1, &[1])]}).to_string();
    let first = json!({"steps": [step(1, &[]), fails]}).to_string();
    let second = json!({"steps": [step(3, &[1])]}).to_string();
    of(life, &ScriptedProvider::by_history().text(bad).text(first).text(second).text("It is old."))
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
            "planner.progress complex, by the words",
            "planner.message turn 1 of 10, question: Which one?",
            "planner.message turn 2 of 10, task_complete: The old one.",
            "planner.progress plan 1 completed, 2 of 2 steps done",
            "assistant run_finished completed",
        ],
    );
}

#[test]
fn bo05_a_planner_that_plans_again_killed_at_every_point() {
    survives(&scenario("planner-again", again), &["planner.progress plan 1", "assistant run_finished"]);
}

#[test]
fn bo13_a_planner_that_asks_killed_at_every_point() {
    fn asks(life: &Life) -> Result<Planner> {
        let plans = ScriptedProvider::by_history()
            .call("view", json!({}))
            .text(json!({"questions": ["Which one?"]}).to_string());
        of(life, &plans)
    }
    survives(&scenario("planner-asks", asks), &["planner.progress asks the user: Which one?"]);
}

#[test]
fn bo05_a_planner_where_an_engine_performs_the_effects() {
    let here = format!("{:?}", crash::expected(&scenario("planner", planner), &memory()).unwrap());
    let there = format!("{:?}", crash::expected(&scenario("planner", planner).distant(), &memory()).unwrap());
    assert_eq!(here, there);
    crash::run(&scenario("planner", planner).distant(), &memory()).assert();
}
