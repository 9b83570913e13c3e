//! autoagents: a `ReActAgent` in a `DirectAgent`, with a `SlidingWindowMemory` that holds the whole run, as it forgets
//! results of tools without a memory. The memory is the agent's, so a fresh agent is built inside the timing. Events
//! have no reader. Its OpenRouter client speaks chat completions.

mod model;

use std::{hint::black_box, sync::Arc, time::Duration};

use async_trait::async_trait;
use autoagents::{
    core::{
        agent::{
            AgentBuilder, AgentDeriveT, AgentHooks, BaseAgent, DirectAgent, DirectAgentHandle,
            memory::SlidingWindowMemory, prebuilt::executor::ReActAgent, task::Task,
        },
        tool::{ToolCallError, ToolRuntime, ToolT},
    },
    llm::{LLMProvider, backends::openrouter::OpenRouter, builder::LLMBuilder},
};
use futures::StreamExt;
use kit::{Bench, CHAT, Counting, DELTAS, FAN, RUNS, STEPS, STREAMS, WIRE, sum};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::model::Script;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Deserialize)]
struct Terms {
    a: i64,
    b: i64,
}

fn schema() -> Value {
    let number = json!({"type": "integer"});
    json!({"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]})
}

#[derive(Debug)]
struct Add;

impl ToolT for Add {
    fn name(&self) -> &str {
        "add"
    }

    fn description(&self) -> &str {
        "Adds two numbers."
    }

    fn args_schema(&self) -> Value {
        schema()
    }
}

#[async_trait]
impl ToolRuntime for Add {
    async fn execute(&self, arguments: Value) -> Result<Value, ToolCallError> {
        let terms: Terms = serde_json::from_value(arguments)?;
        Ok(json!(terms.a + terms.b))
    }
}

#[derive(Debug)]
struct Nap;

impl ToolT for Nap {
    fn name(&self) -> &str {
        "nap"
    }

    fn description(&self) -> &str {
        "Sleeps."
    }

    fn args_schema(&self) -> Value {
        schema()
    }
}

#[async_trait]
impl ToolRuntime for Nap {
    async fn execute(&self, arguments: Value) -> Result<Value, ToolCallError> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(arguments["a"].clone())
    }
}

#[derive(Debug, Clone)]
struct Bot;

#[async_trait]
impl AgentDeriveT for Bot {
    type Output = String;

    fn description(&self) -> &str {
        "You are a helpful assistant."
    }

    fn output_schema(&self) -> Option<Value> {
        None
    }

    fn name(&self) -> &str {
        "bot"
    }

    fn tools(&self) -> Vec<Box<dyn ToolT>> {
        vec![Box::new(Add), Box::new(Nap)]
    }
}

impl AgentHooks for Bot {}

type Agent = BaseAgent<ReActAgent<Bot>, DirectAgent>;

async fn agent(model: Arc<dyn LLMProvider>, turns: usize, window: usize) -> Agent {
    let builder = AgentBuilder::<_, DirectAgent>::new(ReActAgent::with_max_turns(Bot, turns));
    let memory = Box::new(SlidingWindowMemory::new(window));
    let handle: DirectAgentHandle<ReActAgent<Bot>> = builder.llm(model).memory(memory).build().await.unwrap();
    handle.agent
}

async fn ask(model: Arc<dyn LLMProvider>, steps: usize, prompt: &str) -> String {
    agent(model, steps + 2, 2 * steps + 8).await.run(Task::new(prompt)).await.unwrap()
}

async fn drain(model: Arc<dyn LLMProvider>) -> usize {
    let agent = agent(model, 3, 16).await;
    let mut items = agent.run_stream(Task::new("hi")).await.unwrap();
    let mut deltas = 0;
    while let Some(item) = items.next().await {
        let item = item.unwrap();
        // The last item is the whole answer.
        deltas += usize::from(item.len() <= 6);
        black_box(item);
    }
    deltas
}

fn over_http(model: &str) -> Arc<dyn LLMProvider> {
    let builder = LLMBuilder::<OpenRouter>::new().api_key("k").base_url(format!("{}/", kit::base_url()));
    builder.model(model).build().unwrap()
}

fn calls(calls: usize) -> Script {
    Script { calls, delay: Duration::ZERO, fan: 0 }
}

fn main() {
    let bench = Bench::new("autoagents");
    let model = |script| -> Arc<dyn LLMProvider> { Arc::new(script) };
    for steps in STEPS {
        let model = model(calls(steps));
        bench.run(steps, async || assert_eq!(ask(model.clone(), steps, "add please").await, sum(steps)));
    }
    let talker = model(calls(0));
    bench.chat(async || {
        let agent = agent(talker.clone(), 3, 2 * CHAT + 8).await;
        for _ in 0..CHAT {
            black_box(agent.run(Task::new("hello there")).await.unwrap());
        }
    });
    let napper = model(Script { fan: FAN, ..calls(0) });
    bench.tools(async || assert_eq!(ask(napper.clone(), FAN, "go").await, format!("n={FAN}")));
    let streamer = model(calls(DELTAS));
    bench.deltas(async || drain(streamer.clone()).await);
    let remote = over_http(WIRE.1);
    bench.wire(async || drain(remote.clone()).await);
    let remote = over_http(STREAMS.1);
    bench.streams(|| drain(remote.clone()));
    let slow = model(Script { delay: Duration::from_millis(RUNS.1), ..calls(RUNS.0) });
    bench.heap(async || agent(slow.clone(), RUNS.0 + 2, 16).await);
    bench.runs(|| {
        let slow = slow.clone();
        async move { ask(slow, RUNS.0, "add please").await }
    });
}
