//! The part of the machine for answers that must be values: what follows from a value, and from none.

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

/// State of a typed answer.
#[derive(Debug, Clone)]
pub(super) struct Answers {
    /// Number of refused answers after which the model is asked again.
    repairs: u32,
    /// Number of refused answers.
    pub(super) refused: u32,
    /// The value, as JSON text.
    pub(super) value: Option<String>,
}

impl Turn {
    /// Lets the run complete with a value alone. After an answer without one the model is asked again, `repairs` times
    /// at most. Default: any text is an answer.
    #[must_use]
    pub fn answers_with_a_value(mut self, repairs: u32) -> Self {
        self.extra.get_or_insert_default().answers = Some(Answers { repairs, refused: 0, value: None });
        self
    }

    /// Reports the value of the message to check, as JSON text, or the problem in words for the model.
    pub fn checked(&mut self, value: Result<String, String>) {
        let answers = self.extra.as_mut().and_then(|extra| extra.answers.as_mut());
        let (Phase::Check { told, then, .. }, Some(answers)) = (&mut self.phase, answers) else { return };
        let status = match value {
            Ok(value) => {
                answers.value = Some(value);
                Status::Completed
            }
            Err(problem) => match then.take() {
                Some(status) => *status,
                None if answers.refused >= answers.repairs => Status::Stopped(StopReason::Incomplete {
                    iterations: answers.refused.saturating_add(1),
                    feedback: problem.into(),
                }),
                None if self.step >= self.max_steps => self.out_of_steps(),
                None => {
                    self.phase = Phase::Refused { problem: problem.into(), told: *told };
                    return;
                }
            },
        };
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

    /// True if the calls of a reply that ended for this reason are run. A reply that must be a value is refused by a
    /// message after it, which no service takes while a call has no result.
    pub(super) fn waits_for_calls(&self, reason: FinishReason, message: &Message) -> bool {
        let answers = self.answers().is_some() && matches!(reason, FinishReason::Stop | FinishReason::Other);
        (reason == FinishReason::ToolCalls || answers) && message.tool_calls().next().is_some()
    }
}

impl Phase {
    /// The phase after a reply that calls no tool and must be a value.
    pub(super) fn of_answer(reply: &Arc<ModelFinished>) -> Self {
        if reply.message.parts().iter().any(|part| matches!(part, Part::Refusal(_))) {
            let declined = StopReason::Reply(FinishReason::Refusal);
            return Self::Done(End::Recorded(Status::Stopped(declined)));
        }
        Self::Check { reply: Arc::clone(reply), told: false, then: None }
    }
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
