//! Views answer for every session, whatever a row holds: bodies may come from a model, a defect or another program.

use std::fmt::Write;

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, SqliteConnection};

use crate::engines::{find, lite};

const VIEWS: [&str; 14] = [
    "agent_chat_messages",
    "agent_chat_sessions",
    "agent_executions",
    "agent_plans",
    "agents",
    "approvals",
    "messages",
    "model_calls",
    "pending",
    "request_contents",
    "requests",
    "session_totals",
    "tasks",
    "tool_calls",
];

const KINDS: [&str; 15] = [
    "run_started",
    "run_resumed",
    "run_paused",
    "run_finished",
    "model_started",
    "model_restarted",
    "model_finished",
    "tool_started",
    "tool_finished",
    "message_added",
    "compacted",
    "todos_changed",
    "approval_requested",
    "approval_decided",
    "signal_received",
];

const KEYS: [&str; 61] = [
    "key",
    "ordinal",
    "index",
    "call",
    "tool",
    "request",
    "step",
    "provider",
    "model",
    "restart",
    "usage",
    "wasted",
    "input",
    "output",
    "cache_read",
    "cost",
    "finish",
    "reason",
    "error",
    "kind",
    "message",
    "parts",
    "text",
    "tool_call",
    "id",
    "arguments",
    "result",
    "content",
    "is_error",
    "denied",
    "name",
    "micros",
    "allowed_by",
    "prompt",
    "summary",
    "outcome",
    "status",
    "failed",
    "stopped",
    "pause",
    "count",
    "todos",
    "decision",
    "rule",
    "agent",
    "tool_result",
    "role",
    "attempt",
    "edit",
    "refuse",
    "ask",
    "until",
    "at",
    "allow",
    "by",
    "failure",
    "repeat",
    "edited",
    "signal",
    "approval",
    "deadline",
];

const VALUES: [&str; 29] = [
    "1e-200000",
    "-1.5e99999",
    "1e400",
    "0.1",
    "-5",
    "9223372036854775807",
    "18446744073709551615",
    "99999999999999999999999999999999999999999",
    "true",
    "null",
    "[]",
    "{}",
    "\"\"",
    "\"abc\"",
    "\"123\"",
    "\"later\"",
    "\"asked\"",
    "\"external\"",
    r#"{"until":{"at":5,"allow":true}}"#,
    r#"{"signal":{"name":"abc","until":1e400}}"#,
    "\"{\"",
    "\"1e-200000, 5\"",
    r#""\u0000""#,
    r#""\ud800""#,
    r#""\\ud800\udc00""#,
    r#""\ud83d\ude00""#,
    r#"{"text":{"a":1},"text":"twice"}"#,
    r#"[1,"x",{"text":"t"},null,[]]"#,
    r#"{"\u0000":1,"\udfff":2}"#,
];

/// Bodies that are not JSON.
const BROKEN: [&str; 8] = ["", "nope", "{", "[1", "{\"a\":}", "'a'", "{a:1}", "\u{1}"];

/// Numbers from a seed (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

fn object(random: &mut Random, fields: usize, depth: usize) -> String {
    let count = random.below(fields + 1);
    let fields: Vec<String> =
        (0..count).map(|_| format!("\"{}\":{}", random.of(&KEYS), value(random, depth))).collect();
    format!("{{{}}}", fields.join(","))
}

fn value(random: &mut Random, depth: usize) -> String {
    match random.below(10) {
        4..8 if depth > 0 => object(random, 6, depth - 1),
        8.. if depth > 0 => {
            let items: Vec<String> = (0..random.below(4)).map(|_| value(random, depth - 1)).collect();
            format!("[{}]", items.join(","))
        }
        _ => random.of(&VALUES).to_owned(),
    }
}

