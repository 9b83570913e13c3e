//! Views tell what is open: runs, questions and model calls that wait are shown so, and those that nobody continues are
//! not, whether this version ended them or an older one left them without an end.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Result, RunId,
    event::{Envelope, Event, Origin},
    permission::{ApprovalRequest, Approver, Decision},
    run::{Pause, Status},
    session::{Batch, ReadRange, Row, SessionFilter, SessionState, SessionStore, SharedStore},
    tool::Access,
};
use entourage_runners::ReactAgent;
use entourage_runtime::permission::Policy;
use entourage_runtime::{MemoryStore, Runtime};
use entourage_store::SqliteStore;
use entourage_testkit::{self as testkit, FakeTool, Gate, Script, ScriptedProvider};
use serde_json::{Value, json};
use sqlx::SqliteConnection;

use crate::{
    engines::{find, lite_of, normal},
    seed::{Delegate, calls, id, model, process, reply},
};

/// An approver that has been asked, and never answers.
#[derive(Debug)]
struct Thinking(Gate);

#[async_trait]
impl Approver for Thinking {
    async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
        self.0.pass().await;
        Ok(Decision::Later)
    }
}

fn runtime(store: &SharedStore) -> Runtime {
    let policy = Policy::allow_all().ask("write");
    testkit::runtime().policy(policy).shared_store(Arc::clone(store)).build()
}

fn asker(name: &str) -> ReactAgent {
    let provider = ScriptedProvider::by_history()
        .step(calls(&[("write", json!({"path": "map"}))], 1_000, 0))
        .step(reply("Done.", 1_000, 0))
        .step(reply("Done.", 1_000, 0));
    let write = FakeTool::new("write").access(Access::WRITE);
    ReactAgent::builder(name, model(&provider, "m", true)).tool(write).build().unwrap()
}

/// An agent whose question is asked by another one below it.
fn lead() -> ReactAgent {
    let provider = ScriptedProvider::by_history()
        .step(calls(&[("ask", json!({"task": "write"}))], 1_000, 0))
        .step(reply("Done.", 1_000, 0));
    ReactAgent::builder("lead", model(&provider, "m", true))
        .tool(Delegate::new("ask", asker("scribe")))
        .build()
        .unwrap()
}

/// Appends the begin of a run in the place of the open one, as older versions did.
async fn begin_as_older_versions(store: &SharedStore, name: &str) {
    let info = store.query(&SessionFilter::id(id(name))).await.unwrap().remove(0);
    let mut state = SessionState::default();
    for row in store.read(&id(name), ReadRange::all()).await.unwrap() {
        state.apply(&row.into_envelope(&id(name)).unwrap());
    }
    let prompt = json!({"role": "user", "parts": [{"text": "Forget it."}]});
    let started = json!({"format": 1, "agent": "lead", "prompt": prompt});
    let started = Event::RunStarted(serde_json::from_value(started).unwrap());
    let origin = Arc::new(Origin::new(id(name), RunId::generate(), "lead"));
    let at = info.head.updated.after(Duration::from_secs(1));
    let event = Envelope::new(origin, info.head.seq + 1, at, started);
    state.apply(&event);
    let batch = Batch::new(7, vec![Row::live(event)], state.head().clone()).of(&info.record);
    store.append(&id(name), info.head.seq, batch).await.unwrap();
}

async fn sessions() -> SharedStore {
    let store: SharedStore = Arc::new(MemoryStore::new());
    let runtime = runtime(&store);
    for name in ["abandoned", "answered", "older", "put_off", "stopped"] {
        let outcome = runtime.session_with_id(id(name)).start(&lead(), "Go.").outcome().await.unwrap();
        let Status::Paused(Pause::Approval(question)) = outcome.status else { panic!("{outcome}") };
        let session = runtime.session_with_id(id(name));
        match name {
            "abandoned" => drop(session.start(&lead(), "Forget it.").outcome().await.unwrap()),
            "answered" => {
                runtime.decide(&question, Decision::Allow).await.unwrap();
                session.resume(&lead()).outcome().await.unwrap();
            }
            "older" => begin_as_older_versions(&store, name).await,
            "stopped" => assert!(session.stop().await.unwrap()),
            _ => {}
        }
    }
    let gate = Gate::new();
    let asked = testkit::runtime().approver(Thinking(gate.clone())).shared_store(Arc::clone(&store)).build();
    let run = asked.session_with_id(id("cancelled")).start(&asker("lead"), "Go.");
    gate.arrived(1).await;
    run.cancel();
    assert_eq!(run.outcome().await.unwrap().status, Status::Cancelled);
    store
}

/// Runs `sql` on both engines, the second if there is one.
async fn check(lite: &mut SqliteConnection, sql: &str, expected: Value) {
    let expected = normal(expected);
    assert_eq!(find(lite, sql).await, expected, "{sql}");
    #[cfg(feature = "postgres")]
    if let Some(mut postgres) = crate::engines::postgres::copy_of(lite, sql).await {
        assert_eq!(crate::engines::postgres::find(&mut postgres, sql).await, expected, "PostgreSQL: {sql}");
    }
}

