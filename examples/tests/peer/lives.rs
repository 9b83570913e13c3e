//! One life of a team of three sizes, and one of a planner with executors, in an SQLite file: each goes on where an
//! earlier process left it, and prints how it ended. `.ci/lives.py` kills these processes, and counts in the file.
//!
//! `LIVES` names the folder of the file, which is a new one without it, and `LIVES_URLS` three servers, each with
//! its own model, in place of one.

use std::{
    fmt,
    io::Write as _,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use entourage::{
    planner::{ConversationLimits, PartBudgets, Planner},
    prelude::*,
    provider::{DeltaStream, FinishReason, Params, Request, Size},
    store::Durability,
    team::{Member, TaskType, Team},
    tool::{Footprint, Repeat, ToolInput, ToolSpec},
};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

/// Most bytes of one reply of the model.
const MAX_OUTPUT: u64 = 200;

const NAMES: [&str; 3] = ["small", "medium", "large"];

fn url(place: usize) -> String {
    let one =
        || std::env::var("LLM_PEER_URL").expect("set LLM_PEER_URL to the server's address, without /v1");
    let several = std::env::var("LIVES_URLS").ok();
    let urls: Vec<_> = several.iter().flat_map(|urls| urls.split(',')).map(str::to_owned).collect();
    let url = urls.get(place).cloned().unwrap_or_else(one);
    format!("{}/v1", url.trim_end_matches('/'))
}

/// The model of a size.
fn model(place: usize) -> Model {
    let provider = OpenAiChat::builder().base_url(url(place)).api_key("sk-peer-0123456789-secret");
    provider.build().unwrap().model(NAMES[place])
}

fn agent(name: &str, model: Model, tools: &[Arc<dyn Tool>]) -> ReactAgent {
    let params = Params::default().with_max_output(MAX_OUTPUT);
    let agent = ReactAgent::builder(name, model).instructions("Answer briefly.").params(params);
    agent.tools(tools.iter().cloned()).build().unwrap()
}

/// The model of a server, but for its plans: what it says is gibberish, and no plan comes of that.
struct Plans {
    model: Model,
    /// Begins the part of a prompt that asks for a plan.
    asks: &'static str,
    plan: Value,
}

impl fmt::Debug for Plans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plans").field("asks", &self.asks).finish_non_exhaustive()
    }
}

#[async_trait]
impl Provider for Plans {
    fn name(&self) -> &str {
        self.model.provider().name()
    }

    async fn stream(&self, request: Request, cx: &CallContext) -> Result<DeltaStream> {
        let asked = request.messages.iter().last().is_some_and(|last| last.text().contains(self.asks));
        let final_answer = request.tools.iter().any(|tool| tool.name() == "final_answer");
        let mut reply = self.model.provider().stream(request, cx).await?;
        if !asked {
            return Ok(reply);
        }
        // It has been asked all the same: a plan takes its time, and a process may die meanwhile.
        while let Some(delta) = reply.next().await {
            delta?;
        }
        let plan = self.plan.to_string();
        let deltas = if final_answer {
            let call = Delta::tool_call(0, "call_0", "final_answer");
            vec![call, Delta::arguments(0, plan), Delta::Finish(FinishReason::ToolCalls.into())]
        } else {
            vec![Delta::text(plan), Delta::Finish(FinishReason::Stop.into())]
        };
        Ok(stream::iter(deltas.into_iter().map(Ok)).boxed())
    }
}

fn plans(place: usize, asks: &'static str, plan: Value) -> Model {
    Model::new(Arc::new(Plans { model: model(place), asks, plan }), NAMES[place])
}

/// A tool that writes the key of each call into a file, once for each time that it runs.
#[derive(Debug)]
struct Notes {
    spec: ToolSpec,
    file: Mutex<PathBuf>,
}

impl Notes {
    fn tool(name: &str, access: Access, repeat: Repeat, folder: &std::path::Path) -> Arc<dyn Tool> {
        let schema =
            json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
        let spec = ToolSpec::new(name, "Takes a note.", schema).with_access(access).with_repeat(repeat);
        Arc::new(Self { spec, file: Mutex::new(folder.join(format!("{name}.txt"))) })
    }
}