fn body(random: &mut Random) -> String {
    match random.below(20) {
        0 => random.of(&BROKEN).to_owned(),
        1 => random.of(&VALUES).to_owned(),
        2 => format!("{{\"message\":{}1{}}}", "[".repeat(5_000), "]".repeat(5_000)),
        3 => format!("{{\"usage\":{{\"input\":{}}}}}", "9".repeat(140_000)),
        _ => object(random, 12, 4),
    }
}

/// Returns sessions `h0`, `h1` ... below one another, with figures at the ends of their ranges and events of any kind
/// and body.
fn rows(seed: u64) -> String {
    let mut random = Random(seed);
    let (mut sql, figures) = (String::new(), ["0", "5", "NULL", "9223372036854775807"]);
    let times = ["0", "5", "9223372036854775807", "-9223372036854775807"];
    for session in 0..12_usize {
        let parent = match session {
            0..2 => "NULL".to_owned(),
            _ => format!("'h{}'", random.below(session)),
        };
        let [input, output, cost] = [(); 3].map(|()| random.of(&figures));
        let updated = random.of(&times);
        let (status, current) = random.of(&[("idle", "NULL"), ("running", "'r0'"), ("paused", "'r1'")]);
        writeln!(
            sql,
            "INSERT INTO sessions (id, parent, role, created, seq, status, run, agent, title, messages, \
             input_tokens, output_tokens, cost_pico, updated, checkpoint) VALUES ('h{session}', {parent}, '', 0, 0, \
             '{status}', {current}, '', '', 0, {input}, {output}, {cost}, {updated}, 0);"
        )
        .unwrap();
        for seq in 1..40 {
            let (at, kind, run) = (random.of(&times), random.of(&KINDS), random.below(3));
            let body = body(&mut random).replace('\'', "''");
            writeln!(
                sql,
                "INSERT INTO events (session, seq, at, kind, run, agent, writer, body) \
                 VALUES ('h{session}', {seq}, {at}, '{kind}', 'r{run}', 'h', 1, '{body}');"
            )
            .unwrap();
        }
    }
    sql
}

async fn run(db: &mut SqliteConnection, sql: String) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(db).await.unwrap();
}

/// Returns a view's rows for the sessions that are not hostile, sorted.
async fn others(db: &mut SqliteConnection, view: &str) -> Vec<String> {
    let sql = match view {
        "agents" => "SELECT * FROM agents WHERE agent <> 'h'".to_owned(),
        _ => format!("SELECT * FROM {view} WHERE session NOT LIKE 'h_' AND session NOT LIKE 'h1_'"),
    };
    let Value::Array(found) = find(db, &sql).await else { panic!("{view} has rows") };
    let mut found: Vec<String> = found.iter().map(Value::to_string).collect();
    found.sort();
    found
}

#[tokio::test]
async fn every_view_answers_for_every_session_whatever_a_row_holds() {
    for seed in [1, 20_261_122, u64::MAX] {
        let mut lite = lite().await;
        let mut before = Vec::new();
        for view in VIEWS {
            before.push(others(&mut lite.db, view).await);
        }
        run(&mut lite.db, rows(seed)).await;
        for (view, before) in VIEWS.into_iter().zip(before) {
            let all =
                sqlx::raw_sql(AssertSqlSafe(format!("SELECT * FROM {view}"))).fetch_all(&mut lite.db).await;
            all.unwrap_or_else(|error| panic!("seed {seed}: {view}: {error}"));
            assert_eq!(others(&mut lite.db, view).await, before, "seed {seed}: {view}");
        }
        #[cfg(feature = "postgres")]
        if let Some(mut postgres) = crate::engines::postgres::copy_of(&mut lite.db, "hostile rows").await {
            for view in VIEWS {
                let sql = format!("SELECT count(CAST(v AS TEXT)) AS n FROM {view} AS v");
                crate::engines::postgres::find(&mut postgres, &sql).await;
            }
        }
    }
}

