//! A client of MCP servers, and this program as a server.
//!
//! ```text
//! cargo run -p entourage-examples --example mcp                     asks an agent, with this program as its server
//! … -- npx -y @modelcontextprotocol/server-everything               lists the tools of another server
//! … -- serve                                                        serves the files of this directory over stdio
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use std::env;

use entourage::{
    fs::Workspace,
    mcp::{Mcp, McpServer},
    mcp_server::ToolServer,
    prelude::*,
    provider::FinishReason,
    testkit::{Script, ScriptedProvider},
    tool::{Tools, Toolset},
};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => ask().await,
        ["serve"] => serve().await,
        [program, args @ ..] => list(McpServer::command("other", *program, args.iter().copied())).await,
    }
}

/// Serves what reads files here. The protocol has the standard output, so nothing else is printed.
async fn serve() -> Result<()> {
    let tools = Tools::new(Workspace::open(".")?.read_tools())?;
    ToolServer::new("files", &Runtime::in_memory())
        .toolset(tools)
        .instructions("Paths are relative to the directory in which the server was started.")
        .serve_stdio()
        .await
}

/// Lists what a server offers, and what that may do.
async fn list(server: McpServer) -> Result<()> {
    println!("starting `{}`", server.shown());
    let mcp = Mcp::start([server])?;
    mcp.ready().await;
    for (name, state) in mcp.servers() {
        println!("{name}: {state}");
    }
    for tool in mcp.tools().iter() {
        let first = tool.spec().description().lines().next().unwrap_or_default();
        println!("  {} ({}): {first}", tool.spec().name(), tool.spec().access());
    }
    mcp.shut_down().await;
    Ok(())
}

/// Asks an agent whose tools another process has.
async fn ask() -> Result<()> {
    let program = env::current_exe()
        .map_err(|error| Error::new(ErrorKind::Io, "this program has no path").caused_by(error))?;
    let mcp = Mcp::start([McpServer::command("files", program, ["serve"])])?;
    mcp.ready().await;
    for (name, state) in mcp.servers() {
        println!("{name}: {state}");
    }
    let model = Model::from_env().unwrap_or_else(|error| {
        println!(
            "{}\nA scripted model stands in: the server is real, the words are canned.",
            error.message()
        );
        scripted()
    });
    let agent = ReactAgent::builder("clerk", model)
        .instructions(format!("Answer in one sentence.\n\n{}", mcp.instructions()))
        .toolset(mcp.clone())
        .build()?;
    // Its tools say that they only read, so nobody is asked.
    let mut run = Runtime::in_memory().session().start(&agent, "What does Cargo.toml say of the edition?");
    while let Some(event) = run.next().await {
        if event.event.is_stored() {
            println!("{event}");
        }
    }
    println!("{}", run.outcome().await?.text);
    mcp.shut_down().await;
    Ok(())
}

fn scripted() -> Model {
    let search = json!({ "pattern": "edition", "path": "Cargo.toml" });
    ScriptedProvider::by_history()
        .step(Script::new().call("mcp_files_grep", &search).finish(FinishReason::ToolCalls))
        .step(Script::new().text("A model would now say which line it found.").finish(FinishReason::Stop))
        .model()
}
