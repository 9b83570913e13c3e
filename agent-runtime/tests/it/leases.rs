//! Leases on the paused clock: a live run keeps its lease however silent it is, a dead one loses it, and a fenced one
//! ends with a conflict and stores nothing more.

use std::{sync::Arc, time::Duration};

use entourage_core::{
    Clock, ErrorKind, RetryStatus, SessionId, Timestamp,
    message::Message,
    provider::FinishReason,
    run::Status,
    session::{Lease, SessionFilter, SessionStatus, SharedStore},
    tool::Access,
};
use entourage_runtime::Runtime;
use entourage_runtime::permission::Policy;
use entourage_testkit::{self as testkit, FakeTool, Gate, PausedClock, Script, ScriptedProvider};
use serde_json::json;

use crate::common::{Fault, FaultyStore, act, agent, memory, process, runtime_on, stored, until_killed};

const SECOND: Duration = Duration::from_secs(1);

fn silent(time: Duration) -> ScriptedProvider {
    let script = Script::new().delay(time).text("Done.").finish(FinishReason::Stop);
    ScriptedProvider::by_history().step(script)
}

/// A runtime on the time of `clock`, so that several processes share it.
fn runtime(store: &SharedStore, clock: PausedClock) -> Runtime {
    let builder = testkit::runtime().policy(Policy::allow_all()).clock(clock);
    builder.shared_store(Arc::clone(store)).build()
}

async fn lease(store: &SharedStore, id: &SessionId) -> Option<Lease> {
    store.query(&SessionFilter::id(id.clone())).await.unwrap().pop().and_then(|info| info.lease)
}

fn work() -> SessionId {
    SessionId::new("work").unwrap()
}

#[tokio::test(start_paused = true)]
async fn design_3_a_silent_model_call_of_five_minutes_keeps_the_lease() {
    let (store, clock) = (memory(), PausedClock::new());
    let provider = silent(300 * SECOND);
    let agent = agent(provider.model()).build().unwrap();
    let session = runtime(&store, clock).session_with_id(work());
    let run = session.start(&agent, "Go");
    let mut held = Vec::new();
    for _ in 0..29 {
        tokio::time::sleep(10 * SECOND).await;
        let lease = lease(&store, &work()).await.unwrap();
        assert!(lease.is_live(clock.now()), "{lease:?} at {:?}", clock.now());
        assert!(lease.until <= clock.now().after(30 * SECOND), "{lease:?}");
        held.push(lease);
    }
    assert!(held.iter().all(|it| (it.owner, it.generation) == (held[0].owner, 1)));
    assert!(held.windows(2).all(|pair| pair[0].until <= pair[1].until));
    let before = stored(&store, &work()).await.len();
    assert_eq!(run.outcome().await.unwrap().text, "Done.");
    assert_eq!(before, 2, "renewals append nothing");
    let given_back = lease(&store, &work()).await.unwrap();
    assert_eq!((given_back.generation, given_back.until), (1, Timestamp::default()));
}

#[tokio::test(start_paused = true)]
async fn design_3_the_first_commit_takes_the_lease_and_a_pause_gives_it_back() {
    let (store, clock) = (memory(), PausedClock::new());
    let runtime = testkit::runtime().shared_store(Arc::clone(&store)).clock(clock).lease(7 * SECOND).build();
    let provider = ScriptedProvider::by_history().call("wipe", json!({})).text("Done.");
    let wipe = FakeTool::new("wipe").access(Access::WRITE);
    let agent = agent(provider.model()).tool(wipe).build().unwrap();
    let session = runtime.session_with_id(work());
    let paused = session.start(&agent, "Go").outcome().await.unwrap();
    assert!(matches!(paused.status, Status::Paused(_)), "{paused:?}");
    let free = lease(&store, &work()).await.unwrap();
    assert_eq!((free.generation, free.is_live(clock.now())), (1, false), "nobody is kept away from a pause");
    // Who resumes elsewhere takes over; the same runtime would keep its generation.
    let other = ScriptedProvider::by_history().call("wipe", json!({})).text("Done.");
    let agent = crate::common::agent(other.model()).tool(FakeTool::new("wipe").access(Access::WRITE));
    let outcome = self::runtime(&store, clock)
        .open(&work())
        .await
        .unwrap()
        .resume(&agent.build().unwrap())
        .outcome()
        .await;
    assert_eq!(outcome.unwrap().text, "Done.");
    let taken = lease(&store, &work()).await.unwrap();
    assert_eq!((taken.generation, taken.owner == free.owner), (2, false));
}

