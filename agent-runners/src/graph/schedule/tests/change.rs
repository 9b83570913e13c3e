//! Changes while a graph runs, nodes with items, and the record of a run.

use super::*;

#[test]
fn lo13_skip_in_each_state() {
    let skip = |s: &mut Schedule, node| s.skip(node, SkipAs::Satisfied);
    let asked = State::Skipped(Cause::Asked(SkipAs::Satisfied));
    // pending
    let mut s = free(login());
    assert_eq!(skip(&mut s, BACKEND), Ok(asked));
    assert_eq!(told(&mut s).len(), 1, "the dependents see it as done");
    // running
    started(&mut s);
    assert_eq!(skip(&mut s, DESIGN), Ok(State::Stopping));
    assert_eq!(told(&mut s), [Consequence::Stop { node: DESIGN }]);
    assert_eq!(started(&mut s), NONE);
    assert_eq!(skip(&mut s, DESIGN), Err(Refused::State { node: DESIGN, state: State::Stopping }));
    assert_eq!(finish(&mut s, DESIGN, How::Completed), asked, "whatever it came to meanwhile");
    assert_eq!(started(&mut s), [FRONTEND, DOCS]);
    // waiting
    s.retry_later(FRONTEND).unwrap();
    assert_eq!(skip(&mut s, FRONTEND), Ok(asked));
    // terminal
    finish(&mut s, DOCS, How::Completed);
    for (node, state) in [(DOCS, State::Completed), (BACKEND, asked)] {
        assert_eq!(skip(&mut s, node), Err(Refused::State { node, state }));
    }
    assert_eq!(skip(&mut s, 99), Err(Refused::Unknown(99)));
}

#[test]
fn lo13_a_skipped_node_blocks_its_dependents_when_the_caller_says_so() {
    let mut s = free(login());
    s.skip(BACKEND, SkipAs::Blocked).unwrap();
    let expected = [
        skipped(BACKEND, Cause::Asked(SkipAs::Blocked)),
        skipped(FRONTEND, Cause::Blocked(BACKEND)),
        skipped(TESTS, Cause::Blocked(BACKEND)),
        skipped(REVIEW, Cause::Blocked(TESTS)),
    ];
    assert_eq!(told(&mut s), expected);
}

#[test]
fn lo13_retry_reopens_skipped_dependents() {
    let mut s = free(login());
    started(&mut s);
    finish(&mut s, BACKEND, How::Failed);
    finish(&mut s, DESIGN, How::Failed);
    told(&mut s);
    assert_eq!(s.retry(FRONTEND), Err(Refused::Blocked { node: FRONTEND, by: BACKEND }));
    s.retry(BACKEND).unwrap();
    let expected = [skipped(FRONTEND, Cause::Blocked(DESIGN)), skipped(TESTS, Cause::Blocked(FRONTEND))];
    assert_eq!(told(&mut s), expected, "something else still blocks them");
    s.retry(DESIGN).unwrap();
    let expected = [FRONTEND, DOCS, TESTS, REVIEW].map(|node| Consequence::Pending { node });
    assert_eq!(told(&mut s), expected);
    assert_eq!(started(&mut s), [DESIGN, BACKEND]);
    assert_eq!(s.retry(BACKEND), Err(Refused::State { node: BACKEND, state: State::Running }));
    finish(&mut s, BACKEND, How::Completed);
    assert_eq!(s.retry(BACKEND), Err(Refused::State { node: BACKEND, state: State::Completed }));
    finish(&mut s, DESIGN, How::Completed);
    assert_eq!(started(&mut s), [FRONTEND, DOCS]);
}

#[test]
fn lo13_retry_of_a_node_that_a_condition_skipped_sets_the_condition_aside() {
    let mut s = free(vec![node(&[]), conditional(node(&[0]))]);
    started(&mut s);
    s.finish(0, How::Completed, |_, _| false).unwrap();
    s.retry(1).unwrap();
    assert_eq!(started(&mut s), [1]);
}

