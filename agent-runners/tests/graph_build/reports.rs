//! Reports of a run, built from its events alone.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use entourage_core::{
    ErrorKind, Money, Result, RunId, SessionId, Timestamp, Usage,
    event::{Envelope, Event, Origin},
};
use entourage_runners::graph::{GraphReport, GraphSignature, NodeState};
use serde_json::{Value, json};

use crate::{
    common::login,
    pictures::{read_dot, read_mermaid},
};

/// Returns the event in a row of version 0.1.
fn event(kind: &str, data: &Value) -> Event {
    Event::from_json(kind, &data.to_string()).unwrap()
}

fn started(node: &str, attempt: u32, agent: Option<&str>) -> Event {
    event("node_started", &json!({"node": node, "attempt": attempt, "agent": agent, "child": "s.3$$0"}))
}

fn finished(node: &str, attempt: u32, end: &Value, cost: Option<u64>) -> Event {
    let usage = if attempt > 0 { json!({"input": 100, "output": 20}) } else { json!({}) };
    event(
        "node_finished",
        &json!({"node": node, "attempt": attempt, "end": end, "usage": usage, "cost": cost, "micros": 1_500_000}),
    )
}

fn changed(change: &Value) -> Event {
    event("graph_changed", &json!({"change": change}))
}

fn begun(signature: &GraphSignature) -> Event {
    event("graph_started", &json!({"signature": signature}))
}

fn failed() -> Value {
    json!({"failed": {"kind": "tool", "retry": "permanent", "message": "the disk is full"}})
}

fn completed(value: &str) -> Value {
    json!({"completed": value})
}

fn blocked(by: &str) -> Value {
    json!({"skipped": {"blocked": by}})
}

fn report(events: Vec<Event>) -> GraphReport {
    read(events).unwrap()
}

fn read(events: Vec<Event>) -> Result<GraphReport> {
    let origin = Arc::new(Origin::new(SessionId::new("s").unwrap(), RunId::generate(), "root/login"));
    let envelope = |(seq, event)| Envelope::new(Arc::clone(&origin), seq, Timestamp::from_micros(7), event);
    let events: Vec<_> = (1..).zip(events).map(envelope).collect();
    GraphReport::from_events(&events)
}

fn run() -> Vec<Event> {
    vec![
        begun(login().signature()),
        started("design", 1, Some("architect")),
        finished("design", 1, &completed("one form"), Some(2_000_000_000)),
        started("backend", 1, Some("coder")),
        started("docs", 1, Some("writer")),
        finished("backend", 1, &failed(), Some(1_000_000_000)),
        started("backend", 2, Some("coder")),
        finished("backend", 2, &failed(), Some(1_000_000_000)),
        finished("frontend", 0, &blocked("backend"), None),
        finished("tests", 0, &blocked("frontend"), None),
    ]
}

fn states(report: &GraphReport) -> Vec<String> {
    report.nodes.iter().map(|node| format!("{} {}", node.id, node.state())).collect()
}

#[test]
fn a_run_is_seen_from_its_events() {
    let report = report(run());
    assert_eq!(&*report.name, "login");
    assert_eq!(
        states(&report),
        [
            "design completed",
            "backend failed",
            "frontend skipped",
            "tests skipped",
            "docs running",
            "review pending"
        ]
    );
    let backend = report.node("backend").unwrap();
    assert_eq!((backend.attempts, backend.time), (2, Duration::from_secs(3)));
    assert_eq!((backend.usage, backend.cost), (Usage::new(200, 40), Some(Money::from_pico(2_000_000_000))));
    assert_eq!(report.cost(), Some(Money::from_pico(4_000_000_000)));
    assert_eq!(report.usage(), Usage::new(300, 60));
    assert_eq!(report.count(NodeState::Skipped), 2);
    assert_eq!(report.node("docs").unwrap().since, Some(Timestamp::from_micros(7)));
    assert_eq!(report.node("nobody"), None);
}

