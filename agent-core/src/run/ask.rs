//! A conversation with another agent, one run after the other, for agents written by hand.

use super::{Delegate, Effect, Observation, Outcome, RunContext, Spawn, Task, context::unexpected};
use crate::{Result, RunId, agent::IntoAgent};

impl RunContext {
    /// Gives another agent a task in the child session of this role, and waits for its outcome. Each call is one more
    /// run of that session, so under the same role the agent knows what was said before. The session outlives this run.
    /// Other roles are other conversations.
    ///
    /// The agent has at most this context's scope: `cx.narrowed(&scope).ask(..)` gives it less. A failure is an outcome
    /// with that status. If this run is cancelled, the agent's run ends as cancelled.
    ///
    /// A resumed run is answered from its journal for each call that had returned, and continues the one that was in
    /// flight. Make one call after another, also for different roles; for agents side by side use
    /// [`RunContext::spawn`].
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) for an invalid role (see
    /// [`SessionId::in_role`](crate::SessionId::in_role)); [`ErrorKind::Paused`](crate::ErrorKind::Paused), to be
    /// passed on with `?`, when the other agent is paused; [`ErrorKind::Diverged`](crate::ErrorKind::Diverged) when
    /// something else is recorded at this place; a store's error.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// use std::sync::Arc;
    ///
    /// use async_trait::async_trait;
    /// use entourage_core::{Result, Runtime, agent::{Agent, ReactAgent}, run::{Outcome, RunContext, Task}};
    /// use entourage_testkit::ScriptedProvider;
    ///
    /// /// Has the work done, and asks once more.
    /// #[derive(Clone)]
    /// struct Insists {
    ///     worker: Arc<dyn Agent>,
    /// }
    ///
    /// #[async_trait]
    /// impl Agent for Insists {
    ///     fn name(&self) -> &str {
    ///         "insists"
    ///     }
    ///
    ///     async fn run(&self, task: Task, cx: &RunContext) -> Result<Outcome> {
    ///         let first = cx.ask("worker", Arc::clone(&self.worker), task).await?;
    ///         if !first.is_completed() {
    ///             return Ok(first);
    ///         }
    ///         cx.ask("worker", Arc::clone(&self.worker), "Are you sure? Look again.").await
    ///     }
    /// }
    ///
    /// let provider = ScriptedProvider::new().text("Seven.").text("No: eight.");
    /// let worker = ReactAgent::builder("worker", provider.model()).build().unwrap();
    /// let agent = Insists { worker: Arc::new(worker) };
    /// let session = Runtime::builder().build().session();
    /// let outcome = session.start(&agent, "How many crates are there?").outcome().await.unwrap();
    /// assert_eq!(outcome.text, "No: eight.");
    /// assert_eq!(provider.requests()[1].messages.len(), 3); // it knows what it was asked before
    /// # });
    /// ```
    pub async fn ask<Form>(
        &self,
        role: &str,
        agent: impl IntoAgent<Form>,
        task: impl Into<Task>,
    ) -> Result<Outcome> {
        let child = self.session().in_role(role)?;
        // The id of the run must be known before it begins, and again after a restart.
        let run = RunId::parse(&self.new_id().await?)?;
        let spawn = Spawn::new(agent, task).with_role(role.to_owned());
        match self.perform(Effect::Delegate(Box::new(Delegate::new(child, spawn).run(run)))).await? {
            Observation::Child { outcome: Some(outcome), .. } => Ok(*outcome),
            other => Err(unexpected(&other)),
        }
    }
}
