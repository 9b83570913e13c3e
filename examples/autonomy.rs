//! The same task at each level of autonomy: the less an agent's own word counts, the more calls it takes, and the
//! better the answer.

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use std::sync::Arc;

use async_trait::async_trait;
use entourage::{
    event::PhaseFinished,
    message::Role,
    prelude::*,
    provider::{DeltaStream, FinishReason, Request},
};
use futures_util::stream;
use serde_json::json;

const TASK: &str = "How many lines has Cargo.toml?";

#[tool(access = "read")]
/// Count the lines of a file.
async fn line_count(path: String) -> Result<usize, ToolError> {
    Ok(tokio::fs::read_to_string(path).await?.lines().count())
}

#[tokio::main]
async fn main() -> Result<()> {
    let found = Model::from_env();
    if let Err(error) = &found {
        println!("{}\nStand-ins answer: the tool is real, their words are canned.", error.message());
    }
    let model = |role| found.as_ref().map_or_else(|_| Model::new(Arc::new(role), "stand-in"), Model::clone);

    let executor = ReactAgent::builder("executor", model(StandIn::Executor))
        .instructions("You answer in one sentence.")
        .tool(line_count)
        .build()?;
    let checker = ReactAgent::builder("checker", model(StandIn::Checker)).tool(line_count).build()?;
    let agent = Autonomy::builder("counter", executor)
        .judge(model(StandIn::Judge))
        .discriminator(checker)
        .iterations(3)
        .build()?;

    let runtime = Runtime::in_memory();
    for level in agent.levels() {
        println!("\nL{} {level}: {}", level.number(), level.mode().description.unwrap_or_default());
        let mut run = runtime.session().start(&agent.at(level)?, TASK);
        let mut calls = 0;
        while let Some(event) = run.next().await {
            match &event.event {
                Event::ModelStarted(_) => calls += 1,
                Event::ToolStarted(call) => println!("   {} runs {}", event.origin.agent, call.tool),
                _ => {}
            }
            if let Some(end) = event.event.record::<PhaseFinished>()? {
                end.verdict.iter().for_each(|it| println!("   round {}, {it}", end.iteration));
            }
        }
        let outcome = run.outcome().await?;
        println!("   {} after {calls} model calls: {}", outcome.status, outcome.text);
    }
    Ok(())
}

/// A stand-in for a model: the executor guesses until it is told not to, the others do not accept a guess.
#[derive(Debug, Clone, Copy)]
enum StandIn {
    Executor,
    Judge,
    Checker,
}

#[async_trait]
impl Provider for StandIn {
    fn name(&self) -> &'static str {
        "stand-in"
    }

    async fn stream(&self, request: Request, _: &CallContext) -> Result<DeltaStream> {
        let heard = request.messages.iter().filter(|message| message.role() == Role::User);
        let heard = heard.last().map(|message| message.text()).unwrap_or_default();
        let counted = request.messages.iter().flat_map(|message| message.tool_results()).last();
        let counted = counted.map(|result| result.to_text());
        let looked = request.messages.last().is_some_and(|message| message.role() == Role::Tool);
        let reply = match (self, counted) {
            (Self::Executor, Some(_)) if heard.contains("yes or no") => say("Yes, I counted them."),
            (Self::Executor, None) if heard.contains("yes or no") => say("No. I guessed; count them."),
            (Self::Executor, Some(lines)) if looked || heard.contains("Sum up") => {
                say(&format!("It has {lines} lines: I counted them."))
            }
            (Self::Executor, None) if heard.contains(TASK) || heard.contains("Sum up") => {
                say("It has about 100 lines, I guess.")
            }
            (Self::Judge, _) if heard.contains("I counted") => {
                say(r#"{"approved": true, "reason": "Counted."}"#)
            }
            (Self::Judge, _) => say(r#"{"approved": false, "reason": "A guess is no answer. Count them."}"#),
            (Self::Checker, Some(lines)) if looked && heard.contains(&format!("has {lines} lines")) => {
                call("task_complete", &json!({ "summary": format!("I counted {lines} lines too.") }))
            }
            (Self::Checker, Some(lines)) if looked => {
                say(&format!("I counted {lines}. Count, do not guess."))
            }
            _ => call("line_count", &json!({ "path": "Cargo.toml" })),
        };
        Ok(Box::pin(stream::iter(reply.into_iter().map(Ok))))
    }
}

fn say(text: &str) -> Vec<Delta> {
    vec![Delta::Text(text.into()), Delta::Finish(FinishReason::Stop.into())]
}

fn call(tool: &str, arguments: &serde_json::Value) -> Vec<Delta> {
    let start = Delta::tool_call(0, "call_0", tool);
    vec![start, Delta::arguments(0, arguments.to_string()), Delta::Finish(FinishReason::ToolCalls.into())]
}
