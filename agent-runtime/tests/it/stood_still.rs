//! Processes that stood still for longer than their lease, while another one ended or took over what they were doing.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    ErrorKind, Result, SessionId,
    agent::Agent,
    provider::FinishReason,
    session::{Batch, Lease, SessionFilter, SessionStatus, SharedStore},
    tool::Access,
};
use entourage_runners::{AgentTool, ReactAgent};
use entourage_runtime::Runtime;
use entourage_testkit::{self as testkit, FakeTool, Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::common::{Do, Meddles, Through, act, agent, memory};

/// Longer than the lease.
const LONG: Duration = Duration::from_secs(31);

/// The store of a process that stands still at its next lease, or at the next event of a session below.
#[derive(Debug)]
struct Still {
    inner: SharedStore,
    gate: Gate,
}

#[async_trait]
impl Meddles for Still {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn append(&self, session: &SessionId, expected: u64, batch: Batch) -> Result<u64> {
        if session.as_str().contains("$$") {
            self.gate.pass().await;
        }
        self.inner.append(session, expected, batch).await
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        self.gate.pass().await;
        self.inner.lease(session, lease).await
    }
}

fn still(store: &SharedStore, gate: &Gate) -> Runtime {
    testkit::runtime().store(Through(Still { inner: Arc::clone(store), gate: gate.clone() })).build()
}

fn moving(store: &SharedStore) -> Runtime {
    testkit::runtime().shared_store(Arc::clone(store)).build()
}

fn says(text: &str) -> ReactAgent {
    agent(ScriptedProvider::by_history().text("-").text(text).model()).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn attack_10_a_process_that_stood_still_is_told_that_its_run_was_stopped() {
    let (store, gate, never) = (memory(), Gate::new(), Gate::new());
    let tool = FakeTool::new("wait").access(Access::READ).behind(&never);
    let waits = ScriptedProvider::by_history().call("wait", json!({})).text("Done.");
    // Their clocks begin together.
    let (session, other) = (still(&store, &gate).session(), moving(&store));
    let run = session.start(&agent(waits.model()).tool(tool).build().unwrap(), "Go");
    never.arrived(1).await;
    tokio::time::sleep(LONG).await;
    let theirs = other.open(session.id()).await.unwrap();
    assert!(theirs.stop().await.unwrap());
    gate.open();
    let ended = tokio::time::timeout(Duration::from_secs(600), run.outcome()).await;
    assert_eq!(ended.unwrap().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(theirs.start(&says("Next."), "Next").outcome().await.unwrap().text, "Next.");
}

#[tokio::test(start_paused = true)]
async fn attack_10_a_process_that_stood_still_begins_nothing_below_a_run_that_ended() {
    for stops in [true, false] {
        let (store, gate) = (memory(), Gate::new());
        let below = ScriptedProvider::by_history().text("Below.");
        let below_it = AgentTool::new(agent(below.model()).build().unwrap()).with_name("below");
        let lead = ScriptedProvider::by_history().call("below", json!({"prompt": "Go"})).text("Done.");
        let (session, other) = (still(&store, &gate).session(), moving(&store));
        let run = session.start(&agent(lead.model()).tool(below_it).build().unwrap(), "Go");
        gate.arrived(1).await;
        tokio::time::sleep(LONG).await;
        let theirs = other.open(session.id()).await.unwrap();
        match stops {
            true => assert!(theirs.stop().await.unwrap()),
            false => drop(theirs.start(&says("Next."), "Next").outcome().await.unwrap()),
        }
        gate.open();
        assert_eq!(run.outcome().await.unwrap_err().kind(), ErrorKind::Conflict, "{stops}");
        assert_eq!(below.count(), 0, "{stops}: a model was asked for a run that is over");
        // The session that it created is not left open, with nobody who would end it.
        let sessions = store.query(&SessionFilter::all()).await.unwrap();
        assert_eq!(sessions.len(), 2, "{stops}");
        assert!(sessions.iter().all(|it| it.head.status == SessionStatus::Idle), "{stops}: {sessions:?}");
    }
}

/// The store of a process that takes a session below over, just as the run there ends.
#[derive(Debug)]
struct EndsFirst {
    inner: SharedStore,
    gate: Gate,
}

#[async_trait]
impl Meddles for EndsFirst {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn lease(&self, session: &SessionId, lease: Lease) -> Result<()> {
        if session.as_str().contains("$$") {
            self.gate.open();
            let filter = SessionFilter::id(session.clone());
            while self.inner.query(&filter).await?.iter().any(|it| it.head.status != SessionStatus::Idle) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        self.inner.lease(session, lease).await
    }
}

/// An agent that asks another one, whose model waits at this gate.
fn asks(gate: &Gate) -> Do {
    let script = |text: &str| Script::new().wait(gate).text(text).finish(FinishReason::Stop);
    let provider = ScriptedProvider::by_history().step(script("one")).step(script("two"));
    let other: Arc<dyn Agent> = Arc::new(agent(provider.model()).build().unwrap());
    act(move |cx| {
        let other = Arc::clone(&other);
        Box::pin(async move { Ok(cx.ask("talk", other, "Go").await?.text) })
    })
}

#[tokio::test(start_paused = true)]
async fn attack_10_a_run_below_that_ended_as_it_was_taken_over_leaves_no_lease() {
    let (store, gate, open) = (memory(), Gate::new(), Gate::new());
    open.open();
    let session = moving(&store).session();
    let run = session.start(&asks(&gate), "Go");
    gate.arrived(1).await;
    let taking = Through(EndsFirst { inner: Arc::clone(&store), gate: gate.clone() });
    let theirs = testkit::runtime().store(taking).build().open(session.id()).await.unwrap();
    assert_eq!(theirs.resume(&asks(&open)).outcome().await.unwrap().text, "one");
    assert_eq!(run.outcome().await.unwrap_err().kind(), ErrorKind::Conflict);
    // In a third process, the next run goes on with the conversation below.
    let third = moving(&store).open(session.id()).await.unwrap();
    assert_eq!(third.start(&asks(&open), "Again").outcome().await.unwrap().text, "two");
}