#[tokio::test]
async fn newcomer_b4_a_run_that_nobody_continues_is_not_shown_as_open() {
    let mut lite = lite_of(|| process(sessions())).await;
    let row = |session: &str, status: &str, reason: Value| json!({"session": session, "status": status, "reason": reason});
    let mut expected = Vec::new();
    for (name, below) in [
        ("abandoned", Some(("cancelled", json!("abandoned")))),
        ("answered", Some(("completed", Value::Null))),
        ("cancelled", None),
        ("older", Some(("paused", json!("approval")))),
        ("put_off", Some(("paused", json!("approval")))),
        ("stopped", Some(("cancelled", Value::Null))),
    ] {
        let top = match name {
            "abandoned" | "older" => row(name, "cancelled", json!("abandoned")),
            "answered" => row(name, "completed", Value::Null),
            "put_off" => row(name, "paused", json!("approval")),
            _ => row(name, "cancelled", Value::Null),
        };
        expected.push(top);
        match name {
            "abandoned" => expected.push(row(name, "completed", Value::Null)),
            "older" => expected.push(row(name, "running", Value::Null)),
            _ => {}
        }
        if let Some((status, reason)) = below {
            expected.push(row(&format!("{name}.3$$0"), status, reason));
        }
    }
    let sql = "SELECT session, status, reason FROM agent_executions ORDER BY session, seq";
    check(&mut lite.db, sql, json!(expected)).await;
    // Who ended without an end of its own ended when the next run began.
    let sql = "SELECT micros FROM agent_executions WHERE session = 'older' ORDER BY seq";
    check(&mut lite.db, sql, json!([{"micros": 1_000_000}, {"micros": null}])).await;
}

#[tokio::test]
async fn newcomer_b5_a_question_is_open_as_long_as_an_answer_is_waited_for() {
    let mut lite = lite_of(|| process(sessions())).await;
    let row = |session: &str, decision: Value, status: &str| json!({"session": session, "decision": decision, "status": status});
    let expected = json!([
        row("abandoned.3$$0", Value::Null, "closed"),
        row("answered.3$$0", json!("allow"), "answered"),
        row("cancelled", Value::Null, "closed"),
        row("older.3$$0", Value::Null, "open"),
        row("put_off.3$$0", Value::Null, "open"),
        row("stopped.3$$0", Value::Null, "closed"),
    ]);
    let sql = "SELECT session, decision, status FROM approvals ORDER BY session, seq";
    check(&mut lite.db, sql, expected).await;
}

/// A session in which one call of two has ended, and the process of the other died.
async fn cut_off() -> SharedStore {
    let store: SharedStore = Arc::new(MemoryStore::new());
    let gate = Gate::new();
    let provider = ScriptedProvider::new()
        .step(calls(&[("look", json!({}))], 1_000, 0))
        .step(Script::new().wait(&gate).text("never"));
    let agent = ReactAgent::builder("lead", model(&provider, "m", true)).tool(FakeTool::new("look"));
    let agent = agent.build().unwrap();
    let run = runtime(&store).session_with_id(id("cut")).start(&agent, "Go.").outcome();
    tokio::select! {
        () = gate.arrived(1) => {}
        ended = run => panic!("the run must not end: {ended:?}"),
    }
    store
}

#[tokio::test]
async fn newcomer_b2_a_call_without_an_end_makes_each_sum_that_it_is_part_of_unknown() {
    let mut lite = lite_of(|| process(cut_off())).await;
    for sql in [
        "SELECT cost_pico FROM sessions",
        "SELECT cost_pico FROM agent_executions",
        "SELECT cost_pico FROM agents",
        "SELECT total_cost_pico AS cost_pico FROM session_totals",
    ] {
        check(&mut lite.db, sql, json!([{"cost_pico": null}])).await;
    }
    let sql = "SELECT cost_pico FROM model_calls ORDER BY seq";
    check(&mut lite.db, sql, json!([{"cost_pico": 1_000_000_000}, {"cost_pico": null}])).await;
}

/// Heads of older versions counted the calls that had ended.
#[tokio::test]
async fn a_head_of_an_older_version_gets_the_unknown_cost_of_its_open_call() {
    use sqlx::{AssertSqlSafe, Connection, sqlite::SqliteConnectOptions};
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("team.db");
    let mut db =
        SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(&path).create_if_missing(true))
            .await
            .unwrap();
    let frozen = include_str!("../../../tests/corpus/sqlite/v3.sql");
    let call = "UPDATE sessions SET seq = 5 WHERE id = 'killed'; INSERT INTO events (session, seq, at, kind, run, agent, writer, body) \
                SELECT session, 5, at, 'model_started', run, agent, writer, '{\"step\":2,\"provider\":\"north\",\"model\":\"m\"}' \
                FROM events WHERE session = 'killed' AND seq = 4;";
    for sql in [frozen, call] {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut db).await.unwrap();
    }
    db.close().await.unwrap();
    let store = SqliteStore::open(&path).await.unwrap();
    for (name, known) in [("killed", false), ("put_off", true)] {
        let info = store.query(&SessionFilter::id(id(name))).await.unwrap().remove(0);
        assert_eq!(info.head.cost.is_some(), known, "{name}");
    }
    store.close().await;
}
