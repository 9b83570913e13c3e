#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may panic, in its helpers too"
)]

use std::sync::Arc;

use entourage_core::{
    Digest, Error, ErrorKind, Money, RunId, SessionId, Timestamp, Usage,
    context::CompactionCause,
    event::{
        Checkpoint, Compacted, CompactionFailed, EffectKey, Envelope, Event, MessageAdded, ModelFinished,
        Origin, OutputsCleared, Recorded, RunStarted, ToolFinished,
    },
    message::{Arguments, Message, Part, Role, ToolCall, ToolResult},
    provider::{Finish, FinishReason},
    run::{Outcome, Status, StopReason},
    session::SessionState,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Action, Turn};
use crate::typed::{AnswerRefused, FINAL_ANSWER};

/// A session with one run, recorded and folded as its journal does it.
pub(super) struct Record {
    origin: Arc<Origin>,
    pub(super) state: SessionState,
    /// The events of the run, without its start.
    pub(super) events: Vec<Event>,
    seq: u64,
}

impl Record {
    pub(super) fn new() -> Self {
        let origin = Arc::new(Origin::new(SessionId::new("turn").unwrap(), RunId::generate(), "worker"));
        let mut record = Self { origin, state: SessionState::default(), events: Vec::new(), seq: 0 };
        let started = RunStarted::new("worker".into(), Arc::new(Message::user("Go.")));
        record.add(Event::RunStarted(Arc::new(started)));
        record.events.clear();
        record
    }

    pub(super) fn add(&mut self, event: Event) -> Event {
        self.seq += 1;
        let at = Timestamp::from_micros(0);
        self.state.apply(&Envelope::new(Arc::clone(&self.origin), self.seq, at, event.clone()));
        self.events.push(event.clone());
        event
    }

    pub(super) fn reply(&mut self, reason: FinishReason, parts: Vec<Part>, error: Option<&Error>) -> Event {
        let step = self.state.run().unwrap().steps + 1;
        let message = Arc::new(Message::new(Role::Assistant, parts));
        let mut reply = ModelFinished::new(step, message, Finish::new(reason), Usage::new(10, 2));
        reply.cost = Some(Money::from_pico(5));
        reply.error = error.map(Error::record);
        self.add(Event::ModelFinished(Arc::new(reply)))
    }

    pub(super) fn answer(&mut self) -> Event {
        self.reply(FinishReason::Stop, vec![Part::Text("Done.".into())], None)
    }

    /// An answer that is another one each time.
    fn answer_anew(&mut self) -> Event {
        self.reply(FinishReason::Stop, vec![Part::Text(self.seq.to_string())], None)
    }

    /// Calls of another tool and of the one that takes an answer.
    pub(super) fn final_calls(&mut self, arguments: &[Value]) -> Event {
        let call = |(number, arguments): (usize, &Value)| {
            let name = if arguments.is_null() { "look" } else { FINAL_ANSWER };
            let arguments = Arguments::from(&json!({ "n": arguments }));
            Part::ToolCall(ToolCall::new(format!("c{number}"), name, arguments))
        };
        let calls = arguments.iter().enumerate().map(call).collect();
        self.reply(FinishReason::ToolCalls, calls, None)
    }

    /// The program tells the model that its answer was refused, and records it.
    pub(super) fn refuse(&mut self, problem: &str, round: u32, told: bool) {
        if !told {
            self.reminded();
        }
        self.add(Event::Recorded(Recorded::new(AnswerRefused::new(round, problem))));
    }

    /// Calls that no other step makes.
    pub(super) fn calls(&mut self, count: u64) -> Event {
        let call = |number: u64| {
            let arguments = Arguments::from(&serde_json::json!({ "n": self.seq * 10 + number }));
            Part::ToolCall(ToolCall::new(format!("c{number}"), "look", arguments))
        };
        let calls = (0..count).map(call).collect();
        self.reply(FinishReason::ToolCalls, calls, None)
    }

    fn refused(&mut self, error: &Error) {
        self.reply(FinishReason::Error, Vec::new(), Some(error));
    }

    fn result(&mut self, message: &Message, index: usize) -> Event {
        let call = message.tool_calls().nth(index).unwrap();
        let result = Arc::new(ToolResult::text(call, "seen"));
        self.add(Event::ToolFinished(Arc::new(ToolFinished::new(index, result))))
    }

    fn reminded(&mut self) {
        let message = Arc::new(Message::user("Remember."));
        self.add(Event::MessageAdded(Arc::new(MessageAdded::new(message, None))));
    }

    /// A prompt that waited joins the conversation.
    fn joined(&mut self) {
        let message = Arc::new(Message::user("One more thing."));
        self.add(Event::MessageAdded(Arc::new(MessageAdded::new(message, Some(self.seq)))));
    }

