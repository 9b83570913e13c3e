//! The input that a paused run waits for.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{ApprovalId, CallId, Timestamp};

/// The input that a paused run waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Pause {
    /// A decision about a call.
    Approval(ApprovalId),
    /// A decision about a call, which follows by itself at a time.
    Deadline {
        /// The question.
        approval: ApprovalId,
        /// The time, from which on a resumed run goes on.
        until: Timestamp,
    },
    /// A signal.
    Signal {
        /// Its name.
        name: String,
        /// Time at which the wait ends by itself.
        until: Option<Timestamp>,
    },
    /// The result of a call, from outside.
    Call(CallId),
    /// Nothing: the run was asked to pause.
    Asked,
}

impl Pause {
    /// Returns the question that is waited for.
    pub fn approval(&self) -> Option<&ApprovalId> {
        match self {
            Self::Approval(id) | Self::Deadline { approval: id, .. } => Some(id),
            Self::Signal { .. } | Self::Call(_) | Self::Asked => None,
        }
    }

    /// Returns the time at which the wait ends by itself.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Deadline { until, .. } => Some(*until),
            Self::Signal { until, .. } => *until,
            Self::Approval(_) | Self::Call(_) | Self::Asked => None,
        }
    }
}

impl fmt::Display for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Approval(id) => write!(f, "waits for a decision about {id}; decide and resume the session"),
            Self::Deadline { approval, .. } => {
                write!(
                    f,
                    "waits for a decision about {approval}; decide and resume the session, or resume it at the deadline"
                )
            }
            Self::Signal { name, .. } => {
                write!(f, "waits for the signal `{name}`; send it and resume the session")
            }
            Self::Call(id) => {
                write!(f, "waits for the result of the call {id}; answer it and resume the session")
            }
            Self::Asked => f.write_str("waits because somebody asked it to; resume the session to go on"),
        }
    }
}
