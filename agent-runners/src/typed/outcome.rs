//! Values in the outcomes of runs.

use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind, Result,
    message::Message,
    provider::FinishReason,
    run::{Outcome, Status, StopReason},
};
use entourage_runtime::unanswered;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::typed::{NoValue, NoValueReason, Strategy, shape::Shape, text};

/// Typed values of outcomes, implemented for [`Outcome`]. Sealed: not meant to be implemented elsewhere.
pub trait OutcomeExt: sealed::Sealed {
    /// Returns the value that a [`TypedAgent`](crate::TypedAgent) answered with. Validators are not asked again.
    ///
    /// ```
    /// use entourage_core::run::{Outcome, Status};
    /// use entourage_runners::typed::{NoValue, NoValueReason, OutcomeExt};
    ///
    /// assert_eq!(Outcome::completed("[1, 2]").value::<Vec<u8>>().unwrap(), [1, 2]);
    /// let error = Outcome::new(Status::Cancelled).value::<Vec<u8>>().unwrap_err();
    /// assert_eq!(NoValue::of(&error).unwrap().reason, NoValueReason::Unfinished);
    /// ```
    ///
    /// # Errors
    /// With a [`NoValue`] as source, when there is none: [`ErrorKind::Stopped`] for a run that was stopped, whose
    /// [`Error::stop_reason`] tells why; the errors of [`unanswered`] for other runs that did not complete;
    /// [`ErrorKind::Protocol`] for an answer that is no `T`, such as that of another agent.
    fn value<T: DeserializeOwned + JsonSchema>(&self) -> Result<T>;
}

impl OutcomeExt for Outcome {
    fn value<T: DeserializeOwned + JsonSchema>(&self) -> Result<T> {
        if !self.is_completed() {
            let error = match &self.status {
                Status::Paused(pause) => Error::paused(pause.clone()),
                status => unanswered(status.clone()),
            };
            return Err(error.caused_by(no_value(self, reason_of(&self.status))));
        }
        let shape = Shape::of::<T>(Strategy::Prompt);
        shape.read(text::only_value(&self.text)).map_err(|problem| {
            let problem = problem.unwrap_or_else(|| "it is no JSON value".to_owned());
            let text = format!(
                "the answer is no `{}`: {problem}; build its agent with `ReactBuilder::returns`",
                shape.name
            );
            let none = no_value(self, NoValueReason::Invalid(problem));
            Error::new(ErrorKind::Protocol, text).caused_by(none)
        })
    }
}

fn reason_of(status: &Status) -> NoValueReason {
    match status {
        Status::Stopped(StopReason::Incomplete { feedback, .. }) => {
            NoValueReason::Invalid(feedback.to_string())
        }
        Status::Stopped(StopReason::Reply(FinishReason::Refusal)) => NoValueReason::Refused,
        Status::Stopped(StopReason::Reply(FinishReason::ContentFilter)) => NoValueReason::Withheld,
        Status::Stopped(StopReason::Reply(FinishReason::Length)) => NoValueReason::CutOff,
        Status::Stopped(reason) => NoValueReason::Stopped(reason.clone()),
        _ => NoValueReason::Unfinished,
    }
}

fn no_value(outcome: &Outcome, reason: NoValueReason) -> NoValue {
    let message = Arc::new(Message::assistant(outcome.text.as_str()));
    NoValue { reason, message, rounds: outcome.steps, usage: outcome.usage, cost: outcome.cost }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for entourage_core::run::Outcome {}
}