    fn compacted(&mut self) {
        let summary = Arc::new(Message::user("What was said."));
        self.add(Event::Compacted(Arc::new(Compacted::new(summary, 0, 100, 10, 5))));
    }

    fn cleared(&mut self) {
        self.add(Event::OutputsCleared(Arc::new(OutputsCleared::new(1, 4, 9))));
    }

    fn not_compacted(&mut self) {
        let error = Error::new(ErrorKind::Timeout, "no summary").record();
        self.add(Event::CompactionFailed(Arc::new(CompactionFailed::new(error))));
    }

    pub(super) fn checkpoint(&mut self) {
        let checkpoint = Checkpoint::new(self.state.clone(), None, false);
        self.add(Event::Checkpoint(Arc::new(checkpoint)));
    }
}

fn too_long() -> Error {
    Error::new(ErrorKind::ContextOverflow, "too long")
}

pub(super) fn never() -> bool {
    panic!("nobody needs to know it now")
}

pub(super) fn status(action: Action) -> Status {
    let Action::Finish(outcome) = action else { panic!("{action:?}") };
    outcome.status
}

#[test]
fn prompts_that_wait_join_before_each_model_call() {
    let (mut record, mut turn) = (Record::new(), Turn::new(9));
    for step in 1..=2 {
        assert_eq!(turn.action(), Action::Steer);
        turn.steered(never);
        assert_eq!(turn.action(), Action::CallModel(step));
        turn.apply(&record.calls(1));
        let Action::CallTools { message, calls } = turn.action() else { panic!("{turn:?}") };
        assert_eq!(calls.len(), 1);
        turn.apply(&record.result(&message, 0));
    }
    turn.steered(never);
    turn.apply(&record.answer());
    let outcome = turn.finish().unwrap();
    assert_eq!((&*outcome.text, outcome.steps, &outcome.status), ("Done.", 3, &Status::Completed));
    assert_eq!((outcome.usage, outcome.cost), (Usage::new(30, 6), Some(Money::from_pico(15))));
}

#[test]
fn a_conversation_is_made_smaller_once_before_a_call() {
    let mut turn = Turn::new(9).compacts(true);
    turn.steered(|| true);
    assert_eq!(turn.action(), Action::Compact(CompactionCause::Threshold));
    for smaller in [true, false] {
        let mut turn = turn.clone();
        turn.compacted(smaller, None);
        assert_eq!(turn.action(), Action::Steer, "prompts may have come meanwhile");
        turn.steered(never);
        assert_eq!(turn.action(), Action::CallModel(1));
    }
    // A report that nobody asked for changes nothing.
    turn.steered(never);
    turn.reminded();
    assert_eq!(turn.action(), Action::Compact(CompactionCause::Threshold));
}

#[test]
fn a_call_that_was_too_long_is_made_again_once_the_conversation_is_smaller() {
    let (mut record, mut turn) = (Record::new(), Turn::new(9).compacts(true));
    turn.steered(|| false);
    record.refused(&too_long());
    turn.failed(too_long().with("model", "large"), || true);
    assert_eq!(turn.action(), Action::Compact(CompactionCause::Overflow));
    let unchanged = {
        let mut turn = turn.clone();
        turn.compacted(false, record.state.run());
        turn.finish().unwrap_err()
    };
    assert_eq!(unchanged.kind(), ErrorKind::ContextOverflow, "the call's own error ends the run");
    turn.compacted(true, record.state.run());
    assert_eq!(turn.action(), Action::Steer);
    turn.steered(|| false);
    assert_eq!(turn.action(), Action::CallModel(2), "the refused call counts as a step");
    assert_eq!(turn.outcome(Status::Completed).usage, Usage::new(10, 2), "with its tokens");
}

#[test]
fn a_failure_ends_the_run_with_its_own_error() {
    let failure = Error::new(ErrorKind::Authentication, "no key").with("host", "there");
    let told = failure.to_string();
    for (compacts, error) in [(true, failure), (false, too_long())] {
        let (kind, mut turn) = (error.kind(), Turn::new(9).compacts(compacts));
        turn.steered(|| false);
        turn.failed(error, never);
        assert!(matches!(turn.action(), Action::Finish(_)));
        let error = turn.finish().unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(kind == ErrorKind::ContextOverflow || error.to_string() == told, "{error}");
    }
}

#[test]
fn a_failure_of_an_earlier_life_is_an_outcome() {
    let mut record = Record::new();
    record.refused(&too_long());
    let resumed = |compacts, may_retry| {
        let mut turn = Turn::new(9).compacts(compacts);
        turn.resume(&record.events, || may_retry);
        turn
    };
    assert_eq!(resumed(true, true).action(), Action::Compact(CompactionCause::Overflow));
    for (compacts, may_retry) in [(true, false), (false, true)] {
        let Status::Failed(error) = resumed(compacts, may_retry).finish().unwrap().status else { panic!() };
        assert_eq!(error.kind, ErrorKind::ContextOverflow);
    }
    let mut turn = resumed(true, true);
    turn.compacted(false, record.state.run());
    assert!(matches!(status(turn.action()), Status::Failed(_)));
}

