//! Permissions: a rule allows some calls, a person is asked about the others, and without a person they are refused.

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use std::io::{self, IsTerminal, Write};

use async_trait::async_trait;
use entourage::{prelude::*, testkit::ScriptedProvider};
use serde_json::json;

#[tool(access = "write")]
/// Write a note into a file below the system's directory for temporary files.
async fn write_note(name: String, text: String) -> Result<String, ToolError> {
    if name.is_empty() || !name.chars().all(char::is_alphanumeric) {
        return Err(ToolError::tell("a name has letters and digits only"));
    }
    let path = std::env::temp_dir().join(format!("entourage-note-{name}.txt"));
    tokio::fs::write(&path, text).await?;
    Ok(format!("wrote {}", path.display()))
}

/// An approver on the terminal. Without a terminal it refuses and says so.
///
/// The calls of one step are asked about together; a terminal shows one question at a time.
#[derive(Debug, Default)]
struct AskOnTerminal(tokio::sync::Mutex<()>);

#[async_trait]
impl Approver for AskOnTerminal {
    async fn decide(&self, request: &ApprovalRequest) -> Result<Decision> {
        let _one_at_a_time = self.0.lock().await;
        print!("May {} run {} {}? [y/N] ", request.agent, request.tool, request.arguments.as_str());
        io::stdout().flush().ok();
        if !io::stdin().is_terminal() {
            println!("no terminal to ask on, so: no");
            return Ok(Decision::Deny);
        }
        let read = tokio::task::spawn_blocking(|| io::stdin().lines().next()).await.ok().flatten();
        let yes = matches!(read, Some(Ok(line)) if line.trim().eq_ignore_ascii_case("y"));
        Ok(if yes { Decision::Allow } else { Decision::Deny })
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    println!("(a scripted model makes the call; no model is needed for this)");
    let provider = ScriptedProvider::by_history()
        .call("write_note", json!({ "name": "hello", "text": "An agent was here.\n" }))
        .text("The note is written.");
    let agent = ReactAgent::builder("scribe", provider.model()).tool(write_note).build()?;
    // Tools that change something need approval without any rule; `.allow("write_note")` would grant it.
    let policy = Policy::new().deny("shell").ask("write_*");
    let runtime = Runtime::builder().policy(policy).approver(AskOnTerminal::default()).build();

    let outcome = runtime.session().start(&agent, "Leave a note.").outcome().await?;
    println!("{}\n{}", outcome.text, outcome.status);
    Ok(())
}
