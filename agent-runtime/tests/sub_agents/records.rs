//! Costs of sub-agents, the place of their sessions, and their records.

use std::{num::NonZeroUsize, sync::Arc};

use entourage_core::{
    ErrorKind, Money, Prices, SessionId, Timestamp,
    budget::BudgetLimits,
    provider::{Model, Profile},
    run::{Limits, Status, Task},
    session::{Batch, Row, SessionFilter, SessionHead, SessionRecord, SharedStore},
};
use entourage_runners::{AgentTool, ReactAgent};
use entourage_runtime::telemetry::Telemetry;
use entourage_testkit::{Gate, Script, ScriptedProvider};
use serde_json::json;

use crate::common::{agent, memory, process, runtime_on, stored};

const CENT: u64 = 10_000_000_000;

/// Creates a model whose every call of the scripted usage (10 tokens in) costs a cent.
fn a_cent(provider: &ScriptedProvider) -> Model {
    let mut profile = Profile::default();
    profile.prices = Some(Prices::per_million_micros(1_000_000_000, 0));
    provider.model().with_profile(profile)
}

fn root() -> SessionId {
    SessionId::new("work").unwrap()
}

fn sub(provider: &ScriptedProvider) -> ReactAgent {
    ReactAgent::builder("sub", a_cent(provider)).build().unwrap()
}

/// Creates a lead that delegates `count` parts in parallel.
fn lead(count: usize, sub: ReactAgent) -> ReactAgent {
    let calls: Vec<_> = (0..count).map(|n| ("agent", json!({"prompt": format!("part {n}")}))).collect();
    let provider = ScriptedProvider::by_history().calls(calls).text("Done.");
    let mut limits = Limits::default();
    limits.parallel_tools = NonZeroUsize::new(count).unwrap();
    agent(a_cent(&provider)).tool(AgentTool::new(sub)).limits(limits).build().unwrap()
}

async fn costs(store: &SharedStore) -> (Option<Money>, Option<Money>) {
    let stats = Telemetry::new(Arc::clone(store)).session_stats("work").await.unwrap();
    (stats.own.cost, stats.descendants.cost)
}

fn cents(count: u64) -> Option<Money> {
    Some(Money::from_pico(count * CENT))
}

#[tokio::test(start_paused = true)]
async fn ca05_twenty_children_at_once_of_a_cent_each_come_to_twenty_cents() {
    let store = memory();
    let below = ScriptedProvider::by_history().text("Seen.");
    let task = Task::new("Go").with_budget(BudgetLimits::none().with_money(Money::from_pico(100 * CENT)));
    let session = runtime_on(&store).session_with_id(root());
    let outcome = session.start(&lead(20, sub(&below)), task).outcome().await.unwrap();
    assert_eq!(costs(&store).await, (cents(2), cents(20)));
    assert_eq!(outcome.cost, cents(2), "a run's own");
    let children = store.query(&SessionFilter::children_of(root())).await.unwrap();
    assert_eq!(children.len(), 20);
    assert!(children.iter().all(|child| child.head.cost == cents(1)));
}

#[test]
fn ca05_what_was_spent_before_a_kill_is_counted_once() {
    let store = memory();
    let gate = Gate::new();
    process(async {
        // One of three has its answer when the process dies; the cost of the other two calls is unknown.
        let seen = Script::new().text("Seen.").usage(10, 5);
        let below =
            ScriptedProvider::by_history().step(seen.finish(entourage_core::provider::FinishReason::Stop));
        let waits = FirstFree(below, gate.clone());
        runtime_on(&store).session_with_id(root()).start(&lead(3, sub_on(&waits)), "Go").detach();
        gate.arrived(2).await;
        while store
            .query(&SessionFilter::children_of(root()))
            .await
            .unwrap()
            .iter()
            .all(|it| it.head.cost != cents(1))
        {
            tokio::task::yield_now().await;
        }
        assert_eq!(costs(&store).await.1, None, "two calls are open");
    });
    process(async {
        let below = ScriptedProvider::by_history().text("Seen.");
        let session = runtime_on(&store).open(&root()).await.unwrap();
        assert_eq!(session.resume(&lead(3, sub(&below))).outcome().await.unwrap().text, "Done.");
        assert_eq!(below.count(), 2, "the one that was completed is not asked again");
        assert_eq!(costs(&store).await, (cents(2), None), "two calls were cut, and cost something");
    });
}

/// Answers the first part at once, and lets the others wait.
struct FirstFree(ScriptedProvider, Gate);

fn sub_on(waits: &FirstFree) -> ReactAgent {
    let (provider, gate) = (waits.0.provider(), waits.1.clone());
    let model = a_cent(&waits.0)
        .layer(move |_| Arc::new(Held { inner: Arc::clone(&provider), gate: gate.clone() }) as _);
    ReactAgent::builder("sub", model).build().unwrap()
}

