//! A planner with executors in sessions: strategies, plans, conversations, limits, figures and questions to the user.

mod attack;
mod bounds;
mod broken_off;
mod cost;
mod figures;
mod final_ends;
mod not_met;
mod plans;
mod request;
mod roles;
mod stops;
mod talks;

use std::sync::Arc;

use entourage_core::{
    event::{Envelope, Event},
    run::Outcome,
    session::{ReadRange, SessionFilter},
    tool::Access,
};
use entourage_runners::planner::{Planner, PlannerBuilder, PlannerProgress, StepMessage};
use entourage_runtime::{Runtime, Session, permission::Policy};
use entourage_testkit::{self as testkit, FakeTool, ScriptedProvider};
use serde_json::{Value, json};

pub(crate) const REQUEST: &str = "First look at both, then sum up.";

pub(crate) fn runtime() -> Runtime {
    testkit::runtime().policy(Policy::allow_all()).build()
}

/// A planner without a classifier, whose executors work one after another with the tool `view`.
pub(crate) fn builder(plans: &ScriptedProvider, looks: &ScriptedProvider) -> PlannerBuilder {
    Planner::builder("assistant", plans.model())
        .executor(looks.model())
        .without_classifier()
        .executors_at_once(1)
        .max_replans(0)
}

pub(crate) fn view() -> FakeTool {
    FakeTool::new("view").access(Access::READ).returning("a tree")
}

pub(crate) fn edit() -> FakeTool {
    FakeTool::new("edit").access(Access::WRITE).returning("written")
}

/// An executor's step.
pub(crate) fn step(number: u32, depends_on: &[u32]) -> Value {
    let description = format!("Look at {number}.");
    json!({
        "number": number, "type": "read", "description": description, "executor_required": true, "tools": ["view"],
        "depends_on": depends_on,
    })
}

pub(crate) fn steps(steps: impl IntoIterator<Item = Value>) -> Value {
    json!({ "steps": steps.into_iter().collect::<Vec<_>>() })
}

pub(crate) fn reply(kind: &str, text: &str) -> Value {
    json!({ "type": kind, "text": text })
}

/// The planner's script of a plan, up to its making.
pub(crate) fn plans(draft: Value) -> ScriptedProvider {
    ScriptedProvider::named("planner").call("final_answer", draft)
}

pub(crate) fn looks() -> ScriptedProvider {
    ScriptedProvider::named("executor")
}

/// The events of a session and of all below it.
pub(crate) async fn events(session: &Session, runtime: &Runtime) -> Vec<Envelope> {
    let store = runtime.store();
    let mut events = Vec::new();
    for info in store.query(&SessionFilter::tree(session.id().clone())).await.unwrap() {
        let id = info.record.id;
        let rows = store.read(&id, ReadRange::all()).await.unwrap();
        events.extend(rows.into_iter().map(|row| row.into_envelope(&id).unwrap()));
    }
    events
}

pub(crate) fn messages(events: &[Envelope]) -> Vec<Arc<StepMessage>> {
    events.iter().filter_map(|event| event.event.record().unwrap()).collect()
}

pub(crate) fn progress(events: &[Envelope]) -> Vec<Arc<PlannerProgress>> {
    events.iter().filter_map(|event| event.event.record().unwrap()).collect()
}

pub(crate) fn tool_calls(events: &[Envelope], tool: &str) -> Vec<bool> {
    let call = |event: &Envelope| match &event.event {
        Event::ToolFinished(call) if *call.result.name == *tool => Some(call.result.is_error),
        _ => None,
    };
    events.iter().filter_map(call).collect()
}

/// The last message of a request.
pub(crate) fn told(provider: &ScriptedProvider, request: usize) -> String {
    provider.requests()[request].messages.last().unwrap().text()
}

/// Runs a request in a session of its own, and returns the outcome and all events.
pub(crate) async fn run(planner: &Planner, request: &str) -> (Outcome, Vec<Envelope>) {
    let runtime = runtime();
    let session = runtime.session();
    let outcome = session.start(planner, request).outcome().await.unwrap();
    let events = events(&session, &runtime).await;
    (outcome, events)
}
