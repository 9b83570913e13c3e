//! Its graphs, invoked without a checkpointer.
//!
//! In `layers` each node writes a key of its own. If none writes, a node with several before it copies the whole state
//! once for each of them into a new key, and the state grows with every layer: ten layers of two pass 6 GB.

use std::hint::black_box;

use adk_graph::{
    edge::{END, START},
    graph::{CompiledGraph, StateGraph},
    node::{ExecutionConfig, NodeOutput},
    state::State,
};
use kit::{Bench, CHAIN, LAYERS, LOGIN, LOGIN_EDGES};

const RECURSION: usize = 5000;

fn graph(names: &[String], edges: &[(usize, usize)], writes: bool) -> CompiledGraph {
    let mut graph = StateGraph::with_channels(&["x"]);
    for (index, name) in names.iter().enumerate() {
        let key = writes.then(|| name.clone());
        graph = graph.add_node_fn(name, move |_| {
            let key = key.clone();
            async move {
                let output = NodeOutput::new();
                Ok(match key {
                    Some(key) => output.with_update(&key, index as u64),
                    None => output,
                })
            }
        });
    }
    for (index, name) in names.iter().enumerate() {
        if edges.iter().all(|(_, to)| *to != index) {
            graph = graph.add_edge(START, name);
        }
        if edges.iter().all(|(from, _)| *from != index) {
            graph = graph.add_edge(name, END);
        }
    }
    for (from, to) in edges {
        graph = graph.add_edge(&names[*from], &names[*to]);
    }
    graph.compile().unwrap().with_recursion_limit(RECURSION)
}

pub(crate) fn measure(bench: &Bench) {
    let numbered = |count: usize| (0..count).map(|index| format!("n{index}")).collect::<Vec<_>>();
    let (count, width) = LAYERS;
    let chain: Vec<_> = (1..CHAIN).map(|step| (step - 1, step)).collect();
    let layers: Vec<_> = (width..count * width)
        .flat_map(|step| (0..width).map(move |other| ((step / width - 1) * width + other, step)))
        .collect();
    for (name, names, edges, writes) in [
        ("login", LOGIN.map(str::to_owned).to_vec(), &LOGIN_EDGES[..], false),
        ("chain", numbered(CHAIN), &chain[..], false),
        ("layers", numbered(count * width), &layers[..], true),
    ] {
        if bench.wants(name) {
            let graph = graph(&names, edges, writes);
            bench.graph(name, names.len(), async || {
                let config = ExecutionConfig::new("t").with_recursion_limit(RECURSION);
                black_box(graph.invoke(State::new(), config).await.unwrap());
            });
        }
    }
}