#[test]
fn unknown_cost_is_not_zero() {
    let report = report(vec![
        begun(login().signature()),
        started("design", 1, Some("architect")),
        finished("design", 1, &completed("x"), None),
    ]);
    assert_eq!((report.cost(), report.node("design").unwrap().cost), (None, None));
    assert!(report.to_string().contains("unknown"), "{report}");
    assert!(report.mermaid().contains("cost unknown"));
}

#[test]
fn lo13_what_is_tried_again_waits_and_so_does_what_was_skipped_because_of_it() {
    let mut events = run();
    let again = json!({"change": {"retry": {"node": "backend"}}, "again": ["frontend", "tests"]});
    events.push(event("graph_changed", &again));
    let report = report(events);
    assert_eq!(
        states(&report),
        [
            "design completed",
            "backend pending",
            "frontend pending",
            "tests pending",
            "docs running",
            "review pending"
        ]
    );
}

#[test]
fn nodes_that_were_added_or_given_to_others_are_shown() {
    let mut events = run();
    let node = json!({"id": "audit", "after": [{"from": "design"}], "agent": "auditor"});
    events.push(changed(&json!({"add": {"node": node, "task": "Audit it."}})));
    events.push(changed(&json!({"reassign": {"node": "review", "agent": "captain"}})));
    let report = report(events);
    assert_eq!(report.nodes.last().unwrap().id.as_ref(), "audit");
    assert_eq!(report.node("review").unwrap().agent.as_deref(), Some("captain"));
    let (nodes, edges) = read_mermaid(&report.mermaid());
    assert_eq!((nodes.len(), edges.last()), (7, Some(&(0, 6))));
}

#[test]
fn items_follow_their_map_and_unknown_ids_are_ignored() {
    let mut events = run();
    events.push(started("docs[0]", 1, Some("writer")));
    events.push(started("docs[1]", 1, Some("writer")));
    events.push(finished("docs[0]", 1, &completed("x"), Some(0)));
    events.push(started("ghost[0]", 1, None));
    events.push(started("ghost", 1, None));
    let report = report(events);
    assert_eq!(states(&report)[6..], ["docs[0] completed", "docs[1] running"]);
    let (_, edges) = read_dot(&report.dot());
    assert_eq!(edges[edges.len() - 2..], [(4, 6), (4, 7)]);
}

#[test]
fn the_newest_run_of_a_session_is_shown_and_none_is_empty() {
    let mut events = run();
    events.push(begun(login().signature()));
    assert!(report(events).nodes.iter().all(|node| node.state() == NodeState::Pending));
    assert_eq!(report(Vec::new()), GraphReport::default());
    assert_eq!(report(run().split_off(1)), GraphReport::default());
}

#[test]
fn a_run_is_drawn_with_state_time_tokens_and_cost() {
    let report = report(run());
    let (nodes, edges) = read_mermaid(&report.mermaid());
    assert_eq!(nodes[1], "backend<br/>coder<br/>failed, 2 attempts, 3.0 s, 240 tokens, $0.002");
    assert_eq!(nodes[2], "frontend<br/>designer<br/>skipped");
    assert_eq!(edges.len(), 7);
    assert!(report.mermaid().contains("]):::failed\n") && report.mermaid().contains("classDef failed fill:"));
    assert!(!report.mermaid().contains("classDef cancelled"));
    let (nodes, _) = read_dot(&report.dot());
    assert_eq!(nodes[1], "backend\ncoder\nfailed, 2 attempts, 3.0 s, 240 tokens, $0.002");
}

#[test]
fn a_run_is_a_table() {
    let text = report(run()).to_string();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "node      state      tries     time   tokens        cost  agent",
            "design    completed      1    1.5 s      120      $0.002  architect",
            "backend   failed         2    3.0 s      240      $0.002  coder",
            "frontend  skipped        0                                designer",
            "tests     skipped        0                                tester",
            "docs      running        1                                writer",
            "review    pending        0                                reviewer",
            "1 of 6 completed, 300 in, 60 out, $0.004",
        ]
    );
}

