//! Deferred tools: what requests carry, and a call of one as a call of the real tool.

#![allow(
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test may panic and print, in its helpers too"
)]

mod calls;
mod hand;
mod judged;
mod names;
mod requests;
mod searched;

use std::sync::Arc;

use entourage_core::{
    event::{Envelope, Event},
    message::ToolResult,
    provider::Request,
    session::{ReadRange, SharedStore},
    tool::{Tool, Tools},
};
use entourage_runners::{ReactAgent, ReactBuilder};
use entourage_runtime::MemoryStore;
use entourage_testkit::{FakeTool, ScriptedProvider};
use serde_json::{Value, json};

/// A set of these tools.
fn set<const N: usize>(tools: [FakeTool; N]) -> Tools {
    Tools::new(tools.map(|tool| Arc::new(tool) as Arc<dyn Tool>)).unwrap()
}

/// The arguments of a call of a deferred tool.
fn of(name: &str, arguments: Value) -> Value {
    json!({ "name": name, "arguments": arguments })
}

fn agent(provider: &ScriptedProvider) -> ReactBuilder {
    ReactAgent::builder("tester", provider.model())
}

fn memory() -> SharedStore {
    Arc::new(MemoryStore::new())
}

async fn stored(store: &SharedStore, session: &entourage_core::SessionId) -> Vec<Envelope> {
    let rows = store.read(session, ReadRange::all()).await.unwrap();
    rows.into_iter().map(|row| row.into_envelope(session).unwrap()).collect()
}

/// The tools that began, by the record.
fn started(events: &[Envelope]) -> Vec<String> {
    let started = events.iter().filter_map(|event| match &event.event {
        Event::ToolStarted(call) => Some(call.tool.to_string()),
        _ => None,
    });
    started.collect()
}

/// The results of calls, by the record: tool and text.
fn finished(events: &[Envelope]) -> Vec<(String, String)> {
    let finished = events.iter().filter_map(|event| match &event.event {
        Event::ToolFinished(call) => Some((call.result.name.to_string(), call.result.to_text())),
        _ => None,
    });
    finished.collect()
}

/// The results that the newest message of a request holds.
fn told(request: &Request) -> Vec<&ToolResult> {
    request.messages.iter().last().map(|message| message.tool_results().collect()).unwrap_or_default()
}

/// The names that a search found, by its result.
fn found(result: &ToolResult) -> Vec<String> {
    let found: Value = serde_json::from_str(&result.to_text()).unwrap();
    let tools = found["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}
