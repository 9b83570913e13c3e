//! The part of the machine for answers that are checked: those that must be values, and those that guards look at.

use std::sync::Arc;

use entourage_core::{
    event::ModelFinished,
    message::{Message, Part},
    provider::FinishReason,
    run::{Status, StopReason},
};

use super::{
    CallState, Turn,
    phase::{End, Phase, Stage, Stop},
};
use crate::typed::FINAL_ANSWER;

/// State of an answer that is checked.
#[derive(Debug, Clone)]
pub(super) struct Answers {
    /// True if it must be a value.
    pub(super) typed: bool,
    /// True if guards look at it. The outcome's text is then one that they passed, or none.
    pub(super) guarded: bool,
    /// Number of refused answers after which the model is asked again.
    repairs: u32,
    /// Number of refused answers.
    pub(super) refused: u32,
    /// The value, as JSON text, or the text that the guards passed.
    pub(super) value: Option<String>,
}

impl Answers {
    fn new(repairs: u32) -> Self {
        Self { typed: false, guarded: false, repairs, refused: 0, value: None }
    }

    /// True if it is a text which guards look at.
    fn is_guarded_text(&self) -> bool {
        self.guarded && !self.typed
    }
}

impl Turn {
    /// Lets the run complete with a value alone. After an answer without one the model is asked again, `repairs` times
    /// at most. Default: any text is an answer.
    #[must_use]
    pub fn answers_with_a_value(mut self, repairs: u32) -> Self {
        let answers = self.extra.get_or_insert_default().answers.get_or_insert(Answers::new(repairs));
        (answers.typed, answers.repairs) = (true, repairs);
        self
    }

    /// Lets the run end only with a text that passed its guards, or with none. After an answer that they refuse the
    /// model is asked again: as often as a value is, or else `repairs` times at most.
    #[must_use]
    pub(crate) fn guards_answers(mut self, repairs: u32) -> Self {
        self.extra.get_or_insert_default().answers.get_or_insert(Answers::new(repairs)).guarded = true;
        self
    }

    /// Reports what the message to check answers with, a value as JSON text or a text that the guards passed, or the
    /// problem in words for the model.
    pub fn checked(&mut self, value: Result<String, String>) {
        let answers = self.extra.as_mut().and_then(|extra| extra.answers.as_mut());
        let (Phase::Check { told, then, .. }, Some(answers)) = (&mut self.phase, answers) else { return };
        let status = match value {
            Ok(value) => {
                answers.value = Some(value);
                let then = then.take().filter(|_| !answers.typed);
                then.map_or(Status::Completed, |then| *then)
            }
            Err(problem) => match then.take().map(|then| *then) {
                // A tool ended the turn with a text that the guards refuse: the model is not asked for another one.
                Some(Status::Completed) => incomplete(answers, problem),
                Some(status) => status,
                None if answers.refused >= answers.repairs => incomplete(answers, problem),
                None if self.step >= self.max_steps => self.out_of_steps(),
                None => {
                    self.phase = Phase::Refused { problem: problem.into(), told: *told };
                    return;
                }
            },
        };
        self.phase = Phase::Done(End::Recorded(status));
    }

    /// Reports that a guard stopped the run for this reason when it looked at the message to check.
    pub(crate) fn barred(&mut self, reason: String) {
        let Phase::Check { then, .. } = &mut self.phase else { return };
        let then = then.take().map(|then| *then).filter(|then| *then != Status::Completed);
        let status = then.unwrap_or(Status::Stopped(StopReason::Condition(reason)));
        self.phase = Phase::Done(End::Recorded(status));
    }

    /// Reports that the refusal is recorded and that the model was told.
    pub fn refused(&mut self) {
        if !matches!(self.phase, Phase::Check { .. } | Phase::Refused { .. }) {
            return;
        }
        if let Some(answers) = self.answers_mut() {
            answers.refused = answers.refused.saturating_add(1);
        }
        self.phase = Phase::Before(Stage::Steer);
    }

    pub(super) fn answers(&self) -> Option<&Answers> {
        self.extra.as_ref()?.answers.as_ref()
    }

    pub(super) fn answers_mut(&mut self) -> Option<&mut Answers> {
        self.extra.as_mut()?.answers.as_mut()
    }

    /// The phase after a reply or its calls when the run ends as `status` says. Guards look at the text that it would
    /// end with.
    pub(super) fn ending(&self, reply: &Arc<ModelFinished>, status: Status) -> Phase {
        if self.answers().is_some_and(Answers::is_guarded_text) {
            return Phase::Check { reply: Arc::clone(reply), told: false, then: Some(Box::new(status)) };
        }
        Phase::Done(End::Recorded(status))
    }

    /// The phase after a reply that calls no tool.
    pub(super) fn answered(&self, reply: &Arc<ModelFinished>) -> Phase {
        match self.answers() {
            None => Phase::Done(End::Recorded(Status::Completed)),
            Some(answers) if answers.typed => Phase::of_value(reply),
            Some(_) => Phase::Check { reply: Arc::clone(reply), told: false, then: None },
        }
    }

    /// The message to check: the one that holds the value, or the newest with a text.
    pub(super) fn to_check(&self, reply: &Arc<ModelFinished>) -> Arc<Message> {
        let is_text = self.answers().is_some_and(Answers::is_guarded_text);
        Arc::clone(self.text.as_ref().filter(|_| is_text).unwrap_or(&reply.message))
    }

    /// True if the calls of a reply that ended for this reason are run. A reply that is checked is refused by a
    /// message after it, which no service takes while a call has no result.
    pub(super) fn waits_for_calls(&self, reason: FinishReason, message: &Message) -> bool {
        let answers = self.answers().is_some() && matches!(reason, FinishReason::Stop | FinishReason::Other);
        (reason == FinishReason::ToolCalls || answers) && message.tool_calls().next().is_some()
    }
}

impl Phase {
    /// The phase after a reply that calls no tool and must be a value.
    fn of_value(reply: &Arc<ModelFinished>) -> Self {
        if reply.message.parts().iter().any(|part| matches!(part, Part::Refusal(_))) {
            let declined = StopReason::Reply(FinishReason::Refusal);
            return Self::Done(End::Recorded(Status::Stopped(declined)));
        }
        Self::Check { reply: Arc::clone(reply), told: false, then: None }
    }
}

/// The end of a run whose answers were all refused.
fn incomplete(answers: &Answers, problem: String) -> Status {
    let iterations = answers.refused.saturating_add(1);
    Status::Stopped(StopReason::Incomplete { iterations, feedback: problem.into() })
}

/// Tells if the calls of a reply may be an answer: `Some(true)` when their results have told the model that it is none,
/// `None` when the run goes on or ends without a look at it.
pub(super) fn told(message: &Message, calls: &[CallState], stopped: Option<&Stop>) -> Option<bool> {
    if matches!(stopped, Some(Stop::Status(_))) {
        return None;
    }
    let answers = message.tool_calls().zip(calls).filter(|(call, _)| *call.name == *FINAL_ANSWER);
    let refused = answers.map(|(_, state)| state.result().is_some_and(|result| result.is_error));
    refused.reduce(|all, refused| all && refused).or_else(|| stopped.map(|_| false))
}

/// The end of a run that a tool ended before there was a value.
pub(super) fn ended_by_a_tool() -> Status {
    Status::Stopped(StopReason::Condition("a tool ended the turn".to_owned()))
}

#[cfg(test)]
mod tests;
