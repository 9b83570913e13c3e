//! An agent that is made for each of its runs.

use std::sync::Arc;

use async_trait::async_trait;
use entourage_core::{
    Result,
    agent::Agent,
    run::{Outcome, RunContext, Task},
};

/// Makes an agent called `name` that is made anew for each of its runs, for example with tools of a directory of its
/// own.
///
/// `make` returns a guard and the agent of the run. It may block for a few calls of the file system. The guard is
/// dropped when the run ends in any way: with an outcome, an error, a pause, a cancel or a panic. A resumed run is made
/// anew, and goes on with what is recorded: what the guard held before is gone, and an agent that needs it must find
/// that out with its tools.
///
/// The scope of the agent that is made holds. An engine that performs effects elsewhere cannot run it, and a runner
/// that changes its agents, such as a `DualAgent`, takes it as any agent that is no `ReactAgent`.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_core::tool::Access;
/// use entourage_runners::{ReactAgent, per_run};
/// use entourage_runtime::AgentExt;
/// use entourage_testkit::{FakeTool, ScriptedProvider};
/// use serde_json::json;
///
/// struct Place; // a temporary directory, in a program
///
/// let provider = ScriptedProvider::new().call("look", json!({})).text("Empty.");
/// let model = provider.model();
/// let reader = per_run("reader", move || {
///     let look = FakeTool::new("look").access(Access::READ).returning("nothing here");
///     Ok((Place, ReactAgent::builder("reader", model.clone()).tool(look).build()?))
/// });
/// assert_eq!(reader.ask("What is there?").await?, "Empty.");
/// # Ok::<_, entourage_core::Error>(())
/// # }).unwrap();
/// ```
///
/// # Errors
/// The run fails with the error of `make`.
pub fn per_run<Guard: Send + 'static, A: Agent + 'static>(
    name: impl Into<Box<str>>,
    make: impl Fn() -> Result<(Guard, A)> + Send + Sync + 'static,
) -> impl Agent + Clone + 'static {
    PerRun { name: name.into(), make: Arc::new(make) }
}

struct PerRun<Make> {
    name: Box<str>,
    make: Arc<Make>,
}

impl<Make> Clone for PerRun<Make> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), make: Arc::clone(&self.make) }
    }
}

#[async_trait]
impl<Make, Guard, A> Agent for PerRun<Make>
where
    Make: Fn() -> Result<(Guard, A)> + Send + Sync + 'static,
    Guard: Send + 'static,
    A: Agent + 'static,
{
    fn name(&self) -> &str {
        &self.name
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        // Dropped last, on every way out: the agent works there.
        let (_guard, agent) = (self.make)()?;
        agent.run(task, cx).await
    }
}
