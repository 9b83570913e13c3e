//! Two agents on one task: one works, the other checks the facts, and only the checker may complete the task.

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use entourage::{event::PhaseFinished, prelude::*, testkit::ScriptedProvider};
use serde_json::json;

const TASK: &str = "How many lines has Cargo.toml, and how many of them are empty?";

#[tool(access = "read")]
/// Count the lines of a file, and its empty lines.
async fn line_count(
    /// Path of the file, relative to the current directory.
    path: String,
) -> Result<String, ToolError> {
    let text = tokio::fs::read_to_string(path).await?;
    Ok(format!(
        "{} lines, {} of them empty",
        text.lines().count(),
        text.lines().filter(|it| it.is_empty()).count()
    ))
}

#[tokio::main]
async fn main() -> Result<()> {
    let found = Model::from_env();
    let stand_ins = found.as_ref().err().map(|error| {
        println!("{}\nScripted models stand in: the tool is real, the words are canned.\n", error.message());
        scripted()
    });
    let (works, checks) = match &stand_ins {
        Some((works, checks)) => (works.model(), checks.model()),
        None => found.map(|model| (model.clone(), model))?,
    };
    // The two may use different services: a checker is most useful if its model differs from the worker's.
    let executor = ReactAgent::builder("executor", works).tool(line_count).build()?;
    let checker = ReactAgent::builder("checker", checks).tool(line_count).build()?;
    let pair = DualAgent::builder("pair", executor, checker).read_only().iterations(3).build()?;

    let runtime = Runtime::in_memory();
    let session = runtime.session();
    let mut run = session.start(&pair, TASK);
    while let Some(event) = run.next().await {
        match &event.event {
            Event::Recorded(value) if value.name() == "checked.phase_started" => {
                println!("{}", value.summary());
            }
            Event::ToolFinished(call) => println!("   {}: {}", call.result.name, call.result.to_text()),
            _ => {}
        }
        if let Some(end) = event.event.record::<PhaseFinished>()? {
            match &end.verdict {
                Some(verdict) => {
                    println!("   {verdict} ({} results of tools kept as evidence)", verdict.evidence.len());
                }
                None => println!("   {}", end.text.lines().next().unwrap_or_default()),
            }
        }
    }
    let outcome = run.outcome().await?;
    println!("\n{}: {}", outcome.status, outcome.text);

    // The user sees one prompt and one answer; each agent's own conversation is in a child session.
    println!("the user's session: {} messages", session.history().await?.len());
    for info in runtime.sessions(&SessionFilter::children_of(session.id().clone())).await? {
        println!("{}: {} messages", info.record.role, info.head.messages);
    }
    Ok(())
}

/// Scripts: the worker claims something first and looks only when told to; the checker looks at once.
fn scripted() -> (ScriptedProvider, ScriptedProvider) {
    let look = || json!({"path": "Cargo.toml"});
    let works = ScriptedProvider::new()
        .text("About a hundred, and some are empty.")
        .text("I estimated it: about a hundred lines, some of them empty.")
        .call("line_count", look())
        .text("Now I have counted them.")
        .text("Counted with line_count: the figures are in its result above, and they are exact.");
    let checks = ScriptedProvider::named("checker")
        .call("line_count", look())
        .text("That is an estimate, and the task asks for figures: count the lines.")
        .call("line_count", look())
        .call(
            "task_complete",
            json!({"summary": "The lines were counted with the tool; I counted them too."}),
        );
    (works, checks)
}
