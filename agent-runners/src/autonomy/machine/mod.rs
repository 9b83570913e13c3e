//! The loop of work and check as a pure machine: the progress of a task goes in, the next action comes out.
//!
//! One machine serves all levels that check: they differ in the checker and in whether the executor summarizes first.
//! It fails closed: a task that did not end as accepted is never complete.

use std::sync::Arc;

use entourage_core::{
    message::Message,
    provider::FinishReason,
    run::{Outcome, Status, StopReason},
};

use super::{CheckedTask, Phase};
use crate::{
    checked::{PhaseFinished, PhaseStarted},
    finality::is_final,
};

/// The settings of a task, constant while it is worked on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Rounds of work and check, at least 1.
    pub(crate) iterations: u32,
    /// True when there is a check.
    pub(crate) checks: bool,
    /// True when the executor summarizes before the check.
    pub(crate) sums_up: bool,
    /// True when acceptance criteria are written before the work begins.
    pub(crate) criteria: bool,
    /// True when the executor's own phase carries the verdict.
    pub(crate) claims: bool,
}

/// The next action.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Next {
    /// A phase begins.
    Begin {
        iteration: u32,
        phase: Phase,
        /// The prompt of the phase; `None` when it follows from the phase and the task's progress.
        prompt: Option<Arc<Message>>,
    },
    /// The phase that began is continued.
    GoOn(Arc<PhaseStarted>),
    /// The run is over.
    End(Box<Outcome>),
}

impl Plan {
    /// Returns the next action. `progress` is `None` for a task without any phase yet, `prompt` the prompt of the run.
    pub(crate) fn next(&self, progress: Option<&CheckedTask>, prompt: &Arc<Message>) -> Next {
        let begin = |iteration, phase, prompt| Next::Begin { iteration, phase, prompt };
        let Some(progress) = progress else {
            return match self.criteria {
                true => begin(1, Phase::Criteria, None),
                false => begin(1, Phase::Execute, Some(Arc::clone(prompt))),
            };
        };
        let iteration = progress.iteration();
        if progress.has_news() {
            // The user's words are not lost, even after the last round: each prompt brings at most one more phase of
            // work.
            let rejected = progress.finished.as_ref().is_some_and(|end| end.verdict.is_some());
            let iteration = if rejected { (iteration + 1).min(self.iterations) } else { iteration };
            if self.criteria && progress.criteria().is_none() {
                return begin(iteration, Phase::Criteria, None);
            }
            return begin(iteration, Phase::Execute, Some(progress.next_prompt()));
        }
        if progress.phase() == Phase::Criteria && !self.criteria {
            // The agent that resumes the task works without criteria.
            return begin(iteration, Phase::Execute, Some(progress.next_prompt()));
        }
        let Some(end) = &progress.finished else { return Next::GoOn(Arc::clone(&progress.started)) };
        match (end.phase, fate(&end.outcome.status)) {
            (phase, Fate::Again) => begin(iteration, phase, Some(Arc::clone(&progress.started.prompt))),
            (Phase::Execute, _) if !self.checks => Next::End(ended(progress, end.outcome.status.clone())),
            (Phase::Criteria, Fate::Done) => begin(iteration, Phase::Execute, Some(progress.next_prompt())),
            (Phase::Criteria, _) => Next::End(ended(progress, end.outcome.status.clone())),
            (Phase::Execute, Fate::Done | Fate::Cut) if self.claims => self.judged(progress, end),
            // A phase without a summary is checked by its digest.
            (Phase::Summarize, _) | (Phase::Execute, Fate::Cut) => begin(iteration, Phase::Check, None),
            (_, Fate::Over) => Next::End(ended(progress, end.outcome.status.clone())),
            (Phase::Execute, Fate::Done) => {
                let phase = if self.sums_up { Phase::Summarize } else { Phase::Check };
                begin(iteration, phase, None)
            }
            (Phase::Check, Fate::Done | Fate::Cut) => self.judged(progress, end),
        }
    }

    /// Returns the action after a phase that should have a verdict. A phase without one counts as rejected.
    fn judged(&self, progress: &CheckedTask, end: &PhaseFinished) -> Next {
        let iteration = progress.iteration();
        match &end.verdict {
            Some(verdict) if verdict.accepted => Next::End(ended(progress, Status::Completed)),
            _ if iteration < self.iterations => {
                let prompt = Some(progress.next_prompt());
                Next::Begin { iteration: iteration + 1, phase: Phase::Execute, prompt }
            }
            _ => Next::End(ended(progress, incomplete(iteration, progress))),
        }
    }
}

fn incomplete(iterations: u32, progress: &CheckedTask) -> Status {
    let feedback = progress.feedback().unwrap_or_default().into();
    Status::Stopped(StopReason::Incomplete { iterations, feedback })
}

fn ended(progress: &CheckedTask, status: Status) -> Box<Outcome> {
    let mut outcome = Outcome::new(status);
    progress.answer().clone_into(&mut outcome.text);
    Box::new(outcome)
}

/// The meaning of a phase's end for the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The agent of the phase was done.
    Done,
    /// A limit of the agent's own run stopped it; its work stands.
    Cut,
    /// The phase was cancelled, and starts again when the task continues.
    Again,
    /// The task ends as the phase ended.
    Over,
}

pub(crate) fn fate(status: &Status) -> Fate {
    match status {
        Status::Completed | Status::Stopped(StopReason::Condition(_)) => Fate::Done,
        Status::Cancelled => Fate::Again,
        // So is the whole task, whatever the agent is made of.
        status if is_final(status) => Fate::Over,
        Status::Stopped(
            StopReason::Steps(_)
            | StopReason::LoopDetected
            | StopReason::Incomplete { .. }
            | StopReason::Tasks { .. }
            | StopReason::Reply(FinishReason::Length),
        ) => Fate::Cut,
        // Failed, paused, or stopped by what stops the whole task.
        _ => Fate::Over,
    }
}

#[cfg(test)]
mod tests;
