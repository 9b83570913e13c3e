//! Sessions as agents leave them: parallel children, failing tools, approvals, retries, a failure, a killed process.
//! Time is tokio's, so every figure is the same each time.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    ErrorKind, Prices, Result, SessionId,
    agent::Agent,
    event::Event,
    permission::{ApprovalRequest, Approver, Decision, Scope},
    provider::{FinishReason, Model, Profile},
    run::{Outcome, RunContext, Task},
    session::{Batch, ReadRange, SessionFilter, SessionStore, SharedStore},
    tool::{Access, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec},
};
use entourage_runners::{ReactAgent, ReactBuilder};
use entourage_runtime::permission::Policy;
use entourage_runtime::{MemoryStore, Runtime, layers::Retry};
use entourage_testkit::{self as testkit, FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;

/// Returns a model that costs a dollar for a million tokens each way, or one without prices.
pub(crate) fn model(provider: &ScriptedProvider, name: &str, priced: bool) -> Model {
    let mut profile = Profile::default();
    profile.prices = priced.then(|| Prices::per_million_micros(1_000_000, 1_000_000));
    Model::new(provider.provider(), name).with_profile(profile)
}

/// Returns a reply of one text with this usage.
pub(crate) fn reply(text: &str, input: u64, output: u64) -> Script {
    Script::new().text(text).usage(input, output).finish(FinishReason::Stop)
}

/// Returns a reply of tool calls with this usage.
pub(crate) fn calls(names: &[(&str, serde_json::Value)], input: u64, output: u64) -> Script {
    let script = names.iter().fold(Script::new(), |script, (name, arguments)| script.call(name, arguments));
    script.usage(input, output).finish(FinishReason::ToolCalls)
}

/// A tool that hands its `task` to another agent.
#[derive(Clone)]
pub(crate) struct Delegate(ToolSpec, Arc<dyn Agent>);

impl fmt::Debug for Delegate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

impl Delegate {
    pub(crate) fn new(name: &str, agent: impl Agent + 'static) -> Self {
        let schema = json!({"type": "object", "properties": {"task": {"type": "string"}}});
        let spec = ToolSpec::new(name, "Asks another agent.", schema).with_access(Access::READ);
        Self(spec.with_repeat(Repeat::Resume), Arc::new(agent))
    }
}

#[async_trait]
impl Tool for Delegate {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let task = input.arguments["task"].as_str().unwrap_or_default().to_owned();
        let outcome = cx.run_agent(Arc::clone(&self.1), task, Scope::all()).await?;
        if outcome.is_completed() {
            Ok(ToolOutput::text(outcome.text))
        } else {
            Err(ToolError::Tell(outcome.status.to_string()))
        }
    }
}

/// An approver that waits for a minute, then decides by the `path` argument.
#[derive(Debug)]
struct Person;

#[async_trait]
impl Approver for Person {
    async fn decide(&self, request: &ApprovalRequest) -> Result<Decision> {
        tokio::time::sleep(Duration::from_secs(60)).await;
        Ok(match request.arguments.to_value()["path"].as_str() {
            Some("map") => Decision::Allow,
            Some("/etc") => Decision::Deny,
            _ => Decision::Later,
        })
    }
}

/// A hand-written agent, whose answer is not a model's.
#[derive(Debug, Clone)]
struct Clerk(Model);

#[async_trait]
impl Agent for Clerk {
    fn name(&self) -> &'static str {
        "clerk"
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        let noted = cx.call_model(&self.0, self.0.request((*task.prompt).clone())).await?;
        Ok(Outcome::completed(format!("filed: {}", noted.message.text())))
    }
}

pub(crate) fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

fn agent(name: &str, model: Model) -> ReactBuilder {
    ReactAgent::builder(name, model)
}

fn runtime(store: &SharedStore) -> Runtime {
    let policy = Policy::new().deny("launch");
    testkit::runtime().shared_store(Arc::clone(store)).approver(Person).policy(policy).build()
}

/// Runs `future` on a runtime of its own with paused time, like a process: at its end the tasks that it left are
/// dropped.
pub(crate) fn process<T>(future: impl Future<Output = T>) -> T {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    tokio.unwrap().block_on(future)
}

/// Returns a store in memory with all sessions of this file.
pub(crate) fn sessions() -> SharedStore {
    let store: SharedStore = Arc::new(MemoryStore::new());
    process(trip(&store));
    process(failures(&store));
    process(killed(&store));
    store
}

