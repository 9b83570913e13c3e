//! Table tests of the schedule; properties of any graph are tested in `model`.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Cause, Consequence, Counts, How, Limits, Plan, Planned, PlannedEdge, Policy, Refused, Schedule, State,
};
use crate::graph::SkipAs;

mod change;
mod model;

fn node(after: &[usize]) -> Planned {
    let edges = after.iter().map(|from| PlannedEdge { from: *from, ..PlannedEdge::default() }).collect();
    Planned { edges, expected: 1, ..Planned::default() }
}

fn by(agent: usize, after: &[usize]) -> Planned {
    Planned { agent: Some(agent), ..node(after) }
}

fn lasting(expected: u64, planned: Planned) -> Planned {
    Planned { expected, ..planned }
}

fn optional(mut planned: Planned) -> Planned {
    planned.edges.iter_mut().for_each(|edge| edge.optional = true);
    planned
}

fn conditional(mut planned: Planned) -> Planned {
    planned.edges.iter_mut().for_each(|edge| edge.conditional = true);
    planned
}

fn schedule(nodes: Vec<Planned>, limits: Limits, policy: Policy) -> Schedule {
    Schedule::new(Arc::new(Plan::new(nodes).unwrap()), limits, policy).unwrap()
}

fn free(nodes: Vec<Planned>) -> Schedule {
    schedule(nodes, Limits::default(), Policy::default())
}

fn overall(most: usize) -> Limits {
    Limits { overall: Some(most), ..Limits::default() }
}

fn started(schedule: &mut Schedule) -> Vec<usize> {
    std::iter::from_fn(|| schedule.start()).collect()
}

fn told(schedule: &mut Schedule) -> Vec<Consequence> {
    std::iter::from_fn(|| schedule.consequence()).collect()
}

fn finish(schedule: &mut Schedule, node: usize, how: How) -> State {
    schedule.finish(node, how, |_, _| true).unwrap()
}

fn skipped(node: usize, cause: Cause) -> Consequence {
    Consequence::Ended { node, state: State::Skipped(cause) }
}

fn cancelled(node: usize) -> Consequence {
    Consequence::Ended { node, state: State::Cancelled }
}

const NONE: [usize; 0] = [];

const DESIGN: usize = 0;
const BACKEND: usize = 1;
const FRONTEND: usize = 2;
const TESTS: usize = 3;
const REVIEW: usize = 4;
const DOCS: usize = 5;

/// The login feature: each task has an agent of its own.
fn login() -> Vec<Planned> {
    vec![
        by(0, &[]),
        by(1, &[]),
        by(2, &[BACKEND, DESIGN]),
        by(3, &[BACKEND, FRONTEND]),
        by(4, &[TESTS]),
        by(5, &[DESIGN]),
    ]
}

#[test]
fn lo07_the_login_graph_runs_as_far_in_parallel_as_its_edges_allow() {
    let mut s = free(login());
    assert_eq!(started(&mut s), [DESIGN, BACKEND]);
    finish(&mut s, DESIGN, How::Completed);
    assert_eq!(started(&mut s), [DOCS], "the frontend waits for the backend");
    finish(&mut s, BACKEND, How::Completed);
    assert_eq!(started(&mut s), [FRONTEND]);
    finish(&mut s, DOCS, How::Completed);
    assert_eq!(started(&mut s), NONE);
    finish(&mut s, FRONTEND, How::Completed);
    assert_eq!(started(&mut s), [TESTS]);
    finish(&mut s, TESTS, How::Completed);
    assert_eq!(started(&mut s), [REVIEW]);
    assert!(!s.is_over());
    finish(&mut s, REVIEW, How::Completed);
    assert!(s.is_over());
    assert_eq!(s.counts(), Counts { completed: 6, ..Counts::default() });
}

#[test]
fn lo07_dependents_of_a_failed_node_are_skipped_with_the_cause_and_the_rest_runs() {
    let mut s = free(login());
    started(&mut s);
    assert_eq!(finish(&mut s, BACKEND, How::Failed), State::Failed);
    let expected = [
        skipped(FRONTEND, Cause::Blocked(BACKEND)),
        skipped(TESTS, Cause::Blocked(BACKEND)),
        skipped(REVIEW, Cause::Blocked(TESTS)),
    ];
    assert_eq!(told(&mut s), expected);
    finish(&mut s, DESIGN, How::Completed);
    assert_eq!(started(&mut s), [DOCS]);
    finish(&mut s, DOCS, How::Completed);
    assert!(s.is_over());
}

