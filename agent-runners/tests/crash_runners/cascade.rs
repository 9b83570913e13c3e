//! A cascade, killed at every point: no attempt runs twice, no answer is judged another way, the reason stays the same.

use async_trait::async_trait;
use entourage_core::{
    Result,
    agent::Agent,
    permission::Decision,
    run::{Outcome, RunContext, Task},
    tool::{Access, Repeat},
};
use entourage_runners::{Cascade, CascadeBuilder, ReactAgent, Verdict, team::TaskType};
use entourage_runtime::permission::Policy;
use entourage_testkit::{
    FakeTool, ScriptedProvider,
    crash::{Life, Scenario},
};
use serde_json::json;

use crate::{survives, survives_an_engine};

/// A small agent whose first answer will not do, a medium one whose model fails, and a large one with a tool.
fn steps(life: &Life) -> Result<CascadeBuilder> {
    let small = ScriptedProvider::by_history().text("Maybe 40.").text("Three of them.");
    let medium = ScriptedProvider::by_history();
    let large = ScriptedProvider::by_history().call("look", json!({})).text("There are 42.");
    let look = life.tool(FakeTool::new("look").access(Access::READ).repeat(Repeat::Safe));
    let agent = ReactAgent::builder("counter", life.model(&small.model())).tools(vec![look]).build()?;
    let models = [&small, &medium, &large].map(|provider| life.model(&provider.model()));
    Ok(Cascade::of_models(&agent, models).task_type(|_| TaskType::Summarize))
}

fn by_closure(life: &Life) -> Result<Cascade> {
    let sure = |answer: &Outcome| match answer.text.starts_with("Maybe") {
        true => Err("Be sure.".to_owned()),
        false => Ok(()),
    };
    steps(life)?.verify(sure).build()
}

/// A checker by hand, which makes up its mind by the report alone.
struct Sure;

#[async_trait]
impl Agent for Sure {
    fn name(&self) -> &str {
        "sure"
    }

    async fn run(&self, task: Task, _: &RunContext) -> Result<Outcome> {
        Ok(match task.prompt.text().contains("Maybe") {
            true => Verdict::rejected("Be sure.").into(),
            false => Verdict::accepted("It is sure.").into(),
        })
    }
}

fn by_agent(life: &Life) -> Result<Cascade> {
    steps(life)?.verified_by(Sure).build()
}

/// The large agent's answer is looked at by an agent with a tool.
fn by_looking(life: &Life) -> Result<Cascade> {
    let done = json!({"summary": "I counted."});
    let checks = ScriptedProvider::by_history().call("count", json!({})).call("task_complete", done);
    let count = life.tool(FakeTool::new("count").access(Access::READ).repeat(Repeat::Safe));
    let checker = ReactAgent::builder("checker", life.model(&checks.model())).tools(vec![count]).build()?;
    let small = ScriptedProvider::by_history();
    let large = ScriptedProvider::by_history().text("There are 42.");
    let agent = ReactAgent::builder("counter", life.model(&small.model())).build()?;
    let models = [&small, &large].map(|provider| life.model(&provider.model()));
    Cascade::of_models(&agent, models).verified_by(checker).build()
}

fn two_prompts(name: &str, build: fn(&Life) -> Result<Cascade>) -> Scenario {
    let scenario = Scenario::new(name, build).prompt("How many pears?").prompt("How many plums?");
    scenario.runtime(|builder| builder.policy(Policy::allow_all()).checkpoint_every(3))
}

const FACTS: [&str; 5] = [
    "\\\"refused\\\":\\\"Be sure.\\\",\\\"step\\\":1,\\\"task\\\":\\\"summarize\\\"",
    "How many pears?\\n\\nAn attempt before this one failed:\\n\\n<failure>\\nBe sure.\\n</failure>",
    "counter/counter tool_finished look",
    "counter run_finished completed 0 unknown in, unknown out There are 42.",
    "counter run_finished completed 0 unknown in, unknown out Three of them.",
];

#[test]
fn lo04_a_cascade_killed_at_every_point_makes_no_attempt_twice() {
    survives(&two_prompts("cascade", by_closure), &FACTS);
}

#[test]
fn lo04_a_cascade_whose_checker_is_an_agent() {
    survives(&two_prompts("cascade-agent", by_agent), &FACTS);
    let scenario = Scenario::new("cascade-looking", by_looking).prompt("How many pears?");
    let scenario = scenario.runtime(|builder| builder.policy(Policy::allow_all()).checkpoint_every(3));
    survives(
        &scenario,
        &["counter/checker tool_finished count", "completed 0 unknown in, unknown out There are 42."],
    );
}

#[test]
fn lo04_a_cascade_whose_agent_waits_for_approval() {
    let scenario = Scenario::new("cascade-approval", by_closure)
        .prompt("How many pears?")
        .decide("look", Decision::Allow)
        .runtime(|builder| builder.policy(Policy::allow_all().ask("look")).checkpoint_every(3));
    survives(&scenario, &["counter approval_decided Allow", "There are 42."]);
}

#[test]
fn lo04_a_cascade_where_an_engine_performs_the_effects() {
    let scenario = || two_prompts("cascade", by_agent);
    survives_an_engine(scenario);
}