/// Runs a lead with two parallel scouts, a failing tool, an approval by a person, and a retry.
async fn trip(store: &SharedStore) {
    let scouts =
        ScriptedProvider::named("south").step(reply("trees", 2_000, 10)).step(reply("water", 3_000, 20));
    let scout = agent("scout", model(&scouts, "small-1", true)).build().unwrap();
    let both = [("scout", json!({"task": "left"})), ("scout", json!({"task": "right"}))];
    let lead = ScriptedProvider::named("north")
        .step(Script::refuse(ErrorKind::Overloaded, "no room"))
        .step(calls(&[("look", json!({"path": "a"})), ("fetch", json!({"url": "b"}))], 10_000, 100))
        .step(calls(&both, 11_000, 100))
        .step(calls(&[("write", json!({"path": "map"}))], 12_000, 100))
        .step(reply("The map is drawn.", 13_000, 100));
    let lead = agent("lead", model(&lead, "large-1", true).layer(Retry::new()))
        .tool(FakeTool::new("look").taking(Duration::from_secs(2)).returning("a\u{0}tree"))
        .tool(FakeTool::new("fetch").taking(Duration::from_secs(9)).telling("no such page"))
        .tool(Delegate::new("scout", scout))
        .tool(FakeTool::new("write").access(Access::WRITE).taking(Duration::from_secs(1)))
        .build()
        .unwrap();
    let outcome =
        runtime(store).session_with_id(id("trip")).start(&lead, "Draw a map.").outcome().await.unwrap();
    assert!(outcome.is_completed(), "{outcome}");
}

/// Makes runs that fail or pause: denied by a rule, denied by a person, failed, decision put off. Adds an answer of a
/// hand-written agent whose model has no price.
async fn failures(store: &SharedStore) {
    tokio::time::sleep(Duration::from_secs(1)).await;
    let runtime = runtime(store);
    for (name, tool, path) in
        [("put_off", "write", "later"), ("refused", "write", "/etc"), ("ruled_out", "launch", "")]
    {
        let provider =
            ScriptedProvider::named("north").step(calls(&[(tool, json!({"path": path}))], 1_000, 10));
        let agent = agent("lead", model(&provider, "large-1", true))
            .tool(FakeTool::new("write").access(Access::WRITE))
            .tool(FakeTool::new("launch").access(Access::EXECUTE))
            .build()
            .unwrap();
        runtime.session_with_id(id(name)).start(&agent, "Go on.").outcome().await.unwrap();
    }
    let provider = ScriptedProvider::named("north").fail(ErrorKind::Authentication, "the key was refused");
    let broken = agent("lead", model(&provider, "large-1", true)).build().unwrap();
    runtime.session_with_id(id("broken")).start(&broken, "Go on.").outcome().await.unwrap_err();

    let provider = ScriptedProvider::named("east").step(reply("two pages", 500, 5));
    let clerk = Clerk(model(&provider, "free-1", false));
    runtime.session_with_id(id("clerk")).start(&clerk, "File this.").outcome().await.unwrap();
}

/// Runs an agent whose process dies while a tool runs.
async fn killed(store: &SharedStore) {
    let (gate, provider) =
        (Gate::new(), ScriptedProvider::named("north").step(calls(&[("look", json!({}))], 1_000, 10)));
    let agent = agent("lead", model(&provider, "large-1", true))
        .tool(FakeTool::new("look").behind(&gate))
        .build()
        .unwrap();
    let run = runtime(store).session_with_id(id("killed")).start(&agent, "Look.").outcome();
    tokio::select! {
        () = gate.arrived(1) => {}
        ended = run => panic!("the run must not end: {ended:?}"),
    }
}

/// Copies all sessions, parents first.
pub(crate) async fn copy(from: &SharedStore, to: &impl SessionStore) {
    let mut sessions = from.query(&SessionFilter::all()).await.unwrap();
    sessions
        .sort_by(|a, b| a.record.created.cmp(&b.record.created).then_with(|| a.record.id.cmp(&b.record.id)));
    for info in sessions {
        let session = info.record.id.clone();
        let rows = from.read(&session, ReadRange::all()).await.unwrap();
        let mut batch = Batch::new(1, rows, info.head).creating(info.record);
        batch.lease = info.lease;
        to.append(&session, 0, batch).await.unwrap();
    }
}

/// Returns the number of events of this kind in a session.
pub(crate) async fn count(store: &dyn SessionStore, session: &SessionId, kind: &str) -> usize {
    let rows = store.read(session, ReadRange::all()).await.unwrap();
    let events = rows.into_iter().map(|row| row.into_envelope(session).unwrap().event);
    events.filter(|event: &Event| event.kind() == kind).count()
}