#[test]
fn lo07_one_attempt_at_a_time_per_agent_unless_it_has_a_limit_of_its_own() {
    let nodes = || vec![by(7, &[]), by(7, &[]), by(8, &[]), by(8, &[]), by(8, &[]), node(&[])];
    let limits = Limits { agents: BTreeMap::from([(8, 2)]), ..Limits::default() };
    let mut s = schedule(nodes(), limits, Policy::default());
    assert_eq!(started(&mut s), [0, 2, 3, 5], "a full agent holds up nobody else");
    finish(&mut s, 3, How::Completed);
    assert_eq!(started(&mut s), [4]);
    finish(&mut s, 0, How::Failed);
    assert_eq!(started(&mut s), [1]);
    assert_eq!(s.counts().running, 4);
}

#[test]
fn lo07_a_providers_limit_counts_beside_the_agents() {
    let at = |provider, planned| Planned { provider: Some(provider), ..planned };
    let nodes =
        vec![at(0, by(0, &[])), at(0, by(1, &[])), at(0, by(2, &[])), at(1, by(0, &[])), at(0, node(&[]))];
    let limits = Limits { each_agent: 2, providers: BTreeMap::from([(0, 2)]), ..Limits::default() };
    let mut s = schedule(nodes, limits, Policy::default());
    assert_eq!(started(&mut s), [0, 1, 3]);
    finish(&mut s, 3, How::Completed);
    assert_eq!(started(&mut s), NONE);
    finish(&mut s, 0, How::Completed);
    assert_eq!(started(&mut s), [2]);
    finish(&mut s, 1, How::Completed);
    assert_eq!(started(&mut s), [4]);
}

#[test]
fn lo07_a_slot_that_the_most_urgent_cannot_take_goes_to_the_next() {
    let at = |provider, planned| Planned { provider: Some(provider), ..planned };
    let nodes = vec![
        lasting(9, at(0, by(0, &[]))),
        lasting(8, at(0, by(1, &[]))),
        lasting(7, at(0, by(2, &[]))),
        by(1, &[]),
    ];
    let limits = Limits { providers: BTreeMap::from([(0, 1)]), ..Limits::default() };
    let mut s = schedule(nodes, limits, Policy::default());
    assert_eq!(started(&mut s), [0, 3], "the provider is full, and so is the second agent");
    finish(&mut s, 0, How::Completed);
    assert_eq!(started(&mut s), [2], "the provider's slot is not kept for who cannot have it");
}

#[test]
fn lo07_the_critical_path_goes_first_and_ties_by_insertion_order() {
    // 0 and 1 are short; 2 starts a long chain; 3 is as long as that chain alone.
    let nodes = vec![
        lasting(2, node(&[])),
        lasting(2, node(&[])),
        lasting(1, node(&[])),
        lasting(9, node(&[])),
        lasting(8, node(&[2])),
    ];
    let mut s = schedule(nodes, overall(1), Policy::default());
    let mut order = Vec::new();
    while let Some(node) = s.start() {
        assert_eq!(s.start(), None, "one slot");
        finish(&mut s, node, How::Completed);
        order.push(node);
    }
    assert_eq!(order, [2, 3, 4, 0, 1]);
}

#[test]
fn edges_may_point_forward_and_a_cycle_is_named() {
    let mut s = free(vec![node(&[2]), node(&[]), node(&[1])]);
    for expected in [1, 2, 0] {
        assert_eq!(started(&mut s), [expected]);
        finish(&mut s, expected, How::Completed);
    }
    let cycle = Plan::new([node(&[]), node(&[0, 3]), node(&[1]), node(&[2]), node(&[3])]).unwrap_err();
    let Refused::Cycle(nodes) = cycle else { panic!("{cycle:?}") };
    assert_eq!(nodes.len(), 3);
    let after = |n: usize| [1, 2, 3].iter().position(|m| *m == n).map(|p| [2, 3, 1][p]);
    assert!(nodes.iter().zip(nodes.iter().cycle().skip(1)).all(|(a, b)| after(*a) == Some(*b)), "{nodes:?}");
    assert_eq!(Plan::new([node(&[0])]).unwrap_err(), Refused::Cycle(vec![0]));
    assert_eq!(Plan::new([node(&[1])]).unwrap_err(), Refused::Unknown(1));
}

