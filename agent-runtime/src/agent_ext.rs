//! Runs of an agent without a session that lasts.

use entourage_core::{
    Error, ErrorKind, Result,
    agent::Agent,
    run::{Status, Task},
};

use crate::{RunHandle, Session};

/// Runs of an agent in sessions of their own, in memory: nothing is kept afterwards. Implemented for every agent that
/// is `Clone`, a shared one among them.
///
/// A tool call that needs approval cannot be approved here: for that give the agent a session of a
/// [`Runtime`](crate::Runtime) with an approver.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_runners::ReactAgent;
/// use entourage_runtime::AgentExt;
/// use entourage_testkit::ScriptedProvider;
///
/// let provider = ScriptedProvider::new().text("Paris.");
/// let agent = ReactAgent::builder("geographer", provider.model()).build().unwrap();
/// assert_eq!(agent.ask("What is the capital of France?").await.unwrap(), "Paris.");
/// # });
/// ```
pub trait AgentExt: Agent + Clone + Sized + 'static {
    /// Runs one prompt and returns the text of the answer. The run begins when the future is first polled; dropping the
    /// future cancels it.
    ///
    /// # Errors
    /// The error that the run failed with; [`ErrorKind::Paused`](entourage_core::ErrorKind::Paused) or
    /// [`ErrorKind::Stopped`](entourage_core::ErrorKind::Stopped) when it ended without an answer:
    /// [`Error::stop_reason`](entourage_core::Error::stop_reason) and [`Error::pause`](entourage_core::Error::pause)
    /// tell why.
    fn ask(&self, prompt: impl Into<Task>) -> impl Future<Output = Result<String>> + Send {
        let (agent, task) = (self.clone(), prompt.into());
        async move {
            let outcome = agent.start(task).outcome().await?;
            if outcome.is_completed() { Ok(outcome.text) } else { Err(unanswered(outcome.status)) }
        }
    }

    /// Runs one prompt and returns the run: a stream of events and an outcome.
    fn start(&self, prompt: impl Into<Task>) -> RunHandle {
        Session::ephemeral().start(self, prompt)
    }
}

impl<A: Agent + Clone + 'static> AgentExt for A {}

/// The text for a run that paused where nobody could hear its question.
const UNHEARD: &str = "the run waits for an approval or another answer, and without a session nobody can give it; start \
    the agent in a session of a `Runtime` that has an approver, or a rule that allows the tool (`Policy::allow`)";

/// Returns the error of a run that ended so, had to complete, and has no session in which it could be resumed.
#[must_use]
pub fn unanswered(status: Status) -> Error {
    match status {
        Status::Completed => Error::new(ErrorKind::Internal, "a run that completed gave no output"),
        Status::Stopped(reason) => Error::stopped(reason),
        Status::Cancelled => Error::cancelled(),
        Status::Paused(pause) => Error::new(ErrorKind::Paused, UNHEARD).with_pause(pause),
        Status::Failed(error) => error.to_error(),
        _ => Error::new(
            ErrorKind::Internal,
            format!("the run ended in a way that is not known here: {status}"),
        ),
    }
}
