//! Two agents on one task, of which one checks, beside the same calls by hand, with the same messages and one tool.

use std::{collections::HashMap, hint::black_box, sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Result,
    message::Role,
    provider::{CallContext, Delta, DeltaStream, FinishReason, Model, Provider, Request},
};
use entourage_runners::{DualAgent, ReactAgent};
use entourage_runtime::AgentExt;
use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, join_all},
    stream,
};
use serde_json::{Value, json};
use tokio::runtime::Runtime as Tokio;

use crate::{Work, least, median, pair};

const TASK: &str = "Write a function that adds two numbers, and show that it works.";
const DONE: &str = "I wrote the function and called it.";
const LEFT: &str = "Call it once with numbers below zero.";
const SEEN: &str = "I called it, and it adds.";

/// The model of both sides. Its replies depend on the number of messages alone.
#[derive(Debug, Clone, Copy)]
enum Scripted {
    Works,
    /// Completes the task in this round.
    Checks(usize),
}

enum Said {
    Text(String),
    Complete,
}

impl Scripted {
    fn reply(self, messages: usize, from_user: usize) -> Said {
        match self {
            // A turn of work, then its summary.
            Self::Works if from_user % 2 == 1 => Said::Text(DONE.to_owned()),
            Self::Works => Said::Text(format!("after {messages} messages")),
            // The first user message is the opener of the checker.
            Self::Checks(rounds) if from_user > rounds => Said::Complete,
            Self::Checks(_) => Said::Text(LEFT.to_owned()),
        }
    }
}

fn answer(rounds: usize) -> String {
    format!("after {} messages", 4 * rounds - 1)
}

