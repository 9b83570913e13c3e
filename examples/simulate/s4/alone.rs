//! The misbehaviours of one agent whose work no other agent checks.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage::{
    Error, ErrorKind, Result, SessionId,
    agent::{Agent, ReactAgent},
    layers::BudgetLimits,
    permission::{Policy, Scope},
    provider::{Model, Request},
    run::{Outcome, RunContext, RunExt, Task},
    session::{MemoryStore, SharedStore},
    testkit::FakeTool,
    tool::{Access, Repeat},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    Case,
    found::{Ended, Found, watched},
};
use crate::{
    kit::{Watch, on_paused_time, runtime},
    model::{Reply, RequestExt, model},
};

pub(super) const CASES: &[Case] = &[
    Case {
        mode: "1.1 disobey task specification",
        script: "asked for totals as JSON, writes prose, and again when told",
        play: prose_for_json,
        expected: Some((Found::NoValue, 2)),
        end: "failed: protocol",
        unseen: "totals of the right form and the wrong amount",
    },
    Case {
        mode: "1.2 disobey role specification",
        script: "a reviewer, who may only read, writes a file",
        play: writing_reviewer,
        expected: Some((Found::OutOfScope, 1)),
        end: "completed",
        unseen: "a reviewer who praises instead of reviewing",
    },
    Case {
        mode: "1.3 step repetition",
        script: "reads the same file over and over",
        play: same_call,
        expected: Some((Found::Repeated, 3)),
        end: "stopped: loop",
        unseen: "the same question in other words each time (limit of steps)",
    },
    Case {
        mode: "1.4 loss of conversation history",
        script: "the process dies while a tool runs; the model keeps nothing",
        play: killed,
        expected: Some((Found::Unfinished, 1)),
        end: "completed",
        unseen: "a model that does not read what it is shown",
    },
    Case {
        mode: "1.5 unaware of termination conditions",
        script: "reads page after page and never stops",
        play: endless,
        expected: Some((Found::Steps, 50)),
        end: "stopped: steps",
        unseen: "whether the next page would have been the one",
    },
    Case {
        mode: "2.1 conversation reset",
        script: "begins its plan of four calls anew for ever",
        play: beginning_anew,
        expected: Some((Found::Budget, 25)),
        end: "stopped: budget",
        unseen: "that it began anew: a cycle of four is no repetition to the loop guard",
    },
    Case {
        mode: "2.2 fail to ask for clarification",
        script: "two files fit the request; guesses, with a tool to ask at hand",
        play: guessing,
        expected: None,
        end: "completed",
        unseen: "that the request was ambiguous (a judge, a person)",
    },
    Case {
        mode: "2.3 task derailment",
        script: "asked about a bug, reads the changelog and writes about that",
        play: derailed,
        expected: None,
        end: "completed",
        unseen: "that the answer is to another question (a judge, a person)",
    },
    Case {
        mode: "2.6 mismatch of reasoning and action",
        script: "says that it will only read, and deletes",
        play: saying_one_doing_another,
        expected: Some((Found::Asked, 1)),
        end: "paused: approval",
        unseen: "the mismatch: it is the deed that is judged, whatever was said",
    },
];

fn agent(name: &str, model: Model) -> entourage::agent::ReactBuilder {
    let read = FakeTool::new("read").requiring(&["path"]).taking(Duration::from_millis(200)).echoing();
    ReactAgent::builder(name, model).tool(read)
}

