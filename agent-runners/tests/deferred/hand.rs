//! Deferred tools of agents that are written by hand, and of children.

use std::sync::Arc;

use async_trait::async_trait;
use entourage_core::{
    Result,
    agent::{Agent, AgentPart},
    message::{History, Message, ToolResult},
    permission::Scope,
    provider::Model,
    run::{Outcome, RunContext, Status, Task},
    tool::{Access, Tools, Toolset},
};
use entourage_runners::{AgentTool, ReactAgent, ToolsetExt};
use entourage_runtime::{AgentExt, permission::Policy};
use entourage_testkit::{
    self as testkit, FakeTool, ScriptedProvider,
    crash::{self, Medium, Scenario},
};
use serde_json::json;

use crate::{finished, found, memory, of, set, started, stored, told};

/// An agent that calls its model and its tools itself, until the model calls none.
struct Hand {
    model: Model,
    tools: Tools,
}

#[async_trait]
impl Agent for Hand {
    fn name(&self) -> &str {
        "hand"
    }

    fn parts(&self) -> Vec<AgentPart> {
        vec![AgentPart::Model(self.model.clone().into()), AgentPart::Tools(self.tools.clone())]
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        let mut messages: Vec<Arc<Message>> = vec![Arc::clone(&task.prompt)];
        loop {
            let request = self.model.request(messages.iter().cloned().collect::<History>());
            let reply = cx.call_model_with(&self.model, request, self.tools.clone()).await?;
            messages.push(Arc::clone(&reply.message));
            let mut results = Vec::new();
            for call in reply.message.tool_calls() {
                let result = cx.call_tool(&self.tools, &call.name, &call.arguments.to_value()).await?;
                results.push(ToolResult::new(call, result.content, result.is_error));
            }
            if results.is_empty() {
                return Ok(Outcome::completed(reply.message.text()));
            }
            messages.push(Arc::new(Message::tool(results)));
        }
    }
}

fn script() -> ScriptedProvider {
    ScriptedProvider::by_history()
        .call("find_tools", json!({"query": "pay"}))
        .call("use_tool", of("shop_pay", json!({"sum": 3})))
        .call("use_tool", of("shop_pax", json!({})))
        .text("Paid.")
}

fn pay() -> FakeTool {
    FakeTool::new("shop_pay").access(Access::WRITE).echoing()
}

#[tokio::test]
async fn issue_15_a_hand_written_agent_finds_and_calls_deferred_tools() {
    let (provider, store, pay) = (script(), memory(), pay());
    let tools = set([pay.clone()]).deferred().tools();
    let agent = Hand { model: provider.model(), tools };
    let runtime = testkit::runtime().policy(Policy::allow_all()).shared_store(Arc::clone(&store)).build();
    let session = runtime.session();
    let outcome = session.start(agent, "Go").outcome().await.unwrap();
    assert_eq!((&*outcome.text, pay.finished()), ("Paid.", 1));
    let events = stored(&store, session.id()).await;
    assert_eq!(started(&events), ["find_tools", "shop_pay"]);
    let requests = provider.requests();
    assert_eq!(requests[0].tools.len(), 2);
    assert_eq!(found(told(&requests[1])[0]), ["shop_pay"]);
    assert_eq!(told(&requests[2])[0].to_text(), r#"{"sum":3}"#);
    assert!(told(&requests[3])[0].to_text().contains("the closest names are: shop_pay;"));
}

#[test]
fn issue_15_a_hand_written_agent_with_deferred_tools_killed_everywhere() {
    let hand = |life: &crash::Life| {
        let deferred = set([pay()]).deferred().tools();
        let tools = Tools::new(deferred.iter().map(|tool| life.tool(Arc::clone(tool))))?;
        Ok(Hand { model: life.model(&script().model()), tools })
    };
    let medium = Medium::memory()
        .tokio(|| tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build());
    let scenario = || {
        let scenario = Scenario::new("deferred-by-hand", hand).prompt("Pay.");
        scenario.runtime(|builder| builder.policy(Policy::allow_all()).checkpoint_every(3))
    };
    for scenario in [scenario(), scenario().distant()] {
        let report = crash::run(&scenario, &medium);
        println!("{report}");
        report.assert();
    }
}

#[tokio::test]
async fn issue_15_a_child_with_a_narrowed_scope_finds_and_calls_what_its_scope_admits() {
    let (pay, look, store) = (pay(), FakeTool::new("shop_look").returning("a pear"), memory());
    let below = ScriptedProvider::new()
        .call("find_tools", json!({"query": "shop"}))
        .call("use_tool", of("shop_pay", json!({"sum": 3})))
        .call("use_tool", of("shop_look", json!({})))
        .text("There is a pear.");
    let child = ReactAgent::builder("child", below.model());
    let child = child.toolset(set([pay.clone(), look.clone()]).deferred()).build().unwrap();
    let above = ScriptedProvider::new().call("agent", json!({"prompt": "What is there?"})).text("A pear.");
    let tool = AgentTool::new(child).with_scope(Scope::read_only());
    let parent = ReactAgent::builder("parent", above.model()).tool(tool).build().unwrap();
    let runtime = testkit::runtime().policy(Policy::allow_all()).shared_store(Arc::clone(&store)).build();
    let outcome = runtime.session().start(&parent, "Go").outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Completed);
    assert_eq!((pay.started(), look.finished()), (0, 1));
    let requests = below.requests();
    assert_eq!(found(told(&requests[1])[0]), ["shop_look"]);
    assert!(told(&requests[2])[0].to_text().contains("the tool `shop_pay` needs write access"));
    assert_eq!(told(&requests[3])[0].to_text(), "a pear");
}

