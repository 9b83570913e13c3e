//! Calls tools as a run does: through a session, its scope and its policy.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use entourage_core::{
    Result,
    agent::Agent,
    message::ToolResult,
    run::{Outcome, RunContext, Task},
    tool::{Tool, Tools},
};
use entourage_runtime::{Runtime, Session};
use serde_json::Value;

#[derive(Clone)]
struct Caller {
    tools: Tools,
    calls: Arc<Vec<(String, Value)>>,
    results: Arc<Mutex<Vec<ToolResult>>>,
}

#[async_trait]
impl Agent for Caller {
    fn name(&self) -> &str {
        "caller"
    }

    async fn run(&self, _: Task, cx: &RunContext) -> Result<Outcome> {
        for (name, arguments) in self.calls.iter() {
            let result = cx.call_tool(&self.tools, name, arguments).await?;
            self.results.lock().unwrap().push(result);
        }
        Ok(Outcome::completed("done"))
    }
}

/// The results of `calls`, made one after another.
#[allow(dead_code, reason = "not each test has calls without a session")]
pub(crate) async fn call_all(
    runtime: &Runtime,
    tools: Vec<Arc<dyn Tool>>,
    calls: Vec<(&str, Value)>,
) -> Vec<ToolResult> {
    call_in(&runtime.session(), tools, calls).await
}

/// The results of `calls`, made one after another in a run of `session`.
#[allow(dead_code, reason = "not each test goes on in a session")]
pub(crate) async fn call_in(
    session: &Session,
    tools: Vec<Arc<dyn Tool>>,
    calls: Vec<(&str, Value)>,
) -> Vec<ToolResult> {
    let calls = calls.into_iter().map(|(name, arguments)| (name.to_owned(), arguments)).collect();
    let caller =
        Caller { tools: Tools::new(tools).unwrap(), calls: Arc::new(calls), results: Arc::default() };
    let outcome = session.start(&caller, "go").outcome().await.unwrap();
    assert!(outcome.is_completed(), "{outcome}");
    std::mem::take(&mut *caller.results.lock().unwrap())
}
