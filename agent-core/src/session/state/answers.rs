//! Input from outside for a session whose run waits: approvals and signals.

use serde_json::Value;

use super::{
    super::{SessionStatus, open::OpenRun},
    SessionState,
};
use crate::{
    Digest,
    base::{ApprovalId, Pause},
    permission::Decision,
};

impl SessionState {
    /// Returns the decision on this question, if it is bound to `digest`.
    #[must_use]
    pub fn approval(&self, id: &ApprovalId, digest: Digest) -> Option<Decision> {
        self.approvals.get(id).filter(|(_, bound)| *bound == digest).and_then(|(decision, _)| *decision)
    }

    /// The decision on this question, if there is one, and the digest that it is bound to. `None` if it was never
    /// asked.
    pub fn asked(&self, id: &ApprovalId) -> Option<(Option<Decision>, Digest)> {
        self.approvals.get(id).copied()
    }

    /// True if the session's paused run has its input since, so that it can be resumed.
    pub fn is_answered(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.answered)
    }

    /// True if the run is paused and its pause is unknown, as after a checkpoint of version 0.1.
    pub fn lacks_its_pause(&self) -> bool {
        let paused = self.head.status == SessionStatus::Paused;
        paused && self.run.as_ref().is_some_and(|run| run.pause.is_none())
    }

    /// Keeps the known pause of a run after a checkpoint that lacks it.
    pub(crate) fn keep_pause(&mut self, known: Option<Box<OpenRun>>) {
        if !self.lacks_its_pause() {
            return;
        }
        if let (Some(run), Some(known)) = (&mut self.run, known)
            && run.id == known.id
        {
            (run.pause, run.answered) = (known.pause, known.answered);
        }
    }

    /// True if a wait set aside a signal of this name.
    pub fn has_taken(&self, name: &str) -> bool {
        self.taken.as_ref().is_some_and(|(it, _)| it == name)
    }

    /// True if a signal of this name is queued.
    pub fn has_signal(&self, name: &str) -> bool {
        self.signals.iter().any(|(it, _)| it == name)
    }

    /// Takes the signal of this name that the newest wait set aside.
    pub fn take_signal(&mut self, name: &str) -> Option<Value> {
        self.taken.take_if(|(it, _)| it == name).map(|(_, value)| value)
    }

    /// Ends a wait for a signal with the oldest one of its name. Part of the fold, so that no later wait gets the same
    /// signal, even after a restart.
    pub(crate) fn set_signal_aside(&mut self, name: &str) {
        // Without a match the wait only begins, and the signal of another wait stays aside.
        if let Some(place) = self.signals.iter().position(|(it, _)| it == name) {
            self.taken = Some(self.signals.remove(place));
        }
    }

    /// Marks the open run as answered, if its pause `fits`.
    pub(crate) fn answer(&mut self, fits: impl FnOnce(&Pause) -> bool) {
        if let Some(run) = &mut self.run {
            run.answered |= run.pause.as_ref().is_some_and(fits);
        }
    }
}
