//! Input from outside for a session whose run waits: approvals and signals.

use std::sync::Arc;

use serde_json::Value;

use super::{
    super::{
        SessionStatus,
        open::{OpenCall, OpenQuestion, OpenRun},
    },
    SessionState,
};
use crate::{
    Digest, Timestamp,
    base::{ApprovalId, EffectKey, Pause},
    event::ApprovalDecided,
    permission::{ApprovalRequest, Decision},
};

impl SessionState {
    /// Returns the decision on this question, if it is bound to `digest`.
    pub fn approval(&self, id: &ApprovalId, digest: Digest) -> Option<Decision> {
        self.approvals
            .get(id)
            .filter(|(_, bound)| *bound == digest)
            .and_then(|(decision, _)| decision.clone())
    }

    /// Returns the answer that refuses a call, to whichever question about it. See [`ApprovalId::call`].
    pub fn refusal(&self, call: &str) -> Option<&Decision> {
        let answers = self.approvals.iter().filter(|(id, _)| id.call() == call);
        answers
            .filter_map(|(_, (decision, _))| decision.as_ref())
            .find(|it| matches!(it, Decision::Deny | Decision::Refuse { .. } | Decision::Ask(_)))
    }

    /// True if the open run asked approvers anything.
    pub fn has_asked(&self) -> bool {
        !self.approvals.is_empty()
    }

    /// Returns the questions to approvers that have no final answer, oldest first.
    pub fn questions(&self) -> &[OpenQuestion] {
        &self.questions
    }

    /// Returns the calls that were handed out and have no result yet, oldest first.
    pub fn external(&self) -> &[OpenCall] {
        &self.external
    }

    /// True if an approver allowed, for the session, what this digest stands for: see
    /// [`ApprovalRequest::grant`](crate::permission::ApprovalRequest::grant).
    pub fn is_granted(&self, grant: Digest) -> bool {
        self.grants.contains(&grant)
    }

    /// Folds in a question. Asked again, it keeps the deadline that it was given. It takes the place of others about
    /// the same call, which nothing waits for any more.
    pub(crate) fn asks(&mut self, at: Timestamp, request: &Arc<ApprovalRequest>) {
        let known = self.approvals.remove(&request.id).filter(|(_, digest)| *digest == request.digest);
        let until =
            known.and_then(|(decision, _)| decision).filter(|it| matches!(it, Decision::Until { .. }));
        let since = self.questions.iter().find(|it| it.request.id == request.id).map_or(at, |it| it.since);
        self.close_questions(|id| id.call() == request.id.call());
        self.approvals.entry(request.id.clone()).or_insert((until, request.digest));
        self.questions.push(OpenQuestion { since, request: Arc::clone(request) });
    }

    pub(crate) fn close_questions_about(&mut self, index: usize, key: Option<EffectKey>) {
        if !self.questions.is_empty() {
            let call = key.map_or_else(|| format!("$${index}"), |key| format!("$${}", key.ordinal));
            self.close_questions(|id| id.call().ends_with(&call));
        }
    }

    fn close_questions(&mut self, is_closed: impl Fn(&ApprovalId) -> bool) {
        for OpenQuestion { request, .. } in self.questions.extract_if(.., |it| is_closed(&it.request.id)) {
            self.approvals.remove(&request.id);
        }
    }

    /// Folds in an answer.
    pub(crate) fn decided(&mut self, answer: &ApprovalDecided) {
        self.approvals.insert(answer.id.clone(), (Some(answer.decision.clone()), answer.digest));
        if answer.decision.is_open() {
            return;
        }
        if answer.decision == Decision::AllowSession {
            let asked = self.questions.iter().find(|it| it.request.id == answer.id);
            self.grants.extend(asked.and_then(|it| it.request.grant));
        }
        self.questions.retain(|it| it.request.id != answer.id);
        self.answer(|pause| pause.approval().is_some());
    }

    /// The decision on this question, if there is one, and the digest that it is bound to. `None` if it was never
    /// asked.
    pub fn asked(&self, id: &ApprovalId) -> Option<(Option<Decision>, Digest)> {
        self.approvals.get(id).cloned()
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