#[test]
fn attack_hostile_names_in_stored_events_do_not_break_out_of_pictures() {
    let hostile = [
        "\"]\n    click n0 call alert()",
        "</div><script>alert(1)</script>",
        "%%{init: {\"theme\":\"x\"}}%%",
        "`**bold**`",
        "\\\"]; evil [",
        "a\u{202e}b\u{2028}c",
        "#quot;",
        "-->",
    ];
    let nodes: Vec<_> = hostile.iter().map(|id| json!({"id": id, "after": [], "agent": id})).collect();
    let signature: GraphSignature = serde_json::from_value(json!({ "nodes": nodes })).unwrap();
    let report = report(vec![begun(&signature)]);
    assert_eq!(read_mermaid(&report.mermaid()).0.len(), hostile.len());
    let (nodes, edges) = read_dot(&report.dot());
    assert_eq!((nodes.len(), edges.len()), (hostile.len(), 0));
    assert_eq!(report.to_string().lines().count(), hostile.len() + 2);
}

#[test]
fn rows_of_version_0_1_give_the_report_of_records() {
    let mut old = run();
    let task = json!({"node": {"id": "audit", "after": [], "agent": "auditor"}, "task": "Audit it."});
    old.push(changed(&json!({"add": task})));
    old.push(event(
        "graph_changed",
        &json!({"change": {"retry": {"node": "backend"}}, "again": ["frontend", "tests"]}),
    ));
    let rows: Vec<_> = old.iter().map(|event| (event.kind().to_owned(), event.to_json().unwrap())).collect();
    let kinds: BTreeSet<_> = rows.iter().map(|(kind, _)| kind.as_str()).collect();
    let wanted =
        ["changed", "node_finished", "node_started", "started"].map(|name| format!("record:graph.{name}"));
    assert_eq!(kinds, wanted.iter().map(String::as_str).collect());
    let new: Vec<_> = rows.iter().map(|(kind, row)| Event::from_json(kind, row).unwrap()).collect();
    assert_eq!(new, old);
    let link = |event: &Event| match event {
        Event::Recorded(record) => record.child().map(|(session, run)| (session.clone(), run)),
        _ => None,
    };
    let links: Vec<_> = old.iter().filter_map(link).collect();
    assert!(links.iter().all(|(child, run)| child.as_str() == "s.3$$0" && run.is_none()));
    assert_eq!(links.len(), kinds_of(&old, "record:graph.node_started"));
    assert_eq!(new.iter().filter_map(link).collect::<Vec<_>>(), links);
    let (old, new) = (report(old), report(new));
    assert_eq!((old.to_string(), old.mermaid()), (new.to_string(), new.mermaid()));
    assert_eq!(old, new);
    assert_eq!(new.node("audit").unwrap().agent.as_deref(), Some("auditor"));
}

fn kinds_of(events: &[Event], kind: &str) -> usize {
    events.iter().filter(|event| event.kind() == kind).count()
}

#[test]
fn a_record_that_cannot_be_read_gives_no_report() {
    for (kind, row, error) in [
        ("node_started", json!({"attempt": 1}), ErrorKind::Corrupt),
        ("record:graph.node_started", json!({"v": 1, "value": {"attempt": 1}}), ErrorKind::Corrupt),
        ("record:graph.node_started", json!({"v": 2, "value": {}}), ErrorKind::NewerVersion),
        ("record:graph.node_moved", json!({"v": 1, "value": {}}), ErrorKind::NewerVersion),
    ] {
        let mut events = run();
        events.push(event(kind, &row));
        assert_eq!(read(events).unwrap_err().kind(), error, "{kind} {row}");
    }
    let mut events = run();
    events.push(event("record:graphs.node_moved", &json!({"v": 1, "value": {}})));
    assert_eq!(read(events).unwrap(), report(run()));
}