fn alone(play: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Result<Ended> {
    let (model, _) = model(play);
    let agent = agent("worker", model).build()?;
    on_paused_time(async { Ok(watched(runtime(), &agent, "Find the cause of the bug.").await) })
}

/// A model that behaves: two calls, then an answer.
pub(super) fn behaving() -> Result<Ended> {
    alone(|request| match request.said() {
        0 => Reply::call("read", json!({"path": "main.rs"})),
        1 => Reply::call("read", json!({"path": "parser.rs"})),
        _ => Reply::text("The parser counts from 1."),
    })
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Totals {
    files: u64,
    lines: u64,
}

/// An agent that asks its model for a value of a type.
#[derive(Debug, Clone)]
struct Counter(Model);

#[async_trait]
impl Agent for Counter {
    fn name(&self) -> &str {
        "counter"
    }

    async fn run(&self, _: Task, cx: &RunContext) -> Result<Outcome> {
        let totals = cx.generate::<Totals>(&self.0, "How many files and lines are there?").await?.value;
        Ok(Outcome::completed(format!("{} files, {} lines", totals.files, totals.lines)))
    }
}

fn prose_for_json() -> Result<Ended> {
    let (model, _) = model(|_| Reply::text("There are quite a few files, and many more lines."));
    on_paused_time(async { Ok(watched(runtime(), &Counter(model), "Count!").await) })
}

fn writing_reviewer() -> Result<Ended> {
    let (model, _) = model(|request| match request.said() {
        0 => Reply::call("write", json!({"path": "main.rs", "text": "better"})),
        _ => Reply::text("I wanted to mend it myself, and may not."),
    });
    let write = FakeTool::new("write").requiring(&["path", "text"]).access(Access::WRITE);
    let reviewer = agent("reviewer", model).tool(write).scope(Scope::read_only()).build()?;
    on_paused_time(async { Ok(watched(runtime(), &reviewer, "Review main.rs.").await) })
}

fn same_call() -> Result<Ended> {
    alone(|_| Reply::call("read", json!({"path": "main.rs"})))
}

fn endless() -> Result<Ended> {
    alone(|request| Reply::call("read", json!({"path": format!("page-{}", request.said())})))
}

fn beginning_anew() -> Result<Ended> {
    let (model, _) = model(|request| {
        let file = ["main.rs", "parser.rs", "lexer.rs", "tests.rs"];
        let path = file.get(request.said() % file.len()).copied().unwrap_or_default();
        Reply::call("read", json!({ "path": path })).saying("Hello! Let me begin with a plan.")
    });
    let agent = agent("worker", model).build()?;
    let task = Task::new("Find the cause of the bug.").with_budget(BudgetLimits::none().with_model_calls(25));
    on_paused_time(async { Ok(watched(runtime(), &agent, task).await) })
}

fn guessing() -> Result<Ended> {
    let (model, _) = model(|request| match request.said() {
        0 => Reply::call("read", json!({"path": "old/config.toml"})),
        _ => Reply::text("The port is 8080."),
    });
    let ask = FakeTool::new("ask_user").requiring(&["question"]).access(Access::ASK);
    let agent = agent("worker", model).tool(ask).build()?;
    on_paused_time(async { Ok(watched(runtime(), &agent, "Which port is in the config file?").await) })
}

fn derailed() -> Result<Ended> {
    alone(|request| match request.said() {
        0 => Reply::call("read", json!({"path": "CHANGELOG.md"})),
        _ => Reply::text("Version 2 brought a new logo."),
    })
}

/// Uses the default policy: reading is allowed, anything else needs approval.
fn saying_one_doing_another() -> Result<Ended> {
    let (model, _) = model(|_| {
        Reply::call("delete", json!({"path": "main.rs"})).saying("I will only read main.rs, nothing more.")
    });
    let delete = FakeTool::new("delete").requiring(&["path"]).access(Access::WRITE);
    let agent = agent("worker", model).tool(delete).build()?;
    let runtime = runtime().policy(Policy::new());
    on_paused_time(async { Ok(watched(runtime, &agent, "What does main.rs do?").await) })
}

/// Two processes on one store: the first one dies in the middle of a call that must not run twice. The model derives
/// its position from the request, so it would start over if anything were lost.
fn killed() -> Result<Ended> {
    let (model, _) = model(|request| match request.said() {
        0 => Reply::call("deploy", json!({})),
        _ if request.first_asked() == "Deploy it." => {
            Reply::text("I cannot tell whether it was deployed: look first.")
        }
        _ => Reply::text("Hello! What can I do for you?"),
    });
    let deploy = FakeTool::new("deploy").access(Access::NETWORK).repeat(Repeat::Once).hanging();
    let agent = ReactAgent::builder("deployer", model).tool(deploy).build()?;
    let store: SharedStore = Arc::new(MemoryStore::new());
    let (watch, id) = (Watch::default(), SessionId::generate());
    let process = || runtime().shared_store(Arc::clone(&store)).observer(watch.clone()).build();
    // A process dies with its event loop: nothing of it is polled again, and nothing unwinds.
    on_paused_time(async {
        let first = process();
        first.session_with_id(id.clone()).start(&agent, "Deploy it.").detach();
        tokio::time::sleep(Duration::from_secs(10)).await;
        Ok(())
    })?;
    let result = on_paused_time(async {
        let second = process();
        second.open(&id).await?.resume(&agent).outcome().await
    });
    if result.as_ref().is_ok_and(|outcome| !outcome.text.contains("look first")) {
        return Err(Error::new(ErrorKind::Internal, "the model was shown less than there was"));
    }
    Ok(Ended { events: watch.events(), result })
}
