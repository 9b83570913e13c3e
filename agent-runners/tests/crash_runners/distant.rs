//! The same agents where a distributed engine performs their effects: it finds their code by name, and the process dies
//! before and after each of its steps.

use entourage_testkit::{
    crash::{self, Scenario},
    scenarios,
};

use crate::{memory, survives_an_engine};

fn survives(scenario: fn() -> Scenario) {
    let local = crash::sample(&scenario(), &memory(), usize::MAX).points();
    let there = survives_an_engine(scenario);
    assert!(there > local, "the engine has points of its own: {local}, {there}");
}

#[test]
fn issue_12_a_loop_of_tools() {
    survives(scenarios::tool_loop);
}

#[test]
fn issue_12_tools_in_parallel() {
    survives(scenarios::tools_in_parallel);
}

#[test]
fn issue_12_approvals_in_a_grandchild() {
    survives(scenarios::approvals);
}

#[test]
fn issue_13_handed_out_calls() {
    survives(scenarios::handed_out);
}

#[test]
fn issue_12_children() {
    survives(scenarios::children);
}

#[test]
fn issue_12_an_agent_by_hand() {
    survives(scenarios::by_hand);
}

#[test]
fn issue_12_compaction() {
    survives(scenarios::compaction);
}

#[test]
fn issue_12_a_title() {
    survives(scenarios::title);
}

#[test]
fn issue_12_a_queue() {
    survives(scenarios::queue);
}

#[test]
fn issue_12_a_pair() {
    survives(scenarios::dual);
}

#[test]
fn issue_12_a_graph() {
    survives(scenarios::login_graph);
}

#[test]
fn issue_12_an_approval_in_a_child_in_a_node() {
    survives(scenarios::graph_approval);
}

#[test]
fn issue_12_agents_as_tools_side_by_side() {
    survives(scenarios::sub_agents);
}
