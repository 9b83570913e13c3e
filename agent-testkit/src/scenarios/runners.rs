//! Scenarios of composed agents: a worker and its checker, task graphs, agents as tools.

use std::time::Duration;

use entourage_core::{
    Result,
    permission::Decision,
    provider::Size,
    tool::{Access, Repeat},
};
use entourage_runners::{AgentTool, DualAgent, ReactAgent, ReactBuilder, graph::TaskGraph};
use entourage_runtime::permission::Policy;
use serde_json::json;

use super::tools::Deed;
use crate::{
    ScriptedProvider,
    crash::{Life, Scenario},
};

fn builder(life: &Life, name: &str, provider: &ScriptedProvider) -> ReactBuilder {
    ReactAgent::builder(name, life.model(&provider.model()))
}

/// An agent that pays once with a non-repeatable tool, and then says `text`.
fn payer(life: &Life, name: &str, text: &str) -> Result<ReactAgent> {
    let provider = ScriptedProvider::by_history().call("pay", json!({"sum": 3})).text(text);
    builder(life, name, &provider).tool(life.tool(Deed::new("pay", Access::WRITE, None, 1))).build()
}

/// An agent that only says `text`.
fn speaker(life: &Life, name: &str, text: &str) -> Result<ReactAgent> {
    builder(life, name, &ScriptedProvider::by_history().text(text)).build()
}

/// Two agents on one task: the work is rejected once, and completed in the second round.
#[must_use]
pub fn dual() -> Scenario {
    let scenario = Scenario::new("dual", |life| {
        let works = ScriptedProvider::by_history()
            .call("put", json!({"what": "a pear"}))
            .text("I put it there.")
            .text("The pear is there.")
            .call("pay", json!({"sum": 3}))
            .text("I paid for it.")
            .text("The pear is there and paid for.");
        let executor = builder(life, "worker", &works)
            .tool(life.tool(Deed::new("put", Access::WRITE, Some(Repeat::Idempotent), 1)))
            .tool(life.tool(Deed::new("pay", Access::WRITE, None, 1)))
            .build()?;
        let checks = ScriptedProvider::by_history()
            .call("look", json!({}))
            .text("Nobody has paid for it.")
            .call("count", json!({}))
            .call("task_complete", json!({"summary": "It is there, and the money is gone."}));
        let discriminator = builder(life, "checker", &checks)
            .tool(life.tool(Deed::new("look", Access::READ, None, 1)))
            .tool(life.tool(Deed::new("count", Access::READ, Some(Repeat::Once), 1)))
            .build()?;
        DualAgent::builder("pair", executor, discriminator).iterations(3).build()
    });
    let scenario = scenario.prompt("Buy a pear.");
    scenario.runtime(|builder| builder.policy(Policy::allow_all()).checkpoint_every(4))
}

/// Six agents on a graph, two at a time; one task is completed only by its second agent.
#[must_use]
pub fn login_graph() -> Scenario {
    let scenario = Scenario::new("login-graph", |life| {
        let graph = TaskGraph::builder("login");
        let architect = speaker(life, "architect", "One form, one endpoint.")?;
        let design = graph.agent("design", &architect, "Design the login.");
        let put = ScriptedProvider::by_history().call("put", json!({"what": "code"})).text("Written.");
        let coder = builder(life, "coder", &put)
            .tool(life.tool(Deed::new("put", Access::WRITE, Some(Repeat::Idempotent), 2)))
            .build()?;
        let backend = graph.agent("backend", &coder, "Write the backend.").after(&design);
        let artist = payer(life, "artist", "Drawn.")?;
        let frontend = graph.agent("frontend", &artist, "Draw the frontend.").after(&design);
        let manual =
            graph.agent("manual", &speaker(life, "writer", "How to log in.")?, "Explain it.").after(&design);
        let junior = speaker(life, "junior", "Most of them pass.")?;
        let tests = graph
            .agent("tests", &junior, "Test both.")
            .after((&backend, &frontend))
            .escalate([(Size::S, junior), (Size::L, payer(life, "senior", "12")?)])
            .attempts(2)
            .delay(Duration::from_millis(1))
            .returns::<u32>();
        let reviewer = payer(life, "reviewer", "It may be merged.")?;
        let review = graph.agent_with("review", &reviewer, (&tests, &manual), |(passed, manual)| {
            format!("{passed} tests pass. The manual says: {manual}")
        });
        graph.limit(2).returning(&review).build()
    });
    let scenario = scenario.prompt("Customers shall be able to log in.");
    scenario.runtime(|builder| builder.policy(Policy::allow_all()).checkpoint_every(5))
}

/// A call that waits for approval, in an agent that is a tool of an agent at a node. The graph has other work beside
/// it and after it.
#[must_use]
pub fn graph_approval() -> Scenario {
    let scenario = Scenario::new("graph-approval", |life| {
        let hand_on = ScriptedProvider::by_history()
            .call("agent", json!({"prompt": "Pay for the pear."}))
            .text("It is paid.");
        let cashier = payer(life, "cashier", "Paid.")?;
        let buyer = builder(life, "buyer", &hand_on).tool(life.tool(AgentTool::new(cashier))).build()?;
        let graph = TaskGraph::builder("shop");
        let buy = graph.agent("buy", &buyer, "Buy a pear.");
        let sweep = graph.agent("sweep", &speaker(life, "sweeper", "Swept.")?, "Sweep the shop.");
        graph.agent("close", &speaker(life, "keeper", "Closed.")?, "Close the shop.").after((&buy, &sweep));
        graph.build()
    });
    scenario
        .prompt("It is evening.")
        .decide("pay", Decision::Allow)
        .runtime(|builder| builder.policy(Policy::allow_all().ask("pay")).checkpoint_every(4))
}

/// Three agents in the tool calls of one step, two at a time; one of them may only read.
#[must_use]
pub fn sub_agents() -> Scenario {
    let scenario = Scenario::new("sub-agents", |life| {
        let view = ScriptedProvider::by_history().call("view", json!({})).text("There is a lake.");
        let scout = builder(life, "scout", &view)
            .tool(life.tool(Deed::new("view", Access::READ, None, 2)))
            .build()?;
        let lead = ScriptedProvider::by_history()
            .calls([
                ("agent", json!({"prompt": "Pay the boatman."})),
                ("scout", json!({"prompt": "What is there?"})),
                ("agent", json!({"prompt": "Pay the guide."})),
            ])
            .text("All are paid.");
        builder(life, "lead", &lead)
            .tool(life.tool(AgentTool::new(payer(life, "payer", "Paid.")?)))
            .tool(life.tool(AgentTool::read_only(scout).with_name("scout")))
            .build()
    });
    let scenario = scenario.prompt("Cross the lake.");
    scenario.runtime(|builder| builder.policy(Policy::allow_all()).checkpoint_every(3).sub_agents(2))
}