/// Runs a process that dies while the model is silent: it holds a lease until then.
fn dies_during_a_call(store: &SharedStore) {
    let faulty = FaultyStore::new(store, 1, Fault::HangBefore);
    let killed = faulty.killed.clone();
    let provider = ScriptedProvider::by_history().text("Never seen.");
    let agent = agent(provider.model()).build().unwrap();
    let shared = faulty as SharedStore;
    let lived = process(until_killed(
        async { runtime_on(&shared).session_with_id(work()).start(&agent, "Go").outcome().await },
        &killed,
    ));
    assert!(lived.is_none());
}

#[test]
fn design_3_a_session_that_another_process_leased_is_busy_until_the_lease_ran_out() {
    let store = memory();
    dies_during_a_call(&store);
    process(async {
        let clock = PausedClock::new();
        let left = lease(&store, &work()).await.unwrap();
        assert!(left.is_live(clock.now()) && left.generation == 1);
        let provider = ScriptedProvider::new().text("Mine.");
        let agent = agent(provider.model()).build().unwrap();
        let runtime = runtime(&store, clock);
        let session = runtime.session_with_id(work());
        let before = stored(&store, &work()).await;
        for _ in 0..2 {
            let error = session.start(&agent, "Again").outcome().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Busy);
            assert!(error.to_string().contains("30 s") || error.to_string().contains("31 s"), "{error}");
            assert_eq!(error.retry(), RetryStatus::Temporary);
            assert!(error.retry_after().is_some_and(|after| after.as_secs() >= 30));
        }
        assert_eq!(stored(&store, &work()).await, before, "nothing is stored");
        assert_eq!(lease(&store, &work()).await, Some(left));
        tokio::time::sleep(left.until.since(clock.now()) - Duration::from_micros(1)).await;
        // Tokio's timers have a resolution of a millisecond: it is over now, and would not have been one before.
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(session.start(&agent, "Again").outcome().await.unwrap().text, "Mine.");
        let taken = lease(&store, &work()).await.unwrap();
        assert_eq!((taken.generation, taken.owner == left.owner), (2, false));
    });
}

#[tokio::test(start_paused = true)]
async fn design_3_a_session_is_free_again_once_the_other_process_is_done() {
    let (store, clock, gate) = (memory(), PausedClock::new(), Gate::new());
    let script = Script::new().wait(&gate).text("Theirs.").finish(FinishReason::Stop);
    let (theirs, mine) =
        (ScriptedProvider::by_history().step(script), ScriptedProvider::by_history().text("x").text("Mine."));
    let [first, second] = [&theirs, &mine].map(|provider| agent(provider.model()).build().unwrap());
    let run = runtime(&store, clock).session_with_id(work()).start(&first, "Go");
    gate.arrived(1).await;
    let session = runtime(&store, clock).session_with_id(work());
    let busy = session.start(&second, "Now?").outcome().await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    assert_eq!(session.head().await.unwrap().status, SessionStatus::Running);
    gate.open();
    assert_eq!(run.outcome().await.unwrap().text, "Theirs.");
    // The same handle: what it saw when it was refused must not stick to it.
    assert_eq!(session.start(&second, "Now?").outcome().await.unwrap().text, "Mine.");
    let asked = mine.requests();
    let said: Vec<_> = asked[0].messages.iter().map(|message: &Arc<Message>| message.text()).collect();
    assert_eq!(said, ["Go", "Theirs.", "Now?"]);
}

