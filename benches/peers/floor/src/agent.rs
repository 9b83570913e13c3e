//! A loop over a boxed model and boxed tools, with messages as JSON.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, join_all},
    stream::{self, BoxStream},
};
use serde::Deserialize;
use serde_json::{Value, json};

pub(crate) struct Call {
    id: String,
    name: &'static str,
    arguments: Value,
}

pub(crate) enum Reply {
    Text(String),
    Calls(Vec<Call>),
}

pub(crate) trait Model: Send + Sync {
    fn call<'a>(&'a self, messages: &'a [Value]) -> BoxFuture<'a, Reply>;
    fn stream<'a>(&'a self, messages: &'a [Value]) -> BoxStream<'a, String>;
}

/// Calls `add` a number of times, then answers with the last sum. It reads its place from the length of the history.
pub(crate) struct Script {
    pub(crate) calls: usize,
    pub(crate) delay: Duration,
    pub(crate) fan: usize,
}

impl Script {
    pub(crate) fn calls(calls: usize) -> Self {
        Self { calls, delay: Duration::ZERO, fan: 0 }
    }
}

fn call(index: usize, name: &'static str) -> Call {
    Call { id: format!("c{index}"), name, arguments: json!({"a": index, "b": 1}) }
}

impl Model for Script {
    fn call<'a>(&'a self, messages: &'a [Value]) -> BoxFuture<'a, Reply> {
        async move {
            if !self.delay.is_zero() {
                tokio::time::sleep(self.delay).await;
            }
            let done = (messages.len() - 1) / 2;
            match messages.len() {
                1 if self.fan > 0 => Reply::Calls((0..self.fan).map(|index| call(index, "nap")).collect()),
                len if self.fan > 0 => Reply::Text(format!("n={}", len - 2)),
                _ if done < self.calls => Reply::Calls(vec![call(done, "add")]),
                len => Reply::Text(format!("sum={}", messages[len - 1]["content"].as_str().unwrap_or("?"))),
            }
        }
        .boxed()
    }

    fn stream<'a>(&'a self, _: &'a [Value]) -> BoxStream<'a, String> {
        stream::iter((0..self.calls).map(|_| String::from("token "))).boxed()
    }
}

type Tool = Box<dyn Fn(Value) -> BoxFuture<'static, Value> + Send + Sync>;

pub(crate) enum Event {
    Delta(String),
    Done(String),
}

pub(crate) struct Agent {
    model: Arc<dyn Model>,
    tools: HashMap<String, Tool>,
    _instructions: String,
}

#[derive(Deserialize)]
struct Terms {
    a: i64,
    b: i64,
}

async fn add(arguments: Value) -> Value {
    let terms: Terms = serde_json::from_value(arguments).unwrap();
    json!(terms.a + terms.b)
}

async fn nap(arguments: Value) -> Value {
    tokio::time::sleep(Duration::from_millis(1)).await;
    arguments["a"].clone()
}

impl Agent {
    pub(crate) fn new(script: Script) -> Self {
        Self::over(Arc::new(script))
    }

    pub(crate) fn over(model: Arc<dyn Model>) -> Self {
        let mut tools: HashMap<String, Tool> = HashMap::new();
        tools.insert("add".into(), Box::new(|arguments| add(arguments).boxed()));
        tools.insert("nap".into(), Box::new(|arguments| nap(arguments).boxed()));
        Self { model, tools, _instructions: "You are a helpful assistant.".into() }
    }

    pub(crate) async fn ask(&self, prompt: &str) -> String {
        self.run(&mut vec![json!({"role": "user", "content": prompt})]).await
    }

    pub(crate) async fn run(&self, messages: &mut Vec<Value>) -> String {
        loop {
            match self.model.call(messages).await {
                Reply::Text(text) => {
                    messages.push(json!({"role": "assistant", "content": text}));
                    return text;
                }
                Reply::Calls(calls) => {
                    messages.push(json!({"role": "assistant", "tool_calls": calls.iter().map(encoded).collect::<Vec<_>>()}));
                    let results = join_all(calls.into_iter().map(|call| {
                        let result = (self.tools[call.name])(call.arguments);
                        async move { (call.id, result.await) }
                    }));
                    for (id, result) in results.await {
                        messages
                            .push(json!({"role": "tool", "tool_call_id": id, "content": result.to_string()}));
                    }
                }
            }
        }
    }

    pub(crate) fn stream<'a>(&'a self, messages: &'a [Value]) -> BoxStream<'a, Event> {
        let text = Some(String::new());
        stream::unfold((self.model.stream(messages), text), |(mut deltas, mut text)| async move {
            match deltas.next().await {
                Some(delta) => {
                    text.as_mut()?.push_str(&delta);
                    Some((Event::Delta(delta), (deltas, text)))
                }
                None => Some((Event::Done(text.take()?), (deltas, None))),
            }
        })
        .boxed()
    }
}

fn encoded(call: &Call) -> Value {
    let function = json!({"name": call.name, "arguments": call.arguments.to_string()});
    json!({"id": call.id, "type": "function", "function": function})
}
