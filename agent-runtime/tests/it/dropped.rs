//! Writes whose callers go away: a write that has begun completes without them, and no other caller waits for them.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, SessionId, Timestamp,
    provider::FinishReason,
    run::Status,
    session::{Batch, Lease, SessionFilter, SessionStore, SharedStore},
};
use entourage_runtime::permission::Policy;
use entourage_runtime::{Mode, Runtime, Session};
use entourage_testkit::{self as testkit, Gate, LiveProvider, ScriptedProvider};
use serde_json::json;
use tokio::sync::Mutex;

use crate::common::{Meddles, Through, agent, count, drain, memory, stored};

/// A store with one lane for all writers, in which each write waits at a gate on demand.
#[derive(Debug)]
struct OneLane {
    inner: SharedStore,
    lane: Mutex<()>,
    slow: AtomicBool,
    gate: Gate,
}

impl OneLane {
    fn new() -> Arc<Through<Self>> {
        let (inner, gate) = (memory(), Gate::new());
        Arc::new(Through(Self { inner, lane: Mutex::default(), slow: AtomicBool::new(false), gate }))
    }

    fn slow_down(&self) {
        self.slow.store(true, Ordering::SeqCst);
    }

    async fn wait(&self) {
        if self.slow.load(Ordering::SeqCst) {
            self.gate.pass().await;
        }
    }
}

#[async_trait]
impl Meddles for OneLane {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        let _lane = self.lane.lock().await;
        self.wait().await;
        self.inner.append(session, expected, batch).await
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        let _lane = self.lane.lock().await;
        self.wait().await;
        self.inner.lease(session, lease).await
    }
}

/// Polls the work once, then drops it.
async fn begin(work: impl Future<Output = Result<()>>) {
    let mut work = pin!(work);
    let polled = std::future::poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await;
    assert!(polled.is_pending(), "it was over at once: {polled:?}");
}

async fn started(runtime: &Runtime) -> Session {
    let session = runtime.session();
    let agent = agent(ScriptedProvider::by_history().text("Hi.").model()).build().unwrap();
    session.start(&agent, "Hi").outcome().await.unwrap();
    session
}

fn on(store: &Arc<Through<OneLane>>) -> Runtime {
    testkit::runtime().policy(Policy::allow_all()).shared_store(Arc::clone(store) as _).build()
}

