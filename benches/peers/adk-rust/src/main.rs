//! adk-rust: an `LlmAgent` in a `Runner` over its sessions in memory, as it runs no agent without a session. A session
//! is created and deleted for each run, inside the timing. Tools run side by side where a turn has more than one.

mod graphs;
mod model;

use std::{
    collections::HashMap,
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use adk_agent::LlmAgentBuilder;
use adk_core::{Agent, Content, Llm, Part, SessionId, Tool, ToolContext, ToolExecutionStrategy, UserId};
use adk_model::openai::{OpenAIClient, OpenAIConfig};
use adk_runner::Runner;
use adk_session::{CreateRequest, DeleteRequest, InMemorySessionService, SessionService};
use async_trait::async_trait;
use futures::StreamExt;
use kit::{Bench, CHAT, Counting, DELTAS, FAN, RUNS, STEPS, STREAMS, WIRE, sum};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::model::Script;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static SESSIONS: AtomicU64 = AtomicU64::new(0);

#[derive(Deserialize)]
struct Terms {
    a: i64,
    b: i64,
}

fn schema() -> Value {
    let number = json!({"type": "integer"});
    json!({"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]})
}

struct Add;

#[async_trait]
impl Tool for Add {
    fn name(&self) -> &str {
        "add"
    }

    fn description(&self) -> &str {
        "Adds two numbers."
    }

    fn parameters_schema(&self) -> Option<Value> {
        Some(schema())
    }

    async fn execute(&self, _: Arc<dyn ToolContext>, arguments: Value) -> adk_core::Result<Value> {
        let terms: Terms = serde_json::from_value(arguments).unwrap();
        Ok(json!({"sum": terms.a + terms.b}))
    }
}

struct Nap;

#[async_trait]
impl Tool for Nap {
    fn name(&self) -> &str {
        "nap"
    }

    fn description(&self) -> &str {
        "Sleeps."
    }

    fn parameters_schema(&self) -> Option<Value> {
        Some(schema())
    }

    async fn execute(&self, _: Arc<dyn ToolContext>, arguments: Value) -> adk_core::Result<Value> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(json!({"a": arguments["a"]}))
    }
}

struct App {
    runner: Runner,
    sessions: Arc<dyn SessionService>,
}

/// What a run's events told.
#[derive(Default)]
struct Told {
    answer: String,
    deltas: usize,
}

impl App {
    fn new(model: Arc<dyn Llm>, turns: usize, strategy: ToolExecutionStrategy) -> Self {
        Self::within(model, turns, strategy, Arc::new(InMemorySessionService::new()))
    }

    fn within(
        model: Arc<dyn Llm>,
        turns: usize,
        strategy: ToolExecutionStrategy,
        sessions: Arc<dyn SessionService>,
    ) -> Self {
        let builder =
            LlmAgentBuilder::new("bot").description("bot").model(model).max_iterations(turns as u32);
        let builder = builder.tool(Arc::new(Add)).tool(Arc::new(Nap)).tool_execution_strategy(strategy);
        let agent: Arc<dyn Agent> = Arc::new(builder.build().unwrap());
        let runner =
            Runner::builder().app_name("app").agent(agent).session_service(sessions.clone()).build().unwrap();
        Self { runner, sessions }
    }

    async fn open(&self) -> String {
        let id = format!("s{}", SESSIONS.fetch_add(1, Relaxed));
        let (app_name, user_id) = ("app".into(), "u".into());
        let request =
            CreateRequest { app_name, user_id, session_id: Some(id.clone()), state: HashMap::new() };
        self.sessions.create(request).await.unwrap();
        id
    }

    async fn close(&self, id: &str) {
        let request = DeleteRequest { app_name: "app".into(), user_id: "u".into(), session_id: id.into() };
        self.sessions.delete(request).await.unwrap();
    }

    async fn say(&self, id: &str, prompt: &str) -> Told {
        let (user, session) = (UserId::new("u").unwrap(), SessionId::new(id).unwrap());
        let mut events =
            self.runner.run(user, session, Content::new("user").with_text(prompt)).await.unwrap();
        let mut told = Told::default();
        while let Some(event) = events.next().await {
            let response = event.unwrap().llm_response;
            for part in response.content.iter().flat_map(|content| &content.parts) {
                match part {
                    Part::Text { text } if response.partial => {
                        told.deltas += 1;
                        black_box(text);
                    }
                    Part::Text { text } => told.answer.clone_from(text),
                    _ => {}
                }
            }
        }
        told
    }

    async fn ask(&self, prompt: &str) -> Told {
        let id = self.open().await;
        let told = self.say(&id, prompt).await;
        self.close(&id).await;
        told
    }
}

fn over_http(model: &str) -> App {
    let mut config = OpenAIConfig::new("k", model);
    config.base_url = Some(kit::base_url());
    App::new(Arc::new(OpenAIClient::new(config).unwrap()), 5, ToolExecutionStrategy::Sequential)
}

fn app(script: Script, turns: usize) -> App {
    App::new(Arc::new(script), turns, ToolExecutionStrategy::Sequential)
}

fn main() {
    let bench = Bench::new("adk-rust");
    for steps in STEPS {
        let app = app(Script::calls(steps), steps + 5);
        bench.run(steps, async || assert_eq!(app.ask("add please").await.answer, sum(steps)));
    }
    let talker = app(Script::calls(0), 5);
    bench.chat(async || {
        let id = talker.open().await;
        for _ in 0..CHAT {
            black_box(talker.say(&id, "hello there").await.answer);
        }
        talker.close(&id).await;
    });
    let fan = Arc::new(Script { fan: FAN, ..Script::calls(0) });
    let napper = App::new(fan, 5, ToolExecutionStrategy::Parallel);
    bench.tools(async || assert_eq!(napper.ask("go").await.answer, format!("n={FAN}")));
    let streamer = app(Script { deltas: DELTAS, ..Script::calls(0) }, 5);
    bench.deltas(async || streamer.ask("hi").await.deltas);
    let remote = over_http(WIRE.1);
    bench.wire(async || remote.ask("hi").await.deltas);
    let remote = Arc::new(over_http(STREAMS.1));
    bench.streams(|| {
        let remote = remote.clone();
        async move { remote.ask("hi").await.deltas }
    });
    graphs::measure(&bench);
    let model: Arc<dyn Llm> =
        Arc::new(Script { delay: Duration::from_millis(RUNS.1), ..Script::calls(RUNS.0) });
    let sessions: Arc<dyn SessionService> = Arc::new(InMemorySessionService::new());
    bench.heap(async || App::within(model.clone(), 10, ToolExecutionStrategy::Sequential, sessions.clone()));
    let shared = Arc::new(App::new(model, 10, ToolExecutionStrategy::Sequential));
    bench.runs(|| {
        let shared = shared.clone();
        async move { shared.ask("add please").await.answer }
    });
}
