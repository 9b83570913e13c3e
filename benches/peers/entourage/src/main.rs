//! Entourage with default settings: `ReactAgent` with `#[tool]` functions, `TaskGraph` of steps, chat completions.
//!
//! Under the label `entourage` the shortest public way: `agent.ask`, `graph.run`, events only where deltas are read.
//! Under `entourage, stored` each run is in a session of a runtime that keeps sessions in memory, and deleted after it.
//! A chat is a session, so there is no shorter way.

mod model;

use std::{hint::black_box, num::NonZeroUsize, sync::Arc, time::Duration};

use entourage::{
    agent::ReactBuilder,
    graph::Handle,
    prelude::*,
    run::{Limits, RunHandle},
};
use kit::{Bench, CHAIN, CHAT, Counting, DELTAS, FAN, LAYERS, LOGIN, RUNS, STEPS, STREAMS, WIRE, sum};

use crate::model::Script;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Adds two numbers.
#[tool(access = "none")]
async fn add(a: i64, b: i64) -> i64 {
    a + b
}

/// Sleeps for a millisecond.
#[tool(access = "none")]
async fn nap(a: i64, b: i64) -> i64 {
    tokio::time::sleep(Duration::from_millis(1)).await;
    black_box(b);
    a
}

fn agent(model: &Model, change: impl FnOnce(&mut Limits)) -> ReactAgent {
    let mut limits = Limits::default();
    change(&mut limits);
    builder(model).limits(limits).build().unwrap()
}

fn builder(model: &Model) -> ReactBuilder {
    let builder = ReactAgent::builder("bot", model.clone()).instructions("You are a helpful assistant.");
    builder.tools([add.into(), nap.into()])
}

async fn drain(mut run: RunHandle) -> usize {
    let mut deltas = 0;
    while let Some(event) = run.next().await {
        if let Event::Delta(Delta::Text(_)) = &event.event {
            deltas += 1;
        }
        black_box(event);
    }
    assert_eq!(run.outcome().await.unwrap().text.len(), 6 * deltas);
    deltas
}

async fn in_session(
    runtime: &Runtime,
    agent: &(impl Agent + Clone + 'static),
    prompt: &'static str,
) -> String {
    let session = runtime.session();
    let outcome = session.start(agent, prompt).outcome().await.unwrap();
    assert!(outcome.is_completed());
    runtime.store().delete(session.id()).await.unwrap();
    outcome.text
}

fn over_http(name: &str) -> ReactAgent {
    let provider = OpenAiChat::builder().base_url(kit::base_url()).api_key("k").build().unwrap();
    ReactAgent::builder("bot", provider.model(name)).build().unwrap()
}

fn main() {
    let bench = Bench::new("entourage");
    plain(&bench);
    for (name, graph) in graphs() {
        bench.graph(name, graph.nodes().len(), async || {
            let report = graph.run("go").await.unwrap();
            assert!(report.outcome.is_completed());
            black_box(report);
        });
    }
    stored(&bench.labelled("entourage, stored"));
}

fn plain(bench: &Bench) {
    for steps in STEPS {
        let agent =
            agent(&Script::calls(steps).into(), |limits| limits.steps = limits.steps.max(steps as u32 + 2));
        bench.run(steps, async || assert_eq!(agent.ask("add please").await.unwrap(), sum(steps)));
    }
    let napper = agent(&Script { fan: FAN, ..Script::calls(0) }.into(), |limits| {
        limits.parallel_tools = NonZeroUsize::new(FAN).unwrap();
    });
    bench.tools(async || assert_eq!(napper.ask("go").await.unwrap(), format!("n={FAN}")));
    let streamer = agent(&Script { deltas: DELTAS, ..Script::calls(0) }.into(), |_| {});
    bench.deltas(async || drain(streamer.start("hi")).await);
    let remote = over_http(WIRE.1);
    bench.wire(async || drain(remote.start("hi")).await);
    let remote = over_http(STREAMS.1);
    bench.streams(|| {
        let remote = remote.clone();
        async move { drain(remote.start("hi")).await }
    });
    let model = Script { delay: Duration::from_millis(RUNS.1), ..Script::calls(RUNS.0) }.into();
    bench.heap(async || builder(&model).build().unwrap());
    let shared = agent(&model, |_| {});
    bench.runs(|| {
        let shared = shared.clone();
        async move { shared.ask("add please").await.unwrap() }
    });
}

fn stored(bench: &Bench) {
    let runtime = Runtime::in_memory();
    for steps in STEPS {
        let agent =
            agent(&Script::calls(steps).into(), |limits| limits.steps = limits.steps.max(steps as u32 + 2));
        bench.run(steps, async || assert_eq!(in_session(&runtime, &agent, "add please").await, sum(steps)));
    }
    let talker = agent(&Script::calls(0).into(), |_| {});
    bench.chat(async || {
        let session = runtime.session();
        for _ in 0..CHAT {
            black_box(session.start(&talker, "hello there").outcome().await.unwrap());
        }
        assert_eq!(session.history().await.unwrap().len(), 2 * CHAT);
        runtime.store().delete(session.id()).await.unwrap();
    });
    for (name, graph) in graphs() {
        bench.graph(name, graph.nodes().len(), async || {
            black_box(in_session(&runtime, &graph, "go").await);
        });
    }
    let model = Script { delay: Duration::from_millis(RUNS.1), ..Script::calls(RUNS.0) }.into();
    let shared = agent(&model, |_| {});
    bench.runs(|| {
        let (shared, runtime) = (shared.clone(), runtime.clone());
        async move { in_session(&runtime, &shared, "add please").await }
    });
}

fn graphs() -> [(&'static str, TaskGraph); 3] {
    [("login", login()), ("chain", chain()), ("layers", layers())]
}

fn chain() -> TaskGraph {
    let graph = TaskGraph::builder("chain");
    let mut last = graph.step("n0", (), |()| async { Ok(0_usize) });
    for index in 1..CHAIN {
        last = graph.step(format!("n{index}"), &last, move |value: Arc<usize>| {
            black_box(value);
            async move { Ok(index) }
        });
    }
    graph.build().unwrap()
}

fn layers() -> TaskGraph {
    let (count, width) = LAYERS;
    let graph = TaskGraph::builder("layers").limit(count * width);
    let mut before: Vec<Handle<usize>> = Vec::new();
    for layer in 0..count {
        let step = |index| {
            graph.step(format!("n{index}"), &before[..], move |values| {
                black_box(values);
                async move { Ok(index) }
            })
        };
        before = (layer * width..(layer + 1) * width).map(step).collect();
    }
    graph.build().unwrap()
}

fn login() -> TaskGraph {
    let graph = TaskGraph::builder("login");
    let [analyze, design, backend, frontend, tests, review] = LOGIN;
    let analyze = graph.step(analyze, (), |()| async { Ok(0_usize) });
    let design = graph.step(design, &analyze, |_| async { Ok(1_usize) });
    let backend = graph.step(backend, &analyze, |_| async { Ok(2_usize) });
    let frontend = graph.step(frontend, (&design, &backend), |_| async { Ok(3_usize) });
    let tests = graph.step(tests, (&backend, &frontend), |_| async { Ok(4_usize) });
    graph.step(review, &tests, |_| async { Ok(5_usize) });
    graph.build().unwrap()
}
