//! The README's snippet: an agent, one question in memory, and one in a session that streams its events.

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use entourage::{
    prelude::*,
    provider::FinishReason,
    testkit::{Script, ScriptedProvider},
};

#[tool(access = "read")]
/// Count the lines of a file.
async fn line_count(
    /// Path of the file, relative to the current directory.
    path: String,
) -> Result<usize, ToolError> {
    Ok(tokio::fs::read_to_string(path).await?.lines().count())
}

#[tokio::main]
async fn main() -> Result<()> {
    let model = Model::from_env().unwrap_or_else(|error| {
        println!(
            "{}\nA scripted model stands in: the tools are real, its words are canned.\n",
            error.message()
        );
        scripted()
    });
    let agent = ReactAgent::builder("scout", model)
        .instructions("You explore code and answer briefly.")
        .tools((line_count, fs::ls(), fs::grep()))
        .build()?;

    println!("{}\n", agent.ask("How many lines has Cargo.toml?").await?);

    let runtime = Runtime::in_memory();
    let mut run = runtime.session().start(&agent, "How many lines has Cargo.toml?");
    while let Some(event) = run.next().await {
        if event.event.is_stored() {
            println!("{event}");
        }
    }
    println!("{}", run.outcome().await?.text);
    Ok(())
}

fn scripted() -> Model {
    let arguments = serde_json::json!({ "path": "Cargo.toml" });
    let answer = "I called `line_count`; a model would now tell you what it answered.";
    ScriptedProvider::by_history()
        .step(Script::new().call("line_count", &arguments).finish(FinishReason::ToolCalls))
        .step(Script::new().text(answer).finish(FinishReason::Stop))
        .model()
}
