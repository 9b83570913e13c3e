//! The reason why a prompt's run ended, in the five words that editors know.

use std::fmt;

use serde::{Deserialize, Serialize};

use entourage_core::{
    ErrorKind, ErrorRecord, Result,
    provider::FinishReason,
    run::{Outcome, Status, StopReason},
};

/// Reason why a run ended, as reported to the sender of the prompt.
///
/// ```
/// use entourage_core::{Error, run::{Outcome, Status}};
/// use entourage_runners::StopKind;
///
/// assert_eq!(StopKind::of(&Status::Completed), Some(StopKind::EndTurn));
/// assert_eq!(StopKind::answer(Err(Error::cancelled())).unwrap(), StopKind::Cancelled);
/// assert_eq!(serde_json::to_string(&StopKind::MaxTurnRequests).unwrap(), r#""max_turn_requests""#);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopKind {
    /// The agent has nothing more to say, because it is done or because it may not continue.
    EndTurn,
    /// A token limit was reached.
    MaxTokens,
    /// A limit of steps, rounds, calls, money or time was reached.
    MaxTurnRequests,
    /// The model declined, or its service withheld the reply.
    Refusal,
    /// Somebody stopped the run: it was cancelled, or it is paused and can be resumed.
    Cancelled,
}

impl StopKind {
    /// Returns the reason for this status; `None` for a failed run, which is answered with its error.
    #[must_use]
    pub fn of(status: &Status) -> Option<Self> {
        Self::read(status).ok()
    }

    /// Returns the answer for a run's outcome. A cancel is never an error.
    ///
    /// # Errors
    /// The error that the run failed with.
    pub fn answer(outcome: Result<Outcome>) -> Result<Self> {
        match outcome {
            Ok(outcome) => Self::read(&outcome.status).map_err(ErrorRecord::to_error),
            Err(error) => Self::read(&Status::of(&error)).map_err(|_| error),
        }
    }

    fn read(status: &Status) -> Result<Self, &ErrorRecord> {
        match status {
            Status::Completed => Ok(Self::EndTurn),
            Status::Stopped(reason) => Ok(Self::of_stop(reason)),
            Status::Cancelled | Status::Paused(_) => Ok(Self::Cancelled),
            Status::Failed(error) => match error.kind {
                ErrorKind::Cancelled | ErrorKind::Paused => Ok(Self::Cancelled),
                ErrorKind::ContentFiltered => Ok(Self::Refusal),
                _ => Err(error),
            },
            // A status of a later version: nothing says that the turn came to its end.
            _ => Ok(Self::Cancelled),
        }
    }

    /// Returns the serialized name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::EndTurn => "end_turn",
            Self::MaxTokens => "max_tokens",
            Self::MaxTurnRequests => "max_turn_requests",
            Self::Refusal => "refusal",
            Self::Cancelled => "cancelled",
        }
    }

    fn of_stop(reason: &StopReason) -> Self {
        match reason {
            StopReason::Reply(reply) => Self::of_reply(*reply),
            // Permission was refused by the user or a rule, not by the agent: it is no refusal of the agent's.
            StopReason::Condition(_) | StopReason::Denied(_) | StopReason::Tasks { .. } => Self::EndTurn,
            StopReason::Budget(exhausted) if *exhausted.bound == *"tokens" => Self::MaxTokens,
            // Steps, time, money, a loop, and what a later version knows.
            _ => Self::MaxTurnRequests,
        }
    }

    fn of_reply(reason: FinishReason) -> Self {
        match reason {
            FinishReason::Length => Self::MaxTokens,
            FinishReason::ContentFilter | FinishReason::Refusal => Self::Refusal,
            FinishReason::Cancelled => Self::Cancelled,
            _ => Self::EndTurn,
        }
    }
}

impl fmt::Display for StopKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
