//! The conversation of one step: the messages so far decide what comes next. Pure.

use entourage_core::{RunId, SessionId, run::StopReason};

use super::message::{StepMessage, StepMessageKind};

/// Message that lets an executor go on.
pub(super) const GO_ON: &str =
    "Go on with the step. Reply with `complete` and the whole result once you have it.";

/// A conversation between the planner and the executor of a step.
#[derive(Debug, Clone)]
pub(super) struct Talk {
    most: u32,
    last: Option<StepMessage>,
}

/// The next action of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Next {
    /// Give the step to the executor.
    Assign,
    /// Tell the executor to go on: the turn of this number.
    GoOn(u32),
    /// Run the executor's turn of this number, which was begun with this message.
    Turn(u32, Begun),
    /// Let the planner answer the question that the executor asked at the end of this turn.
    Answer(u32, Begun),
    /// The step is done, with this result.
    Done(String),
    /// The step failed, for this reason; with the reason of a stop after which nobody may try again.
    Failed(String, Option<Box<StopReason>>),
}

/// A message that an agent was given, and where it answers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Begun {
    pub(super) text: String,
    pub(super) child: Option<SessionId>,
    pub(super) run: Option<RunId>,
}

impl Talk {
    pub(super) fn new(most: u32) -> Self {
        Self { most, last: None }
    }

    pub(super) fn most(&self) -> u32 {
        self.most
    }

    /// Adds the next message.
    pub(super) fn add(&mut self, message: &StepMessage) {
        self.last = Some(message.clone());
    }

    /// Returns the next action. Pure: asking again gives the same answer.
    pub(super) fn next(&self) -> Next {
        let Some(last) = &self.last else { return Next::Assign };
        let begun = || Begun { text: last.text.to_string(), child: last.child.clone(), run: last.run };
        match last.kind {
            StepMessageKind::TaskAssignment | StepMessageKind::Clarification => {
                Next::Turn(last.turn, begun())
            }
            StepMessageKind::TaskComplete => Next::Done(last.text.to_string()),
            StepMessageKind::Error => Next::Failed(last.text.to_string(), last.stopped.clone()),
            _ if last.turn >= self.most => {
                let turns = if self.most == 1 { "turn" } else { "turns" };
                Next::Failed(format!("the executor had no result after {} {turns}", self.most), None)
            }
            StepMessageKind::Question => Next::Answer(last.turn, begun()),
            StepMessageKind::ProgressUpdate | StepMessageKind::PartialResult => {
                Next::GoOn(last.turn.saturating_add(1))
            }
        }
    }

    /// True when the executor's next message cannot begin another turn.
    pub(super) fn is_last_turn(&self) -> bool {
        self.last.as_ref().is_some_and(|last| last.turn >= self.most)
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.next(), Next::Done(_) | Next::Failed(..))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::message::StepMessageKind::*, *};

    fn message(turn: u32, kind: StepMessageKind, text: &str) -> StepMessage {
        let (child, run, tool_calls, usage, stopped) = Default::default();
        StepMessage { turn, most: 10, kind, text: text.into(), child, run, tool_calls, usage, stopped }
    }

    /// Plays replies of an executor, and returns the turns that it had, the answers it was given, and the end.
    fn play(most: u32, replies: &[StepMessageKind]) -> (u32, u32, Option<Result<String, String>>) {
        let (mut talk, mut replies) = (Talk::new(most), replies.iter());
        let (mut turns, mut answers) = (0, 0);
        loop {
            assert_eq!(talk.next(), talk.clone().next());
            let said = match talk.next() {
                Next::Assign => message(1, TaskAssignment, "do it"),
                Next::GoOn(turn) => message(turn, Clarification, GO_ON),
                Next::Answer(turn, begun) => {
                    assert!(begun.text.starts_with("reply"));
                    answers += 1;
                    message(turn + 1, Clarification, "so")
                }
                Next::Turn(turn, _) => {
                    turns += 1;
                    assert_eq!(turn, turns);
                    let Some(kind) = replies.next() else { return (turns, answers, None) };
                    message(turn, *kind, &format!("reply {turn}"))
                }
                Next::Done(text) => return (turns, answers, Some(Ok(text))),
                Next::Failed(text, _) => return (turns, answers, Some(Err(text))),
            };
            talk.add(&said);
        }
    }

    #[test]
    fn bo06_a_question_then_the_result_takes_two_turns() {
        assert_eq!(play(10, &[Question, TaskComplete]), (2, 1, Some(Ok("reply 2".to_owned()))));
        assert_eq!(play(10, &[TaskComplete]), (1, 0, Some(Ok("reply 1".to_owned()))));
        assert_eq!(
            play(10, &[ProgressUpdate, PartialResult, Error]),
            (3, 0, Some(Err("reply 3".to_owned())))
        );
    }

    #[test]
    fn bo07_the_tenth_turn_can_complete_and_is_the_last() {
        let mut replies = vec![PartialResult; 9];
        assert_eq!(play(10, &replies).2, None, "the tenth turn runs");
        replies.push(TaskComplete);
        assert_eq!(play(10, &replies), (10, 0, Some(Ok("reply 10".to_owned()))));
        for kind in [Question, ProgressUpdate, PartialResult] {
            replies[9] = kind;
            let (turns, _, end) = play(10, &replies);
            assert_eq!((turns, end), (10, Some(Err("the executor had no result after 10 turns".to_owned()))));
        }
        assert_eq!(play(1, &[Question]).2, Some(Err("the executor had no result after 1 turn".to_owned())));
    }

    /// The same by a loop over the replies.
    fn naive(most: u32, replies: &[StepMessageKind]) -> (u32, u32, Option<bool>) {
        let mut answers = 0;
        for (turn, kind) in (1..).zip(replies) {
            match kind {
                TaskComplete => return (turn, answers, Some(true)),
                Error => return (turn, answers, Some(false)),
                _ if turn == most => return (turn, answers, Some(false)),
                Question => answers += 1,
                _ => {}
            }
        }
        (u32::try_from(replies.len()).unwrap() + 1, answers, None)
    }

    fn replies() -> impl Strategy<Value = StepMessageKind> {
        prop_oneof![
            3 => Just(Question),
            3 => Just(ProgressUpdate),
            3 => Just(PartialResult),
            1 => Just(TaskComplete),
            1 => Just(Error),
        ]
    }

    proptest! {
        #[test]
        fn bo06_conversations_go_as_a_plain_loop_does(
            most in 1_u32..12,
            replies in prop::collection::vec(replies(), 0..14),
        ) {
            let (turns, answers, end) = play(most, &replies);
            prop_assert_eq!((turns, answers, end.map(|end| end.is_ok())), naive(most, &replies));
        }
    }
}
