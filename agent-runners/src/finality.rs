//! Ends that nobody may try to better by themselves: somebody refused a call, or what bounds the work is used up. Pure.

use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind, ErrorRecord,
    run::{FailedTask, Status, StopReason},
};

/// True if no agent may try again what ended so.
pub(crate) fn is_final(status: &Status) -> bool {
    match status {
        Status::Stopped(reason) => reason.is_final(),
        Status::Failed(error) => is_final_record(error),
        Status::Cancelled => true,
        _ => false,
    }
}

/// True if no agent may try again what failed so.
pub(crate) fn is_final_error(error: &Error) -> bool {
    is_final_failure(error.kind(), error.stop_reason())
}

/// True if no agent may try again what failed so.
pub(crate) fn is_final_record(error: &ErrorRecord) -> bool {
    is_final_failure(error.kind, error.stopped.as_deref())
}

/// Returns the record of a task that failed with this error.
pub(crate) fn failed_task(task: impl Into<Arc<str>>, error: &ErrorRecord) -> FailedTask {
    FailedTask::new(task, error.message.clone()).final_if(is_final_record(error))
}

/// The same of an error of this kind, which may hold the reason of a stop.
fn is_final_failure(kind: ErrorKind, stopped: Option<&StopReason>) -> bool {
    let is_final = matches!(
        kind,
        ErrorKind::PermissionDenied | ErrorKind::Cancelled | ErrorKind::BudgetExceeded | ErrorKind::Diverged
    );
    is_final || stopped.is_some_and(StopReason::is_final)
}
