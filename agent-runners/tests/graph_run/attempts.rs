//! Attempts: retried, escalated, timed out, panicking.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use entourage_core::{
    Error, ErrorKind, Money, Usage,
    budget::{BudgetLimits, Exhausted},
    provider::{FinishReason, Size},
    run::{Outcome, Status, StopReason},
    session::SessionFilter,
};
use entourage_runners::{
    ReactAgent,
    graph::{NodeEnd, NodeFinished, NodeState, TaskGraph},
};
use entourage_testkit::{Gate, Script, ScriptedProvider};
use tokio::time::Instant;

use crate::{
    common::{memory, runtime_on, stored},
    crew::{Act, Hand, Log, not_done, root, secs, stored_ends},
};

#[tokio::test(start_paused = true)]
async fn a_failed_attempt_is_repeated_after_a_delay_that_doubles() {
    let tries = Arc::new(AtomicU32::new(0));
    let (seen, start) = (Log::default(), Instant::now());
    let graph = TaskGraph::builder("again");
    let (count, log) = (Arc::clone(&tries), seen.clone());
    let step = move |()| {
        let (attempt, log) = (count.fetch_add(1, Ordering::SeqCst), log.clone());
        // A delay ends by the wall clock here, which goes on a little while tokio's stands still.
        log.note(format!("{}", (start.elapsed() + secs(1) / 2).as_secs()));
        async move { if attempt < 3 { Err(Error::new(ErrorKind::Tool, "not yet")) } else { Ok(attempt) } }
    };
    let node = graph.step("step", (), step).attempts(4).delay(secs(2));
    let graph = graph.returning(&node).build().unwrap();
    let run = graph.run("Go").await.unwrap();
    assert_eq!(run.output.as_deref(), Some(&3));
    assert_eq!(seen.all(), ["0", "2", "6", "14"]);
    assert_eq!(run.report().node("step").unwrap().attempts, 4);
    tries.store(0, Ordering::SeqCst);
    let few = TaskGraph::builder("few");
    few.step("step", (), |()| async { Err::<(), _>(Error::new(ErrorKind::Tool, "never")) }).attempts(2);
    let run = few.build().unwrap().run("Go").await.unwrap();
    let report = run.report();
    let node = report.node("step").unwrap();
    assert_eq!((node.attempts, node.state()), (2, NodeState::Failed));
}

#[tokio::test(start_paused = true)]
async fn while_one_waits_for_its_next_attempt_others_use_its_slot() {
    let log = Log::default();
    let hand =
        Hand::logging("hand", &log).on("first", [Act::Fail("not yet")]).on("second", [Act::Sleep(secs(1))]);
    let graph = TaskGraph::builder("slot").limit(1);
    graph.agent("first", &hand, "first").attempts(2).delay(secs(60));
    graph.agent("second", &hand, "second");
    let outcome = graph.build().unwrap().run("Go").await.unwrap().outcome;
    assert_eq!(outcome.text, "first:\nfirst done\n\nsecond:\nsecond done");
    log.assert_order("second ends", "first ends");
}

fn sized(log: &Log, small: Hand) -> (TaskGraph, [Hand; 3]) {
    let hands = [small, Hand::logging("medium", log), Hand::logging("large", log)];
    let graph = TaskGraph::builder("sizes");
    let [small, medium, large] = hands.clone();
    graph.agent("work", &small, "work hard").escalate([
        (Size::L, large),
        (Size::S, small),
        (Size::M, medium),
    ]);
    (graph.build().unwrap(), hands)
}

