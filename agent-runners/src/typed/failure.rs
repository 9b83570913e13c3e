//! Failure of a generation to give a value, as an error that a program can take apart.

use std::{error::Error as _, sync::Arc};

use entourage_core::{
    Error, ErrorKind, Money, Usage,
    message::{Message, Part},
    run::StopReason,
};

/// Characters of a reply that an error shows.
const SHOWN: usize = 200;

/// The source of the error that ends a generation without a value, and of the one that an outcome without a value
/// gives.
///
/// ```
/// use entourage_core::Error;
/// use entourage_runners::typed::{NoValue, NoValueReason};
///
/// fn declined(error: &Error) -> bool {
///     NoValue::of(error).is_some_and(|none| none.reason == NoValueReason::Refused)
/// }
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[error("the model gave no value after {rounds} calls")]
#[non_exhaustive]
pub struct NoValue {
    /// Reason that there is no value.
    pub reason: NoValueReason,
    /// The last reply.
    pub message: Arc<Message>,
    /// Number of model calls made.
    pub rounds: u32,
    /// Tokens of all calls, as far as the service reported them.
    pub usage: Usage,
    /// Cost of all calls; `None` when the cost of any is unknown.
    pub cost: Option<Money>,
}

impl NoValue {
    /// The `NoValue` behind `error`, if a value was to be read.
    #[must_use]
    pub fn of(error: &Error) -> Option<&Self> {
        error.source()?.downcast_ref()
    }

    /// The error for a value of the type that the model knows as `name`.
    pub(super) fn into_error(self, name: &str) -> Error {
        let (kind, message) = match &self.reason {
            NoValueReason::Refused => {
                (ErrorKind::ContentFiltered, "the model declined; ask for something else".to_owned())
            }
            NoValueReason::Withheld => (
                ErrorKind::ContentFiltered,
                "the service withheld the reply; ask for something else".to_owned(),
            ),
            NoValueReason::CutOff => (
                ErrorKind::TooLarge,
                "the reply reached its output limit before the value was complete; raise the limit or ask for less"
                    .to_owned(),
            ),
            NoValueReason::Invalid(problem) => (
                ErrorKind::Protocol,
                format!("the model gave no `{name}`, not at a second try either: {problem}; try a larger model"),
            ),
            NoValueReason::Stopped(reason) => {
                (ErrorKind::Stopped, format!("the run was stopped before it gave a `{name}`: {reason}"))
            }
            NoValueReason::Unfinished => {
                (ErrorKind::Stopped, format!("the run ended before it gave a `{name}`; give the task again"))
            }
        };
        let began = excerpt(&self.message);
        let error = Error::new(kind, message).during("model.generate");
        let error = if began.is_empty() { error } else { error.with("reply", format!("{began:?}")) };
        error.caused_by(self)
    }
}

/// Reason that there is no value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoValueReason {
    /// The model declined.
    Refused,
    /// The service withheld the reply.
    Withheld,
    /// The reply reached its output limit.
    CutOff,
    /// The last reply that could be asked for was invalid, as all before it; the text says what was wrong with it.
    Invalid(String),
    /// The run of a typed agent was stopped for this reason, which has nothing to do with its answers.
    Stopped(StopReason),
    /// The run of a typed agent was cancelled, failed or is paused.
    Unfinished,
}

/// The first characters of a reply's text, refusal or arguments.
fn excerpt(message: &Message) -> String {
    let texts = message.parts().iter().filter_map(|part| match part {
        Part::Text(text) | Part::Refusal(text) => Some(text.as_str()),
        Part::ToolCall(call) => Some(call.malformed.as_deref().unwrap_or(call.arguments.as_str())),
        _ => None,
    });
    texts.flat_map(str::chars).take(SHOWN).collect()
}