#[test]
fn a_model_is_reminded_once_and_before_its_first_call() {
    let mut record = Record::new();
    let resumed = |record: &Record| {
        let mut turn = Turn::new(9).reminds(true);
        turn.resume(&record.events, never);
        turn.action()
    };
    assert_eq!(resumed(&record), Action::Remind);
    let mut turn = Turn::new(9).reminds(true);
    turn.steered(never);
    assert_eq!(turn.action(), Action::Remind, "nobody was to steer yet");
    turn.reminded();
    assert_eq!(turn.action(), Action::Steer);
    record.reminded();
    assert_eq!(resumed(&record), Action::Steer);
    // A prompt that joined is no reminder, and neither is a checkpoint before the first call.
    let mut joined = Record::new();
    joined.joined();
    joined.checkpoint();
    assert_eq!(resumed(&joined), Action::Remind);
    // The list was not empty when this run began.
    let mut called = Record::new();
    let Event::ModelFinished(reply) = called.calls(1) else { panic!() };
    called.result(&reply.message, 0);
    assert_eq!(resumed(&called), Action::Steer);
}

#[test]
fn a_cancelled_call_is_not_made_again() {
    let (mut record, mut turn) = (Record::new(), Turn::new(9).compacts(true));
    record.reply(FinishReason::Cancelled, Vec::new(), Some(&too_long()));
    turn.resume(&record.events, never);
    assert_eq!(turn.finish().unwrap().status, Status::Cancelled);
}

#[test]
fn a_call_with_a_key_is_no_step() {
    let (mut record, mut turn) = (Record::new(), Turn::new(9));
    let Event::ModelFinished(reply) = record.answer() else { panic!() };
    let mut keyed = (*reply).clone();
    keyed.key = Some(EffectKey::new(1, Digest::of([])));
    turn.apply(&Event::ModelFinished(Arc::new(keyed)));
    assert_eq!((turn.action(), turn.steps()), (Action::Steer, 0));
}

#[test]
fn a_checkpoint_stands_for_all_that_came_before_it() {
    let mut record = Record::new();
    let Event::ModelFinished(reply) = record.calls(1) else { panic!() };
    record.result(&reply.message, 0);
    record.checkpoint();
    let newest = record.events.split_off(record.events.len() - 1);
    let mut turn = Turn::new(9).compacts(true).reminds(true);
    turn.resume(&newest, never);
    assert_eq!(turn.action(), Action::Steer, "the time for a reminder is over");
    turn.steered(|| false);
    assert_eq!(turn.action(), Action::CallModel(2));
    let so_far = turn.outcome(Status::Completed);
    assert_eq!((so_far.usage, so_far.cost), (Usage::new(10, 2), Some(Money::from_pico(5))));
}

#[test]
fn a_turn_that_is_not_over_has_no_outcome_yet() {
    assert_eq!(Turn::new(1).finish().unwrap_err().kind(), ErrorKind::Internal);
    let outcome = Turn::new(0).finish().unwrap();
    assert_eq!(outcome.status, Status::Stopped(StopReason::Steps(0)));
}

/// The verdict on an answer, which follows from the answer alone.
fn judged(message: &Message) -> Result<String, String> {
    let calls = message.tool_calls().filter(|call| *call.name == *FINAL_ANSWER);
    let text = calls.map(|call| call.arguments.as_str().to_owned()).next().unwrap_or_else(|| message.text());
    if text.contains(['0', '3', '6']) { Ok(text) } else { Err(format!("{text} is no value")) }
}

/// Report of a driver on an answer, as it follows from the answer alone.
fn check(turn: &mut Turn, message: &Message, guarded: bool) {
    if guarded && message.text().contains('9') {
        turn.barred("it has a nine".to_owned());
    } else {
        turn.checked(judged(message));
    }
}

/// Settings of a turn.
#[derive(Debug, Clone, Copy)]
struct Settings {
    compacts: bool,
    reminds: bool,
    repairs: Option<u32>,
    guarded: bool,
}

/// A turn as a process sets it up, from what is recorded.
fn fresh(record: &Record, settings: Settings) -> Turn {
    let mut turn = Turn::new(6).compacts(settings.compacts).reminds(settings.reminds);
    if let Some(repairs) = settings.repairs {
        turn = turn.answers_with_a_value(repairs);
    }
    if settings.guarded {
        turn = turn.guards_answers(1);
    }
    turn.resume(&record.events, || record.state.may_retry());
    turn
}

