//! The floor: every workload by hand, with no framework. serde_json messages, boxed async tools, no events, no store.

use std::{collections::HashMap, sync::Arc, task::Poll, time::Duration};

use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, join_all},
    stream::{self, BoxStream},
};
use serde::Deserialize;
use serde_json::{Value, json};

pub(crate) struct Call {
    id: String,
    name: String,
    arguments: Value,
}

pub(crate) enum Reply {
    Text(String),
    Calls(Vec<Call>),
}

pub(crate) trait Model: Send + Sync {
    fn reply<'a>(&'a self, messages: &'a [Value]) -> BoxFuture<'a, Reply>;
    fn stream<'a>(&'a self, messages: &'a [Value]) -> BoxStream<'a, String>;
}

/// A model that calls `add` until it has `turns` results, or makes `fan` calls of `nap` at once, and then answers.
pub(crate) struct Scripted {
    pub(crate) turns: usize,
    pub(crate) fan: usize,
}

impl Model for Scripted {
    fn reply<'a>(&'a self, messages: &'a [Value]) -> BoxFuture<'a, Reply> {
        async move {
            if self.fan > 0 {
                if messages.len() > 1 {
                    return Reply::Text(format!("results: {}", messages.len() - 2));
                }
                let nap = |n| Call {
                    id: format!("call{n}"),
                    name: "nap".into(),
                    arguments: json!({ "a": n, "b": 1 }),
                };
                return Reply::Calls((0..self.fan).map(nap).collect());
            }
            let turn = (messages.len() - 1) / 2;
            if turn < self.turns {
                let arguments = json!({ "a": turn, "b": 1 });
                return Reply::Calls(vec![Call { id: format!("call{turn}"), name: "add".into(), arguments }]);
            }
            let last = messages.last().and_then(|message| message["content"].as_str()).unwrap_or("?");
            Reply::Text(format!("sum {last}"))
        }
        .boxed()
    }

    fn stream<'a>(&'a self, _: &'a [Value]) -> BoxStream<'a, String> {
        stream::iter((0..self.turns).map(|_| String::from("token "))).boxed()
    }
}

type Tool = Box<dyn Fn(Value) -> BoxFuture<'static, Value> + Send + Sync>;

pub(crate) struct Agent {
    model: Arc<dyn Model>,
    tools: HashMap<String, Tool>,
    _instructions: String,
}

#[derive(Deserialize)]
struct Add {
    a: i64,
    b: i64,
}

impl Agent {
    pub(crate) fn new(model: Arc<dyn Model>) -> Self {
        let mut tools: HashMap<String, Tool> = HashMap::new();
        let add = |arguments| {
            async move {
                let Add { a, b } = serde_json::from_value(arguments).unwrap();
                json!(a + b)
            }
            .boxed()
        };
        let nap = |arguments: Value| {
            async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                arguments["a"].clone()
            }
            .boxed()
        };
        tools.insert("add".into(), Box::new(add));
        tools.insert("nap".into(), Box::new(nap));
        Self { model, tools, _instructions: "You are a helpful assistant.".into() }
    }

    pub(crate) async fn ask(&self, prompt: &str) -> String {
        self.go_on(&mut vec![json!({ "role": "user", "content": prompt })]).await
    }

    pub(crate) async fn go_on(&self, messages: &mut Vec<Value>) -> String {
        loop {
            let calls = match self.model.reply(messages).await {
                Reply::Text(text) => {
                    messages.push(json!({ "role": "assistant", "content": text }));
                    return text;
                }
                Reply::Calls(calls) => calls,
            };
            let sent: Vec<_> = calls
                .iter()
                .map(|call| {
                    let function = json!({ "name": call.name, "arguments": call.arguments.to_string() });
                    json!({ "id": call.id, "type": "function", "function": function })
                })
                .collect();
            messages.push(json!({ "role": "assistant", "tool_calls": sent }));
            let mut calls = calls;
            if calls.len() == 1 {
                let call = calls.remove(0);
                let result = self.tools[&call.name](call.arguments).await;
                messages
                    .push(json!({ "role": "tool", "tool_call_id": call.id, "content": result.to_string() }));
                continue;
            }
            let results = join_all(calls.into_iter().map(|call| {
                let result = self.tools[&call.name](call.arguments);
                async move { (call.id, result.await) }
            }));
            for (id, result) in results.await {
                messages.push(json!({ "role": "tool", "tool_call_id": id, "content": result.to_string() }));
            }
        }
    }

    /// Streams the reply piece by piece, then whole.
    pub(crate) fn stream<'a>(&'a self, messages: &'a [Value]) -> BoxStream<'a, Piece> {
        let mut pieces = self.model.stream(messages);
        let (mut whole, mut over) = (String::new(), false);
        stream::poll_fn(move |cx| {
            let Poll::Ready(piece) = pieces.poll_next_unpin(cx) else { return Poll::Pending };
            Poll::Ready(match piece {
                Some(piece) => {
                    whole.push_str(&piece);
                    Some(Piece::Delta(piece))
                }
                None if over => None,
                None => {
                    over = true;
                    Some(Piece::Whole(std::mem::take(&mut whole)))
                }
            })
        })
        .boxed()
    }
}

pub(crate) enum Piece {
    Delta(String),
    Whole(String),
}
