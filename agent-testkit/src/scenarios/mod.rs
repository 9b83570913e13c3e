//! Scenarios for the [crash suite](crate::crash). Together they cover everything that a run may have in flight; run
//! them on a store of your own.

mod beside;
mod runners;
mod team;
mod tools;

pub use beside::{queue, title};
pub use runners::{dual, graph_approval, login_graph, sub_agents};
pub use team::{planner, team};
pub use tools::{approvals, by_hand, children, compaction, handed_out, tool_loop, tools_in_parallel};

use crate::crash::Scenario;

/// Returns all scenarios.
#[must_use]
pub fn all() -> Vec<Scenario> {
    vec![
        tool_loop(),
        tools_in_parallel(),
        approvals(),
        handed_out(),
        children(),
        by_hand(),
        compaction(),
        title(),
        queue(),
        dual(),
        login_graph(),
        graph_approval(),
        sub_agents(),
        team(),
        planner(),
    ]
}
