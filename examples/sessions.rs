//! The life of a session: a title, prompts that arrive while it is busy, a budget, a fork, and queries about it
//! afterwards.
//!
//! The models are scripted, so that the output is the same each time. Everything else is real: a runtime, an SQLite
//! file, the journal.

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use std::sync::Arc;

use entourage::{
    Moment, Titles,
    layers::BudgetLimits,
    prelude::*,
    telemetry::Telemetry,
    testkit::{FakeTool, Gate, ScriptedProvider},
};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<()> {
    let folder =
        tempfile::tempdir().map_err(|error| Error::new(ErrorKind::Store, "no folder").caused_by(error))?;
    let store = SqliteStore::open(folder.path().join("team.db")).await?;
    let small = ScriptedProvider::new().text("Mending the parser");
    let runtime = Runtime::builder().store(store).titles(Titles::new(small.model())).build();

    let todos = json!({"todos": [{"content": "Mend the parser", "status": "in_progress"}]});
    let large = ScriptedProvider::new()
        .calls([("todos", todos), ("read_code", json!({"path": "parser.rs"}))])
        .text("The parser is mended, and the lexer too.")
        .text("You asked for the parser and the lexer.");
    // A slow tool: the prompts below arrive while it runs.
    let reading = Gate::new();
    let read_code = FakeTool::new("read_code").returning("fn parse() {}").behind(&reading);
    let agent = ReactAgent::builder("mender", large.model()).todos().tool(read_code).build()?;

    let session = runtime.session();
    let task = Task::new("Please mend the parser").with_budget(BudgetLimits::none().with_model_calls(10));
    let first = session.start(&agent, task);
    reading.arrived(1).await;
    session.steer("And the lexer, while you are there").await?; // joins the run at its next step
    let second = session.start(&agent, "What did I ask for?"); // waits for its turn
    println!("busy: {}, queued: {}", session.is_busy(), session.state().await?.queue().len());
    reading.open();
    println!("first:  {}", first.outcome().await?.text);
    println!("second: {}", second.outcome().await?.text);

    runtime.cancel_all().await; // nothing runs any more: this waits for the title
    let state = session.state().await?;
    println!("title:  {}", state.head().title);
    println!("to do:  {:?}", state.todos().iter().map(|todo| &todo.content).collect::<Vec<_>>());

    // A fork continues from an earlier moment; the original does not change.
    let events = session.events(0, 1_000).await?;
    let first_end = events.iter().find(|it| matches!(it.event, Event::RunFinished(_))).map_or(0, |it| it.seq);
    let fork = session.fork(Moment::Event(first_end)).await?;
    println!("fork:   {} of {} messages", fork.history().await?.len(), session.history().await?.len());

    let telemetry = Telemetry::new(Arc::clone(runtime.store()));
    let stats = telemetry.session_stats(session.id().as_str()).await?;
    println!("below:  {} session (its title's)", stats.descendants.sessions);
    for (tool, stats) in &stats.tools {
        println!("tool:   {tool}, {} calls, {} errors", stats.calls, stats.errors);
    }
    for info in telemetry.external(0, 10).await? {
        println!("listed: {} ({})", info.head.title, info.head.status);
    }
    Ok(())
}
