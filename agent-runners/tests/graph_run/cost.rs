//! The overhead of the runner. Figures, not assertions: run with
//! `cargo test --release -p entourage-core --test graph_run -- --ignored --nocapture cost`.

#![allow(clippy::print_stdout, clippy::cast_precision_loss, reason = "it is there to print figures")]

use std::time::Instant;

use entourage_runners::graph::{Handle, TaskGraph};

use crate::crew::Hand;

/// Builds layers of nodes that depend on the whole layer before.
fn layered(layers: usize, width: usize) -> TaskGraph<u64> {
    let graph = TaskGraph::builder("layers");
    let mut before: Vec<Handle<u64>> = Vec::new();
    for layer in 0..layers {
        let node = |place: usize| {
            let id = format!("n{layer}.{place}");
            if before.is_empty() {
                graph.step(&id, (), |()| async { Ok(1_u64) })
            } else {
                graph.step(&id, &before, |each| async move { Ok(each.len() as u64) })
            }
        };
        before = (0..width).map(node).collect();
    }
    let last = before.pop().unwrap();
    graph.returning(&last).build().unwrap()
}

fn chain(nodes: usize) -> TaskGraph<u64> {
    let graph = TaskGraph::builder("chain");
    let mut last = graph.step("n0", (), |()| async { Ok(0_u64) });
    for node in 1..nodes {
        last = graph.step(format!("n{node}"), &last, |before| async move { Ok(*before + 1) });
    }
    graph.returning(&last).build().unwrap()
}

async fn best<O: entourage_runners::graph::Output>(name: &str, nodes: usize, graph: &TaskGraph<O>) {
    let mut best = f64::MAX;
    for _ in 0..40 {
        let start = Instant::now();
        let run = graph.run("Go").await.unwrap();
        best = best.min(start.elapsed().as_secs_f64());
        assert!(run.outcome.is_completed());
    }
    println!("{name}: {:.3} µs a node", best * 1e6 / nodes as f64);
}

#[tokio::test]
#[ignore = "prints figures"]
async fn cost_of_nodes_that_do_nothing() {
    best("10 layers of 100", 1_000, &layered(10, 100)).await;
    best("100 layers of 100", 10_000, &layered(100, 100)).await;
    best("chain of 1,000", 1_000, &chain(1_000)).await;
    best("chain of 10,000", 10_000, &chain(10_000)).await;
    let hand = Hand::new("hand");
    let graph = TaskGraph::builder("agents").limit_each_agent(10);
    for node in 0..100 {
        graph.agent(format!("n{node}"), &hand, format!("n{node}"));
    }
    let graph = graph.build().unwrap();
    best("agents", 100, &graph).await;
}
