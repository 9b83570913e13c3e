//! How far a checked task has come: a fold over the phases' events, kept in the session's state. Pure.
//!
//! It outlives the run: a task that was cancelled waits here for what its user says next (CW15).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Phase;
use crate::{
    SessionId,
    event::{PhaseFinished, PhaseStarted},
    message::{Message, Part, Role},
    run::{Outcome, Status},
};

/// What stands before the user's words when they come after a cancel.
const FROM_USER: &str = "The user stopped the work and says:";

/// What stands before the criteria that the work is to be judged by.
const COUNTS_AS_DONE: &str = "It counts as done when all of this is true:";

/// What the executor hears of a check that gave no reason.
const NO_REASON: &str =
    "The work was not accepted, and no reason was given. Compare it with what was asked, and complete it.";

/// How far a task has come whose result is checked before it counts as done. A session has one from the first phase of
/// the task to the end of its run; a run that is paused or cut off keeps it. It is read from
/// [`SessionState::progress`](crate::session::SessionState::progress).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CheckedTask {
    /// What the task began with.
    pub(crate) request: Arc<Message>,
    /// What the user said since, oldest first.
    #[serde(default)]
    pub(crate) said: Vec<Arc<Message>>,
    /// How much of that is in the executor's newest prompt or before it.
    #[serde(default)]
    pub(crate) given: usize,
    /// Where the newest check ended, and how much of what was said its checker had heard by then.
    #[serde(default)]
    pub(crate) checked: Option<(SessionId, usize)>,
    /// The newest phase.
    pub(crate) started: Arc<PhaseStarted>,
    /// Its end, unless it is under way.
    #[serde(default)]
    pub(crate) finished: Option<Arc<PhaseFinished>>,
    /// The newest turn of the executor that came to its end.
    #[serde(default)]
    pub(crate) worked: Option<Arc<PhaseFinished>>,
    /// The executor's own summary of that turn, or of the one before while a new one is under way.
    #[serde(default)]
    pub(crate) summary: Option<Arc<str>>,
    /// Why the newest check did not accept the work.
    #[serde(default)]
    pub(crate) feedback: Option<Arc<str>>,
    /// What counts as done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) criteria: Option<Arc<str>>,
}

impl CheckedTask {
    /// Which round of work and check it is in, from 1.
    #[must_use]
    pub fn iteration(&self) -> u32 {
        self.started.iteration
    }