#[test]
fn lo13_reassign_moves_waiting_nodes_and_restarts_running_ones() {
    let mut s = free(vec![by(0, &[]), by(0, &[]), by(1, &[])]);
    assert_eq!(started(&mut s), [0, 2]);
    assert_eq!(s.reassign(1, &[5]), Ok(State::Pending));
    assert_eq!((started(&mut s), s.offered(1)), (vec![1], vec![5]));
    assert_eq!(s.reassign(0, &[1]), Ok(State::Stopping));
    assert_eq!(told(&mut s), [Consequence::Stop { node: 0 }]);
    assert_eq!(finish(&mut s, 0, How::Failed), State::Pending, "that attempt does not count");
    assert_eq!(started(&mut s), NONE, "its new agent is busy");
    finish(&mut s, 2, How::Completed);
    assert_eq!(started(&mut s), [0]);
    assert_eq!(s.reassign(2, &[0]), Err(Refused::State { node: 2, state: State::Completed }));
    s.reassign(0, &[3]).unwrap();
    s.cancel(0).unwrap();
    assert_eq!(finish(&mut s, 0, How::Completed), State::Cancelled, "the later word counts");
}

#[test]
fn lo13_a_retry_counts_for_the_agent_that_it_was_given_to_while_it_was_stopped() {
    for stopped in [Schedule::cancel, |s: &mut Schedule, node| s.skip(node, SkipAs::Satisfied)] {
        let mut s = free(vec![by(0, &[]), by(1, &[])]);
        assert_eq!(started(&mut s), [0, 1]);
        s.reassign(0, &[1]).unwrap();
        stopped(&mut s, 0).unwrap();
        finish(&mut s, 0, How::Cancelled);
        s.retry(0).unwrap();
        assert_eq!((s.offered(0), started(&mut s)), (vec![1], NONE.to_vec()), "that agent is busy");
        finish(&mut s, 1, How::Completed);
        assert_eq!(started(&mut s), [0]);
    }
}

#[test]
fn lo13_a_node_is_added_while_the_graph_runs() {
    let mut s = free(login());
    started(&mut s);
    finish(&mut s, BACKEND, How::Completed);
    finish(&mut s, DESIGN, How::Failed);
    told(&mut s);
    let deploy = s.add(&by(6, &[BACKEND])).unwrap();
    assert_eq!((deploy, started(&mut s)), (6, vec![6]));
    let notes = s.add(&by(7, &[deploy, DESIGN])).unwrap();
    assert_eq!(told(&mut s), [skipped(notes, Cause::Blocked(DESIGN))]);
    let news = s.add(&by(7, &[deploy])).unwrap();
    finish(&mut s, deploy, How::Completed);
    assert_eq!(started(&mut s), [news]);
    assert_eq!(s.add(&by(0, &[news + 1])), Err(Refused::Unknown(news + 1)));
    s.retry(DESIGN).unwrap();
    assert!(told(&mut s).contains(&Consequence::Pending { node: notes }));
}

#[test]
fn a_node_that_is_added_makes_what_it_depends_on_more_urgent() {
    let mut s = schedule(
        vec![lasting(5, node(&[])), lasting(1, node(&[])), lasting(1, node(&[1]))],
        overall(1),
        Policy::default(),
    );
    s.add(&lasting(9, node(&[2]))).unwrap();
    assert_eq!(s.start(), Some(1));
}

#[test]
fn items_run_in_place_of_their_node_within_its_limit() {
    let nodes = vec![node(&[]), node(&[0]), node(&[])];
    let mut s = schedule(nodes, overall(3), Policy::FailFast);
    assert_eq!(started(&mut s), [0, 2]);
    let items = s.expand(0, vec![by(0, &[]); 4], Some(2)).unwrap();
    assert_eq!((items.clone(), s.state(0)), (3..7, Some(State::Suspended)));
    assert_eq!(started(&mut s), [3], "the agent takes one at a time");
    s.reassign(4, &[1]).unwrap();
    s.reassign(5, &[2]).unwrap();
    assert_eq!(started(&mut s), [4], "and the node two");
    assert_eq!(
        s.finish(0, How::Completed, |_, _| true),
        Err(Refused::State { node: 0, state: State::Suspended })
    );
    finish(&mut s, 3, How::Failed);
    assert_eq!(told(&mut s), [], "a failed item is the caller's affair, also when failing fast");
    assert_eq!(started(&mut s), [5]);
    finish(&mut s, 4, How::Completed);
    assert_eq!(started(&mut s), [6]);
    finish(&mut s, 5, How::Cancelled);
    assert_eq!(told(&mut s), []);
    s.retry(3).unwrap();
    finish(&mut s, 6, How::Completed);
    assert_eq!(
        (told(&mut s), started(&mut s)),
        (vec![], vec![3]),
        "an item that is tried again is waited for"
    );
    finish(&mut s, 3, How::Failed);
    assert_eq!(told(&mut s), [Consequence::Gather { node: 0 }]);
    assert_eq!(finish(&mut s, 0, How::Completed), State::Completed);
    assert_eq!(started(&mut s), [1]);
    assert_eq!(s.retry(3), Err(Refused::State { node: 3, state: State::Failed }), "its node is over");
}