#[test]
fn attack_09_a_live_lease_does_not_keep_resume_away() {
    let store = memory();
    dies_during_a_call(&store);
    process(async {
        let clock = PausedClock::new();
        let provider = ScriptedProvider::by_history().text("Resumed.");
        let agent = agent(provider.model()).build().unwrap();
        let session = runtime(&store, clock).open(&work()).await.unwrap();
        assert_eq!(session.resume(&agent).outcome().await.unwrap().text, "Resumed.");
        let taken = lease(&store, &work()).await.unwrap();
        assert_eq!((taken.generation, taken.is_live(clock.now())), (2, false));
    });
}

#[tokio::test(start_paused = true)]
async fn attack_10_a_process_that_was_fenced_ends_with_a_conflict_and_stores_nothing_more() {
    let (store, clock) = (memory(), PausedClock::new());
    let provider = silent(300 * SECOND);
    let tool = FakeTool::new("look");
    let agent = agent(provider.model()).tool(tool.clone()).build().unwrap();
    let session = runtime(&store, clock).session_with_id(work());
    let run = session.start(&agent, "Go");
    tokio::time::sleep(15 * SECOND).await;
    let held = lease(&store, &work()).await.unwrap();
    // Another owner takes over silently: only the heartbeat can notice.
    let thief = Lease::new(held.owner ^ 1, held.generation + 1, clock.now().after(60 * SECOND));
    store.lease(&work(), thief).await.unwrap();
    let before = stored(&store, &work()).await;
    let fenced_at = clock.now();
    let error = run.outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
    assert!(error.to_string().contains("took the session over"), "{error}");
    assert!(clock.now().since(fenced_at) <= 11 * SECOND, "it does not wait for the model");
    assert_eq!(stored(&store, &work()).await, before, "nothing more is stored");
    assert_eq!(lease(&store, &work()).await, Some(thief), "the lease is not given back by who lost it");
    assert!(!session.is_busy());
    assert_eq!(tool.started(), 0);
    // It learns from the store how things are, and keeps away.
    let busy = session.start(&agent, "Again").outcome().await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
}

#[tokio::test(start_paused = true)]
async fn attack_10_a_hand_written_agent_that_sleeps_is_fenced_too() {
    let (store, clock) = (memory(), PausedClock::new());
    let doer = act(|cx| {
        Box::pin(async move {
            cx.sleep(600 * SECOND).await?;
            Ok("slept".into())
        })
    });
    let session = runtime(&store, clock).session_with_id(work());
    let run = session.start(&doer, "Go");
    tokio::time::sleep(300 * SECOND).await;
    let held = lease(&store, &work()).await.unwrap();
    assert!(held.is_live(clock.now()), "a sleep of minutes keeps the lease");
    store.lease(&work(), Lease::new(held.owner ^ 1, 2, clock.now().after(60 * SECOND))).await.unwrap();
    let before = stored(&store, &work()).await;
    assert_eq!(run.outcome().await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(stored(&store, &work()).await, before);
}

#[tokio::test(start_paused = true)]
async fn attack_10_a_store_that_fails_for_a_while_is_no_fence() {
    let (store, clock) = (memory(), PausedClock::new());
    // Only appends fail from number 2 on, so the run's end is what finds out; its heartbeat goes on.
    let faulty = FaultyStore::new(&store, 1, Fault::Fail);
    let provider = silent(100 * SECOND);
    let agent = agent(provider.model()).build().unwrap();
    let shared = faulty as SharedStore;
    let run = runtime(&shared, clock).session_with_id(work()).start(&agent, "Go");
    tokio::time::sleep(90 * SECOND).await;
    assert!(lease(&store, &work()).await.unwrap().is_live(clock.now()));
    assert_eq!(run.outcome().await.unwrap_err().kind(), ErrorKind::Store);
}
