//! The answer of a run.

use entourage_core::Result;

use crate::RunHandle;

/// Returns the text of a completed run.
///
/// # Errors
/// Those of the run; [`Status::unanswered`](entourage_core::run::Status::unanswered) for any other outcome.
pub async fn answer(run: RunHandle) -> Result<String> {
    let outcome = run.outcome().await?;
    if outcome.is_completed() { Ok(outcome.text) } else { Err(outcome.status.unanswered()) }
}
