//! A team looks at the cargo workspace of the current directory: scouts of size S search side by side, what they fail
//! at goes one size up, a writer works on what they found, and the lead answers. The list of items is printed as it
//! changes.
//!
//! ```text
//! cargo run -p entourage-examples --example team -- "What is tested here, and how?"
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use std::sync::Arc;

use async_trait::async_trait;
use entourage::{
    prelude::*,
    provider::{DeltaStream, FinishReason, Request, Size},
    team::{Member, Performance, TaskType, Team, TeamReport},
};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

const QUESTION: &str = "What is in this workspace, and how is it tested?";

#[tokio::main]
async fn main() -> Result<()> {
    let model = Model::from_env().unwrap_or_else(|error| {
        println!("{}\nA stand-in plans four fixed items, and quotes what the tools find.\n", error.message());
        Model::new(Arc::new(StandIn), "stand-in")
    });
    let question = std::env::args().nth(1).unwrap_or_else(|| QUESTION.to_owned());
    // One model plays all sizes here; give each member its own.
    let files = Workspace::open(".")?.read_tools();
    let agent = |name: &str, about: &str| {
        ReactAgent::builder(name, model.clone()).description(about).tools(files.clone()).build()
    };
    let scout = Member::new(agent("scout", "Finds places in files.")?).size(Size::S).replicas(3);
    let analyst = Member::new(agent("analyst", "Finds out what is hard to find.")?).size(Size::M);
    let writer = Member::new(agent("writer", "Writes texts.")?).specialist_in([TaskType::Edit]);
    let team = Team::builder("crew", model.clone()).members([scout, analyst, writer]).mailbox().build()?;

    let runtime = Runtime::in_memory();
    let mut run = runtime.session().start(&team, question.as_str());
    let mut report = TeamReport::default();
    while let Some(event) = run.next().await {
        if report.update(&event)? {
            println!("{report}\n");
        }
    }
    let outcome = run.outcome().await?;
    println!("{}\n\n{}; failed items: {}", outcome.text, outcome.status, outcome.failed.len());

    let mut performance = Performance::new();
    performance.learn_from(&report);
    for member in report.members() {
        let rate = performance.rate_of_success(&member.id, TaskType::Summarize);
        println!("{}: {rate:.2} of the items of the type summarize, smoothed", member.id);
    }
    Ok(())
}

/// The items of the stand-in: id, task, and what is looked for in which files. The third is too hard for a scout.
const ITEMS: [(&str, &str, &str, &str); 3] = [
    ("packages", "List the packages of the workspace.", r"^\s*members\s*=", "Cargo.toml"),
    ("tests", "Show where asynchronous tests are.", r"^\s*#\[tokio::test", "*.rs"),
    ("checks", "Say what the documents tell of checks.", r"(?i)\bchecks?\b", "*.md"),
];

/// Stands in for the models of all members: it plans, searches, and quotes what the tools return.
#[derive(Debug)]
struct StandIn;

#[async_trait]
impl Provider for StandIn {
    fn name(&self) -> &str {
        "stand-in"
    }

    async fn stream(&self, request: Request, _: &CallContext) -> Result<DeltaStream> {
        let texts: Vec<String> = request.messages.iter().map(|message| message.text()).collect();
        let prompt = texts.iter().rfind(|text| !text.is_empty()).cloned().unwrap_or_default();
        let found =
            request.messages.iter().find_map(|message| message.tool_results().next().map(|it| it.to_text()));
        let item = ITEMS.iter().find(|(_, task, ..)| prompt.starts_with(task));
        Ok(match (item, found) {
            _ if prompt.contains("Plan this for your team.") => says(plan().to_string()),
            (Some(("checks", ..)), _) if !prompt.contains("An attempt before this one failed") => {
                return Err(Error::new(ErrorKind::InvalidInput, "this is too hard for a small model"));
            }
            (Some((_, _, pattern, files)), None) => {
                calls("grep", &json!({ "pattern": pattern, "include": files }))
            }
            (Some(_), Some(found)) => says(first_lines(&found, 3)),
            // The writer, and the lead in the end: they join what they are given.
            (None, _) => says(joined(&prompt)),
        })
    }
}

fn plan() -> Value {
    let items = ITEMS.map(|(id, task, ..)| json!({ "id": id, "task": task, "type": "summarize" }));
    let report = json!({
        "id": "report", "task": "Write down what was found.", "type": "edit", "after": ["packages", "tests", "checks"],
    });
    json!({ "items": items.into_iter().chain([report]).collect::<Vec<_>>() })
}

fn first_lines(text: &str, count: usize) -> String {
    text.lines().take(count).map(|line| line.chars().take(100).collect::<String>() + "\n").collect()
}

/// Returns what stands within the marks of results.
fn joined(prompt: &str) -> String {
    let inside = |part: &str| part.split_once('>').map(|(_, text)| text.trim().to_owned());
    let parts =
        prompt.split("<result of=").skip(1).filter_map(|part| inside(part.split("</result>").next()?));
    let mut parts: Vec<String> = parts.collect();
    // In the end the report is the last of the results, and holds the others.
    let report = parts.pop_if(|_| prompt.starts_with("The work is over."));
    report.unwrap_or_else(|| parts.join("\n\n"))
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
