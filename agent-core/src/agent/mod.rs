//! Agents: the trait of everything that turns a task into an outcome, and the agents built on it.

mod agent_tool;
mod into;
mod react;

pub use crate::session::mode::{CurrentModeUpdate, Mode};
pub use agent_tool::AgentTool;
pub use into::IntoAgent;
pub use react::{Prepare, Prepared, ReactAgent, ReactBuilder, Step};

use std::{any::Any, sync::Arc};

use async_trait::async_trait;

use crate::{
    Error, ErrorKind, Result,
    run::{Outcome, RunContext, RunHandle, Task},
};

/// An agent: takes a task and returns an outcome. Stateless: the session is the state.
///
/// A group of agents is an agent too, so each agent can be a node, a member or a tool of any other.
///
/// # Contract
/// - All model and tool calls, waits, clock readings and ids go through `cx`.
/// - Nothing is spawned without the context's knowledge.
/// - Decisions follow from the task and from observations alone; only then can a killed run be resumed.
#[async_trait]
pub trait Agent: Send + Sync {
    /// The agent's name: 1 to 64 letters, digits, `_` and `-`.
    fn name(&self) -> &str;

    /// Returns one or two sentences that say what the agent is for, to whoever may delegate to it; empty by default.
    fn description(&self) -> &str {
        ""
    }

    /// Works on `task` until there is an outcome. The prompt is already part of `cx.history()`.
    ///
    /// # Errors
    /// Any error that the run cannot continue from. Errors of the context's effects, a pause and a cancel among them,
    /// are passed on with `?`.
    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome>;

    /// Returns the agent as a value of its own type, for runners that know the type; `None` by default.
    #[doc(hidden)]
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }

    /// True if the agent does nothing before its first effect that is seen outside. The beginning of its run is then
    /// stored together with that effect; if another process is faster, the agent begins again.
    #[doc(hidden)]
    fn begins_with_an_effect(&self) -> bool {
        false
    }
}

/// Checks an agent's name. Names are joined by `/` to paths, and stores and logs show them.
///
/// # Errors
/// [`ErrorKind::Config`] for a name that is not 1 to 64 letters, digits, `_` and `-`.
pub fn check_agent_name(name: &str) -> Result<()> {
    let safe = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.len() <= 64 && name.chars().all(safe) {
        return Ok(());
    }
    let shown: String = name.chars().take(80).collect();
    Err(Error::new(
        ErrorKind::Config,
        format!("`{shown}` cannot name an agent; use 1 to 64 letters, digits, _ and -"),
    ))
}

/// Returns the text of a completed run.
///
/// # Errors
/// Those of the run; [`Status::unanswered`](crate::run::Status::unanswered) for any other outcome.
pub async fn answer(run: RunHandle) -> Result<String> {
    let outcome = run.outcome().await?;
    if outcome.is_completed() { Ok(outcome.text) } else { Err(outcome.status.unanswered()) }
}

/// A shared agent is itself an agent.
#[async_trait]
impl<A: Agent + ?Sized> Agent for Arc<A> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn description(&self) -> &str {
        (**self).description()
    }

    async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
        (**self).run(task, cx).await
    }

    fn as_any(&self) -> Option<&dyn Any> {
        (**self).as_any()
    }

    fn begins_with_an_effect(&self) -> bool {
        (**self).begins_with_an_effect()
    }
}
