//! Invalid graphs are refused before anything runs, with all their problems.

use std::{sync::Arc, time::Duration};

use entourage_core::{ErrorKind, agent::Agent, permission::Scope, provider::Size};
use entourage_runners::graph::{Problem, TaskGraph};

use crate::common::{Named, ids, login, nop, problems, refused};

#[test]
fn lo06_the_login_graph_is_fine() {
    let graph = login();
    let nodes: Vec<_> = graph.nodes().collect();
    assert_eq!(nodes, ["design", "backend", "frontend", "tests", "docs", "review"]);
    let after: Vec<Vec<_>> = graph
        .signature()
        .nodes
        .iter()
        .map(|node| node.after.iter().map(|edge| &*edge.from).collect())
        .collect();
    assert_eq!(
        after,
        [
            vec![],
            vec!["design"],
            vec!["design", "backend"],
            vec!["backend", "frontend"],
            vec!["design"],
            vec!["tests"]
        ]
    );
}

#[test]
fn an_empty_graph_is_refused() {
    assert_eq!(refused(TaskGraph::builder("empty")), [Problem::Empty]);
}

#[test]
fn lo06_a_cycle_is_named_in_the_order_in_which_it_would_run() {
    let graph = TaskGraph::builder("loop");
    let a = nop(&graph, "a");
    let b = nop(&graph, "b").after(&a);
    let c = nop(&graph, "c").after(&b);
    let a = a.after(&c);
    nop(&graph, "d").after(&a);
    let error = graph.build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    let [Problem::Cycle { nodes }] = &problems(&error)[..] else { panic!("{error}") };
    assert_eq!(ids(nodes), ["a", "b", "c", "a"]);
    assert!(error.to_string().contains("`a` -> `b` -> `c` -> `a`"), "{error}");
}

#[test]
fn lo06_a_node_that_waits_for_itself_is_a_cycle() {
    let graph = TaskGraph::builder("loop");
    let a = nop(&graph, "a");
    let _ = a.clone().after(&a);
    let [Problem::Cycle { nodes }] = &refused(graph)[..] else { panic!() };
    assert_eq!(ids(nodes), ["a", "a"]);
}

