//! The reasons for which a reply ends and a run stops.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::Exhausted;

/// Reason for the end of a reply, in provider-neutral terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FinishReason {
    /// The model had nothing more to say, or met a stop sequence.
    Stop,
    /// The model waits for its tool calls.
    ToolCalls,
    /// The output limit was reached.
    Length,
    /// The service withheld the rest.
    ContentFilter,
    /// The model declined.
    Refusal,
    /// The run was cancelled while the reply came.
    Cancelled,
    /// The reply broke off with an error.
    Error,
    /// Another reason, which `Finish::raw` may spell.
    Other,
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
        /// Number of attempts: rounds of work and check, or answers.
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

impl StopReason {
    /// Returns the next step of whoever gave the task.
    pub(super) fn next_step(&self) -> &'static str {
        match self {
            Self::Steps(_) => "allow more steps with `Limits::with_steps`, or give a smaller task",
            Self::Condition(_) => "take the text from the outcome of `start`, or change `stop_when`",
            Self::Reply(FinishReason::Length) => "allow longer replies with `Params::with_max_output`",
            Self::Reply(FinishReason::ContentFilter | FinishReason::Refusal) => {
                "change the prompt, or use another model"
            }
            Self::Reply(_) => "give the task again",
            Self::Denied(_) => "allow the tool by a rule or an approver, or say how to do without it",
            Self::Deadline => "give the task a later deadline with `Task::with_deadline`",
            Self::Budget(_) => "give the task again with a larger budget",
            Self::LoopDetected => {
                "change the prompt or the tools, or set other `loops` on the agent's builder"
            }
            Self::Incomplete { .. } => {
                "allow more rounds with `iterations` or `repairs`, or give a smaller task"
            }
            Self::Tasks { .. } => "mend these tasks and run the graph again",
        }
    }
}

impl From<Exhausted> for StopReason {
    fn from(exhausted: Exhausted) -> Self {
        Self::Budget(Box::new(exhausted))
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
                let more = if *iterations == 1 { "" } else { "s" };
                write!(f, "not complete after {iterations} attempt{more}: {feedback}")
            }
            Self::Tasks { failed, cancelled, skipped } => tell_tasks(f, failed, cancelled, skipped),
        }
    }
}
