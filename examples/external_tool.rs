//! A tool that another process answers: the run hands a click out and pauses, a browser gives the result, and the run
//! goes on. It needs no key: its model is scripted.

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use std::path::PathBuf;

use entourage::{
    prelude::*,
    session::Waiting,
    testkit::ScriptedProvider,
    tool::{ToolSpec, external},
};
use serde_json::json;
use tokio::process::Command;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // This program starts itself as the browser, with the file as argument.
    if let Some(file) = std::env::args_os().nth(1) {
        return Ok(browser(file.into()).await?);
    }
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("shop.db");
    let schema = json!({ "type": "object", "properties": { "button": { "type": "string" } } });
    let click = ToolSpec::new("click", "Clicks in the user's browser.", schema).with_access(Access::WRITE);
    let provider = ScriptedProvider::new()
        .call("click", json!({ "button": "Put into the basket" }))
        .text("The lamp is in your basket.");
    let agent = ReactAgent::builder("guide", provider.model()).tool(external(click)).build()?;
    let policy = Policy::new().allow("click"); // judged like any other call
    let runtime = Runtime::builder().store(SqliteStore::open(&file).await?).policy(policy).build();

    let session = runtime.session();
    println!("guide:   {}", session.start(&agent, "I want this lamp.").outcome().await?.status);
    let ended = Command::new(std::env::current_exe()?).arg(&file).status().await?;
    println!("guide:   the browser ended: {ended}");
    let outcome = session.resume(&agent).outcome().await?;
    for result in session.history().await?.iter().flat_map(|message| message.tool_results()) {
        println!("guide:   the model was told: {}", result.to_text());
    }
    println!("guide:   {} ({})", outcome.text, outcome.status);
    Ok(())
}

/// Answers each click that waits in a store, of whatever session. It knows the file alone: neither the agent nor its
/// tools.
async fn browser(file: PathBuf) -> Result<()> {
    let runtime = Runtime::builder().store(SqliteStore::open(&file).await?).build();
    for pending in runtime.pending().await? {
        let Waiting::Call { id, call } = &pending.waits_for else { continue };
        println!("browser: process {} clicks {}", std::process::id(), call.arguments.as_str());
        runtime.answer(id, "The basket holds 1 lamp.").await?;
    }
    Ok(())
}