#[tokio::test]
async fn issue_15_a_scope_of_names_has_the_finder_among_them() {
    let provider = ScriptedProvider::new()
        .call("find_tools", json!({"query": "shop"}))
        .call("use_tool", of("shop_pay", json!({"sum": 3})))
        .text("Done.");
    let (pay, look) = (pay(), FakeTool::new("shop_look"));
    let agent = ReactAgent::builder("tester", provider.model())
        .toolset(set([pay.clone(), look]).deferred())
        .scope(Scope::all().with_tools(["find_tools", "use_tool", "shop_look"]))
        .build()
        .unwrap();
    agent.ask("Go").await.unwrap();
    let requests = provider.requests();
    assert_eq!(requests[0].tools.len(), 2);
    assert_eq!(found(told(&requests[1])[0]), ["shop_look"]);
    let refused = told(&requests[2])[0].to_text();
    assert!(
        refused.contains("the tool `shop_pay` (write access) is outside this agent's scope"),
        "{refused}"
    );
    assert_eq!(pay.started(), 0);
}

#[tokio::test]
async fn issue_15_the_last_result_of_a_cancelled_run_fits_its_call() {
    let (provider, store) = (script(), memory());
    let gate = testkit::Gate::new();
    let slow = FakeTool::new("shop_pay").access(Access::WRITE).behind(&gate);
    let agent =
        ReactAgent::builder("tester", provider.model()).toolset(set([slow]).deferred()).build().unwrap();
    let runtime = testkit::runtime().policy(Policy::allow_all()).shared_store(Arc::clone(&store)).build();
    let session = runtime.session();
    let run = session.start(&agent, "Go");
    let id = run.id();
    gate.arrived(1).await;
    run.cancel();
    let outcome = run.outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Cancelled);
    let events = stored(&store, session.id()).await;
    let last = finished(&events).pop().unwrap();
    assert!(last.1.contains("its outcome is unknown"), "{last:?}");
    let state = session.state().await.unwrap();
    let result = state.history().iter().last().unwrap().tool_results().next().unwrap().clone();
    assert_eq!((&*result.name, &*result.call), ("use_tool", "call_0"));
    assert_eq!(started(&events), ["find_tools", "shop_pay"]);
    let replayed = session.replay(&agent, id).await.unwrap();
    assert_eq!(replayed.status, Status::Cancelled);
}
