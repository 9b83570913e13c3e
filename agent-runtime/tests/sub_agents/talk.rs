//! A hand-written agent's conversation with another agent: each prompt is a run of one session, and none is repeated.

use std::sync::Arc;

use entourage_core::{
    ErrorKind, SessionId,
    agent::Agent,
    event::Event,
    permission::{Decision, Scope},
    run::{Delegate, Effect, Outcome, Pause, Spawn, Status},
    session::{SessionFilter, SessionStatus, SharedStore},
    tool::Access,
};
use entourage_runners::ReactAgent;
use entourage_runtime::permission::Policy;
use entourage_testkit::{self as testkit, FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::{
    common::{
        Do, Fault, FaultyStore, act, count, memory, process, results, runtime_on, settled, stored,
        until_killed,
    },
    workers::few,
};

fn root() -> SessionId {
    SessionId::new("talk").unwrap()
}

fn below() -> SessionId {
    root().in_role("worker").unwrap()
}

/// Creates an agent that answers three times, and changes something first in its second run.
fn worker(put: &FakeTool) -> (ScriptedProvider, Arc<dyn Agent>) {
    let provider =
        ScriptedProvider::by_history().text("One.").call("put", json!({})).text("Two.").text("Three.");
    let agent = ReactAgent::builder("worker", provider.model()).tool(put.clone()).build().unwrap();
    (provider, Arc::new(agent))
}

/// Creates an agent that asks as often, each time based on the answer before.
fn asks(worker: &Arc<dyn Agent>) -> Do {
    let worker = Arc::clone(worker);
    act(move |cx| {
        let worker = Arc::clone(&worker);
        Box::pin(async move {
            let mut said = String::from("Begin.");
            for _ in 0..3 {
                let outcome = cx.ask("worker", Arc::clone(&worker), format!("After {said}")).await?;
                assert!(outcome.is_completed(), "{outcome}");
                said = outcome.text;
            }
            Ok(said)
        })
    })
}

async fn assert_whole(store: &SharedStore, label: &str) {
    let events = stored(store, &below()).await;
    let told: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.event {
            Event::RunStarted(started) => Some(started.prompt.text()),
            Event::RunFinished(end) => Some(end.outcome.text.clone()),
            _ => None,
        })
        .collect();
    let expected = ["After Begin.", "One.", "After One.", "Two.", "After Two.", "Three."];
    assert_eq!(told, expected, "{label}: no turn is taken twice");
    assert_eq!(count(&events, "model_finished"), 4, "{label}");
    assert_eq!(settled(&events).len(), 1, "{label}: {events:?}");
    let above = stored(store, &root()).await;
    assert_eq!((count(&above, "child_started"), count(&above, "child_finished")), (3, 3), "{label}");
    let children = store.query(&SessionFilter::children_of(root())).await.unwrap();
    assert_eq!(children.len(), 1, "{label}: one conversation");
    assert_eq!(&*children[0].record.role, "worker");
}

/// Asserts that the caller's record can be replayed without asking anybody.
async fn assert_replayed(store: &SharedStore, label: &str) {
    let put = FakeTool::new("put");
    let (never, worker) = worker(&put);
    let run = stored(store, &root()).await[0].origin.run;
    let replayed = runtime_on(store).session_with_id(root()).replay(&asks(&worker), run).await;
    assert_eq!(replayed.unwrap().text, "Three.", "{label}");
    assert_eq!((never.count(), put.started()), (0, 0), "{label}");
}

async fn begin(store: &SharedStore, put: &FakeTool) -> Outcome {
    let (_, worker) = worker(put);
    runtime_on(store).session_with_id(root()).start(&asks(&worker), "Go").outcome().await.unwrap()
}

async fn go_on(store: &SharedStore, put: &FakeTool) -> Outcome {
    let session = runtime_on(store).session_with_id(root());
    let (_, worker) = worker(put);
    match session.unfinished().await.unwrap() {
        Some(_) => session.resume(&asks(&worker)).outcome().await.unwrap(),
        None if session.head().await.unwrap().seq == 0 => begin(store, put).await,
        None => Outcome::completed("Three."),
    }
}

