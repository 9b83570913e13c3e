//! Graphs whose effects an engine performs elsewhere: time limits, cancels and escalation are part of what crosses.

use std::time::Duration;

use entourage_core::provider::Size;
use entourage_runners::graph::{OnFailure, TaskGraph};
use entourage_runtime::Agents;
use entourage_runtime::permission::Policy;
use entourage_testkit::{self as testkit, Distant};
use tokio::time::Instant;

use crate::{
    common::memory,
    crew::{Act, Hand, Log, root, secs, stored_ends},
};

/// What became of a graph: its outcome, the ends of its nodes, the acts of its agents, and the time that it took.
type Told = (String, Vec<(String, String)>, Vec<String>, Duration);

/// Runs the graph where its effects are performed here, or else by an engine that has a graph of its own.
async fn told(make: fn(&Log) -> TaskGraph, elsewhere: bool) -> Told {
    let (here, there, store) = (Log::default(), Log::default(), memory());
    let mut builder = testkit::runtime().policy(Policy::allow_all()).shared_store(store.clone());
    if elsewhere {
        builder = builder.effects(Distant::new(Agents::new().with(make(&there))));
    }
    let began = Instant::now();
    let outcome = builder.build().session_with_id(root()).start(make(&here), "Go").outcome().await.unwrap();
    let took = began.elapsed();
    let (idle, acts) = if elsewhere { (here, there) } else { (there, here) };
    assert!(idle.all().is_empty(), "{:?}", idle.all());
    let mut acts = acts.all();
    acts.sort();
    let ends = stored_ends(&store, &root()).await.into_iter().collect();
    (format!("{:?} {}", outcome.status, outcome.text), ends, acts, took)
}

#[tokio::test(start_paused = true)]
async fn an_engine_keeps_time_limits_cancels_and_escalations() {
    let late = |log: &Log| {
        let hand = Hand::logging("hand", log).on("slow", [Act::Hang]).on("slow", [Act::Sleep(secs(1))]);
        let graph = TaskGraph::builder("late").limit(1);
        graph.agent("slow", &hand, "slow").timeout(secs(5)).attempts(2);
        graph.agent("other", &hand, "other").timeout(secs(1));
        graph.build().unwrap()
    };
    let cancelled = |log: &Log| {
        let hand = Hand::logging("hand", log).on("hangs", [Act::Hang]);
        let fails = Hand::logging("fails", log).on("fails", [Act::Sleep(secs(3)), Act::Fail("no")]);
        let graph = TaskGraph::builder("cancelled").on_failure(OnFailure::FailFast);
        graph.agent("hangs", &hand, "hangs").timeout(secs(60));
        graph.agent("fails", &fails, "fails");
        graph.build().unwrap()
    };
    let sized = |log: &Log| {
        let hand = |name: &str| Hand::logging(name, log);
        let small = hand("small").on("work", [Act::Fail("too hard")]);
        let graph = TaskGraph::builder("sized");
        graph.agent("work", &small, "work").escalate([(Size::S, small.clone()), (Size::L, hand("large"))]);
        // Another agent of the same name, at another node.
        graph.agent("rest", &hand("large").on("rest", [Act::Sleep(secs(2))]), "rest");
        graph.build().unwrap()
    };
    for make in [late as fn(&Log) -> TaskGraph, cancelled, sized] {
        let here = told(make, false).await;
        assert_eq!(told(make, true).await, here);
        println!("{here:?}");
    }
}
