//! The record of an answer that was refused.

use entourage_core::{
    Result,
    event::{Record, weigh_plain},
    session::SessionState,
};
use serde::{Deserialize, Serialize};

use crate::kept::kept_in_run;

/// Record of an answer of a typed agent that was no value, or one that a validator or a guard refused. The model was
/// told, and is asked again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AnswerRefused {
    /// Number of answers refused in the run so far, this one included.
    pub round: u32,
    /// What was wrong with it, as the model was told.
    pub problem: Box<str>,
}

impl AnswerRefused {
    pub(crate) fn new(round: u32, problem: impl Into<Box<str>>) -> Self {
        Self { round, problem: problem.into() }
    }
}

impl Record for AnswerRefused {
    const KIND: &'static str = "typed.answer_refused";
    // A checkpoint stands for the events before it, and the number of repairs must outlive it.
    const KEPT: bool = true;

    fn summary(&self) -> String {
        format!("answer {} refused: {}", self.round, self.problem)
    }

    fn weigh(&self) -> Result<usize> {
        weigh_plain(self)
    }
}

/// Number of answers that the open run of this state refused.
pub(crate) fn refused_in(state: &SessionState) -> u32 {
    u32::try_from(kept_in_run(state, AnswerRefused::KIND)).unwrap_or(u32::MAX)
}
