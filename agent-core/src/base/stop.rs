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
    /// True if nobody may try it again, see [`StopReason::is_final`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_final: bool,
}

impl FailedTask {
    /// Creates the record that `task` failed with `error`.
    pub fn new(task: impl Into<Arc<str>>, error: impl Into<String>) -> Self {
        Self { task: task.into(), error: error.into(), is_final: false }
    }

    /// Says whether nobody may try it again.
    #[must_use]
    pub fn final_if(self, is_final: bool) -> Self {
        Self { is_final, ..self }
    }
}

impl StopReason {
    /// True if nobody may try again by themselves, by another agent either: somebody refused a call, or what bounds the
    /// work is used up. The same holds for a graph of which a task ended so.
    #[must_use]
    pub fn is_final(&self) -> bool {
        let of_tasks = matches!(self, Self::Tasks { failed, .. } if failed.iter().any(|it| it.is_final));
        of_tasks || matches!(self, Self::Denied(_) | Self::Deadline | Self::Budget(_))
    }

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
            Self::LoopDetected => "change the prompt or the tools, or set other `loops` on the builder",
            Self::Incomplete { .. } => "allow more rounds with `iterations` or `repairs`, or give less",
            Self::Tasks { .. } => "mend these tasks and run the graph again",
        }
    }
}

impl From<Exhausted> for StopReason {
    fn from(exhausted: Exhausted) -> Self {
        Self::Budget(Box::new(exhausted))
    }
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
            Self::Tasks { failed, cancelled, skipped } => {
                let failed = failed.iter().map(|it| format!("`{}` failed ({})", it.task, it.error));
                let listed = |(how, tasks): (&str, &[Arc<str>])| format!("{how}: `{}`", tasks.join("`, `"));
                let others = [("cancelled", &**cancelled), ("skipped", skipped)].into_iter();
                let others = others.filter(|(_, tasks)| !tasks.is_empty()).map(listed);
                let told: Vec<_> = failed.chain(others).collect();
                write!(f, "not all tasks were done: {}", told.join("; "))
            }
        }
    }
}
