//! Children that a run started, and the end of a wait for them.

use super::Outcome;
use crate::SessionId;

/// A child that [`RunContext::spawn`](super::RunContext::spawn) started.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Child(pub(super) SessionId);

impl Child {
    /// Returns its session.
    #[must_use]
    pub fn session(&self) -> &SessionId {
        &self.0
    }
}

/// The result of [`RunContext::wait_any`](super::RunContext::wait_any).
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "made once per wait and taken apart at once")]
pub enum Waited {
    /// A child ended.
    Ended {
        /// Its position among the children waited for.
        index: usize,
        /// Its outcome.
        outcome: Outcome,
    },
    /// None ended in time.
    TimedOut,
}
