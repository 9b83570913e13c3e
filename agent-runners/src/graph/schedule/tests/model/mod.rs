//! The schedule against a naive model that recomputes from the states everything that the schedule counts.

use std::sync::Arc;

use proptest::prelude::*;

use crate::graph::{
    SkipAs,
    schedule::{How, Limits, Plan, Planned, PlannedEdge, Policy, Schedule, State},
};

mod both;
mod naive;

use both::{Both, Step, replayed};
use naive::Naive;

fn how() -> impl Strategy<Value = How> {
    prop_oneof![5 => Just(How::Completed), 2 => Just(How::Failed), 1 => Just(How::Cancelled)]
}

/// Different agents.
fn several(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<usize>> {
    proptest::sample::subsequence(vec![3, 0, 4, 1, 2], count)
}

fn step() -> impl Strategy<Value = Step> {
    let pick = || 0..10_000_usize;
    let agent = || proptest::option::of(0..4_usize);
    let skip = prop_oneof![Just(SkipAs::Satisfied), Just(SkipAs::Blocked)];
    let edges = proptest::collection::vec((pick(), proptest::bool::weighted(0.2), any::<bool>()), 0..4);
    prop_oneof![
        40 => Just(Step::Start),
        60 => (pick(), how()).prop_map(|(node, how)| Step::Finish(node, how)),
        8 => pick().prop_map(Step::RetryLater),
        8 => pick().prop_map(Step::ReadyAgain),
        3 => (pick(), skip).prop_map(|(node, dependents)| Step::Skip(node, dependents)),
        2 => pick().prop_map(Step::Cancel),
        6 => (pick(), several(1..4)).prop_map(|(node, agents)| Step::Reassign(node, agents)),
        12 => pick().prop_map(Step::Retry),
        3 => (edges, agent()).prop_map(|(edges, agent)| Step::Add(edges, agent)),
        6 => (pick(), proptest::collection::vec(agent(), 0..5), proptest::option::of(1..3_usize))
            .prop_map(|(node, items, at_once)| Step::Expand(node, items, at_once)),
        1 => Just(Step::CancelAll),
    ]
}

fn graph() -> impl Strategy<Value = Vec<Planned>> {
    let edge = (0..60_usize, proptest::bool::weighted(0.2), proptest::bool::weighted(0.2));
    let node =
        (proptest::collection::vec(edge, 0..5), several(0..4), proptest::option::of(0..3_usize), 0..6_u64);
    proptest::collection::vec(node, 1..61).prop_map(|nodes| {
        let planned = |(number, (edges, agents, provider, expected)): (usize, (Vec<_>, Vec<_>, _, _))| {
            let edges: Vec<(usize, bool, bool)> = if number == 0 { vec![] } else { edges };
            let edge =
                |(from, optional, conditional)| PlannedEdge { from: from % number, optional, conditional };
            let edges = edges.into_iter().map(edge).collect();
            let others = agents.iter().skip(1).copied().collect();
            Planned { edges, agent: agents.first().copied(), others, provider, expected }
        };
        nodes.into_iter().enumerate().map(planned).collect()
    })
}

fn limits() -> impl Strategy<Value = Limits> {
    let number = || 1..4_usize;
    let of = |count: usize| proptest::collection::btree_map(0..count, 0..4_usize, 0..count);
    let most = || proptest::option::of(number());
    (most(), most(), number(), of(4), of(3)).prop_map(
        |(overall, all_agents, each_agent, agents, providers)| Limits {
            overall,
            all_agents,
            each_agent,
            agents,
            providers,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lo07_lo13_any_run_of_any_graph_goes_as_the_naive_model_says(
        plan in graph(),
        limits in limits(),
        policy in prop_oneof![4 => Just(Policy::SkipDependents), 1 => Just(Policy::FailFast), 2 => Just(Policy::Continue)],
        steps in proptest::collection::vec(step(), 0..250),
        killed in proptest::collection::btree_set(0..250_usize, 0..5),
    ) {
        let made = Arc::new(Plan::new(plan.clone()).unwrap());
        let new = || Schedule::new(Arc::clone(&made), limits.clone(), policy).unwrap();
        let told = vec![State::Pending; plan.len()];
        let naive = Naive::new(plan, limits.clone(), policy);
        let mut both = Both { real: new(), naive, told, record: vec![] };
        for (number, step) in steps.iter().enumerate() {
            both.step(step)?;
            if killed.contains(&number) {
                // A run restored from its record must continue like one that was never killed.
                both.dies(new())?;
            }
        }
        both.drain()?;
        let last = replayed(new(), &both.record);
        for node in 0..both.naive.nodes.len() {
            prop_assert_eq!(last.state(node), both.real.state(node), "replayed {}", node);
        }
    }
}
