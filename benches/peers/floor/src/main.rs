//! The floor: the same work written by hand, without a library for agents.

mod agent;
mod graph;
mod wire;

use std::{hint::black_box, sync::Arc, time::Duration};

use futures::StreamExt;
use kit::{
    Bench, CHAIN, CHAT, Counting, DELTAS, FAN, LAYERS, LOGIN, LOGIN_EDGES, RUNS, STEPS, STREAMS, WIRE, sum,
};
use serde_json::{Value, json};

use crate::{
    agent::{Agent, Event, Script},
    graph::Graph,
};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let bench = Bench::new("floor");
    for steps in STEPS {
        let agent = Agent::new(Script::calls(steps));
        bench.run(steps, async || assert_eq!(agent.ask("add please").await, sum(steps)));
    }
    let agent = Agent::new(Script::calls(0));
    bench.chat(async || {
        let mut messages: Vec<Value> = Vec::new();
        for _ in 0..CHAT {
            messages.push(json!({"role": "user", "content": "hello there"}));
            black_box(agent.run(&mut messages).await);
        }
        assert_eq!(messages.len(), 2 * CHAT);
    });
    let agent = Agent::new(Script { fan: FAN, ..Script::calls(0) });
    bench.tools(async || assert_eq!(agent.ask("go").await, format!("n={FAN}")));
    let agent = Agent::new(Script::calls(DELTAS));
    bench.deltas(async || {
        let messages = [json!({"role": "user", "content": "hi"})];
        let mut events = agent.stream(&messages);
        let (mut deltas, mut length) = (0, 0);
        while let Some(event) = events.next().await {
            match event {
                Event::Delta(text) => {
                    deltas += 1;
                    black_box(text);
                }
                Event::Done(text) => length = text.len(),
            }
        }
        assert_eq!(length, 6 * DELTAS);
        deltas
    });
    over_http(&bench);
    graphs(&bench);
    let model = Arc::new(Script { delay: Duration::from_millis(RUNS.1), ..Script::calls(RUNS.0) });
    bench.heap(async || Agent::over(model.clone()));
    let agent = Arc::new(Agent::over(model));
    bench.runs(|| {
        let agent = agent.clone();
        async move { agent.ask("add please").await }
    });
}

fn over_http(bench: &Bench) {
    let client = reqwest::Client::new();
    bench.wire(async || wire::stream(client.clone(), WIRE.1).await);
    let client = reqwest::Client::new();
    bench.streams(|| wire::stream(client.clone(), STREAMS.1));
}

fn graphs(bench: &Bench) {
    let chain: Vec<_> = (1..CHAIN).map(|step| (step - 1, step)).collect();
    let (count, width) = LAYERS;
    let layers: Vec<_> = (width..count * width)
        .flat_map(|step| (0..width).map(move |other| ((step / width - 1) * width + other, step)))
        .collect();
    for (name, steps, edges) in [
        ("login", LOGIN.len(), &LOGIN_EDGES[..]),
        ("chain", CHAIN, &chain[..]),
        ("layers", count * width, &layers[..]),
    ] {
        let graph = Graph::new(steps, edges);
        bench.graph(name, steps, async || assert_eq!(graph.run().await, steps));
    }
}
