//! Items of a list that fail in every way there is: each has a typed end, and a completed item never runs again.

use std::{collections::HashMap, sync::Arc};

use entourage_core::{
    budget::{BudgetLimits, Exhausted},
    event::Envelope,
    run::{Outcome, Status, StopReason},
    session::SharedStore,
};
use entourage_runners::graph::{
    GraphControl, GraphReport, NodeEnd, NodeFinished, NodeStarted, NodeState, SkipAs, TaskGraph,
};
use entourage_testkit::Gate;

use crate::{
    common::{Fault, FaultyStore, memory, process, runtime_on, stored, until_killed},
    crew::{Act, Hand, root, secs},
};

const ITEMS: [&str; 9] =
    ["ok", "flaky", "bad", "panics", "hangs", "refused", "cancelled", "skipped", "denied"];

fn exhausted() -> Status {
    Status::Stopped(Exhausted::new("tokens", BudgetLimits::none().with_tokens(3)).into())
}

/// Creates an agent that acts on each item as the item's name says; two items wait at the gate.
fn hand(gate: &Gate) -> Hand {
    let denied = || Status::Stopped(StopReason::Denied("write".into()));
    Hand::new("hand")
        .on("flaky", [Act::Fail("once")])
        .on("bad", [Act::Fail("no")])
        .on("bad", [Act::Fail("still not")])
        .on("panics", [Act::Panic])
        .on("panics", [Act::Panic])
        .on("hangs", [Act::Hang])
        .on("hangs", [Act::Hang])
        .on("refused", [Act::End(exhausted())])
        .on("cancelled", [Act::Wait(gate.clone())])
        .on("skipped", [Act::Wait(gate.clone())])
        .on("denied", [Act::End(denied())])
}

fn graph(hand: &Hand) -> TaskGraph<String> {
    let graph = TaskGraph::builder("faults").limit_each_agent(20);
    let list = graph.step("list", (), |()| async { Ok(ITEMS.map(str::to_owned).to_vec()) });
    let each = graph
        .map_agent("each", &list, hand, |item: String| format!("{item} please"))
        .attempts(2)
        .timeout(secs(5))
        .partial();
    let end = graph.step("end", &each, |each| async move {
        Ok(each.iter().map(|it| it.as_deref().unwrap_or("-")).collect::<Vec<_>>().join(" "))
    });
    graph.limit(20).returning(&end).build().unwrap()
}

fn id(item: &str) -> String {
    format!("each[{}]", ITEMS.iter().position(|it| *it == item).unwrap())
}

/// Returns the end of an item, in a word.
fn end_of(report: &GraphReport, item: &str) -> String {
    match report.node(&id(item)).and_then(|node| node.end.as_ref()) {
        Some(NodeEnd::Completed(_)) => "completed".to_owned(),
        Some(NodeEnd::Failed(error)) => format!("{:?}", error.kind),
        Some(NodeEnd::Skipped(_)) => "skipped".to_owned(),
        Some(NodeEnd::Cancelled) => "cancelled".to_owned(),
        other => format!("{other:?}"),
    }
}

async fn steer(control: &GraphControl, gate: &Gate) {
    gate.arrived(2).await;
    control.cancel(&id("cancelled")).await.unwrap();
    control.skip(&id("skipped"), SkipAs::Blocked).await.unwrap();
}

/// Asserts the invariants of every record of such a run, however often its process died.
fn assert_sound(events: &[Envelope], label: &str) {
    let mut done: HashMap<Arc<str>, usize> = HashMap::new();
    for event in events {
        if let Some(started) = event.event.record::<NodeStarted>().unwrap() {
            assert!(!done.contains_key(&started.node), "{label}: {} begins again", started.node);
        }
        if let Some(end) = event.event.record::<NodeFinished>().unwrap()
            && matches!(end.end, NodeEnd::Completed(_))
        {
            *done.entry(Arc::clone(&end.node)).or_default() += 1;
        }
    }
    assert!(done.values().all(|times| *times == 1), "{label}: {done:?}");
}

const ENDS: [(&str, &str, u32); 9] = [
    ("ok", "completed", 1),
    ("flaky", "completed", 2),
    ("bad", "Tool", 2),
    ("panics", "Internal", 2),
    ("hangs", "Timeout", 2),
    ("refused", "Stopped", 1),
    ("cancelled", "cancelled", 1),
    ("skipped", "skipped", 1),
    ("denied", "Stopped", 1),
];

