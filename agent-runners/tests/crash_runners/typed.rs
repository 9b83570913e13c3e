//! Agents whose answer is a value, killed at every point: the same value, refusals and model calls, here and where an
//! engine performs their effects.

use entourage_core::{
    Result,
    agent::Agent,
    provider::{FinishReason, Profile},
    run::{Limits, RunContext},
    tool::{Access, Repeat},
};
use entourage_runners::{AgentTool, DualAgent, ReactAgent, TypedAgent, graph::TaskGraph};
use entourage_runtime::permission::Policy;
use entourage_testkit::{
    FakeTool, Script, ScriptedProvider,
    crash::{Life, Scenario},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{survives, survives_an_engine};

/// What was counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Count {
    pears: u32,
}

/// Refuses more pears than the conversation has messages: a context that differs from answer to answer.
fn few(count: &Count, cx: &RunContext) -> Result<(), String> {
    let most = cx.history().len();
    if usize::try_from(count.pears).is_ok_and(|pears| pears <= most.min(9)) {
        Ok(())
    } else {
        Err("there are fewer pears".to_owned())
    }
}

fn profile(native: bool) -> Profile {
    let mut profile = Profile::default();
    (profile.tools, profile.structured_output) = (Some(true), Some(native));
    profile.structured_beside_tools = Some(native);
    profile
}

fn pears(count: impl Into<Value>) -> Value {
    json!({ "pears": count.into() })
}

fn counter(life: &Life, script: &ScriptedProvider, native: bool) -> Result<TypedAgent<Count>> {
    let model = life.model(&script.model().with_profile(profile(native)));
    ReactAgent::builder("counter", model)
        .tool(life.tool(FakeTool::new("look").access(Access::READ)))
        .tool(life.tool(FakeTool::new("pay").access(Access::WRITE).repeat(Repeat::Once)))
        .limits(Limits::default().with_steps(9))
        .returns::<Count>()
        .validate(few)
        .repairs(3)
        .build()
}

/// Answers by the final tool: wrongly in a step with another call, in words, and against the validator.
fn by_tool(life: &Life) -> Result<TypedAgent<Count>> {
    let script = ScriptedProvider::by_history()
        .calls([("pay", json!({})), ("final_answer", pears("many"))])
        .text("Seven, I think.")
        .call("look", json!({}))
        .call("final_answer", pears(40))
        .call("final_answer", pears(2))
        .text("Two as before.")
        .call("final_answer", pears(3));
    counter(life, &script, false)
}

/// Answers by the service's form, against the validator and cut short.
fn by_form(life: &Life) -> Result<TypedAgent<Count>> {
    let half = Script::new().text("{\"pears\": ").usage(10, 5).finish(FinishReason::Stop);
    let script = ScriptedProvider::by_history()
        .call("pay", json!({}))
        .text(pears(40).to_string())
        .step(half)
        .text(pears(3).to_string())
        .text(pears(4).to_string());
    counter(life, &script, true)
}

/// Never answers with a value.
fn never(life: &Life) -> Result<TypedAgent<Count>> {
    let script = ScriptedProvider::by_history()
        .text("Some.")
        .call("final_answer", pears(40))
        .call("final_answer", pears(-1))
        .text("None.");
    counter(life, &script, false)
}

fn in_a_graph(life: &Life) -> Result<TaskGraph<u32>> {
    let script = ScriptedProvider::by_history().text("Some.").call("final_answer", pears(2));
    let counter = counter(life, &script, false)?;
    let graph = TaskGraph::builder("sum");
    let (one, other) =
        (graph.typed_agent("one", &counter, "Count."), graph.typed_agent("other", &counter, "Again."));
    let sum = graph.step("sum", (&one, &other), |(one, other)| async move { Ok(one.pears + other.pears) });
    graph.returning(&sum).build()
}

fn below(life: &Life) -> Result<ReactAgent> {
    let script = ScriptedProvider::by_history().text("Some.").call("final_answer", pears(2));
    let asks = ScriptedProvider::by_history().call("agent", json!({"prompt": "Count."})).text("Two.");
    let tool = life.tool(AgentTool::new(counter(life, &script, false)?));
    ReactAgent::builder("lead", life.model(&asks.model())).tool(tool).build()
}

fn in_a_pair(life: &Life) -> Result<DualAgent> {
    let works = ScriptedProvider::by_history()
        .text("Some.")
        .call("final_answer", pears(2))
        .call("final_answer", pears(3));
    let checks = ScriptedProvider::by_history()
        .text("Count again.")
        .call("task_complete", json!({"summary": "I counted."}));
    let checker = ReactAgent::builder("checker", life.model(&checks.model())).build()?;
    DualAgent::builder("pair", counter(life, &works, false)?, checker).build()
}

fn scenario<A: Agent + 'static>(
    name: &str,
    build: impl Fn(&Life) -> Result<A> + Send + Sync + 'static,
) -> Scenario {
    let scenario = Scenario::new(name, build).prompt("Count the pears.");
    scenario.runtime(|builder| builder.policy(Policy::allow_all()).checkpoint_every(3))
}

#[test]
fn a_value_by_the_final_tool() {
    let twice = scenario("typed-tool", by_tool).prompt("And now?");
    let facts = [
        "keep:typed.answer_refused {\\\"problem\\\":\\\"there are fewer pears\\\",\\\"round\\\":3}",
        "counter tool_finished pay false known: ok",
        "counter run_finished completed 5 50 in, 25 out {\\\"pears\\\":2}",
        "counter run_finished completed 2 20 in, 10 out {\\\"pears\\\":3}",
    ];
    survives(&twice, &facts);
}

#[test]
fn a_value_by_the_form_of_the_service() {
    let twice = scenario("typed-form", by_form).prompt("And now?");
    let facts = [
        "message_added Answer 2 of at most 4 is not what was asked for: there is no complete JSON value",
        "counter run_finished completed 4 40 in, 20 out {\\\"pears\\\":3}",
        "counter run_finished completed 1 10 in, 5 out {\\\"pears\\\":4}",
    ];
    survives(&twice, &facts);
}

#[test]
fn no_value_at_all() {
    let facts = ["\\\"round\\\":3}", "run_finished stopped: not complete after 4 attempts"];
    survives(&scenario("typed-never", never), &facts);
}

#[test]
fn a_value_in_other_runners() {
    survives(&scenario("typed-graph", in_a_graph), &["record:graph.node_finished sum 1 completed: 4"]);
    survives(&scenario("typed-below", below), &["lead/counter run_finished completed"]);
    survives(&scenario("typed-pair", in_a_pair), &["{\\\"pears\\\":3}"]);
}

#[test]
fn a_value_where_an_engine_performs_the_effects() {
    let scenarios: [fn() -> Scenario; 3] = [
        || scenario("typed-tool", by_tool),
        || scenario("typed-form", by_form),
        || scenario("typed-graph", in_a_graph),
    ];
    for scenario in scenarios {
        survives_an_engine(scenario);
    }
}
