//! Boxed steps that run when those before them are done. Values stay where they are; an edge is a counter.

use std::{hint::black_box, sync::OnceLock};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use serde_json::{Value, json};

type Step = Box<dyn Fn() -> BoxFuture<'static, Value> + Send + Sync>;

pub(crate) struct Graph {
    steps: Vec<Step>,
    after: Vec<Vec<usize>>,
    before: Vec<usize>,
}

impl Graph {
    pub(crate) fn new(steps: usize, edges: &[(usize, usize)]) -> Self {
        let (mut after, mut before) = (vec![Vec::new(); steps], vec![0; steps]);
        for &(from, to) in edges {
            after[from].push(to);
            before[to] += 1;
        }
        let step = |index| Box::new(move || async move { json!(index) }.boxed()) as Step;
        Self { steps: (0..steps).map(step).collect(), after, before }
    }

    /// Returns the number of steps that were run.
    pub(crate) async fn run(&self) -> usize {
        let mut missing = self.before.clone();
        let values: Vec<OnceLock<Value>> = self.steps.iter().map(|_| OnceLock::new()).collect();
        let begin = |index: usize| {
            let step = (self.steps[index])();
            async move { (index, step.await) }.boxed()
        };
        let mut running: FuturesUnordered<_> =
            (0..missing.len()).filter(|&index| missing[index] == 0).map(begin).collect();
        let mut done = 0;
        while let Some((index, value)) = running.next().await {
            done += 1;
            let _ = values[index].set(value);
            for &next in &self.after[index] {
                missing[next] -= 1;
                if missing[next] == 0 {
                    running.push(begin(next));
                }
            }
        }
        black_box(&values);
        done
    }
}
