//! A run, from one prompt to one outcome: the pure [`Turn`], the effects that it asks for, and the code that performs
//! and records them.

mod admit;
pub(crate) mod apart;
mod ask;
mod budget;
pub(crate) mod bus;
mod child;
pub(crate) mod compaction;
mod context;
mod delegate;
mod effect;
pub(crate) mod emit;
pub(crate) mod end;
mod env;
mod execute;
mod flight;
pub(crate) mod fold;
mod handle;
mod join;
mod journal;
mod life;
mod local;
mod loop_detection;
mod model_call;
mod nest;
mod parts;
mod pool;
mod queue;
mod record;
mod replay;
mod since;
pub(crate) mod site;
mod subtree;
mod tool_bound;
mod tool_call;
mod tool_check;
mod tool_judge;
mod tool_run;
mod tool_schedule;
mod turn;
mod unstored;
mod waited;
mod watch;
mod weight;

pub use crate::base::{Caught, caught};
pub use crate::{
    base::{FailedTask, Pause, StopReason},
    event::observer::Observer,
    outcome::{Outcome, Status},
};
pub use bus::Subscription;
pub use context::RunContext;
pub use effect::{Delegate, Effect, Effects, ModelCall, Observation, PendingCall, Spawn, ToolCalls};
pub use handle::RunHandle;
pub use loop_detection::LoopDetection;
pub use turn::{Action, StopWhen, Turn};
pub use waited::{Child, Waited};

pub(crate) use admit::{check_lease, check_prompt};
pub(crate) use child::{Turn as ChildTurn, known_end, open_child, run_child};
pub(crate) use emit::{Emitter, Sink};
pub(crate) use env::Env;
pub(crate) use execute::{Admission, CLEAN_UP, Within, execute};
pub(crate) use journal::Journal;
pub(crate) use nest::Nest;
pub(crate) use queue::{Active, Desk, InQueue, Line, Running, Ticket};
pub(crate) use replay::{RecordedTime, Recording, replay};

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use crate::{
    Timestamp,
    base::{BudgetLimits, setters},
    message::Message,
};

/// A task for an agent: a prompt and its bounds.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Task {
    /// The prompt.
    pub prompt: Arc<Message>,
    /// Bounds on what the run, and all that it starts, may use. Default: those around it.
    pub budget: Option<BudgetLimits>,
    /// Time at which it is stopped. Default: never.
    pub deadline: Option<Timestamp>,
}

impl Task {
    /// Creates a task of one prompt, without bounds.
    #[must_use]
    pub fn new(prompt: impl Into<Message>) -> Self {
        Self { prompt: Arc::new(prompt.into()), budget: None, deadline: None }
    }

    setters! {
        /// Bounds what the run, and all that it starts, may use. Reservations of calls in flight count as used until
        /// these end: see [`BudgetLimits`].
        with_budget(budget: BudgetLimits) => Some(budget);
        /// Stops the run when `deadline` has passed; a resumed run keeps its deadline.
        with_deadline(deadline: Timestamp) => Some(deadline);
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// Settings of loop detection.
    pub loops: LoopDetection,
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
        /// Sets the loop detection.
        with_loops(loops: LoopDetection) => loops;
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
            loops: LoopDetection::default(),
        }
    }
}
