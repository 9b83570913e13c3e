//! swiftide: an `Agent` is one conversation, so a fresh one is built inside the timing. Without its system prompt and
//! its tool that stops a run. Its client of chat completions is not measured: it is another crate.

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures::stream;
use kit::{Bench, CHAT, Counting, DELTAS, FAN, RUNS, STEPS, sum};
use serde::Deserialize;
use swiftide_agents::Agent;
use swiftide_core::{
    AgentContext, ChatCompletionStream,
    chat_completion::{
        ChatCompletion, ChatCompletionRequest, ChatCompletionResponse, ChatMessage, Tool, ToolCall,
        ToolOutput, ToolSpec,
        errors::{LanguageModelError, ToolError},
    },
};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Clone)]
struct Script {
    calls: usize,
    delay: Duration,
    fan: usize,
}

fn call(index: usize, name: &str) -> ToolCall {
    let arguments = format!("{{\"a\":{index},\"b\":1}}");
    ToolCall::builder().id(format!("c{index}")).name(name).args(arguments).build().unwrap()
}

fn calling(calls: Vec<ToolCall>) -> ChatCompletionResponse {
    ChatCompletionResponse::builder().tool_calls(calls).build().unwrap()
}

fn saying(text: String) -> ChatCompletionResponse {
    ChatCompletionResponse::builder().message(text).build().unwrap()
}

#[async_trait]
impl ChatCompletion for Script {
    async fn complete(
        &self,
        request: &ChatCompletionRequest,
    ) -> Result<ChatCompletionResponse, LanguageModelError> {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        let messages = request.messages();
        let done = (messages.len() - 1) / 2;
        Ok(match messages.last() {
            _ if self.fan > 0 && messages.len() == 1 => {
                calling((0..self.fan).map(|index| call(index, "nap")).collect())
            }
            _ if self.fan > 0 => saying(format!("n={}", messages.len() - 2)),
            _ if done < self.calls => calling(vec![call(done, "add")]),
            Some(ChatMessage::ToolOutput(_, output)) => {
                saying(format!("sum={}", output.content().unwrap_or("?")))
            }
            _ => saying("hello".into()),
        })
    }

    async fn complete_stream(&self, _: &ChatCompletionRequest) -> ChatCompletionStream {
        let delta = |_| {
            let mut response = ChatCompletionResponse::default();
            response.append_message_delta(Some("token "));
            response.message = None;
            Ok(response)
        };
        let deltas: Vec<_> = (0..self.calls).map(delta).collect();
        Box::pin(stream::iter(deltas.into_iter().chain([Ok(saying("done".into()))])))
    }
}

#[derive(Deserialize)]
struct Terms {
    a: i64,
    b: i64,
}

#[derive(Clone)]
struct Add;

#[async_trait]
impl Tool for Add {
    async fn invoke(&self, _: &dyn AgentContext, call: &ToolCall) -> Result<ToolOutput, ToolError> {
        let terms: Terms = serde_json::from_str(call.args().unwrap())?;
        Ok(ToolOutput::text((terms.a + terms.b).to_string()))
    }

    fn name(&self) -> Cow<'_, str> {
        "add".into()
    }

    fn tool_spec(&self) -> ToolSpec {
        ToolSpec::builder().name("add").description("Adds two numbers.").build().unwrap()
    }
}

#[derive(Clone)]
struct Nap;

#[async_trait]
impl Tool for Nap {
    async fn invoke(&self, _: &dyn AgentContext, _: &ToolCall) -> Result<ToolOutput, ToolError> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(ToolOutput::text("1"))
    }

    fn name(&self) -> Cow<'_, str> {
        "nap".into()
    }

    fn tool_spec(&self) -> ToolSpec {
        ToolSpec::builder().name("nap").description("Sleeps.").build().unwrap()
    }
}

fn agent(script: &Script) -> Agent {
    let tools = [Add.boxed(), Nap.boxed()];
    Agent::builder().llm(script).no_system_prompt().tools(tools).without_default_stop_tool().build().unwrap()
}

async fn ask(script: &Script, prompt: &'static str) -> String {
    let mut agent = agent(script);
    agent.query(prompt).await.unwrap();
    match agent.history().await.unwrap().last() {
        Some(ChatMessage::Assistant(Some(text), _)) => text.clone(),
        other => format!("{other:?}"),
    }
}

async fn stream(script: &Script) -> usize {
    let seen = Arc::new(AtomicUsize::new(0));
    let seeing = seen.clone();
    let mut agent = Agent::builder()
        .llm(script)
        .no_system_prompt()
        .tools([Add.boxed()])
        .without_default_stop_tool()
        .streaming(true)
        .on_stream(move |_, response| {
            seeing.fetch_add(usize::from(response.delta.is_some()), Relaxed);
            Box::pin(async { Ok(()) })
        })
        .build()
        .unwrap();
    agent.query("hi").await.unwrap();
    seen.load(Relaxed)
}

fn calls(calls: usize) -> Script {
    Script { calls, delay: Duration::ZERO, fan: 0 }
}

fn main() {
    let bench = Bench::new("swiftide");
    for steps in STEPS {
        let script = calls(steps);
        bench.run(steps, async || assert_eq!(ask(&script, "add please").await, sum(steps)));
    }
    let script = calls(0);
    bench.chat(async || {
        let mut agent = agent(&script);
        for _ in 0..CHAT {
            agent.query("hello there").await.unwrap();
        }
        assert_eq!(agent.history().await.unwrap().len(), 2 * CHAT);
    });
    let script = Script { fan: FAN, ..calls(0) };
    bench.tools(async || assert_eq!(ask(&script, "go").await, format!("n={FAN}")));
    let script = calls(DELTAS);
    bench.deltas(async || stream(&script).await);
    let script = Script { delay: Duration::from_millis(RUNS.1), ..calls(RUNS.0) };
    bench.heap(async || agent(&script));
    bench.runs(|| {
        let script = script.clone();
        async move { ask(&script, "add please").await }
    });
}