#[test]
fn bo06_a_talk_of_three_turns_survives_death_at_every_append() {
    let mut deaths = 0;
    for fault in [Fault::HangBefore, Fault::HangAfter] {
        for at in 0.. {
            let (store, put) = (memory(), FakeTool::new("put").access(Access::WRITE).returning("put"));
            let faulty = FaultyStore::new(&store, at, fault);
            let killed = faulty.killed.clone();
            let label = format!("{fault:?} at append {at}");
            let ended = process(until_killed(begin(&(faulty as SharedStore), &put), &killed));
            let alive = ended.is_some();
            let outcome = ended.unwrap_or_else(|| process(go_on(&store, &put)));
            assert_eq!(outcome.text, "Three.", "{label}");
            process(assert_whole(&store, &label));
            process(assert_replayed(&store, &label));
            assert!(put.started() <= 1, "{label}: it may not be repeated");
            if alive {
                break;
            }
            deaths += 1;
        }
    }
    assert!(deaths >= 20, "{deaths}");
}

/// The third run is cut off: the caller's journal knows that the first two are over.
#[test]
fn bo06_what_was_answered_is_not_asked_again() {
    let (store, gate) = (memory(), Gate::new());
    let put = FakeTool::new("put").access(Access::WRITE).returning("put");
    process(async {
        let held = ScriptedProvider::by_history()
            .text("One.")
            .call("put", json!({}))
            .text("Two.")
            .step(Script::new().wait(&gate));
        let agent = ReactAgent::builder("worker", held.model()).tool(put.clone()).build().unwrap();
        let worker: Arc<dyn Agent> = Arc::new(agent);
        runtime_on(&store).session_with_id(root()).start(&asks(&worker), "Go").detach();
        gate.arrived(1).await;
    });
    process(async {
        let (provider, worker) = worker(&put);
        let session = runtime_on(&store).session_with_id(root());
        let outcome = session.resume(&asks(&worker)).outcome().await.unwrap();
        assert_eq!((outcome.text.as_str(), provider.count(), put.started()), ("Three.", 1, 1));
        assert_whole(&store, "resumed").await;
    });
}

#[test]
fn bo06_another_question_at_the_same_place_is_told() {
    let store = memory();
    let ask = |text: &'static str, role: &'static str, name: &'static str, provider: &ScriptedProvider| {
        let worker: Arc<dyn Agent> = Arc::new(ReactAgent::builder(name, provider.model()).build().unwrap());
        act(move |cx| {
            let worker = Arc::clone(&worker);
            Box::pin(async move { Ok(cx.ask(role, worker, text).await?.text) })
        })
    };
    let gate = Gate::new();
    process(async {
        let held = ScriptedProvider::by_history().step(Script::new().wait(&gate));
        let agent = ask("One?", "worker", "worker", &held);
        runtime_on(&store).session_with_id(root()).start(&agent, "Go").detach();
        gate.arrived(1).await;
    });
    process(async {
        let never = ScriptedProvider::new();
        let session = runtime_on(&store).session_with_id(root());
        for other in [
            ask("Two?", "worker", "worker", &never),
            ask("One?", "other", "worker", &never),
            ask("One?", "worker", "other", &never),
        ] {
            let error = session.resume(&other).outcome().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Diverged, "{error}");
        }
        let provider = ScriptedProvider::by_history().text("One.");
        let agent = ask("One?", "worker", "worker", &provider);
        assert_eq!(session.resume(&agent).outcome().await.unwrap().text, "One.");
    });
}

#[tokio::test(start_paused = true)]
async fn bo06_whoever_is_asked_has_at_most_the_contexts_scope_and_a_pause_is_handed_on() {
    let store = memory();
    let put = FakeTool::new("put").access(Access::WRITE).returning("put");
    let provider =
        ScriptedProvider::by_history().call("put", json!({})).text("No.").call("put", json!({})).text("Yes.");
    let agent = ReactAgent::builder("worker", provider.model()).tool(put.clone()).build().unwrap();
    let worker: Arc<dyn Agent> = Arc::new(agent);
    let asks = act(move |cx| {
        let worker = Arc::clone(&worker);
        Box::pin(async move {
            let reads = cx.narrowed(&Scope::read_only());
            let first = reads.ask("worker", Arc::clone(&worker), "Without leave").await?;
            let second = cx.ask("worker", worker, "With leave").await?;
            Ok(format!("{} {}", first.text, second.text))
        })
    });
    // No approver is present: a write pauses the run.
    let runtime = testkit::runtime().policy(Policy::default()).shared_store(Arc::clone(&store)).build();
    let session = runtime.session_with_id(root());
    let outcome = session.start(&asks, "Go").outcome().await.unwrap();
    let Status::Paused(Pause::Approval(question)) = outcome.status else { panic!("{outcome}") };
    assert_eq!(put.started(), 0);
    let history = runtime.open(&below()).await.unwrap().history().await.unwrap();
    assert!(results(history.iter().nth(2).unwrap())[0].contains("scope"), "{history:?}");
    runtime.decide(&question, Decision::Allow).await.unwrap();
    let outcome = session.resume(&asks).outcome().await.unwrap();
    assert_eq!((outcome.text.as_str(), put.started()), ("No. Yes.", 1));
}

