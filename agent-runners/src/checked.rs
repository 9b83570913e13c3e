//! Records of checked tasks: their phases.

use std::sync::Arc;

use entourage_core::{
    Result, RunId, SessionId,
    event::{Record, weigh_plain},
    message::Message,
    run::Outcome,
};
use serde::{Deserialize, Serialize};

use crate::autonomy::{Phase, Verdict};

/// A phase of a checked task began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PhaseStarted {
    /// Number of the round of work and check, from 1.
    pub iteration: u32,
    /// Kind of phase.
    pub phase: Phase,
    /// The session in which the phase runs.
    pub child: SessionId,
    /// The phase's run in that session.
    pub run: RunId,
    /// Prompt of that run.
    pub prompt: Arc<Message>,
}

impl Record for PhaseStarted {
    const KIND: &'static str = "checked.phase_started";
    const KEPT: bool = true;

    fn summary(&self) -> String {
        format!("round {}: {}", self.iteration, self.phase)
    }

    fn child(&self) -> Option<(&SessionId, Option<RunId>)> {
        Some((&self.child, Some(self.run)))
    }

    fn weigh(&self) -> Result<usize> {
        weigh_plain(self)
    }
}

/// A phase of a checked task ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PhaseFinished {
    /// Number of the round of work and check, from 1.
    pub iteration: u32,
    /// Kind of phase.
    pub phase: Phase,
    /// Outcome of its run.
    pub outcome: Outcome,
    /// Input of the next phase: a digest of the work, the summary, or the feedback.
    pub text: Arc<str>,
    /// Verdict of a check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

impl Record for PhaseFinished {
    const KIND: &'static str = "checked.phase_finished";
    const KEPT: bool = true;

    fn summary(&self) -> String {
        match &self.verdict {
            Some(verdict) => format!("round {}: {verdict}", self.iteration),
            None => format!("round {}: {}", self.iteration, self.text),
        }
    }

    fn weigh(&self) -> Result<usize> {
        weigh_plain(self)
    }
}