/// Asserts that a process which takes over here does what the one that worked would do next.
fn assert_taken_over(turn: &Turn, mut taken: Turn, guarded: bool) {
    // An answer is checked again, with the same result.
    if let Action::Check(message) = taken.action() {
        check(&mut taken, &message, guarded);
    }
    // Steering leaves no trace when nobody waits, so the other process steers once more and is told the same.
    if turn.action() != Action::Steer && taken.action() == Action::Steer {
        taken.steered(|| turn.action() == Action::Compact(CompactionCause::Threshold));
    }
    match (turn.action(), taken.action()) {
        (Action::Finish(one), Action::Finish(other)) => {
            assert_eq!((one.status, one.text), (other.status, other.text));
        }
        (one, other) => assert_eq!(one, other),
    }
}

proptest! {
    #[test]
    fn a_run_goes_on_alike_wherever_a_process_takes_it_over(
        choices in prop::collection::vec(0_u8..12, 0..60),
        compacts: bool,
        reminds: bool,
        repairs in prop::option::of(0_u32..3),
        guarded: bool,
    ) {
        let settings = Settings { compacts, reminds, repairs, guarded };
        let repairs = repairs.or(guarded.then_some(1));
        let mut choices = choices.into_iter().chain(std::iter::repeat(0));
        let mut choose = || choices.next().unwrap_or_default();
        let (mut record, mut ended) = (Record::new(), None::<Outcome>);
        let mut turn = fresh(&record, settings);
        for _ in 0..200 {
            prop_assert_eq!(turn.is_over(), matches!(turn.action(), Action::Finish(_)));
            match turn.action() {
                Action::Remind => {
                    prop_assert!(reminds && record.events.is_empty());
                    record.reminded();
                    turn.reminded();
                }
                Action::Steer => {
                    if choose() % 4 == 1 {
                        record.joined();
                    }
                    turn.steered(|| choose() % 3 == 1);
                }
                Action::Compact(cause) => {
                    prop_assert!(compacts);
                    let smaller = match choose() {
                        0..=3 => {
                            record.compacted();
                            true
                        }
                        4..=7 => {
                            record.cleared();
                            true
                        }
                        _ => {
                            record.not_compacted();
                            false
                        }
                    };
                    turn.compacted(smaller, record.state.run());
                    let over = matches!(turn.action(), Action::Finish(_));
                    prop_assert!(smaller || over == (cause == CompactionCause::Overflow));
                }
                Action::CallModel(step) => {
                    prop_assert_eq!(step, record.state.run().unwrap().steps + 1);
                    if choose() % 4 == 1 {
                        record.checkpoint();
                    }
                    match choose() {
                        0..=1 => turn.apply(&record.answer_anew()),
                        2..=4 => turn.apply(&record.calls(2)),
                        5..=6 => turn.apply(&record.final_calls(&[Value::Null, record.seq.into()])),
                        7 => {
                            let error = Error::new(ErrorKind::Authentication, "no");
                            record.refused(&error);
                            turn.failed(error, || record.state.may_retry());
                        }
                        _ => {
                            record.refused(&too_long());
                            turn.failed(too_long(), || record.state.may_retry());
                        }
                    }
                }
                Action::CallTools { message, calls } => {
                    let index = calls[usize::from(choose()) % calls.len()].index;
                    turn.apply(&record.result(&message, index));
                }
                Action::Check(message) => check(&mut turn, &message, guarded),
                Action::Refuse { problem, round, told } => {
                    prop_assert!(repairs.is_some_and(|repairs| round <= repairs));
                    // A process may die after the message and before the record.
                    let reminds_first = choose() % 2 == 1;
                    if reminds_first && !told {
                        record.reminded();
                        if matches!(turn.action(), Action::Check(_)) {
                continue;
            }
            let taken = fresh(&record, settings);
                        prop_assert!(matches!(taken.action(), Action::Check(_)));
                    }
                    record.refuse(&problem, round, told || reminds_first);
                    turn.refused();
                }
                Action::Finish(outcome) => {
                    ended = Some(outcome);
                    break;
                }
            }
            if matches!(turn.action(), Action::Check(_)) {
                continue;
            }
            let taken = fresh(&record, settings);
            assert_taken_over(&turn, taken.clone(), guarded);
            if choose() == 11 {
                turn = taken;
            }
        }
        let ended = ended.expect("a run comes to its end");
        if repairs.is_some() && ended.is_completed() {
            prop_assert!(ended.text.contains(['0', '3', '6']), "{} is no value", ended.text);
        }
        if guarded {
            let passed = ended.text.is_empty() || ended.text.contains(['0', '3', '6']);
            prop_assert!(passed && !ended.text.contains('9'), "{} passed no guard", ended.text);
        }
        prop_assert!(ended.steps <= 6);
    }
}
