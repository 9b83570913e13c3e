//! Research, killed at every point: no agent that ended runs again, and the plan stays the same.

use std::sync::Arc;

use entourage_core::{
    Result,
    permission::Decision,
    tool::{Access, Repeat},
};
use entourage_runners::{
    ReactAgent, agentic_fetch,
    research::{Research, Researcher},
};
use entourage_runtime::permission::Policy;
use entourage_testkit::{
    FakeTool, ScriptedProvider,
    crash::{Life, Scenario},
};
use serde_json::json;

use crate::{survives, survives_an_engine};

/// Two agents that look with a tool, and one whose model fails.
fn research(life: &Life) -> Result<Research> {
    let tasks = json!([
        {"kind": "file_searcher", "prompt": "Where are the pears?"},
        {"kind": "doc_reader", "prompt": "What is a pear?"},
        {"kind": "file_searcher", "prompt": "Where are the plums?"},
    ]);
    let plans = ScriptedProvider::by_history().text(json!({ "tasks": tasks }).to_string());
    let looks = ScriptedProvider::by_history().call("view", json!({})).text("On the tree.");
    let reads = ScriptedProvider::by_history().text("");
    let reader = ReactAgent::builder("reader", life.model(&reads.model())).build()?;
    Research::builder("research", life.model(&looks.model()))
        .planner(life.model(&plans.model()))
        .tools(vec![life.tool(FakeTool::new("view").access(Access::READ))])
        .agent(Researcher::DocReader, reader)
        .build()
}

fn scenario() -> Scenario {
    let scenario = Scenario::new("research", research).prompt("What of pears and plums?");
    scenario.runtime(|builder| builder.policy(Policy::allow_all()).checkpoint_every(3))
}

#[test]
fn ai08_research_killed_at_every_point_runs_no_agent_twice() {
    survives(
        &scenario(),
        &[
            "research/research-planner run_finished completed",
            "research/file-searcher tool_finished view",
            "research.progress",
            "research run_finished completed",
        ],
    );
}

#[test]
fn ai08_research_whose_agents_wait_for_approval() {
    let scenario = Scenario::new("research-approval", research).prompt("What of pears and plums?");
    let scenario = scenario
        .decide("view", Decision::Allow)
        .runtime(|builder| builder.policy(Policy::allow_all().ask("view")).checkpoint_every(3));
    let facts = ["file-searcher approval_decided Allow", "research run_finished completed"];
    survives(&scenario, &facts);
}

/// An agent that has another one read a page.
fn fetching(life: &Life) -> Result<ReactAgent> {
    let page = life.tool(FakeTool::new("web_fetch").access(Access::NETWORK).repeat(Repeat::Safe));
    let reads = ScriptedProvider::by_history().call("web_fetch", json!({})).text("1.91.");
    let fetch = agentic_fetch(life.model(&reads.model()), move || Ok(((), vec![Arc::clone(&page)])));
    let asks = json!({"prompt": "Which version?", "url": "https://a.example"});
    let asks = ScriptedProvider::by_history().call("agentic_fetch", asks).text("It is 1.91.");
    ReactAgent::builder("lead", life.model(&asks.model())).tools(vec![life.tool(fetch)]).build()
}

#[test]
fn cf01_a_fetch_killed_at_every_point_goes_on_with_its_agent() {
    let scenario = Scenario::new("agentic-fetch", fetching).prompt("Which version is it?");
    let scenario = scenario.runtime(|builder| builder.policy(Policy::allow_all()).checkpoint_every(3));
    let facts = ["lead/fetch tool_finished web_fetch", "lead tool_finished agentic_fetch false"];
    survives(&scenario, &facts);
}

#[test]
fn ai08_research_where_an_engine_performs_the_effects() {
    survives_an_engine(scenario);
}
