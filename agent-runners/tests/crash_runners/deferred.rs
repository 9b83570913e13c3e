//! Deferred tools, killed at every point: the real tool's `Repeat` decides what runs again.

use std::sync::Arc;

use entourage_core::{
    Result,
    permission::Decision,
    tool::{Access, Repeat, Tool, Tools},
};
use entourage_runners::{AgentTool, ReactAgent, ToolsetExt};
use entourage_runtime::permission::Policy;
use entourage_testkit::{
    FakeTool, ScriptedProvider,
    crash::{Life, Scenario},
};
use serde_json::{Value, json};

use crate::survives;

/// The arguments of a call of a deferred tool.
fn of(name: &str, arguments: impl Into<Value>) -> Value {
    let arguments: Value = arguments.into();
    json!({ "name": name, "arguments": arguments })
}

/// These tools, deferred, and each of them watched; so are the two that find and call them.
fn deferred(life: &Life, tools: Vec<Arc<dyn Tool>>) -> Result<Tools> {
    let deferred = entourage_core::tool::Toolset::tools(&Tools::new(tools)?.deferred());
    Tools::new(deferred.iter().map(|tool| life.tool(Arc::clone(tool))))
}

fn keeper(life: &Life) -> Result<ReactAgent> {
    let helper = ScriptedProvider::by_history().text("Found.").model();
    let helper = ReactAgent::builder("helper", life.model(&helper)).build()?;
    let provider = ScriptedProvider::by_history()
        .call("find_tools", json!({"query": "look, put, pay"}))
        .calls([
            ("use_tool", of("shop_look", json!({"at": "a"}))),
            ("use_tool", of("shop_look", json!({"at": "b"}))),
            ("use_tool", of("shop_put", json!({"what": "a pear"}))),
        ])
        .call("use_tool", of("shop_pay", json!({"sum": 3})))
        .call("shop_pay", json!({"sum": 4}))
        .call("use_tool", of("shop_ask", json!({"prompt": "Where?"})))
        .call("use_tool", of("shop_pat", json!({})))
        .text("All is done.");
    let tools: Vec<Arc<dyn Tool>> = vec![
        Arc::new(FakeTool::new("shop_look").echoing()),
        Arc::new(FakeTool::new("shop_put").access(Access::WRITE).repeat(Repeat::Idempotent)),
        Arc::new(FakeTool::new("shop_pay").access(Access::WRITE).echoing()),
        Arc::new(AgentTool::new(helper).with_name("shop_ask")),
    ];
    ReactAgent::builder("keeper", life.model(&provider.model())).toolset(deferred(life, tools)?).build()
}

fn kept() -> Scenario {
    let scenario = Scenario::new("deferred-tools", keeper).prompt("Sell a pear.");
    scenario.runtime(|builder| builder.policy(Policy::allow_all()).checkpoint_every(4))
}

#[test]
fn issue_15_deferred_tools_of_each_kind_of_repeat_killed_everywhere() {
    let facts = [
        "keeper tool_finished find_tools false",
        "keeper tool_finished shop_look false",
        "keeper tool_finished shop_put false",
        "keeper tool_finished shop_pay false",
        "keeper tool_finished shop_ask false",
        "keeper tool_finished use_tool true",
        "keeper/helper run_finished completed",
    ];
    survives(&kept(), &facts);
    survives(&kept().distant(), &facts);
}

#[test]
fn issue_15_deferred_tools_that_are_asked_about_killed_everywhere() {
    let payer = |life: &Life| {
        let provider =
            ScriptedProvider::by_history().call("use_tool", of("shop_pay", json!({"sum": 3}))).text("Paid.");
        let pay = Arc::new(FakeTool::new("shop_pay").access(Access::WRITE).echoing());
        ReactAgent::builder("payer", life.model(&provider.model()))
            .toolset(deferred(life, vec![pay])?)
            .build()
    };
    let scenario =
        || Scenario::new("deferred-approval", payer).prompt("Pay.").decide("shop_pay", Decision::Allow);
    let facts = ["payer tool_finished shop_pay false"];
    survives(&scenario().runtime(|builder| builder.checkpoint_every(2)), &facts);
    survives(&scenario().distant(), &facts);
}
