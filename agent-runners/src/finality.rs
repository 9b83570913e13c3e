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
    is_final_record(&error.record())
}

/// True if no agent may try again what failed so.
pub(crate) fn is_final_record(error: &ErrorRecord) -> bool {
    let is_final = match error.kind {
        ErrorKind::PermissionDenied => !is_of_service(error),
        kind => matches!(kind, ErrorKind::Cancelled | ErrorKind::BudgetExceeded | ErrorKind::Diverged),
    };
    is_final || error.stopped.as_deref().is_some_and(StopReason::is_final)
}

/// True if a service failed a model call, with the status 403 for example: another service may take it. A refusal of
/// this program, such as that of its egress, sends nothing.
fn is_of_service(error: &ErrorRecord) -> bool {
    error.context.starts_with("model.") && !error.unsent
}

/// Returns the record of a task that failed with this error.
pub(crate) fn failed_task(task: impl Into<Arc<str>>, error: &ErrorRecord) -> FailedTask {
    FailedTask::new(task, error.message.clone()).final_if(is_final_record(error))
}

#[cfg(test)]
mod tests {
    use entourage_core::provider::{CallContext, Egress};

    use super::*;

    #[test]
    fn a_refusal_of_this_program_is_final_and_one_of_a_service_is_not() {
        let error = |kind| Error::new(kind, "no");
        let of_service = |kind| error(kind).during("model.stream");
        let forbidden =
            || CallContext::new().with_egress(Egress::Forbidden).check_host("x.example").unwrap_err();
        let wrapped = |cause| of_service(ErrorKind::PermissionDenied).caused_by(cause);
        for (error, is_final) in [
            (error(ErrorKind::PermissionDenied), true),
            (error(ErrorKind::PermissionDenied).with("model", "model.stream"), true),
            (of_service(ErrorKind::PermissionDenied), false),
            (of_service(ErrorKind::PermissionDenied).with("status", "403"), false),
            (error(ErrorKind::PermissionDenied).during("model.embed"), false),
            (wrapped(of_service(ErrorKind::PermissionDenied)), false),
            (forbidden(), true),
            (wrapped(forbidden()), true),
            (of_service(ErrorKind::Authentication), false),
            (of_service(ErrorKind::BudgetExceeded), true),
            (of_service(ErrorKind::PermissionDenied).with_stop_reason(StopReason::Deadline), true),
            (of_service(ErrorKind::Stopped).with_stop_reason(StopReason::Steps(1)), false),
        ] {
            let record = error.record();
            let stored: ErrorRecord = serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
            let ends = [is_final_error(&error), is_final_record(&stored), is_final_error(&stored.to_error())];
            assert_eq!(ends, [is_final; 3], "{error:?}");
        }
    }
}