#[tokio::test(start_paused = true)]
async fn lo04_a_failed_attempt_is_retried_one_size_up_with_the_reason() {
    let failures = [
        Act::Fail("I am too small"),
        Act::End(Status::Stopped(StopReason::LoopDetected)),
        Act::End(Status::Stopped(StopReason::Steps(50))),
        Act::End(Status::Stopped(StopReason::Incomplete { iterations: 3, feedback: "no tests".into() })),
        Act::Panic,
    ];
    let reasons = [
        "I am too small",
        "stopped: it went in circles: the same calls with the same results",
        "stopped: the limit of 50 steps was reached",
        "stopped: not complete after 3 attempts: no tests",
        "the agent panicked: work panics",
    ];
    for (failure, reason) in failures.into_iter().zip(reasons) {
        let log = Log::default();
        let (graph, _) = sized(&log, Hand::logging("small", &log).on("work", [failure]));
        let run = graph.run("Go").await.unwrap();
        assert_eq!(run.outcome.text, "work done", "{reason}");
        let asked = log.all().into_iter().find(|it| it.starts_with("medium is asked")).unwrap();
        let told = format!("An attempt before this one failed:\n\n<failure>\n{reason}\n</failure>");
        assert!(asked.contains(&told), "{asked}");
        assert_eq!(log.count("work starts"), 2);
        let report = run.report();
        assert_eq!(report.nodes[0].agent.as_deref(), Some("medium"));
    }
}

