//! Agents: the trait of everything that turns a task into an outcome, and the agents built on it.

mod into;
mod part;

pub use into::IntoAgent;
pub use part::AgentPart;

use std::{any::Any, sync::Arc};

use async_trait::async_trait;

use crate::{
    Result,
    run::{Outcome, RunContext, Task},
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

    /// Returns the models, tools and agents that the agent is made of; none by default. Where an engine performs the
    /// effects of its runs in another process, they are found there by their names.
    fn parts(&self) -> Vec<AgentPart> {
        Vec::new()
    }

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

    fn parts(&self) -> Vec<AgentPart> {
        (**self).parts()
    }

    fn as_any(&self) -> Option<&dyn Any> {
        (**self).as_any()
    }

    fn begins_with_an_effect(&self) -> bool {
        (**self).begins_with_an_effect()
    }
}
