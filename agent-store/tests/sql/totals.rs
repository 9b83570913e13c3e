//! The totals of a tree are computed from each session's own figures, so nothing is counted twice or lost, whatever
//! happens to children.

use std::{num::NonZero, path::Path, sync::Arc};

use entourage_core::{
    run::{Limits, Outcome},
    session::{SessionStore, SharedStore},
    tool::Repeat,
};
use entourage_runners::ReactAgent;
use entourage_runtime::permission::Policy;
use entourage_runtime::{MemoryStore, Runtime};
use entourage_store::SqliteStore;
use entourage_testkit::{self as testkit, FakeTool, Gate, ScriptedProvider};
use serde_json::{Value, json};
use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::{
    engines::find,
    seed::{Delegate, calls, copy, count, id, model, reply},
};

/// One cent in pico-dollars.
const CENT: u64 = 10_000_000_000;

fn runtime(store: &SharedStore) -> Runtime {
    testkit::runtime().policy(Policy::allow_all()).shared_store(Arc::clone(store)).sub_agents(20).build()
}

async fn file(path: &Path) -> SharedStore {
    Arc::new(SqliteStore::open(path).await.unwrap())
}

async fn totals(path: &Path, session: &str) -> Value {
    let mut db = SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(path)).await.unwrap();
    let sql = format!(
        "SELECT descendants, own_cost_pico AS own, descendants_cost_pico AS below, total_cost_pico AS total, \
         total_input_tokens AS input, total_output_tokens AS output FROM session_totals WHERE session = '{session}'"
    );
    find(&mut db, &sql).await
}

/// Returns the expected row. Money is in cents, and tokens cost a dollar for a million.
#[allow(clippy::cast_precision_loss)]
fn sums(descendants: u64, own: u64, below: u64, input: u64) -> Value {
    let pico = |cents: u64| (cents * CENT) as f64;
    json!([{"descendants": descendants as f64, "own": pico(own), "below": pico(below), "total": pico(own + below),
        "input": input as f64, "output": 0.0}])
}

/// Returns an agent that asks `count` others at once, each for a cent, and takes two cents itself.
fn parent(children: &ScriptedProvider, count: usize) -> ReactAgent {
    let child = ReactAgent::builder("child", model(children, "small", true)).build().unwrap();
    // Equal calls would count as a loop.
    let asked: Vec<_> = (0..count).map(|n| ("ask", json!({"task": format!("part {n}")}))).collect();
    let provider =
        ScriptedProvider::by_history().step(calls(&asked, 10_000, 0)).step(reply("Done.", 10_000, 0));
    let mut limits = Limits::default();
    limits.parallel_tools = NonZero::new(count).unwrap();
    ReactAgent::builder("parent", model(&provider, "large", true))
        .limits(limits)
        .tool(Delegate::new("ask", child))
        .build()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn ca05_twenty_children_at_once_add_exactly_twenty_cents() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("team.db");
    let store = file(&path).await;
    // All children are in flight before the first one ends.
    let gate = Gate::new();
    let children = (0..20).fold(ScriptedProvider::new(), |provider, _| {
        provider.step(testkit::Script::new().wait(&gate).text("ok").usage(10_000, 0))
    });
    let (parent, session) = (parent(&children, 20), runtime(&store).session_with_id(id("p")));
    let run = session.start(&parent, "Ask around.").outcome();
    let opener = async {
        gate.arrived(20).await;
        let mut expected = sums(20, 1, 0, 10_000);
        (expected[0]["below"], expected[0]["total"]) = (Value::Null, Value::Null);
        assert_eq!(totals(&path, "p").await, expected, "nobody knows what is being spent");
        gate.open();
    };
    let (outcome, ()) = tokio::join!(run, opener);
    assert!(outcome.unwrap().is_completed());
    assert_eq!(totals(&path, "p").await, sums(20, 2, 20, 220_000));
}

/// Returns a parent with one child. The child's first reply costs a cent; it then looks, and answers for another cent.
fn family(look: &FakeTool) -> ReactAgent {
    let child = ScriptedProvider::by_history()
        .step(calls(&[("look", json!({}))], 10_000, 0))
        .step(reply("seen", 10_000, 0));
    let child =
        ReactAgent::builder("child", model(&child, "small", true)).tool(look.clone()).build().unwrap();
    let provider = ScriptedProvider::by_history()
        .step(calls(&[("ask", json!({"task": "go"}))], 10_000, 0))
        .step(reply("Done.", 10_000, 0));
    ReactAgent::builder("parent", model(&provider, "large", true))
        .tool(Delegate::new("ask", child))
        .build()
        .unwrap()
}

