//! Research into the cargo workspace of the current directory: five agents that only read look side by side, and their
//! report names files and lines. Asked again, the session has the answer at once, with its age.
//!
//! ```text
//! cargo run -p entourage-examples --example research -- "How are errors reported?"
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use entourage::{
    prelude::*,
    provider::{DeltaStream, FinishReason, Request},
    research::{Research, ResearchProgress},
};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

const QUESTION: &str = "How is this workspace built, checked and tested?";

#[tokio::main]
async fn main() -> Result<()> {
    let model = Model::from_env().unwrap_or_else(|error| {
        println!(
            "{}\nA stand-in plans five fixed searches, and quotes what the tools find.\n",
            error.message()
        );
        Model::new(Arc::new(StandIn), "stand-in")
    });
    let question = std::env::args().nth(1).unwrap_or_else(|| QUESTION.to_owned());
    let runtime = Runtime::in_memory();
    let research = Research::builder("research", model)
        .tools(Workspace::open(".")?.read_tools())
        .cache(&runtime.session()) // a session of its own: one for each project
        .build()?;
    let session = runtime.session();
    for time in ["first", "second"] {
        println!("== {question} (the {time} time)");
        let outcome = follow(session.start(&research, question.as_str())).await?;
        println!("\n{}\n", outcome.text);
        println!("{}; failed tasks: {}\n", outcome.status, outcome.failed.len());
        if !outcome.is_completed() {
            break;
        }
    }
    Ok(())
}

/// Prints what each agent does, until the run has ended. The first Ctrl-C cancels it and all agents below it, the
/// second ends the program at once.
async fn follow(mut run: RunHandle) -> Result<Outcome> {
    let mut tasks = BTreeMap::new();
    let mut interrupt = Box::pin(tokio::signal::ctrl_c());
    let mut is_cancelled = false;
    loop {
        tokio::select! {
            event = run.next() => match event {
                Some(event) => show(&event, &mut tasks)?,
                None => return run.outcome().await,
            },
            _ = &mut interrupt => {
                if is_cancelled {
                    std::process::exit(130);
                }
                is_cancelled = true;
                interrupt = Box::pin(tokio::signal::ctrl_c());
                println!("cancelling; Ctrl-C again leaves at once");
                run.cancel();
            }
        }
    }
}

/// Prints the progress of the whole, and each result of a tool with the task that asked for it.
fn show(event: &Envelope, tasks: &mut BTreeMap<SessionId, usize>) -> Result<()> {
    if let Some(now) = event.event.record::<ResearchProgress>()? {
        tasks.insert(now.child.clone(), now.number);
        let end = now.outcome.as_ref().map_or_else(|| "begins".to_owned(), |end| end.status.to_string());
        let (total, done, active) = (now.total, now.done, now.active);
        println!("[{done} of {total} done, {active} active] {}. {}: {end}", now.number, now.task.kind);
    } else if let (Event::ToolFinished(_), Some(number)) = (&event.event, tasks.get(&event.origin.session)) {
        // As a line, in which no file can control the terminal.
        println!("    {number}. {}", event.to_string().chars().take(110).collect::<String>());
    }
    Ok(())
}

/// The searches of the stand-in: who makes them, what they answer, what they look for, and in which files.
const SEARCHES: [(&str, &str, &str, &str); 5] = [
    ("file_searcher", "Which packages does the workspace have?", r"^\s*members\s*=", "Cargo.toml"),
    ("dependency_mapper", "Which packages are taken from folders here?", r#"\{ *path = ""#, "Cargo.toml"),
    ("pattern_finder", "Which lints do the packages follow?", r"^\[(workspace\.)?lints", "Cargo.toml"),
    ("doc_reader", "What do the documents say of checks?", r"(?i)\bchecks?\b", "*.md"),
    ("file_searcher", "Where are asynchronous tests?", r"^\s*#\[tokio::test", "*.rs"),
];

/// Stands in for a model: it plans, searches, views the first place, and answers by what the tools returned.
#[derive(Debug)]
struct StandIn;

#[async_trait]
impl Provider for StandIn {
    fn name(&self) -> &str {
        "stand-in"
    }

    async fn stream(&self, request: Request, _: &CallContext) -> Result<DeltaStream> {
        let prompt = request.messages.iter().map(|message| message.text()).find(|text| !text.is_empty());
        let prompt = prompt.unwrap_or_default();
        let results: Vec<String> = request
            .messages
            .iter()
            .flat_map(|message| message.tool_results().map(|result| result.to_text()).collect::<Vec<_>>())
            .collect();
        let search = SEARCHES.iter().find(|(_, task, ..)| *task == prompt);
        Ok(match (search, results.as_slice()) {
            (None, _) => says(json!({ "tasks": SEARCHES.map(|(kind, prompt, ..)| json!({ "kind": kind, "prompt": prompt })) }).to_string()),
            (Some((_, _, pattern, files)), []) => calls("grep", &json!({ "pattern": pattern, "include": files })),
            (Some(_), [found]) => match places(found).first() {
                Some((path, line, _)) => calls("view", &json!({ "path": path, "offset": line - 1, "limit": 3 })),
                None => says("Nothing here shows it.".to_owned()),
            },
            (Some(_), [found, viewed, ..]) => says(answer(found, viewed)),
        })
    }
}

/// The places in the result of `grep`: a file, a number of a line and the line.
fn places(found: &str) -> Vec<(&str, u64, &str)> {
    let mut file = "";
    let mut places = Vec::new();
    for line in found.lines().skip(1) {
        match line.split_once('\t').map(|(number, text)| (number.trim().parse(), text.trim())) {
            Some((Ok(number), text)) => places.push((file, number, text)),
            _ => file = line,
        }
    }
    places
}

fn answer(found: &str, viewed: &str) -> String {
    let (count, places) = (found.lines().next().unwrap_or_default(), places(found));
    let sources = places.iter().take(4).map(|(file, line, text)| format!("- {file}:{line}: `{text}`\n"));
    format!(
        "{count}. The first of them:\n\n```text\n{viewed}\n```\n\nSources:\n\n{}",
        sources.collect::<String>()
    )
}

fn says(text: String) -> DeltaStream {
    reply(vec![Delta::text(text)], FinishReason::Stop)
}

fn calls(tool: &str, arguments: &Value) -> DeltaStream {
    let call = vec![Delta::tool_call(0, "call_0", tool), Delta::arguments(0, arguments.to_string())];
    reply(call, FinishReason::ToolCalls)
}

fn reply(mut deltas: Vec<Delta>, reason: FinishReason) -> DeltaStream {
    deltas.extend([Delta::Usage(Box::new(Usage::new(100, 20))), Delta::finish(reason)]);
    stream::iter(deltas.into_iter().map(Ok)).boxed()
}