#[test]
fn a_node_without_items_is_gathered_at_once_and_one_that_is_stopped_never() {
    let mut s = free(vec![node(&[]), node(&[])]);
    started(&mut s);
    s.expand(0, [], None).unwrap();
    assert_eq!(told(&mut s), [Consequence::Gather { node: 0 }]);
    s.expand(1, vec![node(&[]), node(&[])], None).unwrap();
    assert_eq!(started(&mut s), [2, 3]);
    assert_eq!(s.expand(2, [], None), Err(Refused::State { node: 2, state: State::Running }));
    finish(&mut s, 2, How::Completed);
    assert_eq!(s.skip(1, SkipAs::Satisfied), Ok(State::Stopping));
    finish(&mut s, 3, How::Cancelled);
    let asked = Cause::Asked(SkipAs::Satisfied);
    assert_eq!(told(&mut s), [Consequence::Stop { node: 3 }, skipped(1, asked)]);
    assert_eq!(s.cancel(0), Ok(State::Cancelled));
    assert!(s.is_over());
}

#[test]
fn cancelling_all_stops_running_nodes_and_refuses_later_changes() {
    let mut s = free(login());
    assert_eq!(s.start(), Some(DESIGN));
    s.cancel_all();
    let mut expected = vec![Consequence::Stop { node: DESIGN }];
    expected.extend([BACKEND, FRONTEND, TESTS, REVIEW, DOCS].map(cancelled));
    assert_eq!(told(&mut s), expected);
    assert_eq!(s.add(&node(&[])), Err(Refused::Closed));
    assert_eq!(s.skip(DESIGN, SkipAs::Satisfied), Err(Refused::Closed));
    finish(&mut s, DESIGN, How::Cancelled);
    assert!(s.is_over());
}

#[test]
fn an_item_of_an_earlier_attempt_is_not_tried_again() {
    let mut s = free(vec![node(&[])]);
    started(&mut s);
    s.expand(0, [node(&[])], None).unwrap();
    started(&mut s);
    finish(&mut s, 1, How::Failed);
    finish(&mut s, 0, How::Failed);
    s.retry(0).unwrap();
    started(&mut s);
    s.expand(0, [node(&[])], None).unwrap();
    assert_eq!(s.retry(1), Err(Refused::State { node: 1, state: State::Failed }));
}

fn restore(schedule: &mut Schedule, node: usize, state: State) -> Result<(), Refused> {
    schedule.restore(node, state, |_, _| true)
}

#[test]
fn a_record_that_cannot_be_of_this_graph_is_refused() {
    let mut s = free(vec![node(&[]), node(&[0])]);
    let refused = |node, state| Err(Refused::State { node, state });
    assert_eq!(restore(&mut s, 1, State::Running), refused(1, State::Pending), "before what it needs");
    assert_eq!(restore(&mut s, 0, State::Completed), refused(0, State::Pending), "never started");
    assert_eq!(restore(&mut s, 0, State::Skipped(Cause::Blocked(1))), refused(0, State::Pending));
    restore(&mut s, 0, State::Running).unwrap();
    restore(&mut s, 0, State::Completed).unwrap();
    assert_eq!(restore(&mut s, 0, State::Failed), refused(0, State::Completed));
    assert_eq!(restore(&mut s, 2, State::Running), Err(Refused::Unknown(2)));
}

#[test]
fn a_waiting_node_whose_dependency_failed_is_restored_as_skipped() {
    let mut s = free(vec![node(&[]), node(&[0])]);
    s.skip(0, SkipAs::Satisfied).unwrap();
    restore(&mut s, 1, State::Running).unwrap();
    restore(&mut s, 1, State::Waiting).unwrap();
    s.retry(0).unwrap();
    restore(&mut s, 0, State::Running).unwrap();
    restore(&mut s, 0, State::Failed).unwrap();
    assert_eq!(restore(&mut s, 1, State::Running), Err(Refused::State { node: 1, state: State::Waiting }));
    restore(&mut s, 1, State::Skipped(Cause::Blocked(0))).unwrap();
    assert!(s.is_over());
}

