//! A team, killed at every point: no item runs twice, no step of the lead is taken twice, each message arrives once.

use entourage_core::permission::Decision;
use entourage_runtime::permission::Policy;
use entourage_testkit::scenarios;

use crate::survives;

#[test]
fn lo09_lo13_a_team_killed_at_every_point_runs_no_item_twice_and_loses_no_message() {
    survives(
        &scenarios::team(),
        &[
            "record:team.planned",
            "record:team.message",
            "record:team.delivered {\\\"messages\\\":[\\\"m1\\\",\\\"m2\\\"]",
            "record:graph.supervisor_asked",
            "record:graph.changed",
            "record:graph.node_finished check",
            "crew run_finished completed",
        ],
    );
}

#[test]
fn lo12_a_team_whose_members_wait_for_approval() {
    let scenario = scenarios::team()
        .decide("look", Decision::Allow)
        .runtime(|builder| builder.policy(Policy::allow_all().ask("look")).checkpoint_every(4));
    survives(&scenario, &["approval_decided Allow", "crew run_finished completed"]);
}
