//! Agents whose answers are guarded, killed at every point: the same texts, refusals and model calls.

use entourage_core::{
    Result,
    run::RunContext,
    tool::{Access, LayerVerdict, Repeat},
};
use entourage_runners::{AgentTool, ReactAgent, ReactBuilder, TypedAgent};
use entourage_runtime::permission::Policy;
use entourage_testkit::{
    FakeTool, ScriptedProvider,
    crash::{Life, Scenario},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::{survives, survives_an_engine};

/// Refuses numbers, stops at thieves, masks a name, and says how long the conversation is.
fn guard(text: &mut String, cx: &RunContext) -> LayerVerdict {
    if text.contains("thief") {
        return LayerVerdict::Stop("the answer names a thief".to_owned());
    }
    if text.contains("42") {
        return LayerVerdict::Refuse(format!("no numbers after {} messages", cx.history().len()));
    }
    *text = text.replace("Ada", "A.");
    LayerVerdict::Pass
}

fn guarded(life: &Life, script: &ScriptedProvider) -> ReactBuilder {
    ReactAgent::builder("clerk", life.model(&script.model()))
        .tool(life.tool(FakeTool::new("pay").access(Access::WRITE).repeat(Repeat::Once)))
        .guard_answers(guard)
}

/// Answers with a number and then without, with numbers alone, and with what stops it.
fn clerk(life: &Life) -> Result<ReactAgent> {
    let script = ScriptedProvider::by_history()
        .call("pay", json!({}))
        .text("Ada paid 42.")
        .text("Ada paid.")
        .text("It was 42.")
        .text("It was 42, really.")
        .text("Ada is a thief.");
    guarded(life, &script).build()
}

fn below(life: &Life) -> Result<ReactAgent> {
    let script = ScriptedProvider::by_history().text("Ada paid 42.").text("Ada paid.");
    let asks = ScriptedProvider::by_history().call("agent", json!({"prompt": "Who paid?"})).text("She did.");
    let tool = life.tool(AgentTool::new(guarded(life, &script).build()?));
    ReactAgent::builder("lead", life.model(&asks.model())).tool(tool).build()
}

#[derive(Deserialize, JsonSchema)]
struct Payer {
    #[allow(dead_code, reason = "its JSON is what matters")]
    name: String,
}

fn typed(life: &Life) -> Result<TypedAgent<Payer>> {
    let script = ScriptedProvider::by_history()
        .text("Somebody.")
        .text(json!({"name": "Number 42"}).to_string())
        .text(json!({"name": "Ada"}).to_string());
    guarded(life, &script).returns::<Payer>().repairs(2).build()
}

fn runtime(scenario: Scenario) -> Scenario {
    scenario.runtime(|builder| builder.policy(Policy::allow_all()).checkpoint_every(3))
}

fn three_prompts() -> Scenario {
    let scenario =
        Scenario::new("guarded", clerk).prompt("Who paid?").prompt("How much?").prompt("Who is she?");
    runtime(scenario)
}

#[test]
fn answers_that_guards_change_refuse_and_stop() {
    let facts = [
        "clerk run_finished completed 3 30 in, 15 out A. paid.",
        "message_added Answer 1 of at most 2 was refused: no numbers after 4 messages.",
        "keep:typed.answer_refused {\\\"problem\\\":\\\"no numbers after 4 messages\\\",\\\"round\\\":1}",
        "run_finished stopped: not complete after 2 attempts",
        "the answer names a thief",
    ];
    survives(&three_prompts(), &facts);
}

#[test]
fn guarded_answers_below_an_agent_and_of_a_type() {
    let facts = ["lead/clerk run_finished completed 2 20 in, 10 out A. paid.", "agent false known: A. paid."];
    survives(&runtime(Scenario::new("guarded-below", below).prompt("Ask.")), &facts);
    let facts =
        ["clerk run_finished completed 3 30 in, 15 out {\\\"name\\\":\\\"A.\\\"}", "\\\"round\\\":2}"];
    survives(&runtime(Scenario::new("guarded-typed", typed).prompt("Who paid?")), &facts);
}

#[test]
fn guarded_answers_where_an_engine_performs_the_effects() {
    survives_an_engine(three_prompts);
}
