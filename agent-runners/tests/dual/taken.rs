//! A run that another process took over from a slow one: what the slow one does then.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    ErrorKind, Result,
    session::{SessionFilter, SessionInfo, SharedStore},
    tool::{Access, Repeat},
};
use entourage_runners::{DualAgent, ReactAgent};
use entourage_runtime::permission::Policy;
use entourage_testkit::{self as testkit, FakeTool, Gate, ScriptedProvider};
use serde_json::json;

use crate::{
    common::{LaterClock, Meddles, Through, count, memory, stored},
    pair::{child, session},
};

/// Lists the executor's session only once its gate is open.
#[derive(Debug)]
struct Slow(SharedStore, Gate, AtomicBool);

#[async_trait]
impl Meddles for Slow {
    fn inner(&self) -> &SharedStore {
        &self.0
    }

    async fn query(&self, filter: &SessionFilter) -> Result<Vec<SessionInfo>> {
        if filter.id == Some(child("executor")) && self.2.load(Ordering::SeqCst) {
            self.1.pass().await;
        }
        self.0.query(filter).await
    }
}

fn pays(pay: &FakeTool) -> DualAgent {
    let works = ScriptedProvider::by_history().text("Begun.").text("I began.").call("pay", json!({}));
    let works = works.text("Paid.").text("I paid.").text("More.").text("I did more.");
    let done = || json!({"summary": "Seen."});
    let checks = ScriptedProvider::by_history().call("task_complete", done()).call("task_complete", done());
    let worker = ReactAgent::builder("worker", works.model()).tool(pay.clone()).build().unwrap();
    let checker = ReactAgent::builder("checker", checks.model()).build().unwrap();
    DualAgent::builder("pair", worker, checker).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn attack_10_a_slow_process_begins_no_child_of_a_run_that_another_one_took_over() {
    let (store, gate) = (memory(), Gate::new());
    let pay = FakeTool::new("pay").access(Access::WRITE).repeat(Repeat::Once);
    let agent = pays(&pay);
    let clock = |late| LaterClock::new(Duration::from_secs(late));
    let on = |store: SharedStore, late| {
        testkit::runtime().policy(Policy::allow_all()).clock(clock(late)).shared_store(store).build()
    };
    session(&on(Arc::clone(&store), 0)).start(&agent, "Begin.").outcome().await.unwrap();

    let slow = Arc::new(Through(Slow(Arc::clone(&store), gate.clone(), AtomicBool::new(true))));
    let first = on(slow, 60);
    let run = session(&first).start(&agent, "Pay.");
    gate.arrived(1).await;
    let outcome = session(&on(Arc::clone(&store), 600)).resume(&agent).outcome().await.unwrap();
    assert!(outcome.is_completed() && pay.started() == 1, "{outcome}");
    let before = count(&stored(&store, &child("executor")).await, "run_started");

    gate.open();
    let error = run.outcome().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert_eq!(count(&stored(&store, &child("executor")).await, "run_started"), before);
    assert_eq!(pay.started(), 1);
}
