//! Idempotency keys: the same for every try of a call, and for no other call ever, whatever its session is called.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use entourage_core::{
    ErrorKind, SessionId,
    permission::{ApprovalId, Decision},
    run::{Pause, RunContext, Status},
    session::{Batch, ReadRange, Row, SessionFilter, SharedStore},
    tool::{Access, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec, Tools},
};
use entourage_runners::ReactAgent;
use entourage_runtime::permission::Policy;
use entourage_testkit::{self as testkit, FakeTool, Gate, ScriptedProvider};
use serde_json::json;

use crate::common::{act, agent, memory, process, runtime_on};

/// A repeatable tool that records the keys of its calls. Behind a gate it never ends.
#[derive(Debug, Clone)]
struct Pay(ToolSpec, Arc<Mutex<Vec<String>>>, Option<Gate>);

impl Pay {
    fn new() -> Self {
        let spec = ToolSpec::new("pay", "Pays.", json!({"type": "object"}));
        Self(spec.with_access(Access::WRITE).with_repeat(Repeat::Idempotent), Arc::default(), None)
    }

    fn behind(&self, gate: &Gate) -> Self {
        Self(self.0.clone(), Arc::clone(&self.1), Some(gate.clone()))
    }

    fn keys(&self) -> Vec<String> {
        self.1.lock().unwrap().clone()
    }
}

#[async_trait]
impl Tool for Pay {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        self.1.lock().unwrap().push(cx.idempotency_key());
        if let Some(gate) = &self.2 {
            gate.pass().await;
        }
        Ok(ToolOutput::text("paid"))
    }
}

fn order() -> SessionId {
    SessionId::new("order").unwrap()
}

/// An agent that pays three times, after `said` earlier replies in its conversation.
fn payer(pay: &Pay, said: usize) -> ReactAgent {
    let twice = [("pay", json!({})), ("pay", json!({}))];
    let provider = (0..said).fold(ScriptedProvider::by_history(), |it, _| it.text("-"));
    let provider = provider.calls(twice).call("pay", json!({})).text("Paid.");
    agent(provider.model()).tool(pay.clone()).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_key_differs_for_every_other_call_also_in_a_later_session_of_the_same_name() {
    let store = memory();
    let pay = Pay::new();
    let tools = Tools::new([Arc::new(pay.clone()) as Arc<dyn Tool>]).unwrap();
    let by_hand = act(move |cx: &RunContext| {
        let tools = tools.clone();
        Box::pin(async move {
            cx.call_tool(&tools, "pay", &json!({})).await?;
            Ok(cx.call_tool(&tools, "pay", &json!({})).await?.to_text())
        })
    });
    let mut made = 0;
    for _ in 0..3 {
        for said in [0, 4] {
            let session = runtime_on(&store).session_with_id(order());
            session.start(&payer(&pay, said), "Go").outcome().await.unwrap();
            session.start(&by_hand, "Go").outcome().await.unwrap();
            made += 5;
        }
        store.delete(&order()).await.unwrap();
    }
    let keys = pay.keys();
    assert_eq!((keys.len(), keys.iter().collect::<HashSet<_>>().len()), (made, made), "{keys:?}");
    assert!(keys.iter().all(|key| key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_hexdigit())));
}

/// Runs a process that dies while it pays.
fn dies(store: &SharedStore, pay: &Pay) {
    process(async {
        let gate = Gate::new();
        let agent = payer(&pay.behind(&gate), 0);
        runtime_on(store).session_with_id(order()).start(&agent, "Go").detach();
        gate.arrived(1).await;
    });
}

fn goes_on(store: &SharedStore, pay: &Pay) {
    process(async {
        let session = runtime_on(store).session_with_id(order());
        assert_eq!(session.resume(&payer(pay, 0)).outcome().await.unwrap().text, "Paid.");
    });
}

#[test]
fn a_call_that_is_tried_again_in_another_process_keeps_its_key() {
    let (store, pay) = (memory(), Pay::new());
    dies(&store, &pay);
    goes_on(&store, &pay);
    let keys = pay.keys();
    assert_eq!((keys.len(), keys.iter().collect::<HashSet<_>>().len()), (4, 3), "{keys:?}");
    assert_eq!(keys[0], keys[1]);
}

/// A copy of the session in the form of an older version, whose runs did not name their calls.
async fn older(from: &SharedStore) -> SharedStore {
    let to = memory();
    let info = from.query(&SessionFilter::id(order())).await.unwrap().pop().unwrap();
    let mut changed = 0;
    let rows = from.read(&order(), ReadRange::all()).await.unwrap();
    let rows = rows.into_iter().map(|row| {
        let body = row.body().unwrap().into_owned();
        let old = body.replace(",\"named_by_run\":true", "");
        changed += usize::from(old != body);
        Row::stored(row.columns(), old)
    });
    let batch = Batch::new(1, rows.collect(), info.head).creating(info.record);
    assert_eq!(changed, 1);
    to.append(&order(), 0, batch).await.unwrap();
    to
}

#[test]
fn a_run_that_an_older_version_began_keeps_its_keys() {
    let (store, pay) = (memory(), Pay::new());
    dies(&store, &pay);
    let store = process(older(&store));
    goes_on(&store, &pay);
    assert_eq!(pay.keys()[1..], ["order.3$$0", "order.3$$1", "order.11$$0"]);
}

async fn question(store: &SharedStore) -> ApprovalId {
    let runtime = testkit::runtime().policy(Policy::new()).shared_store(Arc::clone(store)).build();
    let provider = ScriptedProvider::by_history().call("write", json!({"all": true})).text("Done.");
    let write = FakeTool::new("write").access(Access::WRITE);
    let agent = agent(provider.model()).tool(write).build().unwrap();
    let outcome = runtime.session_with_id(order()).start(&agent, "Go").outcome().await.unwrap();
    let Status::Paused(Pause::Approval(id)) = outcome.status else { panic!("{outcome}") };
    assert_eq!(id.session(), Some(order()));
    id
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_question_of_a_deleted_session_answers_no_other() {
    let store = memory();
    let old = question(&store).await;
    store.delete(&order()).await.unwrap();
    let new = question(&store).await;
    assert_ne!(old, new);
    let error = runtime_on(&store).decide(&old, Decision::Allow).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn a_question_of_an_older_version_is_still_answered() {
    let store = memory();
    let store = process(async {
        question(&store).await;
        older(&store).await
    });
    process(async {
        let runtime = testkit::runtime().policy(Policy::new()).shared_store(Arc::clone(&store)).build();
        let provider = ScriptedProvider::by_history().text("-").text("Done.");
        let write = FakeTool::new("write").access(Access::WRITE);
        let agent = agent(provider.model()).tool(write.clone()).build().unwrap();
        let session = runtime.open(&order()).await.unwrap();
        let outcome = session.resume(&agent).outcome().await.unwrap();
        let Status::Paused(Pause::Approval(id)) = outcome.status else { panic!("{outcome}") };
        assert_eq!(id.as_str(), "order.3$$0");
        runtime.decide(&id, Decision::Allow).await.unwrap();
        assert_eq!(session.resume(&agent).outcome().await.unwrap().text, "Done.");
        assert_eq!(write.finished(), 1);
    });
}