async fn pass(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

trait FloorModel: Send + Sync {
    fn reply<'a>(&'a self, messages: &'a [Value]) -> BoxFuture<'a, Reply>;
}

enum Reply {
    Text(String),
    Calls(Vec<Call>),
}

struct Call {
    id: String,
    name: String,
    arguments: Value,
}

impl FloorModel for (Scripted, Duration) {
    fn reply<'a>(&'a self, messages: &'a [Value]) -> BoxFuture<'a, Reply> {
        async move {
            pass(self.1).await;
            let from_user = messages.iter().filter(|message| message["role"] == "user").count();
            match self.0.reply(messages.len(), from_user) {
                Said::Text(text) => Reply::Text(text),
                Said::Complete => {
                    let arguments = json!({ "summary": SEEN });
                    Reply::Calls(vec![Call { id: "call0".into(), name: "task_complete".into(), arguments }])
                }
            }
        }
        .boxed()
    }
}

#[derive(serde::Deserialize)]
struct Claim {
    summary: String,
}

type Tool = Box<dyn Fn(Value) -> BoxFuture<'static, Value> + Send + Sync>;

/// The floor: two lists of messages and a loop.
struct ByHand {
    works: Box<dyn FloorModel>,
    checks: Box<dyn FloorModel>,
    tools: HashMap<String, Tool>,
    /// Texts as long as ours.
    sum_up: String,
    interrupted: String,
    opener: String,
}

enum Turn {
    Text(String),
    Complete,
}

fn message(role: &str, content: &str) -> Value {
    json!({ "role": role, "content": content })
}

impl ByHand {
    fn new(rounds: usize, delay: Duration) -> Self {
        let complete = |arguments| {
            async move {
                let Claim { summary } = serde_json::from_value(arguments).unwrap();
                assert!(!summary.trim().is_empty());
                json!("The task is complete.")
            }
            .boxed()
        };
        Self {
            works: Box::new((Scripted::Works, delay)),
            checks: Box::new((Scripted::Checks(rounds), delay)),
            tools: HashMap::from([("task_complete".to_owned(), Box::new(complete) as Tool)]),
            sum_up: "Sum up. ".repeat(55),
            interrupted: "I was interrupted before I could check this.".to_owned(),
            opener: "Hello! What can I do for you?".to_owned(),
        }
    }

    async fn turn(&self, model: &dyn FloorModel, messages: &mut Vec<Value>) -> Turn {
        loop {
            let calls = match model.reply(messages).await {
                Reply::Text(text) => {
                    messages.push(message("assistant", &text));
                    return Turn::Text(text);
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
            let mut complete = false;
            for call in calls {
                let result = self.tools[&call.name](call.arguments).await;
                complete |= call.name == "task_complete";
                messages
                    .push(json!({ "role": "tool", "tool_call_id": call.id, "content": result.to_string() }));
            }
            if complete {
                return Turn::Complete;
            }
        }
    }

    async fn run(&self, task: &str) -> Option<String> {
        let mut work = vec![message("user", task)];
        let mut check = vec![
            message("assistant", &self.interrupted),
            message("user", &self.opener),
            message("assistant", task),
        ];
        for _ in 0..10 {
            self.turn(&*self.works, &mut work).await;
            work.push(message("user", &self.sum_up));
            let Turn::Text(summary) = self.turn(&*self.works, &mut work).await else { return None };
            check.push(message("user", &summary));
            match self.turn(&*self.checks, &mut check).await {
                Turn::Complete => return Some(summary),
                Turn::Text(feedback) => work.push(message("user", &feedback)),
            }
        }
        None
    }
}

#[derive(Debug)]
struct Ours(Scripted, Duration);

#[async_trait]
impl Provider for Ours {
    fn name(&self) -> &str {
        "bench"
    }

    async fn stream(&self, request: Request, _: &CallContext) -> Result<DeltaStream> {
        pass(self.1).await;
        let from_user = request.messages.iter().filter(|message| message.role() == Role::User).count();
        let deltas = match self.0.reply(request.messages.len(), from_user) {
            Said::Text(text) => vec![Delta::Text(text.into()), Delta::Finish(FinishReason::Stop.into())],
            Said::Complete => vec![
                Delta::tool_call(0, "call0", "task_complete"),
                Delta::arguments(0, json!({ "summary": SEEN }).to_string()),
                Delta::Finish(FinishReason::ToolCalls.into()),
            ],
        };
        Ok(stream::iter(deltas.into_iter().map(Ok)).boxed())
    }
}

fn dual(rounds: usize, delay: Duration) -> DualAgent {
    let agent = |name: &str, script| {
        let model = Model::new(Arc::new(Ours(script, delay)), "bench");
        ReactAgent::builder(name, model).build().unwrap()
    };
    let (works, checks) = (agent("coder", Scripted::Works), agent("checker", Scripted::Checks(rounds)));
    DualAgent::builder("pair", works, checks).build().unwrap()
}

pub(crate) fn floor_rounds(rounds: usize) -> impl Work + Clone {
    let pair = Arc::new(ByHand::new(rounds, Duration::ZERO));
    move || {
        let pair = Arc::clone(&pair);
        async move { assert_eq!(black_box(pair.run(TASK).await), Some(answer(rounds))) }
    }
}

pub(crate) fn our_rounds(rounds: usize) -> impl Work + Clone {
    let pair = dual(rounds, Duration::ZERO);
    move || {
        let pair = pair.clone();
        async move { assert_eq!(black_box(pair.ask(TASK).await.unwrap()), answer(rounds)) }
    }
}

const CALL: Duration = Duration::from_millis(10);

fn floor_crowd(runs: usize) -> impl Work + Clone {
    let pair = Arc::new(ByHand::new(1, CALL));
    move || {
        let pair = Arc::clone(&pair);
        async move {
            let run = |_| {
                let pair = Arc::clone(&pair);
                tokio::spawn(async move { pair.run(TASK).await })
            };
            let ended = join_all((0..runs).map(run)).await;
            assert!(ended.into_iter().all(|end| end.unwrap() == Some(answer(1))));
        }
    }
}

fn our_crowd(runs: usize) -> impl Work + Clone {
    let pair = dual(1, CALL);
    move || {
        let pair = pair.clone();
        async move {
            let started: Vec<_> = (0..runs).map(|_| pair.start(TASK)).collect();
            let ended = join_all(started.into_iter().map(|run| run.outcome())).await;
            assert!(ended.into_iter().all(|end| end.unwrap().text == answer(1)));
        }
    }
}

pub(crate) fn measure(results: &mut Vec<String>, tokio: &Tokio, samples: usize) {
    let one = pair(tokio, samples, floor_rounds(1), our_rounds(1));
    let micros = |times: &[f64]| median(times.to_vec()) * 1e6;
    println!("dual iteration: {:.1} µs, floor {:.1} µs", micros(&one.ours), micros(&one.floor));
    results.push(format!("ratio dual_iteration {:.2}", one.ratio()));
    let ten = pair(tokio, samples, floor_rounds(10), our_rounds(10));
    let each = |times: &[f64]| micros(times) / 10.0;
    println!("dual iteration of ten: {:.1} µs, floor {:.1} µs", each(&ten.ours), each(&ten.floor));
    // A runtime as in a server: the runs share its threads.
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let runs = if samples == 1 { 10 } else { 1_000 };
    let crowd = pair(&threads, samples.min(31), floor_crowd(runs), our_crowd(runs));
    let millis =
        |times: &[f64]| format!("{:.1} ms (least {:.1})", median(times.to_vec()) * 1e3, least(times) * 1e3);
    println!("{runs} dual runs at once: {}, floor {}", millis(&crowd.ours), millis(&crowd.floor));
    results.push(format!("ratio dual1000 {:.2}", crowd.least_ratio()));
}
