//! How a run ends.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Error, ErrorKind, ErrorRecord, Money, Timestamp, Usage,
    layers::{BudgetLimits, Exhausted},
    permission::ApprovalId,
    provider::FinishReason,
};

/// What a whole run ends with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Outcome {
    /// Whether it is done, and if not, why.
    pub status: Status,
    /// The answer: the first text of the newest step that has any (CM08).
    pub text: String,
    /// Tokens of the run's own model calls.
    /// Its own `cost` is `None`: see `cost`.
    pub usage: Usage,
    /// Their cost; `None` when the cost of any is unknown.
    pub cost: Option<Money>,
    /// Model calls.
    pub steps: u32,
}

impl Outcome {
    /// An outcome without text or usage.
    #[must_use]
    pub fn new(status: Status) -> Self {
        Self { status, text: String::new(), usage: Usage::default(), cost: Some(Money::default()), steps: 0 }
    }

    /// A completed run with this answer.
    #[must_use]
    pub fn completed(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::new(Status::Completed) }
    }

    /// Whether the agent finished what it was asked.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.status == Status::Completed
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {} steps, {}, ", self.status, self.steps, self.usage)?;
        match self.cost {
            Some(cost) => write!(f, "{cost}"),
            None => f.write_str("cost unknown"),
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// The agent finished.
    Completed,
    /// Something stopped it before it was finished.
    Stopped(StopReason),
    /// It was cancelled.
    Cancelled,
    /// It waits for somebody and can be resumed.
    Paused(Pause),
    /// It failed. `RunHandle::outcome` gives this as an `Err`.
    Failed(ErrorRecord),
}

impl Status {
    /// How a run ends that ended with `error`.
    pub(crate) fn of(error: &Error) -> Self {
        match (error.kind(), error.pause(), error.exhausted()) {
            (_, Some(pause), _) => Self::Paused(pause.clone()),
            (_, _, Some(exhausted)) => Self::Stopped(exhausted.clone().into()),
            (ErrorKind::Cancelled, ..) => Self::Cancelled,
            _ => Self::Failed(error.record()),
        }
    }

    /// How a run ends of which `error` is recorded.
    pub(crate) fn of_record(error: &ErrorRecord) -> Self {
        match &error.exhausted {
            Some(exhausted) => Self::Stopped((**exhausted).clone().into()),
            None => Self::Failed(error.clone()),
        }
    }
}

impl From<Exhausted> for StopReason {
    fn from(exhausted: Exhausted) -> Self {
        Self::Budget { bound: exhausted.bound, remaining: Box::new(exhausted.remaining) }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed => f.write_str("completed"),
            Self::Stopped(reason) => write!(f, "stopped: {reason}"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Paused(pause) => write!(f, "paused: {pause}"),
            Self::Failed(error) => write!(f, "failed: {}", error.message),
        }
    }
}

/// What stopped a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// The limit of steps was reached.
    Steps(u32),
    /// A stop condition held; this is its text.
    Condition(String),
    /// The model's reply ended for a reason other than being done.
    Reply(FinishReason),
    /// Leave for a call was refused.
    Denied(String),
    /// The deadline passed.
    Deadline,
    /// A budget was used up.
    Budget {
        /// The bound: `money`, `tokens`, `model_calls`, `tool_calls` or `time`.
        bound: Box<str>,
        /// What is left of each bound; `None` where nothing is bounded.
        remaining: Box<BudgetLimits>,
    },
    /// The agent did the same over and over (CM16).
    LoopDetected,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steps(limit) => write!(f, "the limit of {limit} steps was reached"),
            Self::Condition(text) => write!(f, "the stop condition `{text}` held"),
            Self::Reply(FinishReason::Length) => f.write_str("the model's reply reached its output limit"),
            Self::Reply(FinishReason::ContentFilter) => f.write_str("the service withheld the reply"),
            Self::Reply(FinishReason::Refusal) => f.write_str("the model declined"),
            Self::Reply(reason) => write!(f, "the model's reply ended with {reason:?}"),
            Self::Denied(tool) => write!(f, "leave to run `{tool}` was refused"),
            Self::Deadline => f.write_str("the deadline passed"),
            Self::Budget { bound, remaining } => Exhausted::new(&**bound, **remaining).fmt(f),
            Self::LoopDetected => f.write_str("it went in circles: the same calls with the same results"),
        }
    }
}

/// What a paused run waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Pause {
    /// A decision about a call.
    Approval(ApprovalId),
    /// A signal.
    Signal {
        /// Its name.
        name: String,
        /// When the wait ends by itself.
        until: Option<Timestamp>,
    },
    /// Somebody asked it to pause.
    Asked,
}

impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Approval(id) => write!(f, "waits for a decision about {id}; decide and resume the session"),
            Self::Signal { name, .. } => {
                write!(f, "waits for the signal `{name}`; send it and resume the session")
            }
            Self::Asked => f.write_str("paused on request; resume the session to go on"),
        }
    }
}
