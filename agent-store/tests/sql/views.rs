//! The rows of each view over sessions that agents left, and over kinds of events that are rare in them.

use entourage_core::{
    RunId, Timestamp,
    event::Event,
    session::{Batch, Columns, Row, SessionHead, SessionRecord, SessionStore},
};
use entourage_store::SqliteStore;
use serde_json::{Value, json};
use sqlx::{Connection, SqliteConnection, sqlite::SqliteConnectOptions};

use crate::{
    engines::{find, lite, normal},
    seed::id,
};

const VIEWS: [&str; 15] = [
    "agent_chat_messages",
    "agent_chat_sessions",
    "agent_executions",
    "agent_plans",
    "agents",
    "approvals",
    "clock",
    "messages",
    "model_calls",
    "pending",
    "request_contents",
    "requests",
    "session_totals",
    "tasks",
    "tool_calls",
];

/// Runs `sql` on both engines, the second if there is one, and expects of both what `views.json` says of `view`.
async fn same(sql: &str, view: &str) {
    let expected: Value = serde_json::from_str(include_str!("views.json")).unwrap();
    let expected = normal(expected[view].clone());
    let mut lite = lite().await;
    assert_eq!(find(&mut lite.db, sql).await, expected, "{sql}");
    #[cfg(feature = "postgres")]
    if let Some(mut postgres) = crate::engines::postgres::copy_of(&mut lite.db, sql).await {
        assert_eq!(crate::engines::postgres::find(&mut postgres, sql).await, expected, "PostgreSQL: {sql}");
    }
}

#[tokio::test]
async fn design_5_the_views_are_there_and_have_the_documented_columns() {
    let mut lite = lite().await;
    let names = find(&mut lite.db, "SELECT name FROM sqlite_schema WHERE type = 'view' ORDER BY name").await;
    assert_eq!(names, VIEWS.iter().map(|name| json!({"name": name})).collect::<Value>());
    let columns = "SELECT v.name AS view, c.name AS column FROM sqlite_schema AS v, pragma_table_info(v.name) AS c \
                   WHERE v.type = 'view' ORDER BY v.name, c.cid";
    let found = find(&mut lite.db, columns).await;
    let readme = include_str!("../../README.md");
    for entry in found.as_array().unwrap() {
        let (view, column) = (entry["view"].as_str().unwrap(), entry["column"].as_str().unwrap());
        let line = readme.lines().rfind(|line| line.starts_with(&format!("| `{view}` |"))).unwrap();
        let common = ["session", "run", "agent", "seq"].contains(&column);
        let short = ["own_", "descendants_", "total_"].iter().find_map(|it| column.strip_prefix(it));
        let named = |name: &str| line.contains(&format!("`{name}`"));
        assert!(common || named(column) || short.is_some_and(named), "{view}.{column} is not in the README");
    }
    #[cfg(feature = "postgres")]
    if let Some(mut postgres) =
        crate::engines::postgres::copy_of(&mut lite.db, "the columns of the views").await
    {
        let columns = "SELECT c.table_name AS view, c.column_name AS column FROM information_schema.columns AS c \
                       JOIN information_schema.views AS v USING (table_schema, table_name) \
                       WHERE table_schema = current_schema() ORDER BY c.table_name COLLATE \"C\", c.ordinal_position";
        assert_eq!(crate::engines::postgres::find(&mut postgres, columns).await, found);
    }
}

#[tokio::test]
async fn cw09_requests_give_the_texts_that_a_model_was_asked_with() {
    same(
        "SELECT asked.session, asked.step, asked.model, instructions.text AS instructions, tools.text AS tools, \
         settings.text AS settings, CASE WHEN asked.messages IS NULL THEN 1 ELSE 0 END AS conversation FROM requests AS asked \
         LEFT JOIN request_contents AS instructions \
         ON instructions.session = asked.session AND instructions.digest = asked.instructions \
         LEFT JOIN request_contents AS tools ON tools.session = asked.session AND tools.digest = asked.tools \
         LEFT JOIN request_contents AS settings \
         ON settings.session = asked.session AND settings.digest = asked.settings ORDER BY asked.session, asked.seq",
        "requests",
    )
    .await;
}

