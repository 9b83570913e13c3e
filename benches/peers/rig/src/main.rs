//! rig: an `Agent` of its `AgentBuilder`, over its own scripted wire and a transport of ours.

use std::{convert::Infallible, hint::black_box, sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use kit::{Bench, CHAT, Counting, DELTAS, FAN, RUNS, STEPS, STREAMS, WIRE, sum};
use rig::{agent::MultiTurnStreamItem, prelude::*};
use rig_core::{
    completion::{CompletionRequest, CompletionResponse, Usage},
    driver::{Exchange, Model, Opened, Opening, Transport},
    message::{
        AssistantContent, Message, Origin, ToolCall, ToolFunction, ToolName, ToolResultContent, UserContent,
    },
    operation::Finish,
    streaming::{Item, StreamEvent},
    test_utils::{MockFrame, MockScript, MockStreamEvent},
    wire::Mode,
};
use serde::Deserialize;
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Clone)]
struct Script {
    calls: usize,
    delay: Duration,
    fan: usize,
}

fn call(index: usize, name: &str) -> AssistantContent {
    let function = ToolFunction::new(ToolName::new(name).unwrap(), json!({"a": index, "b": 1}));
    AssistantContent::ToolCall(ToolCall::from_wire(format!("c{index}"), function))
}

fn results(messages: &[Message]) -> impl Iterator<Item = &UserContent> {
    let content = messages.iter().filter_map(|message| match message {
        Message::User { content } => Some(content.iter()),
        _ => None,
    });
    content.flatten()
}

fn last_result(messages: &[Message]) -> String {
    let last = results(messages).last();
    let Some(UserContent::ToolResult(result)) = last else { return "?".into() };
    match result.content.iter().next() {
        Some(ToolResultContent::Text(text)) => text.text.clone(),
        Some(ToolResultContent::Json { value }) => value.to_string(),
        _ => "?".into(),
    }
}

impl Script {
    fn answer(&self, messages: &[Message]) -> Vec<AssistantContent> {
        let done = (messages.len() - 1) / 2;
        match messages.len() {
            1 if self.fan > 0 => (0..self.fan).map(|index| call(index, "nap")).collect(),
            _ if self.fan > 0 => {
                vec![AssistantContent::text(format!("n={}", results(&messages[2..]).count()))]
            }
            _ if done < self.calls => vec![call(done, "add")],
            _ => {
                vec![AssistantContent::text(format!("sum={}", last_result(&messages[messages.len() - 1..])))]
            }
        }
    }
}

impl Transport<MockScript> for Script {
    fn send(&self, request: CompletionRequest, exchange: Exchange) -> Opening<MockFrame> {
        if exchange.mode == Mode::Streaming {
            let mut finish = Finish::default();
            finish.usage = Usage::default();
            let text = |_| Ok(MockFrame::Event(MockStreamEvent::Text(String::from("token "))));
            let end = stream::iter([Ok(MockFrame::Event(MockStreamEvent::FinalResponse(finish)))]);
            let frames = stream::iter((0..self.calls).map(text)).chain(end);
            return Opening::ready(Opened::new(frames).with_document(Value::Null));
        }
        let script = self.clone();
        let reply = move || {
            let content = script.answer(&request.chat_history);
            let origin = Origin::new("example.api", "mock", "");
            let response = CompletionResponse::new(content, Usage::default(), origin, Value::Null);
            let frames = stream::iter([Ok(MockFrame::Response(Box::new(response)))]);
            Opened::new(frames).with_document(Value::Null)
        };
        if self.delay.is_zero() {
            return Opening::ready(reply());
        }
        let delay = self.delay;
        Opening::new(async move {
            tokio::time::sleep(delay).await;
            Ok(reply())
        })
    }
}

#[derive(Deserialize)]
struct Terms {
    a: i64,
    b: i64,
}

fn schema() -> Value {
    let number = json!({"type": "integer"});
    json!({"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]})
}

#[derive(Clone)]
struct Add;

impl Tool for Add {
    const NAME: &'static str = "add";
    type Args = Terms;
    type Output = i64;
    type Error = Infallible;

    fn description(&self) -> String {
        "Adds two numbers.".into()
    }

    fn parameters(&self) -> Value {
        schema()
    }

    async fn call(&self, _: &mut ToolContext, terms: Terms) -> Result<i64, Infallible> {
        Ok(terms.a + terms.b)
    }
}

#[derive(Clone)]
struct Nap;

impl Tool for Nap {
    const NAME: &'static str = "nap";
    type Args = Terms;
    type Output = i64;
    type Error = Infallible;

    fn description(&self) -> String {
        "Sleeps.".into()
    }

    fn parameters(&self) -> Value {
        schema()
    }

    async fn call(&self, _: &mut ToolContext, terms: Terms) -> Result<i64, Infallible> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(terms.a)
    }
}

fn agent(script: Script) -> Agent {
    AgentBuilder::new(Model::new(MockScript::new("mock"), script)).tool(Add).tool(Nap).build()
}

fn calls(calls: usize) -> Script {
    Script { calls, delay: Duration::ZERO, fan: 0 }
}

fn over_http(model: &str) -> Agent {
    let config = rig::providers::openai::OpenAIConfig::new("k").with_base_url(kit::base_url());
    let provider = config.connect(rig::http_client::ReqwestClient::default());
    AgentBuilder::new(provider.chat(model)).build()
}

async fn drain(agent: &Agent) -> usize {
    let (mut items, mut deltas, mut length) = (agent.prompt("hi").stream(), 0, 0);
    while let Some(item) = items.next().await {
        match item.unwrap() {
            MultiTurnStreamItem::StreamAssistantItem(Item::Event(StreamEvent::Text { text, .. })) => {
                deltas += 1;
                black_box(text);
            }
            MultiTurnStreamItem::FinalResponse(response) => length = response.output().len(),
            _ => {}
        }
    }
    assert_eq!(length, 6 * deltas);
    deltas
}

fn main() {
    let bench = Bench::new("rig");
    for steps in STEPS {
        let agent = agent(calls(steps));
        bench.run(steps, async || {
            let response = agent.prompt("add please").max_turns(steps + 2).await.unwrap();
            assert_eq!(response.output(), sum(steps));
        });
    }
    let talker = agent(calls(0));
    bench.chat(async || {
        let mut history: Vec<Message> = Vec::new();
        for _ in 0..CHAT {
            black_box(talker.chat("hello there", &mut history).await.unwrap());
        }
        assert_eq!(history.len(), 2 * CHAT);
    });
    let napper = agent(Script { fan: FAN, ..calls(0) });
    bench.tools(async || {
        let response = napper.prompt("go").max_turns(3).tool_concurrency(FAN).await.unwrap();
        assert_eq!(response.output(), format!("n={FAN}"));
    });
    let streamer = agent(calls(DELTAS));
    bench.deltas(async || drain(&streamer).await);
    let remote = over_http(WIRE.1);
    bench.wire(async || drain(&remote).await);
    let remote = Arc::new(over_http(STREAMS.1));
    bench.streams(|| {
        let remote = remote.clone();
        async move { drain(&remote).await }
    });
    let script = Script { delay: Duration::from_millis(RUNS.1), ..calls(RUNS.0) };
    bench.heap(async || agent(script.clone()));
    let shared = Arc::new(agent(script));
    bench.runs(|| {
        let shared = shared.clone();
        async move { shared.prompt("add please").max_turns(RUNS.0 + 2).await.unwrap().output().to_owned() }
    });
}
