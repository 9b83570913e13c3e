//! Persons among agents, killed at every point: each is asked once, and each answer counts once.

use entourage_core::Result;
use entourage_runners::{AgentTool, DualAgent, ReactAgent, graph::TaskGraph, person};
use entourage_runtime::permission::Policy;
use entourage_testkit::{
    ScriptedProvider,
    crash::{Life, Scenario},
};
use serde_json::json;

use crate::survives;

/// A person as a node, and one below the agent of another node.
fn in_a_graph(life: &Life) -> Result<TaskGraph<String>> {
    let asks = ScriptedProvider::by_history().call("agent", json!({"prompt": "Which?"})).text("The red one.");
    let tool = life.tool(AgentTool::new(person("grace")));
    let lead = ReactAgent::builder("lead", life.model(&asks.model())).tool(tool).build()?;
    let graph = TaskGraph::builder("shop");
    let colour = graph.agent("colour", &lead, "Find out which.");
    let leave = graph.agent("leave", &person("ada"), "May we buy it?");
    let both = graph
        .step("both", (&colour, &leave), |(colour, leave)| async move { Ok(format!("{colour} {leave}")) });
    graph.returning(&both).build()
}

fn reviewed(life: &Life) -> Result<DualAgent> {
    let works =
        ScriptedProvider::by_history().text("Done.").text("I did it.").text("Again.").text("I redid it.");
    let executor = ReactAgent::builder("executor", life.model(&works.model())).build()?;
    DualAgent::reviewed_by("pair", executor, "ada").iterations(2).build()
}

fn scenario(scenario: Scenario) -> Scenario {
    scenario.runtime(|builder| builder.policy(Policy::allow_all()).checkpoint_every(3))
}

#[test]
fn persons_in_a_node_and_below_one() {
    let graph = Scenario::new("person-graph", in_a_graph).prompt("Buy it.").result("ask_person", "Yes.");
    let facts = [
        "lead/grace run_finished completed 0 unknown in, unknown out Yes.",
        "record:graph.node_finished leave 1 completed: Yes.",
        "record:graph.node_finished both 1 completed: The red one. Yes.",
    ];
    survives(&scenario(graph), &facts);
    let again = Scenario::new("person-graph", in_a_graph).prompt("Buy it.").result("ask_person", "Yes.");
    survives(&scenario(again).distant(), &facts);
}

#[test]
fn work_that_a_person_accepts_and_rejects() {
    for (answer, end) in [
        (r#"{"accepted": true, "reason": "I saw it."}"#, "pair run_finished completed"),
        (
            r#"{"accepted": false, "reason": "Paint it."}"#,
            "run_finished stopped: not complete after 2 attempts",
        ),
    ] {
        let reviewed =
            || Scenario::new("person-review", reviewed).prompt("Do it.").result("ask_person", answer);
        let facts = [end, "keep:external.answer_form", "ada tool_finished ask_person false known"];
        survives(&scenario(reviewed()), &facts);
        survives(&scenario(reviewed()).distant(), &facts);
    }
}
