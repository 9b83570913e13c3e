//! The meaning of an attempt's end. Pure.

use entourage_core::run::{Outcome, Status, StopReason};

use crate::{cut::cut, finality::is_final};

/// Most characters of a reason that the next agent is told.
const REASON: usize = 4_000;

/// The meaning of the end of an agent's run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// There is an answer, which can be checked.
    Answered,
    /// The agent could not do it, for this reason; another one may.
    Failed(String),
    /// No other agent would do better: the cascade ends as the agent did.
    Over,
}

/// Returns the meaning of this end. A denial, a cancel and what bounds the whole run never escalate.
pub(super) fn fate(status: &Status) -> Fate {
    match status {
        Status::Completed | Status::Stopped(StopReason::Condition(_)) => Fate::Answered,
        status if is_final(status) => Fate::Over,
        Status::Stopped(reason) => Fate::Failed(format!("stopped: {reason}")),
        Status::Failed(error) => Fate::Failed(error.message.to_string()),
        _ => Fate::Over,
    }
}

/// The answer to whether an answer will do.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Ruling {
    Accepted,
    Refused(String),
    /// The check itself came to no end: the cascade ends with this status.
    Broken(Status),
}

/// The result of an attempt: what is recorded of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Settled {
    pub(super) refused: Option<String>,
    pub(super) ended: Option<Status>,
}

/// Decides on an attempt. `ruling` is that of its answer, if it has one; `attempts` is how many there were, and `last`
/// is true when no other agent is left.
pub(super) fn settle(outcome: &Outcome, ruling: Ruling, attempts: u32, last: bool) -> Settled {
    let own = || outcome.status.clone();
    let (reason, end) = match (fate(&outcome.status), ruling) {
        (Fate::Over, _) => return over(own()),
        (Fate::Failed(reason), _) => (clipped(&reason), own()),
        (Fate::Answered, Ruling::Accepted) => return Settled { refused: None, ended: Some(own()) },
        (Fate::Answered, Ruling::Broken(status)) => return over(status),
        (Fate::Answered, Ruling::Refused(reason)) => {
            let reason = clipped(&reason);
            let feedback = reason.as_str().into();
            (reason, Status::Stopped(StopReason::Incomplete { iterations: attempts, feedback }))
        }
    };
    Settled { refused: Some(reason), ended: last.then_some(end) }
}

fn over(status: Status) -> Settled {
    Settled { refused: Some(clipped(&status.to_string())), ended: Some(status) }
}

/// Returns the reason in at most so many characters. A blank one says that there is none.
fn clipped(reason: &str) -> String {
    match reason.trim() {
        "" => "the answer was refused without a reason".to_owned(),
        reason => cut(reason, REASON),
    }
}

#[cfg(test)]
mod tests {
    use entourage_core::{Error, ErrorKind, provider::FinishReason, run::FailedTask};

    use super::*;

    fn failed(kind: ErrorKind) -> Status {
        Status::Failed(Error::new(kind, "it broke").record())
    }

    #[test]
    fn lo04_failures_and_stops_escalate_and_denials_and_cancels_do_not() {
        let stopped = Status::Stopped;
        let reason = |text: &str| Fate::Failed(text.to_owned());
        let incomplete = StopReason::Incomplete { iterations: 2, feedback: "no tests".into() };
        let tasks = |is_final: bool| {
            let failed = Box::from([FailedTask::new("pay", "no").final_if(is_final)]);
            StopReason::Tasks { failed, cancelled: Box::default(), skipped: Box::default() }
        };
        for (status, expected) in [
            (Status::Completed, Fate::Answered),
            (stopped(StopReason::Condition("done".into())), Fate::Answered),
            (stopped(StopReason::Steps(5)), reason("stopped: the limit of 5 steps was reached")),
            (
                stopped(StopReason::LoopDetected),
                reason("stopped: it went in circles: the same calls with the same results"),
            ),
            (stopped(incomplete), reason("stopped: not complete after 2 attempts: no tests")),
            (
                stopped(StopReason::Reply(FinishReason::Length)),
                reason("stopped: the model's reply reached its output limit"),
            ),
            (failed(ErrorKind::Overloaded), reason("it broke")),
            (failed(ErrorKind::Tool), reason("it broke")),
            (failed(ErrorKind::PermissionDenied), Fate::Over),
            (failed(ErrorKind::Cancelled), Fate::Over),
            (failed(ErrorKind::Diverged), Fate::Over),
            (stopped(StopReason::Denied("pay".into())), Fate::Over),
            (stopped(StopReason::Deadline), Fate::Over),
            (stopped(tasks(true)), Fate::Over),
            (stopped(tasks(false)), reason("stopped: not all tasks were done: `pay` failed (no)")),
            (Status::Cancelled, Fate::Over),
        ] {
            assert_eq!(fate(&status), expected, "{status}");
        }
    }

    #[test]
    fn lo04_the_end_of_an_attempt() {
        let incomplete = |reason: &str| {
            Some(Status::Stopped(StopReason::Incomplete { iterations: 3, feedback: reason.into() }))
        };
        let steps = || Status::Stopped(StopReason::Steps(5));
        let denied = || Status::Stopped(StopReason::Denied("pay".into()));
        let refused = |reason: &str| Ruling::Refused(reason.to_owned());
        for (status, ruling, last, reason, ended) in [
            (Status::Completed, Ruling::Accepted, false, None, Some(Status::Completed)),
            (Status::Completed, Ruling::Accepted, true, None, Some(Status::Completed)),
            (Status::Completed, refused("wrong"), false, Some("wrong"), None),
            (Status::Completed, refused(" wrong\n"), true, Some("wrong"), incomplete("wrong")),
            (Status::Completed, refused(" "), false, Some("the answer was refused without a reason"), None),
            (
                Status::Completed,
                Ruling::Broken(failed(ErrorKind::Overloaded)),
                false,
                Some("failed: it broke"),
                Some(failed(ErrorKind::Overloaded)),
            ),
            (steps(), Ruling::Accepted, false, Some("stopped: the limit of 5 steps was reached"), None),
            (
                steps(),
                Ruling::Accepted,
                true,
                Some("stopped: the limit of 5 steps was reached"),
                Some(steps()),
            ),
            (
                denied(),
                Ruling::Accepted,
                false,
                Some("stopped: leave to run `pay` was refused"),
                Some(denied()),
            ),
            (Status::Cancelled, Ruling::Accepted, false, Some("cancelled"), Some(Status::Cancelled)),
        ] {
            let settled = settle(&Outcome::new(status.clone()), ruling.clone(), 3, last);
            let expected = Settled { refused: reason.map(str::to_owned), ended };
            assert_eq!(settled, expected, "{status} {ruling:?} {last}");
        }
    }

    #[test]
    fn a_reason_is_bounded_in_characters() {
        let long = "ä".repeat(REASON);
        assert_eq!(clipped(&long), long);
        let cut = clipped(&format!("{long}b"));
        assert_eq!((cut.chars().count(), cut.ends_with("ä…")), (REASON, true));
    }
}
