//! Answers that must be values: what follows from one, from none, and from one among other calls. Answers that guards
//! look at: what follows however the run ends.

use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind,
    event::{Event, ToolFinished},
    message::{Arguments, Message, Part, ToolCall, ToolResult},
    provider::FinishReason,
    run::{Status, StopReason},
};
use serde_json::{Value, json};

use crate::{
    turn::{
        Action, StopWhen, Turn,
        tests::{Record, never, status},
    },
    typed::FINAL_ANSWER,
};

fn checks(turn: &Turn) -> Arc<Message> {
    let Action::Check(message) = turn.action() else { panic!("{:?}", turn.action()) };
    message
}

fn incomplete(iterations: u32, feedback: &str) -> Status {
    Status::Stopped(StopReason::Incomplete { iterations, feedback: feedback.into() })
}

/// Gives each call of a message its result.
fn settle(record: &mut Record, turn: &mut Turn, results: &[(bool, bool)]) {
    let Action::CallTools { message, .. } = turn.action() else { panic!("{:?}", turn.action()) };
    for (index, (call, (is_error, stops))) in message.tool_calls().zip(results).enumerate() {
        let result = if *is_error { ToolResult::error(call, "no") } else { ToolResult::text(call, "ok") };
        let mut finished = ToolFinished::new(index, Arc::new(result));
        finished.stop_turn = *stops;
        turn.apply(&record.add(Event::ToolFinished(Arc::new(finished))));
    }
}

#[test]
fn a_run_completes_with_its_value() {
    let (mut record, mut turn) = (Record::new(), Turn::new(9).answers_with_a_value(1));
    turn.steered(never);
    turn.apply(&record.answer());
    assert_eq!(checks(&turn).text(), "Done.");
    turn.checked(Ok("7".into()));
    turn.refused();
    let outcome = turn.finish().unwrap();
    assert_eq!((&outcome.status, &*outcome.text, outcome.steps), (&Status::Completed, "7", 1));
}

#[test]
fn a_refused_answer_is_one_round_and_the_last_one_ends_the_run() {
    let (mut record, mut turn) = (Record::new(), Turn::new(9).answers_with_a_value(2));
    for round in 1..=2 {
        turn.steered(never);
        turn.apply(&record.answer());
        turn.checked(Err("no".into()));
        assert_eq!(turn.action(), Action::Refuse { problem: "no".into(), round, told: false });
        record.refuse("no", round, false);
        turn.refused();
        assert_eq!(turn.action(), Action::Steer);
    }
    turn.steered(never);
    turn.apply(&record.answer());
    turn.checked(Err("still no".into()));
    assert_eq!(status(turn.action()), incomplete(3, "still no"));
}

#[test]
fn refused_answers_are_counted_across_a_checkpoint() {
    let (mut record, mut turn) = (Record::new(), Turn::new(9).answers_with_a_value(1));
    turn.steered(never);
    turn.apply(&record.answer());
    record.refuse("no", 1, false);
    record.checkpoint();
    let newest = record.events.split_off(record.events.len() - 1);
    let mut turn = Turn::new(9).answers_with_a_value(1);
    turn.resume(&newest, never);
    turn.steered(never);
    turn.apply(&record.answer());
    turn.checked(Err("no".into()));
    assert_eq!(status(turn.action()), incomplete(2, "no"));
}

#[test]
fn an_answer_without_a_step_left_ends_by_the_limit() {
    let (mut record, mut turn) = (Record::new(), Turn::new(1).answers_with_a_value(5));
    turn.steered(never);
    turn.apply(&record.answer());
    assert!(!turn.is_over(), "it may be a value");
    let mut good = turn.clone();
    turn.checked(Err("no".into()));
    assert_eq!(status(turn.action()), Status::Stopped(StopReason::Steps(1)));
    good.checked(Ok("7".into()));
    assert_eq!(status(good.action()), Status::Completed);
}

