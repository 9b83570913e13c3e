//! Answers that must be values: what follows from one, from none, and from one among other calls.

use std::sync::Arc;

use entourage_core::{
    event::{Event, ToolFinished},
    message::{Message, Part, ToolResult},
    provider::FinishReason,
    run::{Status, StopReason},
};
use serde_json::{Value, json};

use crate::turn::{
    Action, StopWhen, Turn,
    tests::{Record, never, status},
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
