//! The outcome of a run: its status, its answer and its totals.

use std::{
    fmt::{self, Write as _},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::{
    Error, ErrorKind, ErrorRecord, Money, Usage,
    base::{Exhausted, Pause, shown::Shown},
    provider::FinishReason,
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
}

impl Outcome {
    /// An outcome without text or usage.
    #[must_use]
    pub fn new(status: Status) -> Self {
        let (text, failed, cost) = (String::new(), Box::default(), Some(Money::default()));
        Self { status, text, usage: Usage::default(), cost, steps: 0, failed }
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
    pub(crate) fn of(error: &Error) -> Self {
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

    /// The status of a run whose recorded error is `error`.
    pub(crate) fn of_record(error: &ErrorRecord) -> Self {
        match &error.exhausted {
            Some(exhausted) => Self::Stopped((**exhausted).clone().into()),
            None => Self::Failed(error.clone()),
        }
    }
}

impl From<Exhausted> for StopReason {
    fn from(exhausted: Exhausted) -> Self {
        Self::Budget(Box::new(exhausted))
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

/// The reason that a run stopped before it was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// The limit of steps was reached.
    Steps(u32),
    /// A stop condition held; this is its text.
    Condition(String),
    /// The model's reply ended for a reason other than completion.
    Reply(FinishReason),
    /// Permission for a call to this tool was refused.
    Denied(String),
    /// The deadline passed.
    Deadline,
    /// A budget was used up, or did not cover a call.
    Budget(Box<Exhausted>),
    /// Loop detection found the agent repeating itself.
    LoopDetected,
    /// The check never accepted the work.
    Incomplete {
        /// Number of rounds of work and check.
        iterations: u32,
        /// The newest check's account of what is left to do.
        feedback: Box<str>,
    },
    /// Not all tasks of a graph completed.
    Tasks {
        /// Tasks that failed, with their errors, in the order of the graph.
        failed: Box<[FailedTask]>,
        /// Tasks that were cancelled.
        cancelled: Box<[Arc<str>]>,
        /// Tasks that were not run because another one gave no value.
        skipped: Box<[Arc<str>]>,
    },
}

/// A task of a graph that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FailedTask {
    /// Its id.
    pub task: Arc<str>,
    /// The error that it failed with.
    pub error: String,
}

impl FailedTask {
    /// Creates the record that `task` failed with `error`.
    pub fn new(task: impl Into<Arc<str>>, error: impl Into<String>) -> Self {
        Self { task: task.into(), error: error.into() }
    }
}

/// Writes the tasks that were not done, in one line.
fn tell_tasks(
    f: &mut fmt::Formatter<'_>,
    failed: &[FailedTask],
    cancelled: &[Arc<str>],
    skipped: &[Arc<str>],
) -> fmt::Result {
    let mut parts: Vec<String> =
        failed.iter().map(|failed| format!("`{}` failed ({})", failed.task, failed.error)).collect();
    let told = [("cancelled", cancelled), ("skipped", skipped)];
    let names =
        |names: &[Arc<str>]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let others = told.iter().filter(|(_, tasks)| !tasks.is_empty());
    parts.extend(others.map(|(how, tasks)| format!("{how}: {}", names(tasks))));
    write!(f, "not all tasks were done: {}", parts.join("; "))
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
            Self::Budget(exhausted) => exhausted.fmt(f),
            Self::LoopDetected => f.write_str("it went in circles: the same calls with the same results"),
            Self::Incomplete { iterations, feedback } => {
                write!(f, "not complete after {iterations} rounds of work and check: {feedback}")
            }
            Self::Tasks { failed, cancelled, skipped } => tell_tasks(f, failed, cancelled, skipped),
        }
    }
}
