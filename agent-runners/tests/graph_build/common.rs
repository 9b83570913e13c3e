//! Helpers of these tests: agents that do nothing, and graphs of steps that do nothing.

use std::sync::Arc;

use async_trait::async_trait;
use entourage_core::{
    Error, Result,
    agent::Agent,
    run::{Outcome, RunContext, Task},
};
use entourage_runners::graph::{GraphError, Handle, Problem, TaskGraph, TaskGraphBuilder};

/// An agent that answers its own name.
#[derive(Debug, Clone)]
pub(crate) struct Named(pub(crate) &'static str);

#[async_trait]
impl Agent for Named {
    fn name(&self) -> &str {
        self.0
    }

    async fn run(&self, _: Task, _: &RunContext) -> Result<Outcome> {
        Ok(Outcome::completed(self.0))
    }
}

pub(crate) fn roster(names: &[&'static str]) -> Vec<Arc<dyn Agent>> {
    names.iter().map(|name| Arc::new(Named(name)) as Arc<dyn Agent>).collect()
}

/// A step that does nothing.
pub(crate) fn nop(graph: &TaskGraphBuilder, id: &str) -> Handle<u32> {
    graph.step(id, (), |()| async { Ok(0_u32) })
}

pub(crate) fn problems(error: &Error) -> Vec<Problem> {
    GraphError::of(error).expect("the error says what is wrong").problems().to_vec()
}

pub(crate) fn refused<O>(graph: TaskGraphBuilder<O>) -> Vec<Problem> {
    problems(&graph.build().unwrap_err())
}

pub(crate) fn ids(nodes: &[Arc<str>]) -> Vec<&str> {
    nodes.iter().map(|node| &**node).collect()
}

/// The six tasks of the login example.
pub(crate) fn login() -> TaskGraph {
    let graph = TaskGraph::builder("login");
    let design = graph.agent("design", &Named("architect"), "Design the login form.");
    let backend = graph.agent("backend", &Named("coder"), "Write the backend.").after(&design);
    let frontend = graph.agent("frontend", &Named("designer"), "Write the form.").after((&design, &backend));
    let tests = graph.agent("tests", &Named("tester"), "Test it.").after((&backend, &frontend));
    graph.agent("docs", &Named("writer"), "Write it up.").after(&design);
    graph.agent("review", &Named("reviewer"), "Review it.").after(&tests);
    graph.build().unwrap()
}
