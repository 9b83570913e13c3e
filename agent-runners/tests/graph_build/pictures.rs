//! Pictures of graphs: text for drawing programs, from which no name can break out.

use entourage_runners::graph::TaskGraph;

use crate::common::{Named, login, nop};

/// Parses the lines that these pictures consist of, and panics at any line that is no node, edge or class.
pub(crate) fn read_mermaid(text: &str) -> (Vec<String>, Vec<(usize, usize)>) {
    let (mut nodes, mut edges) = (Vec::new(), Vec::new());
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("flowchart TD"));
    for line in lines {
        let line = line.strip_prefix("    ").unwrap_or_else(|| panic!("{line}"));
        if line.starts_with("classDef ") {
            continue;
        }
        if let Some((left, right)) = line.split_once("> ").or_else(|| line.split_once(">|if| ")) {
            let number =
                |end: &str| end.trim_start_matches('n').trim_end_matches([' ', '-', '.']).parse().unwrap();
            edges.push((number(left), number(right)));
            continue;
        }
        let (before, rest) = line.split_once('"').unwrap_or_else(|| panic!("{line}"));
        let (label, after) = rest.split_once('"').unwrap_or_else(|| panic!("{line}"));
        let (place, open) = before.strip_prefix('n').unwrap().split_at(before.len() - 1 - open_of(before));
        assert_eq!(place.parse::<usize>().unwrap(), nodes.len(), "{line}");
        let close = if open == "[" { "]" } else { "])" };
        let class = after.strip_prefix(close).unwrap_or_else(|| panic!("{line}"));
        assert!(
            class.is_empty()
                || class
                    .strip_prefix(":::")
                    .is_some_and(|class| class.chars().all(|c| c.is_ascii_lowercase()))
        );
        let plain = label.replace("<br/>", "");
        let harmless = |c: char| c.is_alphanumeric() || " _.,:/$-[]#;".contains(c);
        assert!(plain.chars().all(harmless), "{label}");
        nodes.push(label.to_owned());
    }
    (nodes, edges)
}

fn open_of(before: &str) -> usize {
    before.chars().filter(|c| "([".contains(*c)).count()
}

/// As [`read_mermaid`], for DOT.
pub(crate) fn read_dot(text: &str) -> (Vec<String>, Vec<(usize, usize)>) {
    let (mut nodes, mut edges) = (Vec::new(), Vec::new());
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("digraph \"") && lines[0].ends_with("\" {"), "{}", lines[0]);
    assert_eq!((lines[1], *lines.last().unwrap()), ("    node [shape=box]", "}"));
    for line in &lines[2..lines.len() - 1] {
        let line = line.strip_prefix("    n").unwrap_or_else(|| panic!("{line}"));
        if let Some((from, to)) = line.split_once(" -> n") {
            let to = to.split(' ').next().unwrap();
            edges.push((from.parse().unwrap(), to.parse().unwrap()));
            continue;
        }
        let (place, rest) = line.split_once(" [label=\"").unwrap();
        assert_eq!(place.parse::<usize>().unwrap(), nodes.len());
        let (mut label, mut rest) = (String::new(), rest.chars());
        loop {
            match rest.next().expect("a label ends") {
                '"' => break,
                '\\' => label.push(if rest.next() == Some('n') { '\n' } else { '?' }),
                c => label.push(c),
            }
        }
        assert!(rest.as_str() == "]" || rest.as_str().starts_with(", style=\""), "{line}");
        nodes.push(label);
    }
    (nodes, edges)
}

const EDGES: [(usize, usize); 7] = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (0, 4), (3, 5)];

#[test]
fn the_login_graph_is_drawn() {
    let graph = login();
    let (nodes, edges) = read_mermaid(&graph.mermaid());
    assert_eq!(nodes[1], "backend<br/>coder");
    assert_eq!((nodes.len(), &edges[..]), (6, &EDGES[..]));
    let (nodes, edges) = read_dot(&graph.dot());
    assert_eq!(nodes[1], "backend\ncoder");
    assert_eq!((nodes.len(), &edges[..]), (6, &EDGES[..]));
}

#[test]
fn kinds_of_nodes_and_edges_look_different() {
    let graph = TaskGraph::builder("kinds");
    let a = nop(&graph, "a");
    let b = graph.agent("b", &Named("coder"), "x").when(&a, |a| *a > 0);
    graph.step("c", b.optional(), |_| async { Ok(()) });
    let graph = graph.build().unwrap();
    assert_eq!(
        graph.mermaid(),
        "flowchart TD\n    n0[\"a\"]\n    n1([\"b<br/>coder\"])\n    n2[\"c\"]\n    n0 -->|if| n1\n    n1 -.-> n2\n"
    );
    assert_eq!(
        graph.dot(),
        "digraph \"kinds\" {\n    node [shape=box]\n    n0 [label=\"a\"]\n    n1 [label=\"b\\ncoder\", style=\"rounded\"]\n    \
         n2 [label=\"c\"]\n    n0 -> n1 [label=\"if\"]\n    n1 -> n2 [style=dashed]\n}\n"
    );
}

#[test]
fn ids_that_mean_something_to_the_drawer_are_drawn_as_they_are() {
    let graph = TaskGraph::builder("words");
    for id in ["end", "1. first", "- dash", "click", "subgraph x", "n0", "graph", "a-b"] {
        nop(&graph, id);
    }
    let (nodes, _) = read_mermaid(&graph.build().unwrap().mermaid());
    assert_eq!(nodes, ["end", "1#46; first", "#45; dash", "click", "subgraph x", "n0", "graph", "a-b"]);
}
