//! Research, killed at every point: no agent that ended runs again, and the plan stays the same.

use entourage_core::{Result, tool::Access};
use entourage_runners::{
    ReactAgent,
    research::{Research, Researcher},
};
use entourage_runtime::permission::Policy;
use entourage_testkit::{
    FakeTool, ScriptedProvider,
    crash::{self, Life, Scenario},
};
use serde_json::json;

use crate::{memory, survives};

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
fn ai08_research_where_an_engine_performs_the_effects() {
    let here = format!("{:?}", crash::expected(&scenario(), &memory()).unwrap());
    let there = format!("{:?}", crash::expected(&scenario().distant(), &memory()).unwrap());
    assert_eq!(here, there);
    crash::run(&scenario().distant(), &memory()).assert();
}
