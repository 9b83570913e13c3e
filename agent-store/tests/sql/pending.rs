//! Input that sessions wait for: the views `pending` and `approvals` tell what `Runtime::pending` and the events tell.

use std::{num::NonZero, sync::Arc};

use async_trait::async_trait;
use entourage_core::{
    Result, RunId, Timestamp,
    agent::Agent,
    event::{Envelope, Event, RunFinished, RunStarted},
    message::{Arguments, Message},
    permission::{ApprovalRequest, Approver, Decision},
    run::{Limits, Outcome, RunContext, Status, Task},
    session::{Batch, Columns, Row, SessionFilter, SessionStatus, SharedStore},
    tool::{Access, Tool, ToolSpec, Tools},
};
use entourage_runners::{ReactAgent, ReactBuilder};
use entourage_runtime::permission::Policy;
use entourage_runtime::{Pending, Runtime, Waiting};
use entourage_store::SqliteStore;
use entourage_testkit::{self as testkit, FakeTool, ScriptedProvider};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use tokio::sync::Notify;

use crate::{
    engines,
    seed::{Delegate, id},
};

/// Time of the question that is put off, in microseconds: in 2100.
const UNTIL: i64 = 4_102_444_800_000_000;

/// Decides by the `path` argument.
#[derive(Debug)]
struct Person;