#[async_trait]
impl Tool for Notes {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn footprint(&self, _: &Value) -> Footprint {
        Footprint::default()
    }

    async fn call(&self, _: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let path = self.file.lock().unwrap();
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&*path).unwrap();
        file.write_all(format!("{}\n", cx.idempotency_key()).as_bytes()).unwrap();
        Ok(ToolOutput::text("It is noted."))
    }
}

/// Items of all sizes, some side by side.
fn team(folder: &std::path::Path) -> Team {
    let item =
        |id: &str, kind: &str, after: &[&str]| json!({"id": id, "task": id, "type": kind, "after": after});
    let items = [
        item("find", "summarize", &[]),
        item("list", "summarize", &[]),
        item("compare", "analyze", &["find", "list"]),
        item("write", "code", &["compare"]),
        item("check", "review", &["write"]),
        item("tell", "summarize", &["compare"]),
    ];
    let lead = plans(2, "Plan this for your team.", json!({ "items": items }));
    let tools = [
        Notes::tool("look", Access::READ, Repeat::Safe, folder),
        Notes::tool("note", Access::WRITE, Repeat::Once, folder),
    ];
    let member = |name: &str, place, size| Member::new(agent(name, model(place), &tools)).size(size);
    Team::builder("crew", lead)
        .member(member("scout", 0, Size::S).replicas(2))
        .member(member("analyst", 1, Size::M).specialist_in([TaskType::Review]))
        .member(member("builder", 2, Size::L))
        .build()
        .unwrap()
}

/// Three steps that executors look into, and one of the planner's own.
fn planner(folder: &std::path::Path) -> Planner {
    let step = |number: u32, after: &[u32]| {
        json!({
            "number": number, "description": "Look at it.", "executor_required": true, "tools": ["look"],
            "depends_on": after, "optional": true,
        })
    };
    let own = json!({"number": 4, "description": "Note it.", "tools": ["note"]});
    let plan = json!({ "steps": [step(1, &[]), step(2, &[]), step(3, &[1]), own] });
    let limits = ConversationLimits::default()
        .with_turns(3)
        .with_turn_time(Duration::from_secs(20))
        .with_executor_output(MAX_OUTPUT)
        .with_answer_output(MAX_OUTPUT)
        .with_synthesis_output(MAX_OUTPUT);
    Planner::builder("assistant", plans(2, "Plan this request:", plan))
        .executor(model(0))
        .without_classifier()
        .max_replans(0)
        .limits(limits)
        .budgets(PartBudgets::default())
        .tools([
            Notes::tool("look", Access::READ, Repeat::Safe, folder),
            Notes::tool("note", Access::WRITE, Repeat::Once, folder),
        ])
        .build()
        .unwrap()
}

/// Begins or continues the run in its file, and prints how it ended.
async fn live<A: Agent + Clone + 'static>(name: &str, make: fn(&std::path::Path) -> A) {
    let new = tempfile::tempdir().unwrap();
    let folder = std::env::var_os("LIVES").map_or_else(|| new.path().to_owned(), PathBuf::from);
    let agent = make(&folder);
    let store = SqliteStore::builder(folder.join("lives.db")).durability(Durability::ProcessDeath);
    let store = Arc::new(store.build().await.unwrap());
    let runtime =
        Runtime::builder().shared_store(Arc::clone(&store) as _).policy(Policy::allow_all()).build();
    let session = runtime.session_with_id(SessionId::new(name).unwrap());
    let began = !runtime.sessions(&SessionFilter::id(session.id().clone())).await.unwrap().is_empty();
    let run = match began && session.unfinished().await.unwrap().is_some() {
        true => session.resume(&agent),
        false => session.start(&agent, "First look at all of it, then sum up."),
    };
    let outcome = run.outcome().await.unwrap();
    assert!(!matches!(outcome.status, Status::Paused(_)), "{outcome}");
    println!("{name} ended: {}", outcome.status);
    store.close().await;
}

#[tokio::test]
#[ignore = "needs LLM_PEER_URL, the address of a llama.cpp server"]
async fn lives_of_a_team() {
    live("team", team).await;
}

#[tokio::test]
#[ignore = "needs LLM_PEER_URL, the address of a llama.cpp server"]
async fn lives_of_a_planner() {
    live("planner", planner).await;
}