/// Waits until nothing of the runtime is in flight.
async fn unwound(runtime: &Runtime) {
    assert!(runtime.cancel_all().await);
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_is_dropped_is_stored_and_shown_without_its_caller() {
    let store = OneLane::new();
    let runtime = on(&store);
    let (a, b) = (started(&runtime).await, started(&runtime).await);
    let mut events = runtime.subscribe();
    store.slow_down();
    begin(a.signal("x", json!(1))).await;
    store.gate.arrived(1).await;
    store.gate.open();
    // Another session is not held up, and nobody touches the first one.
    b.signal("y", json!(1)).await.unwrap();
    let mut shown = Vec::new();
    while shown.len() < 2 {
        shown.push(events.next().await.unwrap().origin.session.clone());
    }
    assert_eq!(shown, [a.id().clone(), b.id().clone()]);
    assert_eq!(count(&stored(&store.inner, a.id()).await, "signal_received"), 1);
    // The session goes on from there.
    a.signal("x", json!(2)).await.unwrap();
    assert_eq!(count(&stored(&store.inner, a.id()).await, "signal_received"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_waited_behind_another_is_stored_without_its_caller_too() {
    let store = OneLane::new();
    let runtime = on(&store);
    let session = started(&runtime).await;
    let modes = [Mode::new("plan", "Plan"), Mode::new("act", "Act")];
    store.slow_down();
    for mode in ["plan", "act"] {
        begin(async { session.set_mode(mode, &modes).await.map(drop) }).await;
    }
    store.gate.open();
    unwound(&runtime).await;
    let events = stored(&store.inner, session.id()).await;
    assert_eq!(count(&events, "mode_changed"), 2);
    assert_eq!(session.mode().await.unwrap().as_deref(), Some("act"));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_with_a_slow_store_stores_its_end_later_and_blocks_no_waiter() {
    let store = OneLane::new();
    let runtime = on(&store);
    let provider = LiveProvider::new();
    let model = agent(provider.model()).build().unwrap();
    let (session, other) = (runtime.session(), started(&runtime).await);
    let run = session.start(&model, "Go");
    let _call = provider.asked().await;
    store.slow_down();
    run.cancel();
    assert_eq!(run.outcome().await.unwrap_err().kind(), ErrorKind::Timeout);
    store.gate.open();
    other.signal("y", json!(1)).await.unwrap();
    unwound(&runtime).await;
    let events = stored(&store.inner, session.id()).await;
    assert_eq!(count(&events, "run_finished"), 1);
    let again = ScriptedProvider::by_history().text("Again.").text("Again.");
    let next = session.start(&agent(again.model()).build().unwrap(), "Hi");
    assert_eq!(next.outcome().await.unwrap().text, "Again.");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_under_way_does_not_overtake_the_lease_that_is_given_back() {
    let store = OneLane::new();
    let lease = Duration::from_secs(30);
    let runtime = testkit::runtime().shared_store(Arc::clone(&store) as _).lease(lease).build();
    let provider = LiveProvider::new();
    let agent = agent(provider.model()).build().unwrap();
    let session = runtime.session();
    let run = session.start(&agent, "Go");
    let call = provider.asked().await;
    store.slow_down();
    tokio::time::sleep(Duration::from_secs(11)).await;
    store.gate.arrived(1).await;
    // The run ends, and its watch with it, while the renewal waits.
    call.finish(FinishReason::Stop);
    tokio::time::sleep(Duration::from_secs(1)).await;
    store.gate.open();
    assert_eq!(run.outcome().await.unwrap().status, Status::Completed);
    unwound(&runtime).await;
    let info = store.query(&SessionFilter::id(session.id().clone())).await.unwrap().pop().unwrap();
    assert_eq!(info.lease.unwrap().until, Timestamp::default());
}

/// A store that panics at its first append once it is armed.
#[derive(Debug)]
struct Panicky {
    inner: SharedStore,
    left: AtomicUsize,
}

#[async_trait]
impl Meddles for Panicky {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        assert_ne!(self.left.fetch_sub(1, Ordering::SeqCst), 1, "the store is out of order");
        self.inner.append(session, expected, batch).await
    }
}

#[tokio::test]
async fn a_store_that_panics_fails_what_was_stored_and_nothing_hangs() {
    for at in 1..=3 {
        let store = Arc::new(Through(Panicky { inner: memory(), left: AtomicUsize::new(at) }));
        let runtime = testkit::runtime().shared_store(Arc::clone(&store) as _).build();
        let provider = ScriptedProvider::by_history().call("look", json!({})).text("Done.").text("More.");
        let agent = agent(provider.model()).tool(testkit::FakeTool::new("look")).build().unwrap();
        let session = runtime.session();
        let error: Error = session.start(&agent, "Go").outcome().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal, "{at}: {error}");
        assert!(error.to_string().contains("the store panicked: "), "{at}: {error}");
        session.start(&agent, "Again").outcome().await.unwrap();
        assert!(!session.is_busy());
    }
}

/// An observer that panics at one event, and counts the events that it sees.
#[derive(Debug, Default, Clone)]
struct Panics {
    at: usize,
    seen: Arc<AtomicUsize>,
}

impl entourage_core::run::Observer for Panics {
    fn on_event(&self, _: &entourage_core::event::Envelope) {
        assert_ne!(self.seen.fetch_add(1, Ordering::SeqCst), self.at, "the observer is out of order");
    }
}

#[tokio::test]
async fn an_observer_that_panics_is_not_asked_again_and_everything_else_goes_on() {
    let mut at = 0;
    loop {
        let (panics, reads) =
            (Panics { at, ..Panics::default() }, Panics { at: usize::MAX, ..Panics::default() });
        let runtime = testkit::runtime()
            .policy(Policy::allow_all())
            .observer(panics.clone())
            .observer(reads.clone())
            .build();
        let tool = testkit::FakeTool::new("look");
        let provider = ScriptedProvider::by_history().call("look", json!({})).text("Done.").text("More.");
        let agent = agent(provider.model()).tool(tool.clone()).build().unwrap();
        let session = runtime.session();
        let mut run = session.start(&agent, "Go");
        let events = drain(&mut run).await;
        assert_eq!(run.outcome().await.unwrap().text, "Done.", "at {at}");
        assert_eq!(tool.finished(), 1);
        assert_eq!(reads.seen.load(Ordering::SeqCst), events.len(), "the other one sees all");
        assert_eq!(session.start(&agent, "Again").outcome().await.unwrap().text, "More.");
        assert_eq!(panics.seen.load(Ordering::SeqCst).min(at + 1), panics.seen.load(Ordering::SeqCst));
        if at == events.len() {
            break;
        }
        at += 1;
    }
    assert!(at > 8, "{at}");
}
