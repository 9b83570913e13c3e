//! Compactions of a conversation: why one begins, and its events.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::payload::payload;
use crate::{ErrorRecord, SessionId, message::Message};

/// The reason for a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CompactionCause {
    /// The context is nearly full.
    Threshold,
    /// The service refused a request for its length.
    Overflow,
    /// Compaction was requested explicitly.
    Asked,
}

payload! {
    /// A compaction of the context began.
    CompactionStarted {
        /// Cause of the compaction.
        cause: CompactionCause,
        /// The session in which the summary is written; its model calls are there.
        child: SessionId,
        /// Estimated tokens of the conversation.
        tokens: u64,
    }
}

payload! {
    /// A summary took the place of the older messages, which the store keeps.
    Compacted {
        /// The summary, a user message that the model sees first from now on.
        summary: Arc<Message>,
        /// Number of newest messages that are kept word for word after the summary.
        kept: u64,
        /// Estimated tokens of the conversation before.
        before: u64,
        /// Estimated tokens of the conversation now.
        after: u64,
        /// Tokens of the summary, as the service counted them or as estimated.
        output: u64,
    }
}

payload! {
    /// A compaction failed; the conversation stays as it is.
    CompactionFailed {
        /// Reason that no summary was made.
        error: ErrorRecord,
    }
}

payload! {
    /// Old tool results were cleared: the model is shown a note in place of each.
    OutputsCleared {
        /// Number of messages, from the oldest on, whose results are cleared.
        before: u64,
        /// Smallest result that is cleared, in bytes.
        least: u64,
        /// Estimated tokens of the conversation now.
        after: u64,
    }
}
