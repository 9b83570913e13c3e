//! The cost of a model call that failed, as far as its error tells.

use super::{ErrorKind, ErrorRecord};

/// Progress of a call that failed without any output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// It never left: it cost nothing.
    NotSent,
    /// The service refused it before any token: it cost nothing.
    Refused,
    /// It may have been worked on, and may cost anything.
    Unknown,
}

impl Failure {
    /// Progress that the kind of an error alone implies.
    pub fn of_kind(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::EmptyPrompt
            | ErrorKind::Unsupported
            | ErrorKind::Config
            | ErrorKind::BudgetExceeded
            | ErrorKind::Paused => Self::NotSent,
            ErrorKind::InvalidInput
            | ErrorKind::NotFound
            | ErrorKind::Busy
            | ErrorKind::Conflict
            | ErrorKind::Authentication
            | ErrorKind::PermissionDenied
            | ErrorKind::RateLimited
            | ErrorKind::Overloaded
            | ErrorKind::ContentFiltered
            | ErrorKind::ContextOverflow
            | ErrorKind::TooLarge => Self::Refused,
            _ => Self::Unknown,
        }
    }

    /// Progress that a recorded error implies.
    pub fn of_record(error: &ErrorRecord) -> Self {
        match &error.exhausted {
            // Time may run out before a call or during it.
            Some(exhausted) if &*exhausted.bound == "time" => Self::Unknown,
            _ if error.unsent => Self::NotSent,
            _ => Self::of_kind(error.kind),
        }
    }
}
