//! The outcome of a run: its status, its answer and its totals.

use std::{
    fmt::{self, Write as _},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::{
    Error, ErrorKind, ErrorRecord, Money, Usage,
    base::{Pause, StopReason, shown::Shown},
    spec::Labels,
};

/// The result of a whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Outcome {
    /// Completed, or the reason that it is not.
    pub status: Status,
    /// The answer: the first text of the newest step that has any.
    pub text: String,
    /// Tokens of the run's own model calls, without those of agents below it. Its own `cost` is `None`: see `cost`.
    ///
    /// For an agent that reports no steps, the runtime fills in usage, cost and steps.
    pub usage: Usage,
    /// Cost of these calls; `None` when the cost of any is unknown.
    pub cost: Option<Money>,
    /// Number of model calls.
    pub steps: u32,
    /// Ids of the tasks that failed in a graph that completed without them.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub failed: Box<[Arc<str>]>,
    /// Labels of what its session had read by the end, those that its agent sets here among them.
    #[serde(default = "Labels::all")]
    pub labels: Labels,
}

impl Outcome {
    /// An outcome without text or usage.
    #[must_use]
    pub fn new(status: Status) -> Self {
        let (text, failed, cost) = (String::new(), Box::default(), Some(Money::default()));
        let (usage, labels) = (Usage::default(), Labels::empty());
        Self { status, text, usage, cost, steps: 0, failed, labels }
    }

    /// A completed run with this answer.
    #[must_use]
    pub fn completed(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::new(Status::Completed) }
    }

    /// True when the agent finished its task.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.status == Status::Completed
    }
}

impl fmt::Display for Outcome {
    /// The status, then steps, usage and cost of the run's own model calls; the status alone when it made none. One
    /// line, without terminal control sequences.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps == 0 && self.usage == Usage::default() && self.cost == Some(Money::default()) {
            return self.status.fmt(f);
        }
        let f = &mut Shown::line(f);
        write!(f, "{}; {} steps, {}, ", self.status, self.steps, self.usage)?;
        match self.cost {
            Some(cost) => write!(f, "{cost}"),
            None => f.write_str("cost unknown"),
        }
    }
}

/// The way a run ended.
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
    /// It is paused and can be resumed.
    Paused(Pause),
    /// It failed. `RunHandle::outcome` gives this as an `Err`.
    Failed(ErrorRecord),
}

impl Status {
    /// The status of a run that ended with `error`.
    #[must_use]
    pub fn of(error: &Error) -> Self {
        match (error.kind(), error.pause(), error.exhausted()) {
            (_, Some(pause), _) => Self::Paused(pause.clone()),
            (_, _, Some(exhausted)) => Self::Stopped(exhausted.clone().into()),
            (ErrorKind::Cancelled, ..) => Self::Cancelled,
            _ => Self::Failed(error.record()),
        }
    }

    /// True when the outcome's text is an answer to the user.
    pub(crate) fn has_answer(&self) -> bool {
        matches!(self, Self::Completed | Self::Stopped(StopReason::Incomplete { .. }))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let f = &mut Shown::line(f);
        match self {
            Self::Completed => f.write_str("completed"),
            Self::Stopped(reason) => write!(f, "stopped: {reason}"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Paused(pause) => write!(f, "paused: {pause}"),
            Self::Failed(error) => write!(f, "failed: {}", error.message),
        }
    }
}