#[test]
fn an_optional_input_without_a_value_does_not_block_its_dependent() {
    let mut s = free(vec![node(&[]), node(&[]), optional(node(&[0, 1]))]);
    started(&mut s);
    finish(&mut s, 0, How::Failed);
    assert_eq!(started(&mut s), NONE, "it waits until the other one is over");
    finish(&mut s, 1, How::Cancelled);
    assert_eq!(told(&mut s), []);
    assert_eq!(started(&mut s), [2], "and runs although nothing gave anything");
}

#[test]
fn a_condition_that_does_not_hold_skips_the_branch_and_a_join_of_optional_edges_runs() {
    let nodes = vec![
        node(&[]),
        conditional(node(&[0])),
        conditional(node(&[0])),
        node(&[1]),
        optional(node(&[3, 2])),
    ];
    let mut s = free(nodes);
    started(&mut s);
    assert_eq!(s.conditions(0).collect::<Vec<_>>(), [(1, 0), (2, 0)]);
    assert_eq!(s.conditions(1).count(), 0);
    s.finish(0, How::Completed, |to, edge| (to, edge) == (2, 0)).unwrap();
    assert_eq!(told(&mut s), [skipped(1, Cause::Condition(0)), skipped(3, Cause::Blocked(1))]);
    assert_eq!(started(&mut s), [2]);
    finish(&mut s, 2, How::Completed);
    assert_eq!(started(&mut s), [4]);
}

#[test]
fn a_condition_cannot_hold_of_a_node_that_gave_no_value() {
    let mut s = free(vec![node(&[]), conditional(node(&[0])), node(&[0])]);
    s.skip(0, SkipAs::Satisfied).unwrap();
    let asked = Cause::Asked(SkipAs::Satisfied);
    assert_eq!(told(&mut s), [skipped(0, asked), skipped(1, Cause::Condition(0))]);
    assert_eq!(started(&mut s), [2]);
}

#[test]
fn failing_fast_stops_running_nodes_and_cancels_the_rest() {
    let mut s = schedule(login(), Limits::default(), Policy::FailFast);
    started(&mut s);
    finish(&mut s, BACKEND, How::Failed);
    let mut expected = vec![Consequence::Stop { node: DESIGN }];
    expected.extend([FRONTEND, TESTS, REVIEW, DOCS].map(cancelled));
    assert_eq!(told(&mut s), expected);
    assert_eq!((started(&mut s), s.is_over()), (vec![], false));
    assert_eq!(s.retry(BACKEND), Err(Refused::Closed));
    assert_eq!(finish(&mut s, DESIGN, How::Completed), State::Cancelled);
    assert!(s.is_over());
}

#[test]
fn continuing_runs_the_dependents_of_a_failed_node_without_its_output() {
    let mut s = schedule(login(), Limits::default(), Policy::Continue);
    started(&mut s);
    finish(&mut s, BACKEND, How::Failed);
    finish(&mut s, DESIGN, How::Cancelled);
    assert_eq!(told(&mut s), []);
    assert_eq!(started(&mut s), [FRONTEND, DOCS]);
    s.skip(FRONTEND, SkipAs::Blocked).unwrap();
    finish(&mut s, FRONTEND, How::Cancelled);
    let expected = [skipped(TESTS, Cause::Blocked(FRONTEND)), skipped(REVIEW, Cause::Blocked(TESTS))];
    assert_eq!(told(&mut s)[1..], expected, "what was skipped still blocks");
}

#[test]
fn a_node_that_waits_to_be_tried_again_holds_no_slot() {
    let mut s = schedule(vec![lasting(9, by(0, &[])), by(0, &[])], overall(1), Policy::default());
    assert_eq!(started(&mut s), [0]);
    assert_eq!(s.retry_later(0), Ok(State::Waiting));
    assert_eq!(started(&mut s), [1]);
    assert!(s.ready_again(0));
    assert_eq!(started(&mut s), NONE, "the other one has the slot");
    finish(&mut s, 1, How::Completed);
    assert_eq!(started(&mut s), [0]);
    s.retry_later(0).unwrap();
    s.cancel(0).unwrap();
    assert!(!s.ready_again(0), "it was cancelled meanwhile");
    assert!(s.is_over());
}

#[test]
fn a_chain_of_100_000_nodes_is_skipped_without_recursion() {
    let nodes = (0..100_000_usize).map(|n| node(&n.checked_sub(1).into_iter().collect::<Vec<_>>()));
    let mut s = free(nodes.collect());
    started(&mut s);
    finish(&mut s, 0, How::Failed);
    assert_eq!(s.counts().skipped, 99_999);
    s.retry(0).unwrap();
    assert_eq!(s.counts().pending, 100_000);
}