#[test]
fn a_skipped_node_is_restored_with_the_cause_that_was_told() {
    // Two nodes that it needs gave no value; the record names the second one, which was cancelled first.
    let told_cause = State::Skipped(Cause::Blocked(1));
    let started_before = |retried: bool| {
        let mut s = free(vec![node(&[]), node(&[]), node(&[0, 1])]);
        for needed in [0, 1] {
            s.skip(needed, SkipAs::Satisfied).unwrap();
        }
        restore(&mut s, 2, State::Running).unwrap();
        if retried {
            restore(&mut s, 2, State::Waiting).unwrap();
        } else {
            s.reassign(2, &[0]).unwrap();
        }
        for needed in [0, 1] {
            s.retry(needed).unwrap();
        }
        s
    };
    for retried in [true, false] {
        let mut s = started_before(retried);
        for needed in [1, 0] {
            s.cancel(needed).unwrap();
        }
        restore(&mut s, 2, told_cause).unwrap();
        assert_eq!(s.state(2), Some(told_cause), "after a wait: {retried}");
    }
    let mut s = free(vec![node(&[]), node(&[]), node(&[0, 1])]);
    for needed in [0, 1] {
        s.cancel(needed).unwrap();
    }
    restore(&mut s, 2, told_cause).unwrap();
    assert_eq!(s.state(2), Some(told_cause), "a consequence of earlier records");
}

/// The process died while the second node was running and the first one was to be retried.
fn overtaken(limits: Limits, policy: Policy) -> Schedule {
    let mut s = schedule(vec![node(&[]), by(0, &[0]), node(&[1])], limits, policy);
    s.skip(0, SkipAs::Satisfied).unwrap();
    restore(&mut s, 1, State::Running).unwrap();
    s.retry(0).unwrap();
    told(&mut s);
    s.go_on(1).unwrap();
    s
}

#[test]
fn lo13_an_attempt_in_flight_ignores_later_changes_of_its_dependencies() {
    let mut s = overtaken(Limits::default(), Policy::default());
    assert_eq!(s.go_on(0), Err(Refused::State { node: 0, state: State::Pending }));
    assert_eq!(started(&mut s), [0, 1], "it waits for nothing");
    let mut s = overtaken(overall(1), Policy::default());
    assert_eq!(started(&mut s), [0]);
    finish(&mut s, 0, How::Failed);
    assert_eq!(told(&mut s), [], "it began, and is not skipped");
    assert_eq!(started(&mut s), [1]);
    finish(&mut s, 1, How::Completed);
    assert_eq!(started(&mut s), [2]);
    // After that attempt everything is as usual.
    let mut s = overtaken(overall(1), Policy::default());
    started(&mut s);
    finish(&mut s, 0, How::Failed);
    started(&mut s);
    s.retry_later(1).unwrap();
    assert!(s.ready_again(1));
    assert_eq!(told(&mut s), [skipped(1, Cause::Blocked(0)), skipped(2, Cause::Blocked(1))]);
}

#[test]
fn lo13_an_attempt_in_flight_that_waits_for_a_slot_is_changed_like_any_other() {
    let mut s = overtaken(overall(1), Policy::default());
    assert_eq!(s.skip(1, SkipAs::Satisfied), Ok(State::Skipped(Cause::Asked(SkipAs::Satisfied))));
    s.retry(1).unwrap();
    assert_eq!(started(&mut s), [0]);
    finish(&mut s, 0, How::Completed);
    assert_eq!(started(&mut s), [1], "a new attempt waits like any other");
    let mut s = overtaken(overall(1), Policy::default());
    assert_eq!(s.reassign(1, &[5]), Ok(State::Pending));
    assert_eq!(started(&mut s), [0]);
    finish(&mut s, 0, How::Failed);
    assert_eq!(s.state(1), Some(State::Skipped(Cause::Blocked(0))), "the other agent began nothing yet");
    let mut s = overtaken(overall(1), Policy::default());
    s.cancel_all();
    assert_eq!((started(&mut s), s.is_over()), (vec![], true));
    let mut s = overtaken(overall(1), Policy::FailFast);
    started(&mut s);
    finish(&mut s, 0, How::Failed);
    assert_eq!(s.state(1), Some(State::Cancelled));
}
