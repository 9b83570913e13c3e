//! What comes to a session from outside while its run waits: answers to questions, and signals.

use serde_json::Value;

use super::SessionState;
use crate::{
    digest::Digest,
    permission::{ApprovalId, Decision},
    run::Pause,
};

impl SessionState {
    pub(crate) fn approval(&self, id: &ApprovalId, digest: Digest) -> Option<Decision> {
        self.approvals.get(id).filter(|(_, bound)| *bound == digest).and_then(|(decision, _)| *decision)
    }

    /// The answer to this question, if it has one, and what it is bound to; `None` for one that was not asked.
    pub(crate) fn asked(&self, id: &ApprovalId) -> Option<(Option<Decision>, Digest)> {
        self.approvals.get(id).copied()
    }

    /// Whether the session's paused run got an answer since, so that it can be gone on with.
    pub(crate) fn is_answered(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.answered)
    }

    /// Whether a wait set a signal of this name aside.
    pub(crate) fn has_taken(&self, name: &str) -> bool {
        self.taken.as_ref().is_some_and(|(it, _)| it == name)
    }

    /// Whether a signal of this name waits to be taken.
    pub(crate) fn has_signal(&self, name: &str) -> bool {
        self.signals.iter().any(|(it, _)| it == name)
    }

    /// Takes the signal of this name that the newest wait set aside.
    pub(crate) fn take_signal(&mut self, name: &str) -> Option<Value> {
        self.taken.take_if(|(it, _)| it == name).map(|(_, value)| value)
    }

    /// The wait for a signal ends with the oldest of its name. This is part of the fold, so that no later wait,
    /// after a restart either, gets the same one.
    pub(super) fn set_signal_aside(&mut self, name: &str) {
        // Without one the wait only begins, and what another wait set aside stays aside.
        if let Some(place) = self.signals.iter().position(|(it, _)| it == name) {
            self.taken = Some(self.signals.remove(place));
        }
    }

    /// An answer came that `fits` what the open run may be paused for.
    pub(super) fn answer(&mut self, fits: impl FnOnce(&Pause) -> bool) {
        if let Some(run) = &mut self.run {
            run.answered |= run.pause.as_ref().is_some_and(fits);
        }
    }
}
