//! Views stay cheap: four times the events take about four times the work, not sixteen times.

use std::{
    fmt::Write,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use entourage_store::SqliteStore;
use sqlx::{AssertSqlSafe, Connection, SqliteConnection, sqlite::SqliteConnectOptions};

/// Queries that touch each view over events, of one session and of all.
const QUERIES: [&str; 16] = [
    "SELECT count(*), sum(input_tokens), count(provider) FROM model_calls WHERE session = 's'",
    "SELECT provider, model, sum(cost_pico) FROM model_calls GROUP BY provider, model",
    "SELECT tool, status, allowed_by, arguments, count(*), max(output) FROM tool_calls GROUP BY tool, status, allowed_by, arguments",
    "SELECT count(*), max(message) FROM tool_calls WHERE session = 's'",
    "SELECT count(*), max(text) FROM messages WHERE session = 's'",
    "SELECT max(text) FROM agent_chat_messages WHERE session = 's'",
    "SELECT count(*), max(answer) FROM agent_executions",
    "SELECT count(*) FROM tasks",
    "SELECT sum(input_tokens) FROM agents",
    "SELECT count(*) FROM requests",
    "SELECT count(*), max(text) FROM request_contents",
    "SELECT count(*), max(reason), max(edited) FROM approvals",
    "SELECT count(*), max(arguments) FROM approvals WHERE session = 's'",
    "SELECT count(*), max(arguments), max(until) FROM pending",
    "SELECT count(*) FROM pending WHERE root = 'open'",
    "SELECT count(*) FROM agent_plans WHERE latest = 1",
];

/// Returns a session in which one run takes half of the steps and never finishes. Each step has two calls: one is
/// refused, one has no end.
fn events(steps: u64) -> String {
    let mut sql = String::from(
        "INSERT INTO sessions (id, role, created, seq, status, agent, title, messages, updated, checkpoint) \
         VALUES ('s', 'user', 0, 0, 'idle', '', '', 0, 0, 0);\n",
    );
    let mut seq = 0;
    let mut add = |run: u64, kind: &str, body: &str| {
        seq += 1;
        let id = format!("019a7b1c-0000-7000-8000-{run:012}");
        writeln!(sql, "INSERT INTO events VALUES ('s', {seq}, {seq}, '{kind}', '{id}', 'a', 1, '{body}');")
            .unwrap();
    };
    for step in 0..steps {
        let run = if step < steps / 2 { 0 } else { step };
        if step == 0 || run > 0 {
            add(
                run,
                "run_started",
                r#"{"format":1,"agent":"a","prompt":{"role":"user","parts":[{"text":"go"}]}}"#,
            );
        }
        let request = format!("r{step}");
        add(
            run,
            "model_started",
            &format!(r#"{{"step":1,"provider":"p","model":"m","request":"{request}"}}"#),
        );
        let call = |n: u64| format!(r#"{{"tool_call":{{"id":"c{n}","name":"look","arguments":{{}}}}}}"#);
        add(
            run,
            "model_finished",
            &format!(
                r#"{{"step":1,"message":{{"role":"assistant","parts":[{},{}]}},"finish":{{"reason":"tool_calls"}},"usage":{{"input":1}},"request":"{request}","micros":1}}"#,
                call(0),
                call(1)
            ),
        );
        add(
            run,
            "tool_finished",
            r#"{"index":0,"result":{"call":"c0","name":"look","content":[{"text":"no"}],"is_error":true},"denied":true,"micros":0}"#,
        );
        add(
            run,
            "tool_started",
            r#"{"index":1,"call":"c1","tool":"look","repeat":"safe","allowed_by":"read"}"#,
        );
        add(run, "todos_changed", r#"{"todos":[{"content":"x","status":"pending","active_form":""}]}"#);
        if run > 0 {
            add(
                run,
                "run_finished",
                r#"{"outcome":{"status":"completed","text":"ok","usage":{},"cost":null,"steps":1}}"#,
            );
        }
    }
    sql
}

/// Returns a session whose run asks and hands a call out in every step. For every fourth step there is a session below
/// it whose run asks and waits.
fn waiting(steps: u64) -> String {
    let run = |session: u64| format!("019a7b1c-0000-7000-9000-{session:012}");
    let mut sql = String::new();
    let mut seq = 0;
    let session = |sql: &mut String, id: &str, parent: &str, run: &str| {
        writeln!(
            sql,
            "INSERT INTO sessions (id, parent, role, created, seq, status, run, agent, title, messages, updated, \
             checkpoint) VALUES ('{id}', {parent}, 'user', 0, 0, 'paused', '{run}', '', '', 0, 0, 0);"
        )
        .unwrap();
    };
    let mut add = |sql: &mut String, session: &str, run: &str, kind: &str, body: &str| {
        seq += 1;
        writeln!(
            sql,
            "INSERT INTO events VALUES ('{session}', {seq}, {seq}, '{kind}', '{run}', 'a', 1, '{body}');"
        )
        .unwrap();
        seq
    };
    let root = run(0);
    let started = r#"{"format":1,"agent":"a","prompt":{"role":"user","parts":[{"text":"go"}]}}"#;
    session(&mut sql, "open", "NULL", &root);
    add(&mut sql, "open", &root, "run_started", started);
    for step in 1..=steps {
        let asked =
            |id: &str| format!(r#"{{"id":"{id}","tool":"look","arguments":{{"n":{step}}},"rule":"r"}}"#);
        let reply = r#"{"message":{"parts":[{"tool_call":{"id":"c","name":"click","arguments":{}}}]}}"#;
        let named = add(&mut sql, "open", &root, "model_finished", reply);
        let id = format!("open.{named}$$0");
        let question = format!("open.{named}$$1");
        add(&mut sql, "open", &root, "approval_requested", &asked(&question));
        if step < steps {
            let decided =
                format!(r#"{{"id":"{question}","decision":{{"refuse":{{"reason":"no","go_on":true}}}}}}"#);
            add(&mut sql, "open", &root, "approval_decided", &decided);
        }
        let call = r#"{"index":0,"call":"c","tool":"click","repeat":"external"}"#;
        add(&mut sql, "open", &root, "tool_started", call);
        if step < steps {
            add(&mut sql, "open", &root, "tool_finished", r#"{"index":0,"result":{"call":"c"}}"#);
        }
        if step % 4 == 0 {
            let below = run(step);
            session(&mut sql, &id, "'open'", &below);
            add(&mut sql, &id, &below, "run_started", started);
            add(&mut sql, &id, &below, "approval_requested", &asked(&format!("{id}.1$$0")));
            add(&mut sql, &id, &below, "run_paused", r#"{"pause":{"signal":{"name":"go","until":null}}}"#);
        }
    }
    sql
}

/// Counts the steps of SQLite's virtual machine, in hundreds: the same on every computer.
async fn work(db: &mut SqliteConnection, sql: &'static str) -> u64 {
    let steps = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&steps);
    let count = move || {
        counter.fetch_add(1, Ordering::Relaxed);
        true
    };
    db.lock_handle().await.unwrap().set_progress_handler(100, count);
    sqlx::raw_sql(sql).fetch_all(&mut *db).await.unwrap();
    db.lock_handle().await.unwrap().remove_progress_handler();
    steps.load(Ordering::Relaxed)
}

#[tokio::test]
async fn design_5_views_take_work_in_proportion_to_the_events() {
    let directory = tempfile::tempdir().unwrap();
    let mut databases = Vec::new();
    for steps in [250, 1_000] {
        let path = directory.path().join(format!("{steps}.db"));
        SqliteStore::open(&path).await.unwrap().close().await;
        let mut db =
            SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(&path)).await.unwrap();
        let sql = format!("BEGIN; {} {} COMMIT", events(steps), waiting(steps));
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut db).await.unwrap();
        databases.push(db);
    }
    let listed: i64 =
        sqlx::query_scalar("SELECT count(*) FROM pending").fetch_one(&mut databases[0]).await.unwrap();
    assert_eq!(
        listed,
        2 + 2 * (250 / 4),
        "the newest step's question and call, and two for each session below"
    );
    let [few, many] = databases.as_mut_slice() else { panic!("two databases") };
    for sql in QUERIES {
        let (few, many) = (work(few, sql).await, work(many, sql).await);
        assert!(many < few * 6 + 20, "{sql}: {few} and then {many} steps");
    }
}