#[derive(Debug)]
struct Held {
    inner: Arc<dyn entourage_core::provider::Provider>,
    gate: Gate,
}

#[async_trait::async_trait]
impl entourage_core::provider::Provider for Held {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn stream(
        &self,
        request: entourage_core::provider::Request,
        cx: &entourage_core::provider::CallContext,
    ) -> entourage_core::Result<entourage_core::provider::DeltaStream> {
        if request.messages.last().is_some_and(|message| message.text() != "part 0") {
            self.gate.pass().await;
        }
        self.inner.stream(request, cx).await
    }
}

#[tokio::test(start_paused = true)]
async fn ca07_children_are_listed_and_deleted_only_with_their_parent() {
    let store = memory();
    let leaf = ScriptedProvider::by_history().text("Seen.");
    let middle = lead(2, sub(&leaf));
    let calls = [("agent", json!({"prompt": "a"})), ("agent", json!({"prompt": "b"}))];
    let provider = ScriptedProvider::by_history().calls(calls).text("Done.");
    let top = agent(provider.model()).tool(AgentTool::new(middle)).build().unwrap();
    let runtime = runtime_on(&store);
    runtime.session_with_id(root()).start(&top, "Go").outcome().await.unwrap();
    let other = SessionId::new("work2").unwrap();
    runtime.session_with_id(other.clone()).start(&sub(&leaf), "Go").outcome().await.unwrap();

    let roots = runtime.sessions(&SessionFilter::roots()).await.unwrap();
    let mut roots: Vec<_> = roots.iter().map(|it| it.record.id.as_str()).collect();
    roots.sort_unstable();
    assert_eq!(roots, ["work", "work2"]);
    let children = store.query(&SessionFilter::children_of(root())).await.unwrap();
    assert_eq!(children.len(), 2);
    for child in &children {
        let below = store.query(&SessionFilter::children_of(child.record.id.clone())).await.unwrap();
        assert_eq!(below.len(), 2);
        assert!(below.iter().all(|it| it.record.parent.as_ref() == Some(&child.record.id)));
    }
    assert_eq!(store.query(&SessionFilter::tree(root())).await.unwrap().len(), 7);
    assert_eq!(store.delete(&root()).await.unwrap(), 7);
    let left = store.query(&SessionFilter::all()).await.unwrap();
    assert_eq!(left.iter().map(|it| &it.record.id).collect::<Vec<_>>(), [&other]);
}

#[tokio::test(start_paused = true)]
async fn ai01_a_sub_agents_record_has_agent_task_times_status_and_usage() {
    let store = memory();
    let below = ScriptedProvider::new().text("Seen.").fail(ErrorKind::InvalidInput, "the service is gone");
    let calls = |n: u64| ("agent", json!({"prompt": format!("Look at {n}")}));
    let provider = ScriptedProvider::by_history().calls([calls(1)]).calls([calls(2)]).text("Done.");
    let lead = agent(provider.model()).tool(AgentTool::new(sub(&below))).build().unwrap();
    runtime_on(&store).session_with_id(root()).start(&lead, "Go").outcome().await.unwrap();

    let telemetry = Telemetry::new(Arc::clone(&store));
    let mut found = Vec::new();
    for info in store.query(&SessionFilter::children_of(root())).await.unwrap() {
        let trace = telemetry.trace(info.record.id.as_str()).await.unwrap();
        let [task] = &trace.exchanges[..] else { panic!("{trace:?}") };
        assert_eq!(info.record.parent, Some(root()));
        assert_eq!((&*info.head.agent, &*info.head.title), ("sub", "Sub-agent sub"));
        assert!(info.record.created <= task.started && task.ended.is_some_and(|ended| ended >= task.started));
        found.push((task.prompt.text(), task.status.clone().unwrap(), task.answer.clone(), info.head.cost));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let [(one, Status::Completed, answer, cost), (two, Status::Failed(error), ..)] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!((one.as_str(), answer.as_str(), *cost), ("Look at 1", "Seen.", cents(1)));
    assert_eq!((two.as_str(), error.kind), ("Look at 2", ErrorKind::InvalidInput));
    assert_eq!(below.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn ai01_a_sub_session_needs_its_parent() {
    let store = memory();
    let child = root().child(1, 0).unwrap();
    let events = {
        let other = memory();
        let provider = ScriptedProvider::new().text("Seen.");
        let session = runtime_on(&other).session_with_id(root());
        session.start(&sub(&provider), "Go").outcome().await.unwrap();
        stored(&other, &root()).await
    };
    let mut head = SessionHead::default();
    head.seq = 1;
    let record = SessionRecord::child(child.clone(), root(), "child", Timestamp::default());
    let batch = Batch::new(1, vec![Row::live(events[0].clone())], head).creating(record);
    let error = store.append(&child, 0, batch).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}