#[test]
fn an_answer_among_other_calls_is_checked_once_all_have_results() {
    let (mut record, mut turn) = (Record::new(), Turn::new(9).answers_with_a_value(1));
    turn.steered(never);
    turn.apply(&record.final_calls(&[Value::Null, json!(1)]));
    settle(&mut record, &mut turn, &[(false, false), (true, false)]);
    checks(&turn);
    turn.checked(Err("no".into()));
    assert_eq!(turn.action(), Action::Refuse { problem: "no".into(), round: 1, told: true });
    turn.refused();
    turn.steered(never);
    // Two answers of which one was taken: the model does not know yet that it must not give two.
    turn.apply(&record.final_calls(&[json!(1), json!(2)]));
    settle(&mut record, &mut turn, &[(true, false), (false, false)]);
    assert_eq!(checks(&turn).tool_calls().count(), 2);
    turn.checked(Ok("2".into()));
    assert_eq!(status(turn.action()), Status::Completed);
}

#[test]
fn a_call_of_another_tool_is_no_answer() {
    let (mut record, mut turn) = (Record::new(), Turn::new(9).answers_with_a_value(1));
    turn.steered(never);
    turn.apply(&record.calls(1));
    settle(&mut record, &mut turn, &[(true, false)]);
    assert_eq!(turn.action(), Action::Steer);
}

#[test]
fn a_tool_or_a_condition_ends_a_run_after_a_look_for_a_value() {
    let condition = || Turn::new(9).answers_with_a_value(3).stop_when([StopWhen::steps(1)].into());
    for (turn, stops, reason) in [
        (condition(), false, "1 steps"),
        (Turn::new(9).answers_with_a_value(3), true, "a tool ended the turn"),
    ] {
        let (mut record, mut turn) = (Record::new(), turn);
        turn.steered(never);
        turn.apply(&record.final_calls(&[Value::Null, json!(1)]));
        settle(&mut record, &mut turn, &[(false, stops), (false, false)]);
        let mut good = turn.clone();
        good.checked(Ok("1".into()));
        assert_eq!(status(good.action()), Status::Completed);
        turn.checked(Err("no".into()));
        assert_eq!(status(turn.action()), Status::Stopped(StopReason::Condition(reason.into())));
    }
    // A tool that ends the turn of a run without any answer in it.
    let (mut record, mut turn) = (Record::new(), Turn::new(9).answers_with_a_value(3));
    turn.steered(never);
    turn.apply(&record.calls(1));
    settle(&mut record, &mut turn, &[(false, true)]);
    checks(&turn);
}

#[test]
fn a_model_that_declines_is_not_asked_again() {
    let (mut record, mut turn) = (Record::new(), Turn::new(9).answers_with_a_value(3));
    turn.steered(never);
    turn.apply(&record.reply(FinishReason::Stop, vec![Part::Refusal("I will not.".into())], None));
    assert_eq!(status(turn.action()), Status::Stopped(StopReason::Reply(FinishReason::Refusal)));
}

fn text(action: Action) -> String {
    let Action::Finish(outcome) = action else { panic!("{action:?}") };
    outcome.text
}

#[test]
fn the_outcome_has_the_text_that_the_guards_left() {
    let (mut record, mut turn) = (Record::new(), Turn::new(9).guards_answers(1));
    turn.steered(never);
    turn.apply(&record.answer());
    assert_eq!(checks(&turn).text(), "Done.");
    turn.checked(Ok("Over.".into()));
    let outcome = turn.finish().unwrap();
    assert_eq!((&outcome.status, &*outcome.text), (&Status::Completed, "Over."));
}

#[test]
fn a_text_that_the_guards_refuse_twice_is_in_no_outcome() {
    let (mut record, mut turn) = (Record::new(), Turn::new(9).guards_answers(1));
    turn.steered(never);
    turn.apply(&record.answer());
    turn.checked(Err("no".into()));
    assert_eq!(turn.action(), Action::Refuse { problem: "no".into(), round: 1, told: false });
    record.refuse("no", 1, false);
    turn.refused();
    let mut resumed = Turn::new(9).guards_answers(1);
    resumed.resume(&record.events, never);
    for mut turn in [turn, resumed] {
        turn.steered(never);
        turn.apply(&record.answer());
        turn.checked(Err("still no".into()));
        assert_eq!((status(turn.action()), &*text(turn.action())), (incomplete(2, "still no"), ""));
    }
}