/// Runs `future` on a runtime of its own, like a process: at its end the tasks that it left are dropped.
fn process<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn ca05_a_child_killed_midway_is_counted_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("team.db");
    process(async {
        let (store, gate) = (file(&path).await, Gate::new());
        let agent = family(&FakeTool::new("look").repeat(Repeat::Safe).behind(&gate));
        let run = runtime(&store).session_with_id(id("p")).start(&agent, "Go.").outcome();
        tokio::select! {
            () = gate.arrived(1) => {}
            ended = run => panic!("the run must not end: {ended:?}"),
        }
    });
    assert_eq!(process(totals(&path, "p")), sums(1, 1, 1, 20_000), "what was spent before the kill");

    let outcome: Outcome = process(async {
        let agent = family(&FakeTool::new("look").repeat(Repeat::Safe));
        let store = file(&path).await;
        runtime(&store).session_with_id(id("p")).resume(&agent).outcome().await.unwrap()
    });
    assert!(outcome.is_completed());
    assert_eq!(process(totals(&path, "p")), sums(1, 2, 2, 40_000), "the child's first cent counts once");
    assert_eq!(process(async { count(&*file(&path).await, &id("p"), "run_resumed").await }), 1);
}

/// Returns nested agents, one for each name. Each reply costs ten cents; all but the last agent reply twice.
fn level(names: &[&str]) -> ReactAgent {
    let (name, below) = names.split_first().unwrap();
    let mut provider = ScriptedProvider::by_history();
    if !below.is_empty() {
        provider = provider.step(calls(
            &[("ask", json!({"task": "go"})), ("ask", json!({"task": "on"}))],
            100_000,
            0,
        ));
    }
    let builder = ReactAgent::builder(*name, model(&provider.step(reply("ok", 100_000, 0)), "m", true));
    if below.is_empty() {
        return builder.build().unwrap();
    }
    builder.tool(Delegate::new("ask", level(below))).build().unwrap()
}

#[tokio::test]
async fn cc04_a_tree_of_three_levels_is_split_into_own_and_descendants() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("team.db");
    let store = file(&path).await;
    let top = level(&["top", "middle", "bottom"]);
    runtime(&store).session_with_id(id("p")).start(&top, "Go.").outcome().await.unwrap();
    // Two in the middle at two replies each, four at the bottom at one.
    assert_eq!(totals(&path, "p").await, sums(6, 20, 80, 1_000_000));
    let middle = totals(&path, "p.3$$0").await;
    assert_eq!(middle, sums(2, 20, 20, 400_000));
    let bottom = totals(&path, "p.3$$0.3$$1").await;
    assert_eq!(bottom, sums(0, 10, 0, 100_000));

    // An unknown part makes the sums above it unknown, never zero, and no others.
    let mut db = SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(&path)).await.unwrap();
    let unknown = "UPDATE sessions SET cost_pico = NULL WHERE id = 'p.3$$1.3$$0'";
    sqlx::raw_sql(unknown).execute(&mut db).await.unwrap();
    let found = totals(&path, "p").await;
    assert_eq!((&found[0]["below"], &found[0]["total"]), (&Value::Null, &Value::Null));
    assert_eq!(found[0]["own"], sums(0, 20, 0, 0)[0]["own"]);
    assert_eq!(totals(&path, "p.3$$0").await, middle);
    assert_eq!(totals(&path, "p.3$$1.3$$1").await, bottom);
}

#[tokio::test]
async fn ai02_asking_again_adds_nothing_and_the_unknown_has_no_totals() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("team.db");
    let (store, memory) =
        (SqliteStore::open(&path).await.unwrap(), Arc::new(MemoryStore::new()) as SharedStore);
    let agent = family(&FakeTool::new("look"));
    runtime(&memory).session_with_id(id("p")).start(&agent, "Go.").outcome().await.unwrap();
    copy(&memory, &store).await;
    let before = totals(&path, "p").await;
    assert_eq!(before, sums(1, 2, 2, 40_000));
    // The read of the parent and the repeated batch must not roll anything up a second time.
    copy(&memory, &store).await;
    assert_eq!(totals(&path, "p").await, before);
    assert_eq!(totals(&path, "nobody").await, json!([]));
    // The cost of a deleted child leaves the tree too: no second place holds it.
    store.delete(&id("p.3$$0")).await.unwrap();
    assert_eq!(totals(&path, "p").await, sums(0, 2, 0, 20_000));
}
