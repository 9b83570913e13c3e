//! The client that the protocol's conformance suite starts: connects to the address that it is given, and calls each
//! tool.
//!
//! ```text
//! conformance client --command "target/debug/examples/mcp_conformance --initialize" --scenario tools_call
//! ```
//!
//! With `--initialize` the handshake is that of the versions up to 2025-11-25 alone: two mocks of the suite take the
//! question of the newer one for something else.

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use std::sync::Arc;

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    agent::Agent,
    run::{Outcome, RunContext, Task},
    tool::{Tools, Toolset},
};
use entourage_runtime::{AllowAll, Runtime, permission::Policy};
use entourage_tools::mcp::{Mcp, McpLifecycle, McpServer};
use serde_json::{Map, Value, json};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().next_back().filter(|url| url.starts_with("http"));
    let usage = || Error::new(ErrorKind::InvalidInput, "usage: mcp_conformance [--initialize] URL");
    let mut server = McpServer::http("suite", &url.ok_or_else(usage)?)?;
    if std::env::args().any(|word| word == "--initialize") {
        server = server.with_lifecycle(McpLifecycle::Initialize);
    }
    // To allow a question of the server gives it the defaults of its form.
    let mcp = Mcp::builder().servers([server]).approver(Arc::new(AllowAll)).start()?;
    mcp.ready().await;
    println!("{mcp:?}");
    let runtime = Runtime::builder().policy(Policy::allow_all()).build();
    let outcome = runtime.session().start(CallAll(mcp.tools()), "Call each tool.").outcome().await?;
    println!("{}", outcome.text);
    mcp.shut_down().await;
    Ok(())
}

/// Calls each of its tools once.
struct CallAll(Tools);

#[async_trait]
impl Agent for CallAll {
    fn name(&self) -> &str {
        "caller"
    }

    async fn run(&self, _: Task, cx: &RunContext) -> Result<Outcome> {
        let mut lines = Vec::new();
        for tool in self.0.iter() {
            let result = cx.call_tool(&self.0, tool.spec().name(), &sample(tool.spec().schema())).await?;
            lines.push(format!("{}: {}", tool.spec().name(), result.to_text()));
        }
        Ok(Outcome::completed(lines.join("\n")))
    }
}

/// Arguments that fit a plain schema.
fn sample(schema: &Value) -> Value {
    let fields = schema.get("properties").and_then(Value::as_object);
    let sampled = fields.into_iter().flatten().map(|(name, field)| {
        let value = match field.get("type").and_then(Value::as_str) {
            Some("number" | "integer") => json!(5),
            Some("boolean") => json!(true),
            _ => json!("text"),
        };
        (name.clone(), value)
    });
    Value::Object(sampled.collect::<Map<_, _>>())
}
