#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "tests fail by panicking"
)]

mod calls;
mod files;
mod hidden;
mod refusals;
mod runners;
mod sessions;
mod table;

use std::sync::Arc;

use entourage_core::{
    Usage,
    agent::Agent,
    provider::{Delta, FinishReason},
    tool::Access,
};
use entourage_runners::ReactAgent;
use entourage_runtime::{Runtime, Session, permission::Policy};
use serde_json::{Value, json};

use super::{Rerun, RerunCase, Transcript, Unmatched};
use crate::{FakeTool, Script, ScriptedProvider};

/// A runtime in which every call is allowed.
fn open() -> Runtime {
    crate::runtime().policy(Policy::allow_all()).build()
}

async fn transcript(runtime: &Runtime, session: &Session) -> Transcript {
    Transcript::read(runtime.store(), session.id().as_str()).await.unwrap()
}

/// Runs the prompts in a new session, and reads it.
async fn recorded(agent: &Arc<dyn Agent>, prompts: &[&str]) -> Transcript {
    let runtime = open();
    let session = runtime.session();
    for prompt in prompts {
        drop(session.start(Arc::clone(agent), *prompt).outcome().await);
    }
    transcript(&runtime, &session).await
}

fn agent(provider: &ScriptedProvider, tools: impl IntoIterator<Item = FakeTool>) -> Arc<dyn Agent> {
    let builder = ReactAgent::builder("clerk", provider.model());
    Arc::new(tools.into_iter().fold(builder, |builder, tool| builder.tool(tool)).build().unwrap())
}

/// A tool that changes something.
fn send() -> FakeTool {
    FakeTool::new("send").access(Access::WRITE | Access::NETWORK).returning("sent")
}

/// Reruns one session, with a score that always passes.
async fn rerun(original: Transcript, agent: &Arc<dyn Agent>, unmatched: Unmatched) -> RerunCase {
    let rerun = Rerun::of([original], Arc::clone(agent)).unmatched(unmatched);
    let rerun = match unmatched {
        Unmatched::Mark => rerun,
        Unmatched::Perform => rerun.runtime(crate::runtime().policy(Policy::allow_all())),
    };
    let report = rerun.score("ran", |_: &RerunCase| true).run().await.unwrap();
    report.cases()[0].clone()
}

/// The figures of a case: calls that were answered, marked, performed, left out.
fn figures(case: &RerunCase) -> [u64; 4] {
    [case.answered, case.marked, case.performed, case.left]
}

/// What the model was told by the newest message of each request after the first.
fn told(provider: &ScriptedProvider) -> Vec<Vec<String>> {
    let newest = |request: &entourage_core::provider::Request| {
        let last = request.messages.last().unwrap();
        last.tool_results().map(|result| result.to_text()).collect()
    };
    provider.requests().iter().skip(1).map(newest).collect()
}

/// A reply of text whose service says what it cost.
fn paid(text: &str, dollars: &str) -> Script {
    let mut usage = Usage::new(10, 5);
    usage.cost = Some(entourage_core::Money::usd(dollars).unwrap());
    Script::new().text(text).delta(Delta::Usage(Box::new(usage))).finish(FinishReason::Stop)
}

fn to(name: &str) -> Value {
    json!({"to": name})
}
