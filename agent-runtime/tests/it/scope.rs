//! Scopes: a ceiling that is judged when a call is executed, and that only narrows.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use entourage_core::{
    Result,
    agent::Agent,
    permission::Scope,
    run::{Outcome, RunContext, Task, Waited},
    tool::{Access, Tool, Tools},
};
use entourage_testkit::{FakeTool, ScriptedProvider};
use serde_json::json;

use crate::common::{agent, open_runtime, results};

#[tokio::test]
async fn cp06_a_call_beyond_the_scope_is_an_error_and_the_run_goes_on() {
    for (access, scope, needs) in [
        (Access::WRITE, Scope::read_only(), "write"),
        (Access::EXECUTE, Scope::all().with_access(Access::READ | Access::WRITE), "execute"),
        (Access::READ, Scope::none(), "read"),
        (Access::READ | Access::NETWORK, Scope::read_only(), "network"),
        (Access::WRITE, Scope::all().with_tools(["look"]), "outside"),
    ] {
        let tool = FakeTool::new("it").access(access);
        let provider = ScriptedProvider::new().call("it", json!({})).text("I see.");
        let agent = agent(provider.model()).tool(tool.clone()).scope(scope.clone()).build().unwrap();
        let outcome = open_runtime().session().start(&agent, "Go").outcome().await.unwrap();
        assert_eq!((outcome.text.as_str(), tool.started()), ("I see.", 0), "{scope:?}");
        let text = &results(provider.requests()[1].messages.last().unwrap())[0];
        assert!(text.contains("`it`") && text.contains(needs) && text.contains("scope"), "{text}");
        assert!(provider.requests()[1].messages.last().unwrap().tool_results().all(|it| it.is_error));
    }
}

#[tokio::test]
async fn cp06_a_tool_that_was_not_offered_does_not_run() {
    let offered = FakeTool::new("look");
    let provider = ScriptedProvider::new().call("write", json!({"path": "x"})).text("I see.");
    let agent = agent(provider.model()).tool(offered).scope(Scope::read_only()).build().unwrap();
    open_runtime().session().start(&agent, "Go").outcome().await.unwrap();
    assert!(results(provider.requests()[1].messages.last().unwrap())[0].contains("there is no tool `write`"));
}

#[tokio::test]
async fn the_text_about_an_unknown_tool_names_no_tool_outside_of_the_scope() {
    let wire = FakeTool::new("wire").access(Access::EXECUTE);
    let provider = ScriptedProvider::new().call("find", json!({})).text("I see.");
    let agent = agent(provider.model())
        .tool(FakeTool::new("look"))
        .tool(wire)
        .scope(Scope::read_only())
        .build()
        .unwrap();
    open_runtime().session().start(&agent, "Go").outcome().await.unwrap();
    let text = &results(provider.requests()[1].messages.last().unwrap())[0];
    assert!(text.ends_with("there is no tool `find`; the tools are: look"), "{text}");
}

#[test]
fn cp06_narrowing_never_widens() {
    let accesses = [Access::NONE, Access::READ, Access::READ | Access::WRITE, Access::EXECUTE, Access::ALL];
    let mut scopes: Vec<_> = accesses.iter().map(|access| Scope::all().with_access(*access)).collect();
    scopes.extend([Scope::all().with_tools(["a", "b"]), Scope::read_only().with_tools(["b", "c"])]);
    scopes.push(Scope::all().with_tools(Vec::<String>::new()));
    for parent in &scopes {
        for asked in &scopes {
            let child = parent.narrow(asked);
            assert!(parent.contains(&child) && asked.contains(&child), "{parent:?} {asked:?} {child:?}");
            assert_eq!(child, asked.narrow(parent), "and the order does not matter");
        }
    }
}

/// An agent that spawns one child with a scope of its own choice and records the scopes of the contexts.
#[derive(Clone)]
struct Boss(Arc<dyn Agent>, Scope, Arc<Mutex<Vec<Scope>>>);

#[async_trait]
impl Agent for Boss {
    fn name(&self) -> &'static str {
        "boss"
    }

    async fn run(&self, _: Task, cx: &RunContext) -> Result<Outcome> {
        let narrow = cx.narrowed(&Scope::read_only());
        let wide = narrow.narrowed(&Scope::all());
        self.2.lock().unwrap().extend([cx.scope().clone(), narrow.scope().clone(), wide.scope().clone()]);
        let child = narrow.spawn_in(Arc::clone(&self.0), "Write!", self.1.clone()).await?;
        let Waited::Ended { outcome, .. } = narrow.wait_any(&[child], None).await? else {
            panic!("no timeout")
        };
        Ok(Outcome::completed(outcome.text))
    }
}

#[tokio::test]
async fn attack_20_a_child_that_asks_for_more_than_its_parent_has_gets_what_its_parent_has() {
    for asked in [Scope::all(), Scope::all().with_access(Access::WRITE), Scope::all().with_tools(["write"])] {
        let write = FakeTool::new("write").access(Access::WRITE);
        let provider = ScriptedProvider::new().call("write", json!({})).text("Refused.");
        let child = agent(provider.model()).tool(write.clone()).scope(Scope::all()).build().unwrap();
        let boss = Boss(Arc::new(child), asked, Arc::default());
        let outcome = open_runtime().session().start(&boss, "Go").outcome().await.unwrap();
        assert_eq!((outcome.text.as_str(), write.started()), ("Refused.", 0));
        let seen = boss.2.lock().unwrap().clone();
        assert_eq!(seen, [Scope::all(), Scope::read_only(), Scope::read_only()]);
    }
}

#[derive(Clone)]
struct Caller(Tools);

#[async_trait]
impl Agent for Caller {
    fn name(&self) -> &'static str {
        "caller"
    }

    async fn run(&self, _: Task, cx: &RunContext) -> Result<Outcome> {
        let refused = cx.narrowed(&Scope::read_only()).call_tool(&self.0, "write", &json!({})).await?;
        let unknown = cx.call_tool(&self.0, "wipe", &json!({})).await?;
        let done = cx.call_tool(&self.0, "write", &json!({})).await?;
        Ok(Outcome::completed(format!("{} {} {}", refused.is_error, unknown.is_error, done.is_error)))
    }
}

#[tokio::test]
async fn cp06_a_hand_written_agents_calls_are_judged_as_a_models_are() {
    let write = FakeTool::new("write").access(Access::WRITE);
    let tools = Tools::new([Arc::new(write.clone()) as Arc<dyn Tool>]).unwrap();
    let outcome = open_runtime().session().start(&Caller(tools), "Go").outcome().await.unwrap();
    assert_eq!((outcome.text.as_str(), write.finished()), ("true true false", 1));
}
