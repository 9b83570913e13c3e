//! Results of the calls that the end of their run leaves open.

use entourage_core::{
    event::RunFinished,
    message::ToolResult,
    run::Status,
    session::{Closing, SessionState},
};

/// Returns the results that this end of a run gives to the calls without one.
pub(crate) fn open_results(state: &SessionState, end: &RunFinished) -> Vec<(usize, ToolResult)> {
    let text;
    let why = match &end.outcome.status {
        _ if end.abandoned => Closing::Abandoned,
        Status::Cancelled => Closing::Cancelled,
        Status::Failed(error) => Closing::Failed(&error.message),
        Status::Completed => Closing::Ended("the model ended its reply without waiting for its calls"),
        status => {
            text = status.to_string();
            Closing::Ended(&text)
        }
    };
    state.step().map(|step| step.close(why)).unwrap_or_default()
}
