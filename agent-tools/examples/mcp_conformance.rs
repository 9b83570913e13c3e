//! The client that the protocol's conformance suite starts: connects to the address that it is given, and calls each
//! tool.
//!
//! ```text
//! conformance client --command "target/debug/examples/mcp_conformance --initialize" --scenario tools_call
//! ```
//!
//! Given `-- PROGRAM …` it starts that server and connects over its pipes.
//!
//! With `--initialize` the handshake is that of the versions up to 2025-11-25 alone: two mocks of the suite take the
//! question of the newer one for something else. The suite tells by variables of the environment if there is a login.

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
use entourage_tools::mcp::{Mcp, McpLifecycle, McpLogin, McpServer};
use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

#[tokio::main]
async fn main() -> Result<()> {
    let usage =
        || Error::new(ErrorKind::InvalidInput, "usage: mcp_conformance [--initialize] URL | -- PROGRAM …");
    let mut program = std::env::args().skip_while(|word| word != "--").skip(1);
    let mut server = match (program.next(), std::env::args().next_back()) {
        (Some(command), _) => McpServer::command("suite", command, program),
        (None, Some(url)) if url.starts_with("http") => McpServer::http("suite", &url)?,
        _ => return Err(usage()),
    };
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    if scenario.starts_with("auth/") {
        let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
        let context = serde_json::from_str(&context).unwrap_or_default();
        server = server.with_login(login(&scenario, &context))?;
    }
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

/// The login of a scenario, with what the suite gave for it.
fn login(scenario: &str, context: &Value) -> McpLogin {
    let given = |name: &str| context.get(name).and_then(Value::as_str).map(str::to_owned);
    let (id, secret) = (given("client_id"), given("client_secret"));
    if scenario.starts_with("auth/client-credentials") {
        return McpLogin::client_credentials(id.unwrap_or_default(), secret.unwrap_or_default());
    }
    let login = McpLogin::new(|_, address| {
        println!("log in: {address}");
        drop(tokio::spawn(browse(address.to_owned())));
    });
    let id = id.unwrap_or_else(|| "https://conformance-test.local/client-metadata.json".to_owned());
    login.with_client(id, secret)
}

/// The person: opens the address, and goes where the browser is sent.
async fn browse(mut address: String) {
    for _ in 0..2 {
        let Ok(Some(next)) = opened(&address).await else { return };
        address = next;
    }
}

/// Opens an address of this machine. Returns the one to which the browser is sent.
async fn opened(address: &str) -> std::io::Result<Option<String>> {
    let Some((host, path)) = address.strip_prefix("http://").and_then(|rest| rest.split_once('/')) else {
        return Ok(None);
    };
    let mut stream = TcpStream::connect(host).await?;
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let header =
        answer.lines().find_map(|line| line.strip_prefix("Location: ").or(line.strip_prefix("location: ")));
    Ok(header.map(str::to_owned))
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
        let value = match (name.as_str(), field.get("type").and_then(Value::as_str)) {
            // The resource and the prompt of the server in `.ci/mcp_server.py`.
            ("uri", _) => json!("x://text"),
            ("name", _) => json!("greet"),
            ("arguments", _) => json!({"who": "them"}),
            (_, Some("number" | "integer")) => json!(5),
            (_, Some("boolean")) => json!(true),
            _ => json!("text"),
        };
        (name.clone(), value)
    });
    Value::Object(sampled.collect::<Map<_, _>>())
}
