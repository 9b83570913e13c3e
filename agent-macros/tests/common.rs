//! Calls a tool as a run does.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking too")]

use std::sync::Arc;

use async_trait::async_trait;
use entourage_core::{
    Result,
    agent::Agent,
    run::{Outcome, RunContext, Task},
    tool::{Tool, ToolSpec, Tools},
};
use entourage_runtime::Runtime;
use entourage_runtime::permission::Policy;
use serde_json::Value;

/// The declaration of the tool.
pub(crate) fn declared(tool: impl Into<Arc<dyn Tool>>) -> ToolSpec {
    tool.into().spec().clone()
}

/// The text of the tool's result, or of its failure.
pub(crate) async fn call(
    tool: impl Into<Arc<dyn Tool>>,
    arguments: Value,
) -> std::result::Result<String, String> {
    let caller = Caller { tool: tool.into(), arguments };
    let runtime = Runtime::builder().policy(Policy::allow_all()).build();
    let outcome = runtime.session().start(&caller, "call it").outcome().await.unwrap();
    match outcome.text.split_once(' ').unwrap() {
        ("ok", text) => Ok(text.to_owned()),
        (_, text) => Err(text.to_owned()),
    }
}

/// An agent that calls its tool once.
#[derive(Clone)]
struct Caller {
    tool: Arc<dyn Tool>,
    arguments: Value,
}

#[async_trait]
impl Agent for Caller {
    fn name(&self) -> &str {
        "caller"
    }

    async fn run(&self, _: Task, cx: &RunContext) -> Result<Outcome> {
        let tools = Tools::new([Arc::clone(&self.tool)])?;
        let result = cx.call_tool(&tools, self.tool.spec().name(), &self.arguments).await?;
        let status = if result.is_error { "failed" } else { "ok" };
        Ok(Outcome::completed(format!("{status} {}", result.to_text())))
    }
}
