//! The reason for a compaction.

use serde::{Deserialize, Serialize};

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
