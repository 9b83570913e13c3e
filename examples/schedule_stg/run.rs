//! A graph of the set as a `TaskGraph`.

use std::time::Duration;

use async_trait::async_trait;
use entourage::{
    ErrorKind,
    graph::{Handle, TaskGraph},
    prelude::*,
    testkit::PausedClock,
};
use tokio::time::Instant;

use super::stg::Stg;

/// One unit of processing time. The timer's resolution of a millisecond is negligible beside it.
const UNIT: Duration = Duration::from_secs(1);

/// An agent that takes the time of its task, and does nothing.
#[derive(Debug, Clone)]
struct Worker;

#[async_trait]
impl Agent for Worker {
    fn name(&self) -> &str {
        "worker"
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        let time: u32 = task.prompt.text().trim().parse().map_err(|error| {
            Error::new(ErrorKind::InvalidInput, "a task is a processing time").caused_by(error)
        })?;
        if time > 0 {
            cx.sleep(UNIT * time).await?;
        }
        Ok(Outcome::completed("done"))
    }
}

/// Time of the graph on `workers` workers, in units of processing time.
pub(crate) fn makespan(graph: &Stg, workers: usize) -> Result<u64> {
    let built = build(graph, workers)?;
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let tokio =
        tokio.map_err(|error| Error::new(ErrorKind::Internal, "no tokio runtime").caused_by(error))?;
    tokio.block_on(async {
        let runtime = Runtime::builder().clock(PausedClock::new()).sub_agents(workers).build();
        let start = Instant::now();
        let outcome = runtime.session().start(&built, "Take your time.").outcome().await?;
        let took = start.elapsed();
        if !outcome.is_completed() {
            let text = format!("the graph came to no end: {}", outcome.status);
            return Err(Error::new(ErrorKind::Internal, text));
        }
        Ok((took + UNIT / 2).as_secs() / UNIT.as_secs())
    })
}

fn build(graph: &Stg, workers: usize) -> Result<TaskGraph> {
    let builder = TaskGraph::builder("stg").limit(workers).limit_each_agent(workers);
    let mut nodes: Vec<Handle<String>> = Vec::with_capacity(graph.tasks.len());
    for (place, task) in graph.tasks.iter().enumerate() {
        let time = u32::try_from(task.time).unwrap_or(u32::MAX);
        let before: Vec<_> = task.after.iter().filter_map(|before| nodes.get(*before)).cloned().collect();
        let node = builder.agent_with(format!("t{place}"), &Worker, before, move |_| time.to_string());
        nodes.push(node.expected(UNIT * time));
    }
    builder.build()
}