/// Four nodes for two small agents and a large one; `given` names the agent of each that has no choice.
fn pooled(log: &Log, hands: &[Hand; 3], given: &[Option<usize>; 4]) -> TaskGraph {
    let graph = TaskGraph::builder("pool");
    let [ann, bob, large] = hands;
    for (node, given) in ["n0", "n1", "n2", "n3"].into_iter().zip(given) {
        let added = graph.agent(node, &hands[given.unwrap_or(0)], node);
        if given.is_none() {
            added.escalate([(Size::S, ann.clone()), (Size::S, bob.clone()), (Size::L, large.clone())]);
        }
    }
    log.note("built");
    graph.build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn lo08_the_first_free_agent_of_a_size_makes_the_attempt_and_the_others_wait() {
    let log = Log::default();
    let hand = |name: &str, seconds: u64| {
        let acts = ["n0", "n1", "n2", "n3"].map(|node| (node, [Act::Sleep(secs(seconds))]));
        acts.into_iter().fold(Hand::logging(name, &log), |hand, (node, acts)| hand.on(node, acts))
    };
    let agents = |given: [Option<usize>; 4]| {
        let hands = [hand("ann", 5), hand("bob", 2), hand("large", 1)];
        let graph = pooled(&log, &hands, &given);
        async move {
            let (began, run) = (Instant::now(), graph.run("Go").await.unwrap());
            assert!(hands.iter().all(|hand| hand.most() <= 1), "each works on one at a time");
            let report = run.report();
            let names = report.nodes.iter().map(|node| node.agent.as_deref().unwrap().to_owned());
            (names.collect::<Vec<_>>(), began.elapsed())
        }
    };
    // Bob is free again after 2 s and after 4 s.
    assert_eq!(agents([None; 4]).await, (["ann", "bob", "bob", "bob"].map(str::to_owned).to_vec(), secs(6)));
    let (names, time) = agents([Some(1), None, None, Some(0)]).await;
    assert_eq!((names, time), (["bob", "ann", "bob", "ann"].map(str::to_owned).to_vec(), secs(10)));
}

#[tokio::test(start_paused = true)]
async fn lo04_what_an_agent_of_a_size_fails_at_goes_one_size_up() {
    let log = Log::default();
    let [ann, bob] = ["ann", "bob"].map(|name| Hand::logging(name, &log).on("n1", [Act::Fail("too hard")]));
    let hands = [ann, bob, Hand::logging("large", &log)];
    let run = pooled(&log, &hands, &[None; 4]).run("Go").await.unwrap();
    assert_eq!(run.outcome.status, Status::Completed);
    let report = run.report();
    let node = report.node("n1").unwrap();
    assert_eq!((node.agent.as_deref(), node.attempts), (Some("large"), 2));
}

#[tokio::test(start_paused = true)]
async fn lo04_the_largest_is_the_last() {
    let log = Log::default();
    let small = Hand::logging("small", &log).on("work", [Act::Fail("one")]);
    let (graph, [_, medium, large]) = sized(&log, small);
    drop((medium.on("work", [Act::Fail("two")]), large.on("work", [Act::Fail("three")])));
    let run = graph.run("Go").await.unwrap();
    assert_eq!(not_done(&run.outcome).0, ["work"]);
    assert_eq!(log.count("work starts"), 3);
    assert!(run.outcome.status.to_string().contains("three"));
}

#[tokio::test(start_paused = true)]
async fn lo04_the_next_attempt_counts_to_the_limit_of_the_next_larger_agent() {
    let log = Log::default();
    let mut hands = [Hand::logging("small", &log), Hand::logging("medium", &log)];
    for node in ["n0", "n1", "n2"] {
        hands[0] = hands[0].clone().on(node, [Act::Fail("too small")]);
        hands[1] = hands[1].clone().on(node, [Act::Sleep(secs(1))]);
    }
    let graph = TaskGraph::builder("limits").agent_limit("small", 3);
    for node in ["n0", "n1", "n2"] {
        let sizes = [(Size::S, hands[0].clone()), (Size::M, hands[1].clone())];
        graph.agent(node, &hands[0], node).escalate(sizes);
    }
    assert_eq!(graph.build().unwrap().run("Go").await.unwrap().outcome.status, Status::Completed);
    assert_eq!(hands[1].most(), 1);
}

#[tokio::test(start_paused = true)]
async fn lo04_a_denial_a_cancel_and_what_bounds_the_run_never_escalate() {
    let exhausted = Exhausted::new("tokens", BudgetLimits::none().with_tokens(3));
    for (end, state) in [
        (Status::Stopped(StopReason::Denied("shell".into())), NodeState::Failed),
        (Status::Stopped(StopReason::Deadline), NodeState::Failed),
        (Status::Stopped(exhausted.into()), NodeState::Failed),
        (Status::Cancelled, NodeState::Cancelled),
    ] {
        let log = Log::default();
        let (graph, _) = sized(&log, Hand::logging("small", &log).on("work", [Act::End(end)]));
        let run = graph.run("Go").await.unwrap();
        assert_eq!(run.report().nodes[0].state(), state);
        assert_eq!(log.count("work starts"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn lo04_cost_sums_over_the_attempts() {
    let store = memory();
    let reply = |end| Script::new().text("Done.").usage(100, 10).finish(end);
    let small = ScriptedProvider::new().step(reply(FinishReason::Length));
    let medium = ScriptedProvider::new().step(reply(FinishReason::Stop));
    let agent =
        |name, provider: &ScriptedProvider| ReactAgent::builder(name, provider.model()).build().unwrap();
    let (small, medium) = (agent("small", &small), agent("medium", &medium));
    let graph = TaskGraph::builder("cost");
    graph.agent("work", &small, "work").escalate([(Size::S, small.clone()), (Size::M, medium)]);
    let graph = graph.build().unwrap();
    let outcome = runtime_on(&store).session_with_id(root()).start(&graph, "Go").outcome().await.unwrap();
    assert_eq!(outcome.text, "Done.");
    let events = stored(&store, &root()).await;
    let spent: Vec<_> = events
        .iter()
        .filter_map(|event| event.event.record::<NodeFinished>().unwrap())
        .map(|end| (end.attempt, end.usage.total(), end.retry_at.is_some()))
        .collect();
    assert_eq!(spent, [(1, Some(110), true), (2, Some(110), false)]);
    let report = entourage_runners::graph::GraphReport::from_events(&events).unwrap();
    let node = report.node("work").unwrap();
    assert_eq!((node.usage.total(), node.attempts), (Some(220), 2));
    let children = store.query(&SessionFilter::children_of(root())).await.unwrap();
    assert_eq!(children.len(), 2, "each attempt has a session of its own");
    assert!(children.iter().all(|child| &*child.record.role == "node"));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_stops_the_attempt_and_its_slot_is_held_until_it_has_unwound() {
    let log = Log::default();
    let hand = Hand::logging("hand", &log).on("slow", [Act::Hang]).on("slow", [Act::Sleep(secs(1))]);
    let graph = TaskGraph::builder("late");
    graph.agent("slow", &hand, "slow").timeout(secs(5)).attempts(2);
    graph.agent("other", &hand, "other");
    let start = Instant::now();
    let run = graph.build().unwrap().run("Go").await.unwrap();
    assert_eq!(run.outcome.text, "slow:\nslow done\n\nother:\nother done");
    assert_eq!((hand.most(), log.count("slow is cancelled")), (1, 1));
    assert_eq!(start.elapsed().as_secs(), 6);

    let graph = TaskGraph::builder("step");
    graph.step("hang", (), |()| std::future::pending::<entourage_core::Result<()>>()).timeout(secs(5));
    let run = graph.build().unwrap().run("Go").await.unwrap();
    match &run.report().node("hang").unwrap().end {
        Some(NodeEnd::Failed(error)) => assert_eq!(error.kind, ErrorKind::Timeout),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_the_failure_of_its_node_alone() {
    let graph = TaskGraph::builder("panics");
    graph.step("at once", (), |()| -> std::future::Ready<entourage_core::Result<()>> { panic!("one") });
    graph.step("later", (), |()| async {
        tokio::time::sleep(secs(1)).await;
        if true {
            panic!("two");
        }
        Ok(())
    });
    let fine = graph.step("fine", (), |()| async { Ok("fine".to_owned()) });
    let checked = graph.step("checked", &fine, |fine| async move { Ok((*fine).clone()) });
    graph.step("never", (), |()| async { Ok(()) }).when(&checked, |_| panic!("three"));
    let hand = Hand::new("hand");
    graph.agent_with("asked", &hand, (), |()| -> String { panic!("four") });
    let run = graph.build().unwrap().run("Go").await.unwrap();
    let told = run.outcome.status.to_string();
    for part in [
        "`at once` failed (the step panicked: one)",
        "`later` failed (the step panicked: two)",
        "`checked` failed (a condition panicked: three)",
        "`asked` failed (making the task panicked: four)",
    ] {
        assert!(told.contains(part), "{told}");
    }
    assert_eq!(run.report().node("fine").unwrap().state(), NodeState::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_value_that_does_not_serialize_fails_its_step_and_not_the_store() {
    use std::collections::BTreeMap;
    let graph = TaskGraph::builder("odd");
    graph.step("map", (), |()| async { Ok(BTreeMap::from([((1, 2), 3)])) });
    let graph = graph.build().unwrap();
    let store = memory();
    let outcome = runtime_on(&store).session_with_id(root()).start(&graph, "Go").outcome().await.unwrap();
    assert_eq!(not_done(&outcome).0, ["map"]);
    let told = "failed: the node's value cannot be stored: it does not serialize as JSON";
    assert!(stored_ends(&store, &root()).await["map"].starts_with(told));
}

#[tokio::test(start_paused = true)]
async fn a_value_that_could_not_be_read_again_fails_its_step() {
    let graph = TaskGraph::builder("odd");
    graph.step("mean", (), |()| async { Ok(vec![0.5, f64::NAN]) });
    let graph = graph.build().unwrap();
    let store = memory();
    let outcome = runtime_on(&store).session_with_id(root()).start(&graph, "Go").outcome().await.unwrap();
    assert_eq!(not_done(&outcome).0, ["mean"]);
    let told = &stored_ends(&store, &root()).await["mean"];
    assert!(told.starts_with("failed: the node's value cannot be read again"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_told_to_stop_and_comes_to_its_end_all_the_same_is_done() {
    // Its end is recorded below: a resumed graph would find it.
    let gate = Gate::new();
    let stubborn = Stubborn(gate.clone());
    let graph = TaskGraph::builder("stubborn");
    graph.agent("work", &stubborn, "work").timeout(secs(2));
    let run = tokio::spawn(async move { graph.build().unwrap().run("Go").await });
    tokio::time::sleep(secs(3)).await;
    gate.open();
    assert_eq!(run.await.unwrap().unwrap().outcome.text, "I was nearly there.");
}

#[derive(Clone)]
struct Stubborn(Gate);

#[async_trait::async_trait]
impl entourage_core::agent::Agent for Stubborn {
    fn name(&self) -> &str {
        "stubborn"
    }

    async fn run(
        &self,
        _: entourage_core::run::Task,
        _: &entourage_core::run::RunContext,
    ) -> entourage_core::Result<Outcome> {
        self.0.pass().await;
        let mut outcome = Outcome::completed("I was nearly there.");
        (outcome.usage, outcome.cost) = (Usage::new(1, 1), Some(Money::default()));
        Ok(outcome)
    }
}
