//! L2 without a question: the executor has `task_complete` itself and works, round by round, until it calls it.

use std::sync::Arc;

use entourage_core::{agent::Agent, message::Message, run::Outcome};

use super::{
    Player, Verdict,
    check::{Asked, Check},
    complete::claim,
};

/// Feedback to the executor after a phase without a claim; the same each time.
const GO_ON: &str = "You ended your turn without calling `task_complete`, so the task does not count as done. Go on with \
    what is left of it. Once all of it is done, call `task_complete` and say how you know.";

/// A check that takes the executor's own claim as the verdict.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claimed;

impl Check for Claimed {
    fn role(&self) -> &'static str {
        "executor"
    }

    fn agent(&self, executor: &Player) -> Arc<dyn Agent> {
        executor.agent()
    }

    fn is_claimed(&self) -> bool {
        true
    }

    fn prompt(&self, _: &Asked, _: &str) -> Message {
        Message::user(GO_ON)
    }

    fn read(&self, _: &Asked, outcome: &Outcome, work: &[Arc<Message>]) -> Verdict {
        match claim(outcome, work) {
            Some(summary) => Verdict::accepted(summary),
            None => Verdict::rejected(GO_ON),
        }
    }

    fn needs_summary(&self) -> bool {
        false
    }
}
