//! A hand-written agent that talks with another one over several prompts, and with a second one in between.

use std::sync::Arc;

use async_trait::async_trait;
use entourage_core::{
    Error, Result,
    agent::Agent,
    run::{Outcome, RunContext, Task},
    tool::Access,
};
use entourage_runners::ReactAgent;
use entourage_runtime::permission::Policy;
use entourage_testkit::{FakeTool, ScriptedProvider, crash::Scenario};
use serde_json::json;

use crate::survives;

struct Talks {
    worker: Arc<dyn Agent>,
    reader: Arc<dyn Agent>,
}

#[async_trait]
impl Agent for Talks {
    fn name(&self) -> &'static str {
        "talks"
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        let first = cx.ask("worker", Arc::clone(&self.worker), task).await?;
        let read = cx.ask("reader", Arc::clone(&self.reader), first.text.as_str()).await?;
        let second = cx.ask("worker", Arc::clone(&self.worker), read.text.as_str()).await?;
        Ok(Outcome::completed(format!("{} {} {}", first.text, read.text, second.text)))
    }
}

fn talk() -> Scenario {
    let scenario = Scenario::new("talk", |life| {
        let worker = ScriptedProvider::by_history()
            .text("A plan.")
            .call("pay", json!({}))
            .text("Paid.")
            .text("Another plan.")
            .text("No need to pay.");
        let reader =
            ScriptedProvider::by_history().call("look", json!({})).text("Do it.").text("Do that too.");
        let worker = ReactAgent::builder("worker", life.model(&worker.model()))
            .tool(life.tool(FakeTool::new("pay").access(Access::WRITE)))
            .build()?;
        let reader = ReactAgent::builder("reader", life.model(&reader.model()))
            .tool(life.tool(FakeTool::new("look")))
            .build()?;
        Ok::<_, Error>(Talks { worker: Arc::new(worker), reader: Arc::new(reader) })
    });
    scenario
        .prompt("Buy a pear.")
        .prompt("And a plum.")
        .runtime(|builder| builder.policy(Policy::allow_all()).checkpoint_every(3))
}

#[test]
fn bo06_a_talk_killed_in_each_turn() {
    survives(&talk(), &["A plan. Do it. Paid.", "Another plan. Do that too. No need to pay."]);
}
