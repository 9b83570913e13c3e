//! An agent that delegates the parts of a question to others: in parallel, each in a session of its own, allowed to
//! read and nothing else. At the end: the tree of sessions, and their cost.

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use std::sync::Arc;

use entourage::{
    Prices,
    prelude::*,
    provider::{FinishReason, Profile},
    telemetry::Telemetry,
    testkit::{Script, ScriptedProvider},
};
use serde_json::json;

const QUESTION: &str = "What do the folders agent-core, agent-tools and agent-store of this workspace hold?";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let (large, small) = match Model::from_env() {
        Ok(model) => (model.clone(), model),
        Err(error) => {
            println!(
                "{}\nScripted models stand in: the sessions are real, the words canned.\n",
                error.message()
            );
            scripted()
        }
    };
    let scout = ReactAgent::builder("scout", small)
        .instructions("You look around in a Rust workspace and answer in two sentences.")
        .tools([fs::glob(), fs::grep(), fs::ls(), fs::view()])
        .build()?;
    let lead = ReactAgent::builder("lead", large)
        .instructions(
            "You answer questions about a Rust workspace. Hand each part of the question to `agent`, all of them in \
             one step; then answer in one paragraph.",
        )
        .tool(AgentTool::read_only(scout))
        .build()?;

    // With more than three, the fourth would wait until one of them ends.
    let runtime = Runtime::builder().sub_agents(3).build();
    let session = runtime.session();
    let mut run = session.start(&lead, QUESTION);
    while let Some(event) = run.next().await {
        if let Event::RunStarted(_) | Event::ToolStarted(_) | Event::RunFinished(_) = event.event {
            println!("{event}");
        }
    }
    println!("\n{}\n", run.outcome().await?.text);
    print_tree(&runtime, session.id()).await
}

/// Prints one line per session: the agent and its task, its end and its cost.
async fn print_tree(runtime: &Runtime, root: &SessionId) -> Result<()> {
    let telemetry = Telemetry::new(Arc::clone(runtime.store()));
    let mut sessions = runtime.sessions(&SessionFilter::tree(root.clone())).await?;
    sessions.sort_by(|a, b| a.record.id.as_str().cmp(b.record.id.as_str()));
    for session in sessions {
        let id = session.record.id.as_str();
        let trace = telemetry.trace(id).await?;
        let Some(run) = trace.exchanges.last() else { continue };
        let status = run.status.as_ref().map_or_else(|| "under way".into(), ToString::to_string);
        let indent = "  ".repeat(id.matches("$$").count());
        let head = session.head;
        let task = run.prompt.text();
        println!("{indent}{}: {task} [{status}; {}, {}]", head.agent, head.usage, shown(head.cost));
    }
    let stats = telemetry.session_stats(root.as_str()).await?;
    println!("the lead itself: {}", shown(stats.own.cost));
    println!("all below it:    {}", shown(stats.descendants.cost));
    Ok(())
}

fn shown(cost: Option<Money>) -> String {
    cost.map_or_else(|| "cost unknown".to_owned(), |cost| cost.to_string())
}

/// A large model that asks three questions at once, and a small one that answers them.
fn scripted() -> (Model, Model) {
    let says = |text: &str| Script::new().text(text).usage(900, 60).finish(FinishReason::Stop);
    let asks = ["agent-core", "agent-tools", "agent-store"].iter().fold(
        Script::new().text("I shall ask three scouts."),
        |script, folder| {
            script.call("agent", &json!({ "prompt": format!("What does the folder {folder} hold?") }))
        },
    );
    let large = ScriptedProvider::by_history()
        .step(asks.usage(1_200, 150).finish(FinishReason::ToolCalls))
        .step(says("The core holds nouns and machines, the tools act, and the stores remember."));
    let small =
        ScriptedProvider::by_history().step(says("I looked; a model would now tell you what I found."));
    let priced = |model: Model, input, output| {
        let mut profile = Profile::default();
        profile.prices = Some(Prices::per_million_micros(input, output));
        model.with_profile(profile)
    };
    (priced(large.model(), 3_000_000, 15_000_000), priced(small.model(), 250_000, 1_250_000))
}