#[test]
fn all_cycles_are_named_that_share_no_node() {
    let graph = TaskGraph::builder("loops");
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|id| nop(&graph, id));
    let _ = a.clone().after(&b);
    let _ = b.clone().after(&a);
    // Downstream of the first one, and written so that a backward search meets the first one before it.
    let _ = c.clone().after(&a).after(&d);
    let _ = d.clone().after(&b).after(&c);
    let found = refused(graph);
    let cycles: Vec<_> = found
        .iter()
        .map(|problem| match problem {
            Problem::Cycle { nodes } => ids(nodes),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(cycles, [["a", "b", "a"], ["c", "d", "c"]]);
}

#[test]
fn a_deep_graph_is_built_and_a_deep_cycle_found() {
    let graph = TaskGraph::builder("deep");
    let first = nop(&graph, "n0");
    let mut last = first.clone();
    for number in 1..50_000 {
        last = nop(&graph, &format!("n{number}")).after(&last);
    }
    let _ = first.after(&last);
    let [problem @ Problem::Cycle { nodes }] = &refused(graph)[..] else { panic!() };
    assert_eq!(nodes.len(), 50_001);
    let text = problem.to_string();
    assert!(text.len() < 300 && text.ends_with("`n10` -> `n11` -> 49988 more -> `n0`"), "{text}");
}

#[test]
fn too_many_nodes_are_refused() {
    let graph = TaskGraph::builder("wide");
    for number in 0..100_001 {
        nop(&graph, &number.to_string());
    }
    assert_eq!(refused(graph), [Problem::TooMany { what: "nodes", count: 100_001, limit: 100_000 }]);
}

#[test]
fn lo06_one_id_names_one_node() {
    let graph = TaskGraph::builder("twins");
    for id in ["a", "b", "a", "a"] {
        nop(&graph, id);
    }
    assert_eq!(refused(graph), [Problem::Duplicate { node: "a".into() }]);
}

#[test]
fn ids_are_words_of_letters_digits_and_a_few_signs() {
    for id in ["a", "7", "review each file", "v1.2_x-y", &"x".repeat(64), "A b"] {
        let graph = TaskGraph::builder("names");
        nop(&graph, id);
        assert!(graph.build().is_ok(), "{id}");
    }
    let bad = [
        "",
        " ",
        " a",
        "a ",
        "a  b",
        "a\nb",
        "a\tb",
        "a/b",
        "a[0]",
        "a\"b",
        "<b>",
        "ä",
        "a\u{202e}b",
        &"x".repeat(65),
    ];
    for id in bad {
        let graph = TaskGraph::builder("names");
        nop(&graph, id);
        let error = graph.build().unwrap_err();
        assert_eq!(problems(&error), [Problem::BadName { what: "node", name: id.into() }], "{id}");
        assert!(!error.to_string().contains(['\n', '\t', '\u{202e}']), "{error}");
    }
}

#[test]
fn graphs_and_agents_have_the_names_of_agents() {
    let graph = TaskGraph::builder("a graph");
    graph.agent("a", &Named("an agent"), "x");
    let bad = |what, name: &str| Problem::BadName { what, name: name.into() };
    assert_eq!(refused(graph), [bad("graph", "a graph"), bad("agent", "an agent")]);
}

#[test]
fn a_handle_of_another_graph_is_refused_wherever_it_is_used() {
    let other = TaskGraph::builder("other");
    let theirs = nop(&other, "theirs");
    let list = other.step("list", (), |()| async { Ok(vec![1_u32]) });
    let graph = TaskGraph::builder("graph");
    let ours = nop(&graph, "ours");
    graph.step("one", &theirs, |_| async { Ok(()) });
    graph.step("tuple", (&ours, theirs.optional()), |_| async { Ok(()) });
    graph.step("each", [&theirs, &ours].map(Clone::clone), |_| async { Ok(()) });
    nop(&graph, "after").after(&theirs);
    nop(&graph, "when").when(&theirs, |_| true);
    graph.map("map", &list, |item: u32| async move { Ok(item) });
    let found = refused(graph.returning(&theirs));
    let foreign =
        |node: &str, dependency: &str| Problem::Foreign { node: node.into(), dependency: dependency.into() };
    assert_eq!(
        found,
        [
            foreign("graph", "theirs"),
            foreign("one", "theirs"),
            foreign("tuple", "theirs"),
            foreign("each", "theirs"),
            foreign("after", "theirs"),
            foreign("when", "theirs"),
            foreign("map", "list"),
        ]
    );
}

#[test]
fn a_handle_from_before_its_node_changed_its_type_is_refused() {
    let graph = TaskGraph::builder("types");
    let text = graph.agent("agent", &Named("a"), "How many?");
    let number = text.clone().returns::<u32>();
    graph.step("fine", &number, |number| async move { Ok(*number) });
    graph.step("stale", &text, |_| async { Ok(()) });
    assert_eq!(refused(graph), [Problem::Retyped { node: "stale".into() }]);

    let graph = TaskGraph::builder("types");
    let text = graph.agent("agent", &Named("a"), "How many?");
    let number = text.clone().returns::<u32>();
    let _ = text.clone().returns::<bool>();
    let found = refused(graph.returning(&number));
    assert_eq!(found, [Problem::Retyped { node: "types".into() }, Problem::Retyped { node: "agent".into() }]);

    let graph = TaskGraph::builder("types");
    let list = graph.step("list", (), |()| async { Ok(vec![1_u32]) });
    let all = graph.map("map", &list, |item| async move { Ok(item) });
    let some = all.clone().partial();
    graph.step("fine", &some, |some| async move { Ok(some.len()) });
    nop(&graph, "stale").when(&all, |all| all.is_empty());
    // A dependency of order alone takes nothing of a type.
    nop(&graph, "later").after(&all);
    assert_eq!(refused(graph), [Problem::Retyped { node: "stale".into() }]);
}

#[test]
fn bounds_of_zero_are_refused() {
    let zero = |what, of: &str| Problem::Zero { what, of: of.into() };
    let graph = TaskGraph::builder("zeros");
    nop(&graph, "tries").attempts(0);
    nop(&graph, "time").timeout(Duration::ZERO);
    let list = graph.step("list", (), |()| async { Ok(vec![1_u32]) });
    graph.map("map", &list, |item| async move { Ok(item) }).at_once(0);
    graph.agent("agent", &Named("coder"), "x").provider("there");
    let graph = graph.limit(0).limit_each_agent(0).agent_limit("coder", 0).provider_limit("there", 0);
    assert_eq!(
        refused(graph),
        [
            zero("the number of attempts", "tries"),
            zero("the timeout", "time"),
            zero("the number of items at once", "map"),
            zero("the limit of nodes at once", ""),
            zero("the limit of each agent", ""),
            zero("the limit", "coder"),
            zero("the limit", "there"),
        ]
    );
}

#[test]
fn limits_for_nobody_are_refused() {
    let graph = TaskGraph::builder("limits");
    nop(&graph, "a");
    let found = refused(graph.agent_limit("nobody", 2).provider_limit("nowhere", 2));
    assert_eq!(
        found,
        [
            Problem::UnknownAgent { node: None, agent: "nobody".into() },
            Problem::UnusedLimit { provider: "nowhere".into() },
        ]
    );
}

#[test]
fn settings_that_a_node_does_not_have_are_refused() {
    let graph = TaskGraph::builder("settings");
    nop(&graph, "scope").scope(Scope::none());
    nop(&graph, "sizes").escalate([(Size::S, Named("small"))]);
    graph.step("returns", (), |()| async { Ok(String::new()) }).returns::<u32>();
    graph.step("list", (), |()| async { Ok(vec![1_u32]) }).at_once(2);
    graph.step("list two", (), |()| async { Ok(vec![1_u32]) }).partial();
    let none: [(Size, Arc<dyn Agent>); 0] = [];
    graph.agent("nobody", &Named("coder"), "x").escalate(none);
    let misused = |node: &str, setting, only| Problem::Misused { node: node.into(), setting, only };
    let (agents, map) = ("a node that agents work on", "a map over a list");
    assert_eq!(
        refused(graph),
        [
            misused("scope", "scope", agents),
            misused("sizes", "escalate", agents),
            misused("returns", "returns", agents),
            misused("list", "at_once", map),
            misused("list two", "partial", map),
            Problem::NoSizes { node: "nobody".into() },
        ]
    );
}

#[test]
fn all_problems_are_told_at_once_in_a_text_of_bounded_length() {
    let graph = TaskGraph::builder("bad name");
    for _ in 0..100 {
        nop(&graph, &"long ".repeat(1_000)).attempts(0);
    }
    let a = nop(&graph, "a");
    let _ = a.clone().after(&a);
    let error = graph.build().unwrap_err();
    let found = problems(&error);
    assert_eq!(found.len(), 1 + 100 + 1 + 100 + 1, "{}", found.len());
    let text = error.to_string();
    assert!(text.len() < 3_000 && text.contains("; and 195 problems more"), "{text}");
}