#[test]
fn a_guard_that_stops_ends_the_run_for_its_reason() {
    let (mut record, mut turn) = (Record::new(), Turn::new(9).guards_answers(1));
    turn.steered(never);
    turn.apply(&record.answer());
    turn.barred("a secret".to_owned());
    let stopped = Status::Stopped(StopReason::Condition("a secret".into()));
    assert_eq!((status(turn.action()), &*text(turn.action())), (stopped, ""));
}

/// Turns at their end, each with the status that it ends with if the guards pass its text.
fn ended_turns() -> Vec<(&'static str, Turn, Status)> {
    let stopped = |reason| Status::Stopped(reason);
    let mut turns = Vec::new();
    for (name, turn, stops, status) in [
        ("a tool", Turn::new(9), true, Status::Completed),
        ("the steps", Turn::new(1), false, stopped(StopReason::Steps(1))),
        (
            "a condition",
            Turn::new(9).stop_when([StopWhen::steps(1)].into()),
            false,
            stopped(StopReason::Condition("1 steps".into())),
        ),
    ] {
        let (mut record, mut turn) = (Record::new(), turn.guards_answers(1));
        turn.steered(never);
        // A tool of this name takes no answer of an agent without typed output.
        turn.apply(&record.final_calls(&[Value::Null, json!(1)]));
        settle(&mut record, &mut turn, &[(false, stops), (true, false)]);
        turns.push((name, turn, status));
    }
    for reason in [FinishReason::Length, FinishReason::ContentFilter] {
        let (mut record, mut turn) = (Record::new(), Turn::new(9).guards_answers(1));
        turn.steered(never);
        turn.apply(&record.reply(reason, vec![Part::Text("Do".into())], None));
        turns.push(("the reply", turn, stopped(StopReason::Reply(reason))));
    }
    turns
}

#[test]
fn guards_look_at_the_text_of_a_run_that_something_else_ends() {
    for (name, turn, ends) in ended_turns() {
        checks(&turn);
        let (mut passed, mut refused, mut barred) = (turn.clone(), turn.clone(), turn);
        passed.checked(Ok("seen".into()));
        assert_eq!((status(passed.action()), &*text(passed.action())), (ends.clone(), "seen"), "{name}");
        refused.checked(Err("no".into()));
        barred.barred("stop".into());
        let completed = ends == Status::Completed;
        let ends = |instead: Status| if completed { instead } else { ends.clone() };
        assert_eq!(status(refused.action()), ends(incomplete(1, "no")), "{name}");
        let condition = Status::Stopped(StopReason::Condition("stop".into()));
        assert_eq!(status(barred.action()), ends(condition), "{name}");
        assert_eq!(text(refused.action()) + &text(barred.action()), "", "{name}");
    }
}

#[test]
fn a_guarded_run_that_goes_on_or_fails_ends_without_a_text_that_nobody_passed() {
    let (mut record, mut turn) = (Record::new(), Turn::new(9).guards_answers(1));
    turn.steered(never);
    let said = Part::Text("I look.".into());
    let call = Part::ToolCall(ToolCall::new("c", FINAL_ANSWER, Arguments::empty()));
    turn.apply(&record.reply(FinishReason::ToolCalls, vec![said, call], None));
    settle(&mut record, &mut turn, &[(false, false)]);
    assert_eq!(turn.action(), Action::Steer, "it is a call like any other");
    turn.steered(never);
    let error = Error::new(ErrorKind::Authentication, "no");
    turn.apply(&record.reply(FinishReason::Error, Vec::new(), Some(&error)));
    assert!(matches!(status(turn.action()), Status::Failed(_)));
    assert_eq!(text(turn.action()), "");
}

#[test]
fn a_guarded_value_is_the_only_text() {
    for (answer, ends) in [(Ok("7".to_owned()), "7"), (Err("no".to_owned()), "")] {
        let (mut record, mut turn) = (Record::new(), Turn::new(9).answers_with_a_value(0).guards_answers(5));
        turn.steered(never);
        turn.apply(&record.answer());
        turn.checked(answer);
        assert!(turn.is_over(), "the repairs are those of the value");
        assert_eq!(text(turn.action()), ends);
    }
}