#[tokio::test]
async fn design_5_tool_calls_have_their_arguments_leave_and_result() {
    same(
        "SELECT id, place, tool, arguments, allowed_by, status, micros, output FROM tool_calls \
         WHERE session NOT IN ('put_off', 'clerk') ORDER BY session, message, place",
        "tool_calls",
    )
    .await;
}

#[tokio::test]
async fn design_5_messages_are_the_conversation_in_order() {
    same(
        "SELECT session, kind, role, text FROM messages WHERE agent <> 'lead/scout' ORDER BY session, seq",
        "messages",
    )
    .await;
}

#[tokio::test]
async fn design_5_runs_say_how_they_ended() {
    same(
        "SELECT session, agent, status, reason, answer, resumed, steps, input_tokens, cost_pico \
         FROM agent_executions ORDER BY session",
        "agent_executions",
    )
    .await;
}

#[tokio::test]
async fn design_5_model_calls_name_who_was_asked_and_what_it_took() {
    same(
        "SELECT session, agent, step, provider, model, attempts, finish, input_tokens, output_tokens, cost_pico, error \
         FROM model_calls ORDER BY session, seq",
        "model_calls",
    )
    .await;
}

/// Stored bodies that runs rarely leave. The core parses each of them, so their shape is real.
const RARE: [(&str, &str); 12] = [
    ("run_started", r#"{"format":1,"agent":"lead","prompt":{"role":"user","parts":[{"text":"Plan it."}]}}"#),
    (
        "model_started",
        r#"{"step":1,"provider":"north","model":"large-1","request":"019a7b1c-0000-7000-8000-00000000000a"}"#,
    ),
    (
        "model_restarted",
        r#"{"step":1,"request":"019a7b1c-0000-7000-8000-00000000000a","restart":{"attempt":2,"error":{"kind":"overloaded","retry":"temporary","message":"no room"},"delay":{"secs":1,"nanos":0},"provider":"south","model":"small-1"}}"#,
    ),
    (
        "model_finished",
        r#"{"step":1,"message":{"role":"assistant","parts":[{"reasoning":{"text":"Hm."}},{"text":"I "},{"tool_call":{"id":"c","name":"look","arguments":{"deep":{"er":[1]}}}},{"text":"look."}]},"finish":{"reason":"tool_calls"},"usage":{"input":5,"output":1},"wasted":{"input":7,"cache_read":3},"cost":9,"model":"small-1-x","request":"019a7b1c-0000-7000-8000-00000000000a","attempt":2,"micros":3}"#,
    ),
    ("tool_started", r#"{"index":0,"call":"c","tool":"look","repeat":"safe","allowed_by":"read"}"#),
    ("todos_changed", r#"{"todos":[{"content":"old","status":"pending","active_form":""}]}"#),
    (
        "todos_changed",
        r#"{"todos":[{"content":"first","status":"completed","active_form":"Doing"},{"content":"second","status":"in_progress","active_form":""}]}"#,
    ),
    ("message_added", r#"{"message":{"role":"user","parts":[{"text":"Faster."}]}}"#),
    (
        "compacted",
        r#"{"summary":{"role":"user","parts":[{"text":"So far: nothing."}]},"kept":1,"before":9,"after":4,"output":2}"#,
    ),
    ("run_paused", r#"{"pause":{"signal":{"name":"go","until":null}}}"#),
    ("run_resumed", r#"{"count":1}"#),
    ("run_paused", r#"{"pause":"asked"}"#),
];

/// Returns a database with one session of such events, and one whose newest todo list is empty.
async fn rare() -> (tempfile::TempDir, SqliteConnection) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("team.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let run = RunId::parse("019a7b1c-0000-7000-8000-000000000001").unwrap();
    let empty = [("todos_changed", RARE[5].1), ("todos_changed", r#"{"todos":[]}"#)];
    for (name, events) in [("rare", &RARE[..]), ("empty", &empty)] {
        let rows: Vec<Row> = (1..)
            .zip(events)
            .map(|(seq, (kind, body))| {
                Event::from_json(kind, body).unwrap();
                let at = Timestamp::from_micros(i64::try_from(seq).unwrap() * 10);
                Row::stored(Columns::new(seq, at, *kind, run, "lead"), (*body).to_owned())
            })
            .collect();
        let mut head = SessionHead::default();
        head.seq = rows.len() as u64;
        let record = SessionRecord::root(id(name), Timestamp::from_micros(1));
        store.append(&id(name), 0, Batch::new(1, rows, head).creating(record)).await.unwrap();
    }
    store.close().await;
    let db = SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(&path)).await.unwrap();
    (directory, db)
}

#[tokio::test]
async fn design_5_rare_events_are_in_the_views_too() {
    let (_directory, mut db) = rare().await;
    let queries = [
        (
            "SELECT seq, provider, model, reported_model, attempts, started_at, finished_at, input_tokens, output_tokens, \
             cache_read_tokens, cost_pico FROM model_calls",
            json!([{"seq": 4.0, "provider": "south", "model": "small-1", "reported_model": "small-1-x", "attempts": 2.0,
                "started_at": 20.0, "finished_at": 40.0, "input_tokens": 12.0, "output_tokens": 1.0,
                "cache_read_tokens": 3.0, "cost_pico": 9.0}]),
        ),
        (
            "SELECT seq, message, place, id, arguments, status, started_at, finished_at, output FROM tool_calls",
            json!([{"seq": 5.0, "message": 4.0, "place": 0.0, "id": "rare.4$$0", "arguments": {"deep": {"er": [1]}},
                "status": "unfinished", "started_at": 50.0, "finished_at": null, "output": null}]),
        ),
        (
            "SELECT session, seq, place, content, status, active_form, latest FROM agent_plans ORDER BY session, seq, place",
            json!([
                {"session": "empty", "seq": 1.0, "place": 0.0, "content": "old", "status": "pending", "active_form": "", "latest": 0.0},
                {"session": "rare", "seq": 6.0, "place": 0.0, "content": "old", "status": "pending", "active_form": "", "latest": 0.0},
                {"session": "rare", "seq": 7.0, "place": 0.0, "content": "first", "status": "completed", "active_form": "Doing", "latest": 1.0},
                {"session": "rare", "seq": 7.0, "place": 1.0, "content": "second", "status": "in_progress", "active_form": "", "latest": 1.0},
            ]),
        ),
        (
            "SELECT seq, kind, role, text FROM messages ORDER BY seq",
            json!([
                {"seq": 1.0, "kind": "run_started", "role": "user", "text": "Plan it."},
                {"seq": 4.0, "kind": "model_finished", "role": "assistant", "text": "I look."},
                {"seq": 8.0, "kind": "message_added", "role": "user", "text": "Faster."},
                {"seq": 9.0, "kind": "compacted", "role": "user", "text": "So far: nothing."},
            ]),
        ),
        ("SELECT count(*) AS messages FROM agent_chat_messages", json!([{"messages": 3.0}])),
        (
            "SELECT status, reason, resumed, prompt, finished_at FROM agent_executions",
            json!([{"status": "paused", "reason": "asked", "resumed": 1.0, "prompt": "Plan it.", "finished_at": null}]),
        ),
    ];
    #[cfg(feature = "postgres")]
    let mut postgres = crate::engines::postgres::copy_of(&mut db, "rare events").await;
    for (sql, expected) in queries {
        assert_eq!(find(&mut db, sql).await, expected, "{sql}");
        #[cfg(feature = "postgres")]
        if let Some(postgres) = &mut postgres {
            assert_eq!(crate::engines::postgres::find(postgres, sql).await, expected, "PostgreSQL: {sql}");
        }
    }
}
