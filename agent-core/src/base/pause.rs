//! The input that a paused run waits for.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{ApprovalId, Timestamp};

/// The input that a paused run waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Pause {
    /// A decision about a call.
    Approval(ApprovalId),
    /// A signal.
    Signal {
        /// Its name.
        name: String,
        /// Time at which the wait ends by itself.
        until: Option<Timestamp>,
    },
    /// Nothing: the run was asked to pause.
    Asked,
}

impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Approval(id) => write!(f, "waits for a decision about {id}; decide and resume the session"),
            Self::Signal { name, .. } => {
                write!(f, "waits for the signal `{name}`; send it and resume the session")
            }
            Self::Asked => f.write_str("waits because somebody asked it to; resume the session to go on"),
        }
    }
}
