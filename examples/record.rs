//! A run recorded into a file, and played again from it: no model, no key and no network the second time.

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use entourage::{
    layers::{Recorder, Replay},
    prelude::*,
    provider::FinishReason,
    testkit::{Script, ScriptedProvider},
};

const QUESTION: &str = "How many lines has rustfmt.toml?";

#[tool(access = "read")]
/// Count the lines of a file.
async fn line_count(
    /// Path of the file, relative to the current directory.
    path: String,
) -> Result<usize, ToolError> {
    Ok(tokio::fs::read_to_string(path).await?.lines().count())
}

fn scout(model: Model) -> Result<ReactAgent> {
    ReactAgent::builder("scout", model).instructions("Answer briefly.").tool(line_count).build()
}

#[tokio::main]
async fn main() -> Result<()> {
    let model = Model::from_env().unwrap_or_else(|error| {
        println!(
            "{}\nA scripted model stands in: its words are canned, recording and playing are real.\n",
            error.message()
        );
        scripted()
    });
    // Outermost: the recording is what the agent got, after any retries.
    let recorder = Recorder::new();
    let name = model.name().clone();
    println!("recorded: {}", scout(model.layer(&recorder))?.ask(QUESTION).await?);

    // Values that look like keys are not in it; register other secrets with `Recorder::secret`.
    let folder = tempfile::tempdir().map_err(file_error)?;
    let file = folder.path().join("run.json");
    tokio::fs::write(&file, recorder.to_json("lines")?).await.map_err(file_error)?;
    println!("{} model calls are in {}", recorder.count(), file.display());

    let replay = Replay::from_json(&tokio::fs::read_to_string(&file).await.map_err(file_error)?)?;
    let model = Model::new(replay.provider(), name);
    println!("played:   {}", scout(model.clone())?.ask(QUESTION).await?);
    println!("{} recorded calls are left", replay.remaining());

    // Only recorded requests are answered. Any other is an error that says what differs.
    let replay = Replay::from_json(&recorder.to_json("lines")?)?;
    let model = Model::new(replay.provider(), model.name().clone());
    if let Err(error) = scout(model)?.ask("How many lines has Cargo.toml?").await {
        println!("another question: {}", error.message());
    }
    Ok(())
}

fn file_error(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Store, "the recording could not be kept").caused_by(error)
}

fn scripted() -> Model {
    let arguments = serde_json::json!({ "path": "rustfmt.toml" });
    ScriptedProvider::by_history()
        .step(Script::new().call("line_count", &arguments).finish(FinishReason::ToolCalls))
        .step(Script::new().text("It has the lines that the tool counted.").finish(FinishReason::Stop))
        .model()
}