#[tokio::test(start_paused = true)]
async fn attack_each_item_of_a_map_has_a_typed_end_and_gives_what_it_gave() {
    let (store, gate) = (memory(), Gate::new());
    let hand = hand(&gate);
    let graph = graph(&hand);
    let run = runtime_on(&store).session_with_id(root()).start(&graph, "Go");
    let control = graph.control(&run);
    steer(&control, &gate).await;
    let outcome = run.outcome().await.unwrap();
    assert_eq!(outcome.text, "ok done flaky done - - - - - - -", "{outcome:?}");
    let events = stored(&store, &root()).await;
    assert_sound(&events, "one life");
    let report = GraphReport::from_events(&events).unwrap();
    for (item, end, attempts) in ENDS {
        let node = report.node(&id(item)).unwrap();
        assert_eq!((end_of(&report, item).as_str(), node.attempts), (end, attempts), "{item}");
    }
    assert_eq!(hand.running(), 0);
}

#[tokio::test(start_paused = true)]
async fn attack_an_item_that_failed_is_tried_again_alone() {
    let (store, gate, slow) = (memory(), Gate::new(), Gate::new());
    let hand = hand(&gate);
    let graph = {
        let graph = TaskGraph::builder("again").limit_each_agent(20);
        let list = graph.step("list", (), |()| async { Ok(["bad", "slow"].map(str::to_owned).to_vec()) });
        let hand = hand.clone().on("slow", [Act::Wait(slow.clone())]);
        let each = graph.map_agent("each", &list, &hand, |item: String| format!("{item} please")).partial();
        let end = graph.step("end", &each, |each| async move { Ok(format!("{each:?}")) });
        graph.limit(20).returning(&end).build().unwrap()
    };
    let run = runtime_on(&store).session_with_id(root()).start(&graph, "Go");
    let control = graph.control(&run);
    slow.arrived(1).await;
    for ends in 1..=2 {
        while control.report().await.unwrap().node("each[0]").unwrap().state() != NodeState::Failed {
            tokio::task::yield_now().await;
        }
        assert_eq!(hand.log.count("bad starts"), ends);
        control.retry("each[0]").await.unwrap();
    }
    slow.open();
    let outcome = run.outcome().await.unwrap();
    assert_eq!(outcome.text, r#"[Some("bad done"), Some("slow done")]"#);
    assert_eq!((hand.log.count("bad starts"), hand.log.count("slow starts")), (3, 1));
    assert_sound(&stored(&store, &root()).await, "tried again");
}

async fn live(store: &SharedStore, gate: &Gate) -> Option<Outcome> {
    let graph = graph(&hand(gate));
    let session = runtime_on(store).session_with_id(root());
    let run = match session.unfinished().await.unwrap() {
        Some(_) => session.resume(&graph),
        None if session.head().await.unwrap().seq == 0 => session.start(&graph, "Go"),
        None => return None,
    };
    let control = graph.control(&run);
    let steering = async {
        steer(&control, gate).await;
        std::future::pending::<()>().await;
    };
    // In a later life the two may already have ended.
    tokio::select! {
        outcome = run.outcome() => Some(outcome.unwrap()),
        () = steering => None,
    }
}

#[test]
fn attack_a_map_of_faults_killed_at_any_append_ends_typed_and_repeats_nothing_that_is_done() {
    let mut deaths = 0;
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        for at in 0.. {
            let inner = memory();
            let label = format!("{fault:?} at append {at}");
            let faulty = FaultyStore::new(&inner, at, fault);
            let (killed, gate) = (faulty.killed.clone(), Gate::new());
            let lived = process(until_killed(live(&(faulty as SharedStore), &gate), &killed));
            let gate = Gate::new();
            if lived.is_none() {
                // A waiter continues by itself: nobody steers the second life.
                gate.open();
            }
            process(async {
                let graph = graph(&hand(&gate));
                let session = runtime_on(&inner).session_with_id(root());
                if session.unfinished().await.unwrap().is_some() {
                    assert!(session.resume(&graph).outcome().await.unwrap().is_completed(), "{label}");
                }
                if session.head().await.unwrap().seq == 0 {
                    return;
                }
                let events = stored(&inner, &root()).await;
                assert_sound(&events, &label);
                let report = GraphReport::from_events(&events).unwrap();
                for (item, end, _) in ENDS {
                    let ended = end_of(&report, item);
                    // Each life has its own script: an item that failed in the last life may fail again, and the item
                    // to be cancelled was not cancelled.
                    let fits = ended == end
                        || ended == "completed"
                        || item == "flaky" && ended == "Tool"
                        || item == "denied" && ended == "Stopped";
                    assert!(fits, "{label}: {item} is {ended}");
                }
                assert!(report.nodes.iter().all(|node| node.state().is_over()), "{label}: {report}");
            });
            if lived.is_some() {
                break;
            }
            deaths += 1;
        }
    }
    assert!(deaths >= 20, "{deaths}");
}