    /// The phase that is under way, or that ended last.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.started.phase
    }

    /// What the task began with.
    #[must_use]
    pub fn request(&self) -> &Message {
        &self.request
    }

    /// What counts as done, a numbered line each: written down before the work began, if that was asked for.
    #[must_use]
    pub fn criteria(&self) -> Option<&str> {
        self.criteria.as_deref()
    }

    /// What the executor said last when it was asked to sum up, or when it called its task complete itself.
    #[must_use]
    pub fn summary(&self) -> Option<&str> {
        self.summary.as_deref()
    }

    /// Why the newest check did not accept the work.
    #[must_use]
    pub fn feedback(&self) -> Option<&str> {
        self.feedback.as_deref()
    }

    /// A phase began; `before` is what was known by then, `prompt` that of the run.
    pub(crate) fn begun(before: Option<Self>, prompt: &Arc<Message>, started: &Arc<PhaseStarted>) -> Self {
        let mut progress = before.unwrap_or_else(|| Self {
            request: Arc::clone(prompt),
            said: Vec::new(),
            given: 0,
            checked: None,
            started: Arc::clone(started),
            finished: None,
            worked: None,
            summary: None,
            feedback: None,
            criteria: None,
        });
        progress.started = Arc::clone(started);
        progress.finished = None;
        if matches!(started.phase, Phase::Execute | Phase::Criteria) {
            progress.given = progress.said.len();
        }
        progress
    }

    /// The phase ended.
    pub(crate) fn ended(&mut self, finished: &Arc<PhaseFinished>) {
        if finished.phase == Phase::Check {
            // Only now it is certain that its run began, and so that it heard what was said.
            self.checked = Some((self.started.child.clone(), self.said.len()));
        }
        match finished.phase {
            Phase::Execute if finished.outcome.status == Status::Cancelled => {}
            Phase::Execute => {
                self.worked = Some(Arc::clone(finished));
                let claim = finished.verdict.as_ref().filter(|verdict| verdict.accepted);
                self.summary = claim.map(|verdict| verdict.reason.as_str().into());
            }
            Phase::Criteria if is_summary(&finished.outcome) => {
                self.criteria = Some(Arc::clone(&finished.text));
            }
            Phase::Summarize if is_summary(&finished.outcome) => {
                self.summary = Some(Arc::clone(&finished.text));
            }
            Phase::Criteria | Phase::Summarize | Phase::Check => {}
        }
        if let Some(verdict) = finished.verdict.as_ref().filter(|verdict| !verdict.accepted) {
            self.feedback = Some(verdict.reason.as_str().into());
        }
        self.finished = Some(Arc::clone(finished));
    }

    /// The run was given up, and another one of the same agent began: its prompt is about this task.
    pub(crate) fn told(&mut self, prompt: &Arc<Message>) {
        self.said.push(Arc::clone(prompt));
    }

    /// Whether the user said something that the executor was not given yet.
    pub(crate) fn has_news(&self) -> bool {
        self.given < self.said.len()
    }

    /// What is checked: the executor's summary, or the digest of its turn.
    pub(crate) fn report(&self) -> &str {
        let digest = || self.worked.as_ref().map_or("", |worked| &*worked.text);
        self.summary.as_deref().unwrap_or_else(digest)
    }

    /// What the user is answered: the executor's summary, else what it said last, else the digest of its turn.
    pub(crate) fn answer(&self) -> &str {
        let said = self.worked.as_ref().map(|worked| worked.outcome.text.trim());
        match (&self.summary, said) {
            (Some(summary), _) => summary,
            (None, Some(said)) if !said.is_empty() => said,
            _ => self.report(),
        }
    }

    /// What the user said that the checker in the session `checker` has not heard.
    pub(crate) fn unheard(&self, checker: &SessionId) -> Vec<Arc<Message>> {
        match &self.checked {
            Some((session, heard)) if session == checker => self.said.iter().skip(*heard).cloned().collect(),
            _ => std::iter::once(&self.request).chain(&self.said).cloned().collect(),
        }
    }

    /// What the executor is to be given next: what it may not have got, or the newest check's feedback if that is due, and
    /// what the user said.
    pub(crate) fn next_prompt(&self) -> Arc<Message> {
        let rejected = self.finished.as_ref().and_then(|end| end.verdict.as_ref()).filter(|it| !it.accepted);
        // Criteria come before all work: what the user wants was not given to anybody.
        let first = self.started.phase == Phase::Criteria;
        let mut parts: Vec<Part> = match (&self.finished, rejected) {
            _ if first => self.request.parts().to_vec(),
            (None, _) if self.started.phase == Phase::Execute => self.started.prompt.parts().to_vec(),
            (_, Some(verdict)) => {
                let reason = verdict.reason.trim();
                vec![Part::Text(if reason.is_empty() { NO_REASON } else { reason }.to_owned())]
            }
            _ => Vec::new(),
        };
        for said in self.said.iter().skip(if first { 0 } else { self.given }) {
            parts.push(paragraph(&parts, format!("{FROM_USER}\n")));
            parts.extend(said.parts().iter().cloned());
        }
        if let Some(criteria) = self.criteria.as_ref().filter(|_| first) {
            parts.push(paragraph(&parts, format!("{COUNTS_AS_DONE}\n{criteria}")));
        }
        if parts.is_empty() {
            return Arc::clone(&self.request);
        }
        Arc::new(Message::new(Role::User, parts))
    }
}

/// A text that is to stand apart from what is before it: texts of one message follow each other without anything between.
fn paragraph(before: &[Part], text: String) -> Part {
    Part::Text(if before.is_empty() { text } else { format!("\n\n{text}") })
}

/// Whether the executor summed up; otherwise the text is a digest.
pub(crate) fn is_summary(outcome: &Outcome) -> bool {
    outcome.is_completed() && !outcome.text.trim().is_empty()
}