#[async_trait]
impl Approver for Person {
    async fn decide(&self, request: &ApprovalRequest) -> Result<Decision> {
        Ok(match request.arguments.to_value()["path"].as_str() {
            Some("allowed") => Decision::Allow,
            Some("granted") => Decision::AllowSession,
            Some("edited") => Decision::Edit(Arguments::parse(r#"{"path": "mended"}"#)?),
            Some("refused") => Decision::refuse("that file is shared"),
            Some("why") => Decision::Ask("Why there?".to_owned()),
            Some("until") => Decision::Until { at: Timestamp::from_micros(UNTIL), allow: false },
            _ => Decision::Later,
        })
    }

    fn name(&self) -> Option<Arc<str>> {
        Some("ada".into())
    }
}

/// Tells that it is asked, and never answers.
#[derive(Debug, Clone, Default)]
struct Silent(Arc<Notify>);

#[async_trait]
impl Approver for Silent {
    async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
        self.0.notify_one();
        std::future::pending().await
    }
}

/// A hand-written agent that waits for a signal twice, or for a call that it handed out.
#[derive(Debug, Clone)]
struct ByHand(&'static str);

#[async_trait]
impl Agent for ByHand {
    fn name(&self) -> &str {
        "by-hand"
    }

    async fn run(&self, _: Task, cx: &RunContext) -> Result<Outcome> {
        if self.0 == "call" {
            let tools = Tools::new([Arc::new(click(Access::READ)) as Arc<dyn Tool>])?;
            cx.now().await?;
            cx.call_tool(&tools, "click", &json!({"on": "x"})).await?;
        }
        cx.signal(self.0).await?;
        Ok(Outcome::completed(cx.signal(self.0).await?.to_string()))
    }
}

fn click(access: Access) -> impl Tool {
    let spec = ToolSpec::new("click", "Clicks.", json!({"type": "object"}));
    entourage_runners::external(spec.with_access(access))
}

fn runtime(store: &SharedStore, approver: impl Approver + 'static) -> Runtime {
    let policy = Policy::allow_all().ask("look").ask("press");
    testkit::runtime().shared_store(Arc::clone(store)).approver(approver).policy(policy).build()
}

/// Returns an agent whose model makes these calls in one step, and once more in the next.
fn lead(name: &str, calls: &[(&'static str, Value)]) -> ReactBuilder {
    let mut limits = Limits::default();
    limits.parallel_tools = NonZero::new(16).unwrap();
    let step = || calls.to_vec();
    let provider = ScriptedProvider::by_history().calls(step()).calls(step()).text("Done.");
    let spec = ToolSpec::new("press", "Presses.", json!({"type": "object"})).with_access(Access::WRITE);
    ReactAgent::builder(name, provider.model())
        .limits(limits)
        .tool(FakeTool::new("look"))
        .tool(click(Access::READ))
        .tool(entourage_runners::external(spec))
}

fn look(path: &str) -> (&'static str, Value) {
    ("look", json!({"path": path, "deep": ["x", {"er": "é"}]}))
}

fn desk() -> ReactAgent {
    let mut calls = vec![("click", json!({"on": "a"})), ("click", json!({"on": "b"}))];
    calls.extend(["a", "b", "until", "allowed", "granted", "edited", "refused", "why"].map(look));
    above(calls, lead("scout", &[look("g")]).build().unwrap())
}

/// Returns an agent that also has another one do something.
fn above(mut calls: Vec<(&'static str, Value)>, below: impl Agent + 'static) -> ReactAgent {
    calls.insert(0, ("below", json!({"task": "1"})));
    lead("lead", &calls).tool(Delegate::new("below", below)).build().unwrap()
}

/// Ends the run of a session as a process does that is killed before it ends those below. With `next`, a run of the
/// next prompt begins.
async fn cut_short(store: &SharedStore, session: &str, next: bool) {
    let session = id(session);
    let info = store.query(&SessionFilter::id(session.clone())).await.unwrap().remove(0);
    let (mut head, run) = (info.head.clone(), info.head.run.unwrap());
    let event = |head: &entourage_core::session::SessionHead, run, event: Event| {
        let columns = Columns::new(head.seq, head.updated, event.kind().to_owned(), run, "lead");
        Row::stored(columns, event.to_json().unwrap())
    };
    (head.seq, head.status, head.run) = (head.seq + 1, SessionStatus::Idle, None);
    let end = RunFinished::new(Outcome::new(Status::Cancelled), next);
    let mut rows = vec![event(&head, run, Event::RunFinished(Arc::new(end)))];
    if next {
        let run = RunId::generate();
        (head.seq, head.status, head.run) = (head.seq + 1, SessionStatus::Running, Some(run));
        let started = RunStarted::new("lead".into(), Arc::new(Message::user("Next.")));
        rows.push(event(&head, run, Event::RunStarted(Arc::new(started))));
    }
    store.append(&session, info.head.seq, Batch::new(7, rows, head)).await.unwrap();
}

/// Leaves sessions that wait for all kinds of input, and some that wait for none.
async fn leave(store: &SharedStore) {
    let runtime = runtime(store, Person);
    let start = async |session: &str, agent: ReactAgent| {
        let outcome = runtime.session_with_id(id(session)).start(&agent, "Go.").outcome().await.unwrap();
        assert!(matches!(outcome.status, Status::Paused(_)), "{session}: {outcome}");
    };
    start("desk", desk()).await;
    start("live", lead("lead", &[look("a")]).build().unwrap()).await;
    start("hall", above(Vec::new(), ByHand("go"))).await;
    for (name, next) in [("over", false), ("replaced", true)] {
        start(name, above(Vec::new(), lead("scout", &[look("g")]).build().unwrap())).await;
        cut_short(store, name, next).await;
    }
    start("handed", lead("lead", &[("click", json!({"on": "a"}))]).build().unwrap()).await;
    start("pressed", lead("lead", &[("press", json!({"path": "edited"}))]).build().unwrap()).await;
    for name in ["go", "call"] {
        runtime.session_with_id(id(name)).start(&ByHand(name), "Go.").outcome().await.unwrap();
    }
    let done = lead("lead", &[look("allowed")]).build().unwrap();
    let outcome = runtime.session_with_id(id("done")).start(&done, "Go.").outcome().await.unwrap();
    assert!(outcome.is_completed(), "{outcome}");
    // Its second run was asked to pause; the first one left nothing open.
    let asked = runtime.session_with_id(id("asked"));
    asked.start(&lead("lead", &[look("a")]).build().unwrap(), "Go.").outcome().await.unwrap();
    let run = asked.start(&lead("lead", &[look("allowed")]).build().unwrap(), "Go.");
    run.pause();
    run.outcome().await.unwrap();
}

/// Returns what `Runtime::pending` lists, as rows of the view.
async fn expected(store: &SharedStore) -> Vec<Value> {
    let runtime = runtime(store, Person);
    let mut rows = Vec::new();
    for pending in runtime.pending().await.unwrap() {
        let session = runtime.session_with_id(pending.session.clone());
        rows.push(row(&pending, &session.events(0, usize::MAX).await.unwrap()));
    }
    rows.sort_by_key(Value::to_string);
    rows
}

fn row(pending: &Pending, events: &[Envelope]) -> Value {
    let (kind, id, tool, arguments, until) = match &pending.waits_for {
        Waiting::Approval(it) => {
            let until = events.iter().rev().find_map(|event| match &event.event {
                Event::ApprovalDecided(answer) if answer.id == it.id => match answer.decision {
                    Decision::Until { at, .. } => Some(at),
                    _ => None,
                },
                _ => None,
            });
            ("approval", Some(it.id.to_string()), Some(it.tool.clone()), it.arguments.to_value(), until)
        }
        Waiting::Call { id, call } => {
            ("call", Some(id.to_string()), Some(call.name.to_string()), call.arguments.to_value(), None)
        }
        Waiting::Signal { name, until } => ("signal", Some(name.clone()), None, Value::Null, *until),
        Waiting::Resume => ("resume", None, None, Value::Null, None),
        other => panic!("{other:?}"),
    };
    engines::normal(json!({
        "session": pending.session.as_str(), "root": pending.root.as_str(), "agent": &*pending.agent,
        "run": pending.run.to_string(), "kind": kind, "id": id, "tool": tool, "arguments": arguments,
        "since": pending.since.as_micros(), "until": until.map(Timestamp::as_micros),
    }))
}

/// A connection beside the store.
enum Beside {
    Lite(SqliteConnection),
    #[cfg(feature = "postgres")]
    Postgres(sqlx::PgConnection),
}

impl Beside {
    async fn find(&mut self, sql: &str) -> Vec<Value> {
        let found = match self {
            Self::Lite(db) => engines::find(db, sql).await,
            #[cfg(feature = "postgres")]
            Self::Postgres(db) => engines::postgres::find(db, sql).await,
        };
        found.as_array().unwrap().clone()
    }

    /// Returns the rows of the view, with agents by their own names.
    async fn pending(&mut self) -> Vec<Value> {
        let mut rows = self.find("SELECT * FROM pending").await;
        for row in &mut rows {
            let path = row["agent"].as_str().unwrap();
            row["agent"] = json!(path.rsplit('/').next());
        }
        rows.sort_by_key(Value::to_string);
        rows
    }
}

/// Counts questions, calls, signals and runs that wait to be resumed.
fn kinds(rows: &[Value]) -> [usize; 4] {
    ["approval", "call", "signal", "resume"].map(|kind| rows.iter().filter(|row| row["kind"] == kind).count())
}

/// Compares row by row, so that a failure shows the row alone.
fn same(found: &[Value], expected: &[Value]) {
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

/// Compares both lists before and after input came, and reads `approvals` in between.
async fn agree(store: SharedStore, mut db: Beside) {
    leave(&store).await;
    let rows = expected(&store).await;
    // The run above a child that waits for a signal pauses for the same one.
    assert_eq!(kinds(&rows), [5, 5, 3, 1]);
    assert!(rows.iter().all(|row| row["root"] != "over" && row["root"] != "replaced"));
    same(&db.pending().await, &rows);
    approvals(&mut db).await;

    // Each kind of input comes; nothing is resumed yet.
    let runtime = runtime(&store, Person);
    let of = |kind: &str, session: &str| {
        let found = rows.iter().find(|row| row["kind"] == kind && row["session"] == session).unwrap();
        found["id"].as_str().unwrap().to_owned()
    };
    runtime.decide(&of("approval", "desk").as_str().into(), Decision::Allow).await.unwrap();
    runtime.answer(&of("call", "desk").as_str().into(), "clicked").await.unwrap();
    runtime.answer(&of("call", "handed").as_str().into(), "clicked").await.unwrap();
    runtime.answer(&of("call", "call").as_str().into(), "clicked").await.unwrap();
    for (session, name) in [("go", "go"), ("call", "stray")] {
        runtime.session_with_id(id(session)).signal(name, json!(1)).await.unwrap();
    }
    let later = Decision::Until { at: Timestamp::from_micros(UNTIL + 1), allow: true };
    runtime.decide(&of("approval", "live").as_str().into(), later).await.unwrap();
    let rows = expected(&store).await;
    assert_eq!(kinds(&rows), [4, 2, 2, 5]);
    same(&db.pending().await, &rows);

    // Resumed runs ask and wait again, two of them while a process works on them.
    runtime.session_with_id(id("desk")).resume(&desk()).outcome().await.unwrap();
    runtime.session_with_id(id("go")).resume(&ByHand("go")).outcome().await.unwrap();
    let silent = Silent::default();
    let working = self::runtime(&store, silent.clone());
    let mut runs = Vec::new();
    for name in ["live", "asked"] {
        let agent = lead("lead", &[look("a")]).build().unwrap();
        runs.push(working.session_with_id(id(name)).resume(&agent));
        silent.0.notified().await;
    }
    let rows = expected(&store).await;
    // A grant covers two calls of the desk by now, which ran and wait for no answer.
    assert_eq!(kinds(&rows), [3, 2, 3, 2]);
    same(&db.pending().await, &rows);
    for run in runs {
        run.cancel();
        run.outcome().await.unwrap();
    }
}

async fn approvals(db: &mut Beside) {
    let sql = "SELECT arguments, decision, status, reason, edited, decided_by, until, until_decision FROM approvals \
               WHERE session = 'desk' OR session = 'asked' ORDER BY session, seq";
    let rows = db.find(sql).await;
    let row = |path: &str, decision: Value, status: &str| {
        let by = if decision.is_null() { Value::Null } else { json!("ada") };
        json!({"arguments": {"path": path, "deep": ["x", {"er": "é"}]}, "decision": decision, "status": status,
            "reason": null, "edited": null, "decided_by": by, "until": null, "until_decision": null})
    };
    let mut expected = vec![
        row("a", Value::Null, "closed"),
        row("a", Value::Null, "open"),
        row("b", Value::Null, "open"),
        row("until", json!("until"), "open"),
        row("allowed", json!("allow"), "answered"),
        row("granted", json!("allow_session"), "answered"),
        row("edited", json!("edit"), "answered"),
        row("refused", json!("refuse"), "answered"),
        row("why", json!("ask"), "answered"),
    ];
    (expected[3]["until"], expected[3]["until_decision"]) = (json!(UNTIL), json!("deny"));
    expected[6]["edited"] = json!({"path": "mended"});
    expected[7]["reason"] = json!("that file is shared");
    expected[8]["reason"] = json!("Why there?");
    same(&rows, &expected.into_iter().map(engines::normal).collect::<Vec<_>>());
}

/// Events of a run of an older version, whose questions keep their ids when they are asked again.
#[tokio::test]
async fn a_question_that_is_asked_again_after_its_answer_is_open_again() {
    let run = "019a7b1c-0000-7000-8000-000000000001";
    let mut rows = format!(
        "INSERT INTO sessions (id, role, created, seq, status, run, agent, title, messages, updated, checkpoint) \
         VALUES ('old', 'user', 0, 6, 'paused', '{run}', '', '', 0, 90, 0);"
    );
    let asked = |n: u32| format!(r#"{{"id":"q","tool":"look","arguments":{{"n":"{n}"}}}}"#);
    let decided = |decision: &str| format!(r#"{{"id":"q","decision":"{decision}"}}"#);
    for (seq, kind, body) in [
        (1, "run_started", "{}".to_owned()),
        (2, "approval_requested", asked(1)),
        (3, "approval_decided", decided("allow")),
        (4, "approval_requested", asked(2)),
        (5, "approval_decided", decided("later")),
        (6, "approval_requested", asked(2)),
    ] {
        let at = seq * 10;
        rows += &format!(
            "INSERT INTO events (session, seq, at, kind, run, agent, writer, body) \
             VALUES ('old', {seq}, {at}, '{kind}', '{run}', 'lead', 1, '{body}');"
        );
    }
    let mut lite = engines::lite().await;
    sqlx::raw_sql(AssertSqlSafe(rows)).execute(&mut lite.db).await.unwrap();
    let sql = "SELECT approvals.arguments, decision, status, asked_at, decided_at, micros, pending.arguments AS again, \
               since FROM approvals JOIN pending USING (session, id) WHERE session = 'old'";
    let expected = json!([{"arguments": {"n": "2"}, "decision": "later", "status": "open", "asked_at": 40.0,
        "decided_at": 50.0, "micros": 10.0, "again": {"n": "2"}, "since": 40.0}]);
    assert_eq!(engines::find(&mut lite.db, sql).await, expected);
    #[cfg(feature = "postgres")]
    if let Some(mut postgres) = engines::postgres::copy_of(&mut lite.db, sql).await {
        assert_eq!(engines::postgres::find(&mut postgres, sql).await, expected, "PostgreSQL");
    }
}

#[tokio::test]
async fn pending_lists_what_the_runtime_lists_on_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("team.db");
    let store = Arc::new(SqliteStore::open(&path).await.unwrap());
    let db = SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(&path)).await.unwrap();
    agree(store, Beside::Lite(db)).await;
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn pending_lists_what_the_runtime_lists_on_postgresql() {
    let Some((url, schema)) = engines::postgres::place("pending_lists_what_the_runtime_lists") else {
        return;
    };
    let store = entourage_store::PostgresStore::builder(&url).schema(&schema).build().await.unwrap();
    let mut db = sqlx::PgConnection::connect(&url).await.unwrap();
    let run = async |db: &mut sqlx::PgConnection, sql: String| {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(db).await.unwrap();
    };
    run(&mut db, format!("SET search_path TO {schema}")).await;
    let agreed = tokio::spawn(agree(Arc::new(store), Beside::Postgres(db))).await;
    let mut db = sqlx::PgConnection::connect(&url).await.unwrap();
    run(&mut db, format!("DROP SCHEMA {schema} CASCADE")).await;
    agreed.unwrap();
}
