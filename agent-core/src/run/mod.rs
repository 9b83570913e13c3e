//! A run, from one prompt to one outcome: its context, and the effects that its agent asks for.

mod context;
mod digest;
mod effect;
mod record;
mod waited;

pub use crate::{
    base::{FailedTask, Pause, StopReason},
    event::Observer,
    outcome::{Outcome, Status},
};
pub use context::RunContext;
pub use effect::{
    Delegate, Effect, Effects, ModelCall, Observation, PendingCall, Performing, Spawn, ToolCalls,
};
pub use waited::{Child, Waited};

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    Timestamp,
    base::{BudgetLimits, setters},
    message::Message,
    spec::Labels,
};

/// A task for an agent: a prompt and its bounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Task {
    /// The prompt.
    pub prompt: Arc<Message>,
    /// Bounds on what the run, and all that it starts, may use. Default: those around it.
    pub budget: Option<BudgetLimits>,
    /// Time at which it is stopped. Default: never.
    pub deadline: Option<Timestamp>,
    /// Labels of the prompt. Default: none, as a user's own words have.
    #[serde(default)]
    pub labels: Labels,
}

impl Task {
    /// Creates a task of one prompt, without bounds.
    #[must_use]
    pub fn new(prompt: impl Into<Message>) -> Self {
        Self::of(Arc::new(prompt.into()), None, None)
    }

    /// Creates a task of a prompt that others share, with its bounds.
    #[must_use]
    pub fn of(prompt: Arc<Message>, budget: Option<BudgetLimits>, deadline: Option<Timestamp>) -> Self {
        Self { prompt, budget, deadline, labels: Labels::empty() }
    }

    setters! {
        /// Bounds what the run, and all that it starts, may use. Reservations of calls in flight count as used until
        /// these end: see [`BudgetLimits`].
        with_budget(budget: BudgetLimits) => Some(budget);
        /// Stops the run when `deadline` has passed; a resumed run keeps its deadline.
        with_deadline(deadline: Timestamp) => Some(deadline);
        /// Labels the prompt, as one that holds a stranger's letter.
        with_labels(labels: Labels) => labels;
    }
}

impl<P: Into<Message>> From<P> for Task {
    fn from(prompt: P) -> Self {
        Self::new(prompt)
    }
}

/// Bounds of a run. Every loop has one.
///
/// ```
/// use std::time::Duration;
///
/// use entourage_core::run::Limits;
///
/// let limits = Limits::default().with_steps(20).with_tool_timeout(Duration::from_secs(30));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Limits {
    /// Model calls of one run. Default 50.
    pub steps: u32,
    /// Tool calls at once. Default 5.
    pub parallel_tools: NonZeroUsize,
    /// Time that one tool call may take, unless its tool says otherwise. Default 10 minutes.
    pub tool_timeout: Duration,
    /// Time that a model may stay silent, before and within its reply. Default 5 minutes. Each delta ends a silence,
    /// also one without content, such as usage, whose number is bounded. Bytes that only keep a connection alive do
    /// not.
    pub model_silence: Duration,
    /// Bytes of text of one tool result; the middle of a longer one is cut out. Default 256 KiB, at most 16 MiB.
    pub tool_output: usize,
    /// Bytes of the files of one tool result, as they are encoded: files beyond that are left out, and the model is
    /// told. Default 32 MiB, at most 64 MiB.
    pub tool_media: usize,
    /// Bytes of memory that the metadata of one tool result may take, about; more is left out, and the model is told.
    /// Default 1 MiB, at most 32 MiB.
    pub tool_metadata: usize,
}

impl Limits {
    setters! {
        /// Sets the number of model calls of one run, at most.
        with_steps(steps: u32) => steps;
        /// Sets the number of tool calls at once, at most.
        with_parallel_tools(parallel_tools: NonZeroUsize) => parallel_tools;
        /// Sets the time that one tool call may take, unless its tool says otherwise.
        with_tool_timeout(tool_timeout: Duration) => tool_timeout;
        /// Sets the time that a model may stay silent.
        with_model_silence(model_silence: Duration) => model_silence;
        /// Sets the bytes of text of one tool result, at most.
        with_tool_output(tool_output: usize) => tool_output;
        /// Sets the bytes of the files of one tool result, at most.
        with_tool_media(tool_media: usize) => tool_media;
        /// Sets the bytes of the metadata of one tool result, at most.
        with_tool_metadata(tool_metadata: usize) => tool_metadata;
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            steps: 50,
            parallel_tools: NonZeroUsize::new(5).unwrap_or(NonZeroUsize::MIN),
            tool_timeout: Duration::from_secs(600),
            model_silence: Duration::from_secs(300),
            tool_output: 256 << 10,
            tool_media: 32 << 20,
            tool_metadata: 1 << 20,
        }
    }
}
