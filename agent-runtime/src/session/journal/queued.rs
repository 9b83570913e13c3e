//! Prompts in the stored queue of a session.

use std::sync::Arc;

use entourage_core::{Timestamp, event::PromptQueued, run::Task};

/// A prompt's place in the stored queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InQueue {
    /// Number of the event that queued it.
    pub(crate) seq: u64,
    /// Time at which the session of that event was created.
    pub(crate) created: Timestamp,
}

/// Returns the task of a queued prompt's own run.
pub(crate) fn queued_task(queued: &PromptQueued) -> Task {
    Task::of(Arc::clone(&queued.prompt), queued.budget, queued.deadline).with_labels(queued.labels)
}
