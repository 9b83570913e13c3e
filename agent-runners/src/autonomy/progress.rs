//! The progress of a checked task: a fold over the records of its phases, which the session's state keeps. Pure.
//!
//! It outlives the run: a cancelled task waits here for the user's next prompt.

use std::sync::Arc;

use entourage_core::{
    Result, SessionId,
    event::{Kept, Record},
    message::{Message, Part, Role},
    run::{Outcome, Status},
    session::SessionState,
};
use serde::{Deserialize, Serialize};

use super::Phase;
use crate::checked::{PhaseFinished, PhaseStarted};

/// Text before the user's words when they come after a cancel.
const FROM_USER: &str = "The user stopped the work and says:";

/// Text before the criteria that the work will be judged by.
const COUNTS_AS_DONE: &str = "It counts as done when all of this is true:";

/// Feedback to the executor when a check gave no reason.
const NO_REASON: &str =
    "The work was not accepted, and no reason was given. Compare it with what was asked, and complete it.";

/// Progress of a checked task. A session has one from the first phase of the task to the end of its run; a run that is
/// paused or interrupted keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CheckedTask {
    /// The prompt that the task began with.
    pub(crate) request: Arc<Message>,
    /// Prompts of the user since then, oldest first.
    #[serde(default)]
    pub(crate) said: Vec<Arc<Message>>,
    /// Number of those that the executor has been given in its newest prompt or earlier.
    #[serde(default)]
    pub(crate) given: usize,
    /// Session of the newest finished check, and the number of the user's prompts that its checker had heard by then.
    #[serde(default)]
    pub(crate) checked: Option<(SessionId, usize)>,
    /// The newest phase.
    pub(crate) started: Arc<PhaseStarted>,
    /// The end of that phase, unless it is still running.
    #[serde(default)]
    pub(crate) finished: Option<Arc<PhaseFinished>>,
    /// The newest phase of the executor that ended.
    #[serde(default)]
    pub(crate) worked: Option<Arc<PhaseFinished>>,
    /// The executor's own summary of that phase; while a new phase runs, that of the one before.
    #[serde(default)]
    pub(crate) summary: Option<Arc<str>>,
    /// The reason of the newest rejection.
    #[serde(default)]
    pub(crate) feedback: Option<Arc<str>>,
    /// The acceptance criteria.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) criteria: Option<Arc<str>>,
}

/// Checkpoints of version 0.1 kept the progress itself.
impl Record for CheckedTask {
    const KIND: &'static str = "checked.task";
    const KEPT: bool = true;
}

impl CheckedTask {
    /// Returns the progress of the open checked task of a session; `None` if there is none.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](entourage_core::ErrorKind::Corrupt) for a record that cannot be read,
    /// [`ErrorKind::NewerVersion`](entourage_core::ErrorKind::NewerVersion) for one of a newer version.
    pub fn of(state: &SessionState) -> Result<Option<Self>> {
        let (mut progress, mut asked) = (None::<Self>, state.prompt());
        for kept in state.kept() {
            match (kept, &mut progress) {
                (Kept::Prompt(prompt), Some(progress)) => progress.told(prompt),
                (Kept::Prompt(prompt), None) => asked = Some(prompt),
                (Kept::Value(value), current) => {
                    if let (Some(started), Some(asked)) = (value.get::<PhaseStarted>()?, asked) {
                        progress = Some(Self::begun(current.take(), asked, &started));
                    } else if let (Some(finished), Some(progress)) = (value.get()?, current) {
                        progress.ended(&finished);
                    } else if let Some(task) = value.get::<Self>()? {
                        progress = Some((*task).clone());
                    }
                }
                _ => {}
            }
        }
        Ok(progress)
    }

    /// Returns the number of the current round of work and check, from 1.
    #[must_use]
    pub fn iteration(&self) -> u32 {
        self.started.iteration
    }

    /// Returns the phase that is running, or that ended last.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.started.phase
    }

    /// Returns the prompt that the task began with.
    #[must_use]
    pub fn request(&self) -> &Message {
        &self.request
    }

    /// Returns the acceptance criteria, one numbered line each, if they were asked for. They are written before the
    /// work begins.
    #[must_use]
    pub fn criteria(&self) -> Option<&str> {
        self.criteria.as_deref()
    }

    /// Returns the executor's newest summary, or the one with which it called its own task complete.
    #[must_use]
    pub fn summary(&self) -> Option<&str> {
        self.summary.as_deref()
    }

    /// Returns the reason of the newest rejection.
    #[must_use]
    pub fn feedback(&self) -> Option<&str> {
        self.feedback.as_deref()
    }

    /// Folds the start of a phase. `before` is the progress until then, `prompt` the prompt of the run.
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

    /// Folds the end of the phase.
    pub(crate) fn ended(&mut self, finished: &Arc<PhaseFinished>) {
        if finished.phase == Phase::Check {
            // Only now is it certain that its run began, and so that it heard what was said.
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

    /// Folds the prompt of a new run of the same agent, after the one before was abandoned: the prompt is about this
    /// task.
    pub(crate) fn told(&mut self, prompt: &Arc<Message>) {
        self.said.push(Arc::clone(prompt));
    }

    /// True when the user said something that the executor has not been given.
    pub(crate) fn has_news(&self) -> bool {
        self.given < self.said.len()
    }

    /// Returns the report to check: the executor's summary, or the digest of its phase.
    pub(crate) fn report(&self) -> &str {
        let digest = || self.worked.as_ref().map_or("", |worked| &*worked.text);
        self.summary.as_deref().unwrap_or_else(digest)
    }

    /// Returns the answer for the user: the executor's summary, else its last text, else the digest of its phase.
    pub(crate) fn answer(&self) -> &str {
        let said = self.worked.as_ref().map(|worked| worked.outcome.text.trim());
        match (&self.summary, said) {
            (Some(summary), _) => summary,
            (None, Some(said)) if !said.is_empty() => said,
            _ => self.report(),
        }
    }

    /// Returns the user's messages that the checker in the session `checker` has not heard.
    pub(crate) fn unheard(&self, checker: &SessionId) -> Vec<Arc<Message>> {
        match &self.checked {
            Some((session, heard)) if session == checker => self.said.iter().skip(*heard).cloned().collect(),
            _ => std::iter::once(&self.request).chain(&self.said).cloned().collect(),
        }
    }

    /// Returns the executor's next prompt: a prompt that it may not have received, or the newest check's feedback if
    /// that is due, and then what the user said.
    pub(crate) fn next_prompt(&self) -> Arc<Message> {
        let rejected = self.finished.as_ref().and_then(|end| end.verdict.as_ref()).filter(|it| !it.accepted);
        // The criteria phase comes before all work: nobody has been given the request yet.
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

/// A text set apart from the parts before it: nothing separates consecutive texts of one message.
fn paragraph(before: &[Part], text: String) -> Part {
    Part::Text(if before.is_empty() { text } else { format!("\n\n{text}") })
}

/// True when the executor gave a summary; otherwise the report is a digest.
pub(crate) fn is_summary(outcome: &Outcome) -> bool {
    outcome.is_completed() && !outcome.text.trim().is_empty()
}
