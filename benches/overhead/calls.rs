//! Cost of a layer around a tool, of a typed answer and of an approval in a run, beside the same run without them. The
//! sessions are in memory, and all events are read.

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use entourage_core::{
    Result,
    agent::Agent,
    permission::{ApprovalRequest, Approver, Decision},
    provider::{CallContext, Delta, DeltaStream, FinishReason, Model, Provider, Request},
    run::{Outcome, RunContext},
    tool::{LayerVerdict, Tool, ToolLayer, ToolSpec},
};
use entourage_runners::{
    ReactAgent, ReactBuilder, layered,
    typed::{OutcomeExt, Strategy},
};
use entourage_runtime::permission::Policy;
use entourage_runtime::{Runtime, RuntimeBuilder};
use futures_util::{StreamExt, stream};
use serde_json::Value;
use tokio::runtime::Runtime as Tokio;

use crate::{Pair, Work, median, ours, pair};

/// Tool calls of a run, one a step: a run's beginning and end must not hide what a call costs.
const CALLS: usize = 10;

const ANSWER: &str = r#"{"article":"lamp","pieces":3,"shelves":["A1","B2"]}"#;

/// Counts the calls that it lets through.
#[derive(Debug, Clone, Default)]
struct Seen(Arc<AtomicUsize>);

impl Seen {
    fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn assert_asked(&self) {
        assert_ne!(self.0.load(Ordering::Relaxed), 0, "nothing came through what was measured");
    }
}

#[async_trait]
impl ToolLayer for Seen {
    async fn before(&self, _: &ToolSpec, _: &mut Value, _: &RunContext) -> Result<LayerVerdict> {
        self.count();
        Ok(LayerVerdict::Pass)
    }
}

#[async_trait]
impl Approver for Seen {
    async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
        self.count();
        Ok(Decision::Allow)
    }
}

/// Runs an agent in a session of its own, which is deleted afterwards.
fn whole(
    runtime: RuntimeBuilder,
    agent: impl Agent + Clone + 'static,
    answer: &'static str,
) -> impl Work + Clone {
    let runtime = runtime.build();
    move || {
        let (runtime, agent) = (runtime.clone(), agent.clone());
        async move {
            let session = runtime.session();
            let (_, text) = ours::consume(session.start(&agent, "add please")).await;
            assert_eq!(black_box(text), answer);
            runtime.store().delete(session.id()).await.unwrap();
        }
    }
}

fn adding(tool: Arc<dyn Tool>) -> ReactAgent {
    ours::agent(&ours::model(CALLS, 0, 0), &[tool])
}

fn add() -> Arc<dyn Tool> {
    let [add, _] = ours::tools();
    add
}

fn layers(tokio: &Tokio, samples: usize) -> Pair {
    let seen = Seen::default();
    let inside = layered(layered(layered(add(), seen.clone()), seen.clone()), seen.clone());
    let bare = whole(Runtime::builder(), adding(add()), "sum 10");
    let pair = pair(tokio, samples, bare, whole(Runtime::builder(), adding(Arc::new(inside)), "sum 10"));
    seen.assert_asked();
    pair
}

fn approvals(tokio: &Tokio, samples: usize) -> Pair {
    let seen = Seen::default();
    let allowed = Runtime::builder().policy(Policy::new().allow("add"));
    let asked = Runtime::builder().policy(Policy::new().ask("add")).approver(seen.clone());
    let allowed = whole(allowed, adding(add()), "sum 10");
    let pair = pair(tokio, samples, allowed, whole(asked, adding(add()), "sum 10"));
    seen.assert_asked();
    pair
}

/// Calls `add` once, and then answers in the way that the request offers.
#[derive(Debug)]
struct Answers;

#[async_trait]
impl Provider for Answers {
    fn name(&self) -> &str {
        "bench"
    }

    async fn stream(&self, request: Request, _: &CallContext) -> Result<DeltaStream> {
        let takes_answers = request.tools.iter().any(|tool| tool.name() == "final_answer");
        let call = match request.messages.len() {
            1 => Some(("add", r#"{"a":1,"b":2}"#)),
            _ => takes_answers.then_some(("final_answer", ANSWER)),
        };
        let deltas = match call {
            Some((name, arguments)) => vec![
                Delta::tool_call(0, "call0", name),
                Delta::arguments(0, arguments),
                Delta::Finish(FinishReason::ToolCalls.into()),
            ],
            None => vec![Delta::Text(ANSWER.into()), Delta::Finish(FinishReason::Stop.into())],
        };
        Ok(stream::iter(deltas.into_iter().map(Ok)).boxed())
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Stock {
    article: String,
    pieces: u32,
    shelves: Vec<String>,
}

fn typed(tokio: &Tokio, samples: usize, strategy: Strategy) -> Pair {
    let agent = || -> ReactBuilder {
        let model = Model::new(Arc::new(Answers), "bench");
        ReactAgent::builder("bench", model).instructions("You are a helpful assistant.").tools([add()])
    };
    let typed = agent().returns::<Stock>().strategy(strategy).build().unwrap();
    let plain = agent().build().unwrap();
    pair(tokio, samples, whole(Runtime::builder(), plain, ANSWER), whole(Runtime::builder(), typed, ANSWER))
}

/// Reading the value of an outcome, beside reading the same text as JSON.
fn values(tokio: &Tokio, samples: usize) -> Pair {
    let read =
        |stock: Stock| assert_eq!((&*stock.article, stock.pieces, stock.shelves.len()), ("lamp", 3, 2));
    let floor = move || async move { read(serde_json::from_str(black_box(ANSWER)).unwrap()) };
    let ours = move || async move { read(Outcome::completed(black_box(ANSWER)).value().unwrap()) };
    pair(tokio, samples, floor, ours)
}

/// Microseconds that our side takes beyond the other, as the difference of the medians.
fn beyond(pair: &Pair) -> f64 {
    (median(pair.ours.clone()) - median(pair.floor.clone())) * 1e6
}

pub(crate) fn measure(results: &mut Vec<String>, tokio: &Tokio, samples: usize) {
    let micros = |times: &[f64]| median(times.to_vec()) * 1e6;
    let inside = layers(tokio, samples);
    let calls = CALLS as f64;
    println!("a call behind three layers: {:.2} µs more", beyond(&inside) / calls);
    results.push(format!("ratio tool_layers {:.2}", inside.ratio()));
    // By the service's own form, the typed run makes the calls of the other one and no more. By tool it has one more
    // call, which is judged and recorded.
    for (name, strategy) in
        [("typed", Strategy::Native), ("typed_told", Strategy::Prompt), ("typed_tool", Strategy::Tool)]
    {
        let pair = typed(tokio, samples, strategy);
        println!("{name}: {:.1} µs a run, untyped {:.1} µs", micros(&pair.ours), micros(&pair.floor));
        results.push(format!("us {name} {:.2}", beyond(&pair)));
    }
    println!("reading its value: {:.2} µs more than parsing it", beyond(&values(tokio, samples)));
    let asked = approvals(tokio, samples);
    println!(
        "a run of {CALLS} calls: {:.1} µs, all asked about {:.1} µs",
        micros(&asked.floor),
        micros(&asked.ours)
    );
    results.push(format!("us approval {:.2}", beyond(&asked) / calls));
}
