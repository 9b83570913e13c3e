//! Agents as arguments.

use std::sync::Arc;

use super::Agent;

/// An agent as an argument: by value, by reference (an agent that is `Clone` is then cloned), or shared in an `Arc`.
///
/// Everything that takes an agent takes it so. `Form` is inferred and tells the cases apart; a function that passes an
/// agent on is generic over it.
///
/// ```
/// use entourage_core::agent::{Agent, IntoAgent};
/// use entourage_runtime::{RunHandle, Runtime};
///
/// fn greet<Form>(runtime: &Runtime, agent: impl IntoAgent<Form>) -> RunHandle {
///     runtime.session().start(agent, "Hello")
/// }
/// # fn example<A: Agent + Clone + 'static>(runtime: &Runtime, agent: A, shared: std::sync::Arc<dyn Agent>) {
/// greet(runtime, &agent);
/// greet(runtime, agent);
/// greet(runtime, shared);
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an agent",
    note = "an agent is a type that implements `Agent`, given by value, in an `Arc`, or by reference if it is `Clone`"
)]
pub trait IntoAgent<Form> {
    /// Returns the agent, shared.
    fn into_agent(self) -> Arc<dyn Agent>;
}

/// Form of an agent that is passed by value.
#[derive(Debug)]
pub enum ByValue {}

/// Form of an agent that is passed by reference.
#[derive(Debug)]
pub enum ByReference {}

impl<A: Agent + 'static> IntoAgent<ByValue> for A {
    fn into_agent(self) -> Arc<dyn Agent> {
        Arc::new(self)
    }
}

impl<A: Agent + Clone + 'static> IntoAgent<ByReference> for &A {
    fn into_agent(self) -> Arc<dyn Agent> {
        Arc::new(self.clone())
    }
}
