//! The states of the machine.

use std::sync::Arc;

use entourage_core::{
    Error,
    event::ModelFinished,
    message::ToolResult,
    run::{Outcome, Status},
};

#[derive(Debug, Clone)]
pub(super) enum Phase {
    /// A model call comes next, once this stage is through.
    Before(Stage),
    /// Calls of the newest reply wait for results.
    Tools { reply: Arc<ModelFinished>, calls: Vec<CallState>, stopped: Option<Stop> },
    /// The newest reply may hold the value that the run is for. Without it the run ends as `then` says, if that is
    /// known.
    Check { reply: Arc<ModelFinished>, told: bool, then: Option<Box<Status>> },
    /// An answer was refused, and the model will be asked again.
    Refused { problem: Arc<str>, told: bool },
    /// The conversation was too long for the newest model call. This ends the run, unless the call may be made again
    /// once the conversation is smaller.
    TooLong { end: End, may_retry: bool },
    /// The run is over.
    Done(End),
}

/// The way to a model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Prompts that wait join the conversation.
    Steer,
    /// The conversation is made smaller, since its context is nearly full.
    Compact,
    /// Prompts that came during the compaction join it too.
    SteerAgain,
    /// The model is called.
    Call,
}

/// The end of a run.
#[derive(Debug, Clone)]
pub(super) enum End {
    /// As the record says.
    Recorded(Status),
    /// By an error of this life of the run, which its caller gets as it is.
    Failed(Arc<Error>),
}

impl End {
    pub(super) fn status(&self) -> Status {
        match self {
            Self::Recorded(status) => status.clone(),
            Self::Failed(error) => Status::of(error),
        }
    }

    /// Returns what the caller of the run gets. `outcome` makes an outcome of a status.
    ///
    /// # Errors
    /// The error that ended the run.
    pub(super) fn result(self, outcome: impl FnOnce(Status) -> Outcome) -> Result<Outcome, Error> {
        match self {
            Self::Recorded(status) => Ok(outcome(status)),
            Self::Failed(error) => Err(Arc::try_unwrap(error).unwrap_or_else(|shared| copy(&shared))),
        }
    }
}

/// Returns the error as it would be read from a record, for a machine whose clone holds the original too.
fn copy(error: &Error) -> Error {
    error.pause().map_or_else(|| error.record().to_error(), |pause| Error::paused(pause.clone()))
}

#[derive(Debug, Clone)]
pub(crate) enum CallState {
    New,
    /// A repetition to be refused: loop detection counted the same call too often.
    Repeated,
    Started,
    Settled(Arc<ToolResult>),
}

impl CallState {
    pub(super) fn is_settled(&self) -> bool {
        matches!(self, Self::Settled(_))
    }

    pub(crate) fn result(&self) -> Option<&ToolResult> {
        if let Self::Settled(result) = self { Some(result) } else { None }
    }
}

#[derive(Debug, Clone)]
pub(super) enum Stop {
    Turn,
    Status(Status),
}
