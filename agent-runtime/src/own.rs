//! The runtime's own agents, which write titles and summaries.

use std::any::Any;

use entourage_core::agent::Agent;

/// Mark of the runtime's own agents.
struct Own;

/// Returns the mark, as what [`Agent::as_any`] of an own agent returns.
pub(crate) fn own() -> Option<&'static dyn Any> {
    Some(&Own)
}

/// True for an agent of the runtime itself.
pub(crate) fn is_own(agent: &dyn Agent) -> bool {
    agent.as_any().is_some_and(|agent| agent.is::<Own>())
}
