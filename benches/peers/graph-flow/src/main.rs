//! graph-flow: a session walks one path of tasks, and only the children of a `FanOutTask` run side by side. So `layers`
//! is ten of those with a hundred children each, a barrier in place of the edges, and `login` has one for two steps.
//! `execute_session` on a session of its own, without a store.

use std::{hint::black_box, sync::Arc};

use async_trait::async_trait;
use graph_flow::{
    Context, ExecutionStatus, Graph, GraphBuilder, NextAction, Result, Session, Task, TaskResult,
    fanout::FanOutTask,
};
use kit::{Bench, CHAIN, Counting, LAYERS, LOGIN};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Step(String, NextAction);

#[async_trait]
impl Task for Step {
    fn id(&self) -> &str {
        &self.0
    }

    async fn run(&self, _: Context) -> Result<TaskResult> {
        Ok(TaskResult::new(None, self.1.clone()))
    }
}

fn step(name: impl Into<String>, is_last: bool) -> Arc<dyn Task> {
    Arc::new(Step(name.into(), next(is_last)))
}

fn next(is_last: bool) -> NextAction {
    if is_last { NextAction::End } else { NextAction::ContinueAndExecute }
}

fn chain() -> Graph {
    let mut graph = GraphBuilder::new("chain");
    for index in 0..CHAIN {
        graph = graph.add_task(step(format!("t{index}"), index + 1 == CHAIN));
    }
    for index in 1..CHAIN {
        graph = graph.add_edge(format!("t{}", index - 1), format!("t{index}"));
    }
    graph.build().unwrap()
}

fn layers() -> Graph {
    let (count, width) = LAYERS;
    let mut graph = GraphBuilder::new("layers");
    for layer in 0..count {
        let steps = (0..width).map(|index| step(format!("t{layer}_{index}"), true)).collect();
        graph = graph
            .add_task(FanOutTask::new(format!("f{layer}"), steps).with_next_action(next(layer + 1 == count)));
    }
    for layer in 1..count {
        graph = graph.add_edge(format!("f{}", layer - 1), format!("f{layer}"));
    }
    graph.build().unwrap()
}

fn login() -> Graph {
    let [analyze, design, backend, frontend, tests, review] = LOGIN;
    let both = vec![step(design, true), step(backend, true)];
    GraphBuilder::new("login")
        .add_task(step(analyze, false))
        .add_task(FanOutTask::new("fan", both).with_next_action(NextAction::ContinueAndExecute))
        .add_task(step(frontend, false))
        .add_task(step(tests, false))
        .add_task(step(review, true))
        .add_edge(analyze, "fan")
        .add_edge("fan", frontend)
        .add_edge(frontend, tests)
        .add_edge(tests, review)
        .build()
        .unwrap()
}

fn main() {
    let bench = Bench::new("graph-flow");
    let width = LAYERS.0 * LAYERS.1;
    for (name, graph, steps) in
        [("login", login(), LOGIN.len()), ("chain", chain(), CHAIN), ("layers", layers(), width)]
    {
        bench.graph(name, steps, async || {
            let mut session = Session::new_from_task("s".to_owned(), graph.start_task_id().unwrap());
            let result = graph.execute_session(&mut session).await.unwrap();
            assert!(matches!(result.status, ExecutionStatus::Completed));
            black_box(result);
        });
    }
}
