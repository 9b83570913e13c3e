//! The misbehaviours among agents that delegate work, or check it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use entourage::{
    Result,
    agent::{DualAgent, ReactAgent},
    graph::TaskGraph,
    provider::{Request, ToolChoice},
    tool::{self, Access},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    Case,
    found::{Ended, Found, watched},
};
use crate::{
    kit::{on_paused_time, runtime},
    model::{Reply, RequestExt, model},
};

pub(super) const CASES: &[Case] = &[
    Case {
        mode: "2.4 information withholding",
        script: "hands on findings without the source, twice",
        play: withholding,
        expected: Some((Found::NoValue, 1)),
        end: "stopped: tasks",
        unseen: "a source that is named and wrong, or findings that say too little",
    },
    Case {
        mode: "2.5 ignored other agent's input",
        script: "is told what is missing, and reports the same again, for ever",
        play: ignoring,
        expected: Some((Found::Rejected, 4)),
        end: "stopped: incomplete",
        unseen: "why: whether it did not read, or could not",
    },
    Case {
        mode: "3.1 premature termination",
        script: "reports that all is written before it has written anything",
        play: too_early,
        expected: Some((Found::Rejected, 4)),
        end: "completed",
        unseen: "the same at level react, where nobody looks",
    },
    Case {
        mode: "3.2 no or incomplete verification",
        script: "the discriminator believes the report, and looks at nothing",
        play: blind,
        expected: Some((Found::NoEvidence, 4)),
        end: "completed",
        unseen: "how much looking is enough",
    },
    Case {
        mode: "3.3 incorrect verification",
        script: "the discriminator looks, sees that nothing is there, and accepts",
        play: misjudging,
        expected: None,
        end: "completed",
        unseen: "that it is wrong; its evidence is on record (a person)",
    },
];

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Findings {
    facts: Vec<String>,
    source: String,
}

/// A node of a graph promises a type to its dependents.
fn withholding() -> Result<Ended> {
    let (model, _) = model(|_| Reply::text(json!({ "facts": ["It counts from 1."] }).to_string()));
    let scout = ReactAgent::builder("scout", model).build()?;
    let graph = TaskGraph::builder("research");
    let findings =
        graph.agent("findings", &scout, "Find out how it counts.").returns::<Findings>().attempts(2);
    graph.step("article", &findings, |findings| async move { Ok(format!("{:?}", findings.facts)) });
    let graph = graph.build()?;
    on_paused_time(async { Ok(watched(runtime(), &graph, "How does it count?").await) })
}

/// Habits of the executor and the discriminator.
#[derive(Debug, Clone, Copy)]
struct Habits {
    /// The round in which the executor does its task; `None` for never.
    writes: Option<usize>,
    /// True if the discriminator looks before it decides.
    looks: bool,
    /// True if the discriminator accepts anything it saw.
    gullible: bool,
}

fn ignoring() -> Result<Ended> {
    dual(Habits { writes: None, looks: true, gullible: false })
}

fn too_early() -> Result<Ended> {
    dual(Habits { writes: Some(2), looks: true, gullible: false })
}

fn blind() -> Result<Ended> {
    dual(Habits { writes: Some(1), looks: false, gullible: true })
}

fn misjudging() -> Result<Ended> {
    dual(Habits { writes: None, looks: true, gullible: true })
}

/// Agents that behave: the executor writes at once, is checked, and accepted.
pub(super) fn behaving() -> Result<Ended> {
    dual(Habits { writes: Some(1), looks: true, gullible: false })
}

/// The pair with its only shared state: a file that exists or not.
fn dual(habits: Habits) -> Result<Ended> {
    let file = Arc::new(AtomicBool::new(false));
    let (executor, _) = model(move |request| executor_says(habits, request));
    let (discriminator, _) = model(move |request| discriminator_says(habits, request));
    let (written, seen) = (Arc::clone(&file), file);
    let write = tool::typed("write", "Writes the file.", Access::WRITE, move |Nothing {}| {
        written.store(true, Ordering::Relaxed);
        async { Ok("written") }
    });
    let view = tool::typed("view", "Shows the file.", Access::READ, move |Nothing {}| {
        let text = if seen.load(Ordering::Relaxed) { "It counts from 1." } else { "There is no such file." };
        async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            Ok(text)
        }
    });
    let executor = ReactAgent::builder("executor", executor).tool(write).build()?;
    let discriminator = ReactAgent::builder("discriminator", discriminator).tool(view).build()?;
    let agent = DualAgent::builder("writer", executor, discriminator).iterations(3).build()?;
    on_paused_time(async { Ok(watched(runtime(), &agent, "Write the file.").await) })
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Nothing {}

/// The executor reports that all is done, whatever it did.
fn executor_says(habits: Habits, request: &Request) -> Reply {
    // Each round is a prompt to work, an answer, a prompt to sum up and a summary.
    let round = 1 + request.prompts() / 2;
    let may_write = request.tool_choice != ToolChoice::None && request.results().is_empty();
    if may_write && habits.writes == Some(round) {
        Reply::call("write", json!({}))
    } else {
        Reply::text("The file is written.")
    }
}

/// The discriminator looks, or does not; it believes what it sees, or accepts anyway.
fn discriminator_says(habits: Habits, request: &Request) -> Reply {
    let results = request.results();
    let is_there = results.last().is_some_and(|(text, _)| text.contains("counts"));
    if results.is_empty() && habits.looks {
        Reply::call("view", json!({}))
    } else if is_there || habits.gullible {
        Reply::call("task_complete", json!({ "summary": "The file is there." }))
    } else {
        Reply::text("There is no file. Write it.")
    }
}