/// Runs `sql` on both engines, the second if there is one, and expects `expected` of both.
async fn same(rows: &str, sql: &str, expected: Value) {
    let mut lite = lite().await;
    run(&mut lite.db, rows.to_owned()).await;
    assert_eq!(find(&mut lite.db, sql).await, expected, "{sql}");
    #[cfg(feature = "postgres")]
    if let Some(mut postgres) = crate::engines::postgres::copy_of(&mut lite.db, sql).await {
        assert_eq!(crate::engines::postgres::find(&mut postgres, sql).await, expected, "PostgreSQL: {sql}");
    }
}

const SESSIONS: &str = "INSERT INTO sessions (id, parent, role, created, seq, status, agent, title, messages, \
     input_tokens, output_tokens, cost_pico, updated, checkpoint) VALUES \
     ('h0', NULL, '', 0, 0, 'idle', '', '', 0, 9223372036854775807, 7, 9223372036854775807, 0, 0), \
     ('h1', 'h0', '', 0, 0, 'idle', '', '', 0, 9223372036854775807, 1, 1, 0, 0), \
     ('h2', 'h1', '', 0, 0, 'idle', '', '', 0, 9223372036854775807, NULL, 2, 0, 0);";

#[tokio::test]
async fn sums_that_no_column_takes_are_the_largest_that_one_takes() {
    same(
        SESSIONS,
        "SELECT session, CAST(descendants_input_tokens AS TEXT) || '/' AS below, \
         CAST(total_input_tokens AS TEXT) || '/' AS input, total_output_tokens AS output, \
         CAST(total_cost_pico AS TEXT) || '/' AS cost FROM session_totals WHERE session = 'h0'",
        json!([{"session": "h0", "below": "9223372036854775807/", "input": "9223372036854775807/", "output": 8.0,
            "cost": "9223372036854775807/"}]),
    )
    .await;
    let finished = |seq: u64, figures: &str| {
        format!(
            "INSERT INTO events (session, seq, at, kind, run, agent, writer, body) \
             VALUES ('h0', {seq}, 0, 'model_finished', 'r', 'h', 1, '{{\"step\":1,{figures}}}');"
        )
    };
    let huge = r#""usage":{"input":18446744073709551615,"output":3},"wasted":{"input":1},"cost":18446744073709551615"#;
    let rows = format!("{SESSIONS}{}{}", finished(1, huge), finished(2, huge));
    for view in ["agents", "agent_executions"] {
        let sql = format!(
            "SELECT CAST(input_tokens AS TEXT) || '/' AS input, output_tokens AS output, \
             CAST(cost_pico AS TEXT) || '/' AS cost FROM {view} WHERE agent = 'h'"
        );
        let expected =
            json!([{"input": "9223372036854775807/", "output": 6.0, "cost": "9223372036854775807/"}]);
        same(&rows, &sql, expected).await;
    }
}

/// A number that no database holds must not take the rest of its event along.
#[tokio::test]
async fn a_number_out_of_range_leaves_the_rest_of_its_event_readable() {
    let body = r#"{"step":3,"message":{"role":"assistant","parts":[{"text":"I pay 1e-200000, \\ud800 \u0001."},{"tool_call":{"id":"c","name":"pay","arguments":{"a":1e-200000,"b":[-1.5e99999,2]}}}]},"usage":{"input":5},"cost":9}"#;
    let rows = format!(
        "{SESSIONS} INSERT INTO events (session, seq, at, kind, run, agent, writer, body) \
         VALUES ('h0', 1, 0, 'model_finished', 'r', 'h', 1, '{body}')"
    );
    same(
        &rows,
        "SELECT step, input_tokens, cost_pico FROM model_calls WHERE session = 'h0'",
        json!([{"step": 3.0, "input_tokens": 5.0, "cost_pico": 9.0}]),
    )
    .await;
    same(
        &rows,
        "SELECT role, text FROM messages WHERE session = 'h0'",
        json!([{"role": "assistant", "text": "I pay 1e-200000, \\ud800 \u{1}."}]),
    )
    .await;
}
