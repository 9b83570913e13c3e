//! A planner for the cargo workspace of the current directory: two executors read files side by side, one asks the
//! planner what it is to look for, and the planner answers from both. The models are scripted, the tools are real.
//!
//! ```text
//! cargo run -p entourage-examples --example planner
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use entourage::{
    planner::{PartBudgets, Planner, PlannerProgress, StepExecution, StepMessage},
    prelude::*,
    testkit::ScriptedProvider,
};
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> Result<()> {
    let plans = ScriptedProvider::new()
        .call("ls", json!({}))
        .call("final_answer", plan())
        .text("The members of the workspace.")
        .text("The workspace is described in Cargo.toml; its packages are the members there.");
    let looks = ScriptedProvider::new()
        .call("reply", reply("question", "What do you want to know of Cargo.toml?"))
        .call("grep", json!({"pattern": "members", "include": "Cargo.toml"}))
        .call("reply", reply("complete", "`members` in Cargo.toml lists the packages."))
        .call("glob", json!({"pattern": "*.md"}))
        .call("reply", reply("complete", "There are documents in the root."));
    let planner = Planner::builder("assistant", plans.model())
        .executor(looks.model())
        .without_classifier()
        .tools(Workspace::open(".")?.read_tools())
        // The schemas of these tools are longer than the default budget.
        .budgets(PartBudgets::default().with_executor_tools(2_000))
        .executors_at_once(1) // one script for both
        .build()?;

    let runtime = Runtime::builder().policy(Policy::allow_all()).build();
    let mut run = runtime.session().start(&planner, "First look at the manifest, then at the documents.");
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        show(&event)?;
        events.push(event);
    }
    let outcome = run.outcome().await?;
    println!("\n{}\n\n{}", outcome.text, outcome.status);
    for step in StepExecution::of(&events)? {
        let (calls, messages, usage) = (step.tool_calls, step.messages, step.usage);
        println!("step {}: {}, {calls} tool calls, {messages} messages, {usage}", step.number, step.status);
    }
    Ok(())
}

fn plan() -> Value {
    json!({"steps": [
        {"number": 1, "type": "read", "description": "Look at the manifest.", "executor_required": true, "tools": ["grep"]},
        {"number": 2, "type": "read", "description": "Look for documents.", "executor_required": true, "tools": ["glob"]},
    ]})
}

fn reply(kind: &str, text: &str) -> Value {
    json!({ "type": kind, "text": text })
}

/// Prints decisions, messages between planner and executors, and results of tools.
fn show(event: &Envelope) -> Result<()> {
    if let Some(progress) = event.event.record::<PlannerProgress>()? {
        if let PlannerProgress::PlanCreated { steps, .. } = &*progress {
            steps.iter().for_each(|step| println!("  {}. {}", step.number, step.description));
        }
        println!("[plan] {event}");
    } else if let Some(message) = event.event.record::<StepMessage>()? {
        let by = if message.kind.is_by_executor() { "executor" } else { "planner" };
        println!("[{by}] {event}");
    } else if let Event::ToolFinished(_) = &event.event {
        println!("    {}", event.to_string().chars().take(110).collect::<String>());
    }
    Ok(())
}