#[tokio::test(start_paused = true)]
async fn bo06_a_cancel_reaches_whoever_is_asked_and_a_failure_is_an_outcome() {
    let (store, gate) = (memory(), Gate::new());
    let provider =
        ScriptedProvider::new().fail(ErrorKind::Authentication, "no key").step(Script::new().wait(&gate));
    let worker: Arc<dyn Agent> = Arc::new(ReactAgent::builder("worker", provider.model()).build().unwrap());
    let asks = act(move |cx| {
        let worker = Arc::clone(&worker);
        Box::pin(async move {
            let failed = cx.ask("worker", Arc::clone(&worker), "One?").await?;
            assert!(matches!(&failed.status, Status::Failed(error) if error.message.contains("no key")));
            Ok(cx.ask("worker", worker, "Two?").await?.status.to_string())
        })
    });
    let session = runtime_on(&store).session_with_id(root());
    let run = session.start(&asks, "Go");
    gate.arrived(1).await;
    run.cancel();
    drop(run.outcome().await);
    let child = runtime_on(&store).open(&below()).await.unwrap().head().await.unwrap();
    assert_eq!(child.status, SessionStatus::Idle);
    let events = stored(&store, &below()).await;
    let Event::RunFinished(end) = &events.last().unwrap().event else { panic!("{events:?}") };
    assert_eq!(end.outcome.status, Status::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn bo06_a_role_that_is_none_is_refused_before_anything_is_stored() {
    for role in ["", "7", "$$a", "a.b", "a$b", "a b", "é"] {
        let store = memory();
        let provider = ScriptedProvider::new();
        let worker: Arc<dyn Agent> =
            Arc::new(ReactAgent::builder("worker", provider.model()).build().unwrap());
        let asks = act(move |cx| {
            let worker = Arc::clone(&worker);
            Box::pin(async move { Ok(cx.ask(role, worker, "One?").await?.text) })
        });
        let error =
            runtime_on(&store).session_with_id(root()).start(&asks, "Go").outcome().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{role}: {error}");
        assert_eq!(count(&stored(&store, &root()).await, "observed"), 0, "{role}");
        assert!(store.query(&SessionFilter::children_of(root())).await.unwrap().is_empty());
    }
    assert!(root().in_role("second_reader-2").is_ok());
}

/// A refusal for want of a free slot is recorded like every other observation of an agent.
#[tokio::test(start_paused = true)]
async fn ai04_a_refusal_to_an_agent_by_hand_is_recorded() {
    let (store, gate) = (memory(), Gate::new());
    let held = ScriptedProvider::new().step(Script::new().wait(&gate).text("Held."));
    let held_agent: Arc<dyn Agent> = Arc::new(ReactAgent::builder("held", held.model()).build().unwrap());
    let never = ScriptedProvider::new();
    let worker: Arc<dyn Agent> = Arc::new(ReactAgent::builder("worker", never.model()).build().unwrap());
    let opened = gate.clone();
    let asks = act(move |cx| {
        let (held, worker, opened) = (Arc::clone(&held_agent), Arc::clone(&worker), opened.clone());
        Box::pin(async move {
            let child = cx.spawn(held, "Hold").await?;
            let spawn = Spawn::new(worker, "Now!").at_once();
            let delegate = Delegate::new(cx.session().in_role("worker")?, spawn);
            let refused = cx.perform(Effect::Delegate(Box::new(delegate))).await.unwrap_err();
            opened.open();
            cx.wait_any(&[child], None).await?;
            Ok(refused.kind().as_str().to_owned())
        })
    });
    let runtime = few(&store, 1);
    let session = runtime.session_with_id(root());
    assert_eq!(session.start(&asks, "Go").outcome().await.unwrap().text, "too many");
    let run = stored(&store, &root()).await[0].origin.run;
    assert_eq!(session.replay(&asks, run).await.unwrap().text, "too many");
    assert_eq!(never.count(), 0);
}
