//! Agents made of agents, killed at the points of their runs, on the store in memory and with paused time.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test may panic and print, in its helpers too"
)]

mod cascade;
mod deferred;
mod distant;
mod faulty;
mod files;
mod guarded;
mod kept_reports;
mod leave;
mod person;
mod planner;
mod research;
mod talk;
mod team;
mod typed;

use entourage_testkit::{
    crash::{self, CrashReport, Medium, Scenario},
    scenarios,
};

fn memory() -> Medium {
    Medium::memory()
        .tokio(|| tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build())
}

/// Kills the scenario at every fourth point, and at every point where `.ci/full` asks for it: they take minutes.
fn killed(scenario: &Scenario) -> CrashReport {
    let every = if std::env::var_os("ENTOURAGE_FULL").is_some() { 1 } else { 4 };
    crash::sample(scenario, &memory(), every)
}

/// Asserts that the undisturbed run has each of `facts`; then kills it.
fn survives(scenario: &Scenario, facts: &[&str]) {
    let undisturbed = format!("{:?}", crash::expected(scenario, &memory()).unwrap());
    for fact in facts {
        assert!(undisturbed.contains(fact), "{fact}: {undisturbed}");
    }
    let report = killed(scenario);
    println!("{report}");
    report.assert();
}

/// Asserts that a distributed engine changes nothing of what is recorded; then kills the work there. Returns how many
/// points that has.
fn survives_an_engine(scenario: impl Fn() -> Scenario) -> usize {
    let here = format!("{:?}", crash::expected(&scenario(), &memory()).unwrap());
    let there = format!("{:?}", crash::expected(&scenario().distant(), &memory()).unwrap());
    assert_eq!(here, there);
    let report = killed(&scenario().distant());
    println!("{report}");
    report.assert();
    report.points()
}

#[test]
fn design_3_a_pair_killed_in_each_phase() {
    survives(
        &scenarios::dual(),
        &[
            "keep:checked.phase_finished 1 execute completed I put it there. None",
            "keep:checked.phase_finished 1 summarize completed The pear is there. None",
            "keep:checked.phase_finished 1 check completed Nobody has paid for it. Some((false",
            "keep:checked.phase_finished 2 execute completed I paid for it. None",
            "keep:checked.phase_finished 2 summarize completed The pear is there and paid for. None",
            "Some((true, \\\"It is there, and the money is gone.\\\"",
        ],
    );
}

#[test]
fn design_3_six_agents_on_a_graph() {
    survives(
        &scenarios::login_graph(),
        &[
            "record:graph.node_finished tests 1 failed",
            "record:graph.node_finished tests 2 completed: 12",
            "login/reviewer run_started 12 tests pass. The manual says: How to log in.",
            "record:graph.node_finished review 1 completed: It may be merged.",
        ],
    );
}

#[test]
fn design_3_an_approval_in_a_child_in_a_node() {
    survives(
        &scenarios::graph_approval(),
        &[
            "cashier approval_decided Allow",
            "record:graph.node_finished sweep 1 completed: Swept.",
            "record:graph.node_finished close 1 completed: Closed.",
        ],
    );
}

#[test]
fn design_3_agents_as_tools_side_by_side() {
    survives(
        &scenarios::sub_agents(),
        &[
            "lead/payer run_started Pay the boatman.",
            "lead/payer run_started Pay the guide.",
            "lead/scout tool_finished view false known",
            "lead run_finished completed",
        ],
    );
}
