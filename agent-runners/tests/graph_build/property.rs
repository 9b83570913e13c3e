//! `build` accepts exactly the graphs whose nodes have a topological order, in whatever order they are written.

use std::collections::BTreeSet;

use entourage_runners::graph::{Plan, PlanTask, Problem, TaskGraph};
use proptest::prelude::*;

use crate::common::{ids, nop, problems, roster};

/// True when the nodes have a topological order: repeatedly removes a node without unmet dependencies.
fn has_order(nodes: usize, edges: &[(usize, usize)]) -> bool {
    let mut left: BTreeSet<usize> = (0..nodes).collect();
    loop {
        let free = |node: &usize| !edges.iter().any(|(from, to)| to == node && left.contains(from));
        let Some(node) = left.iter().copied().find(free) else { return left.is_empty() };
        left.remove(&node);
    }
}

fn graphs() -> impl Strategy<Value = (usize, Vec<(usize, usize)>)> {
    (1_usize..12).prop_flat_map(|nodes| {
        let edges = proptest::collection::vec((0..nodes, 0..nodes), 0..nodes * 2);
        // Half of them cannot have a cycle: a random graph of this size nearly always has one.
        (Just(nodes), edges, any::<bool>()).prop_map(|(nodes, edges, forward)| {
            let turned = |(a, b): (usize, usize)| (a.min(b), a.max(b));
            let forwards = edges.iter().copied().map(turned).filter(|(a, b)| a != b).collect();
            (nodes, if forward { forwards } else { edges })
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lo06_exactly_the_graphs_that_can_run_are_built((nodes, edges) in graphs()) {
        let graph = TaskGraph::builder("any");
        let handles: Vec<_> = (0..nodes).map(|node| nop(&graph, &node.to_string())).collect();
        for (from, to) in &edges {
            let _ = handles[*to].clone().after(&handles[*from]);
        }
        let task = |node: usize| {
            let after = edges.iter().filter(|(_, to)| *to == node).map(|(from, _)| from.to_string());
            PlanTask::new(node.to_string(), "agent", "Do it.").after(after)
        };
        let plan = Plan { tasks: (0..nodes).map(task).collect() };
        let planned = plan.graph("any", &roster(&["agent"]));
        match graph.build() {
            Ok(graph) => {
                prop_assert!(has_order(nodes, &edges));
                prop_assert_eq!(&planned.unwrap().signature().nodes.len(), &nodes);
                let after: BTreeSet<_> = graph.signature().nodes.iter().flat_map(|node| {
                    node.after.iter().map(|edge| (edge.from.parse::<usize>().unwrap(), node.id.parse::<usize>().unwrap()))
                }).collect();
                prop_assert_eq!(after, edges.into_iter().collect::<BTreeSet<_>>());
            }
            Err(error) => {
                prop_assert!(!has_order(nodes, &edges), "{}", error);
                prop_assert_eq!(problems(&planned.unwrap_err()), problems(&error));
                for problem in problems(&error) {
                    let Problem::Cycle { nodes } = problem else { panic!("{problem}") };
                    let path: Vec<usize> = ids(&nodes).iter().map(|id| id.parse().unwrap()).collect();
                    prop_assert_eq!(path.first(), path.last());
                    prop_assert!(path.windows(2).all(|pair| edges.contains(&(pair[0], pair[1]))));
                    let different: BTreeSet<_> = path.iter().collect();
                    prop_assert_eq!(different.len(), path.len() - 1);
                }
            }
        }
    }
}
