//! The seeded databases, and rows in a form that is equal for both engines.

use entourage_core::session::SharedStore;
use entourage_store::SqliteStore;
use serde_json::{Map, Value};
use sqlx::{
    AssertSqlSafe, Column, Connection, Row, SqliteConnection, TypeInfo, ValueRef,
    sqlite::{SqliteConnectOptions, SqliteRow},
};
use tempfile::TempDir;

use crate::seed;

/// The seeded database as a file, read by a connection that is not the store's.
pub(crate) struct Lite {
    pub(crate) db: SqliteConnection,
    _directory: TempDir,
}

pub(crate) async fn lite() -> Lite {
    lite_of(seed::sessions).await
}

/// Returns a database of the sessions that `make` leaves in memory.
pub(crate) async fn lite_of(make: fn() -> SharedStore) -> Lite {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("team.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let sessions = tokio::task::spawn_blocking(make).await.unwrap();
    seed::copy(&sessions, &store).await;
    store.close().await;
    let db = SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(&path)).await.unwrap();
    Lite { db, _directory: directory }
}

/// Returns the rows of a query as a JSON array of objects.
pub(crate) async fn find(db: &mut SqliteConnection, sql: &str) -> Value {
    let rows = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).fetch_all(db).await;
    let rows = rows.unwrap_or_else(|error| panic!("{sql}\n{error}"));
    Value::Array(rows.iter().map(object).collect())
}

fn object(row: &SqliteRow) -> Value {
    let value = |index: usize| {
        let raw = row.try_get_raw(index).unwrap();
        match (raw.is_null(), raw.type_info().name().to_owned().as_str()) {
            (true, _) => Value::Null,
            (_, "REAL") => number(row.get(index)),
            (_, "TEXT") => text(row.get::<&str, _>(index)),
            #[allow(clippy::cast_precision_loss)]
            _ => number(row.get::<i64, _>(index) as f64),
        }
    };
    let columns = row.columns().iter();
    Value::Object(
        columns.map(|column| (column.name().to_owned(), value(column.ordinal()))).collect::<Map<_, _>>(),
    )
}

/// Rounds a number to nine decimals: the last digits of sums differ between engines.
fn number(value: f64) -> Value {
    Value::from((value * 1e9).round() / 1e9)
}

fn text(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(json @ (Value::Object(_) | Value::Array(_))) => json,
        // PostgreSQL cannot hold NUL; its views replace it.
        _ => Value::String(text.replace('\0', "\u{fffd}")),
    }
}

/// Applies the same rounding and parsing to JSON from another engine.
pub(crate) fn normal(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(normal).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, normal(value))).collect::<Map<_, _>>().into()
        }
        Value::Number(it) => number(it.as_f64().unwrap()),
        Value::String(it) => text(&it),
        other => other,
    }
}

#[cfg(feature = "postgres")]
pub(crate) mod postgres {
    use entourage_core::RunId;
    use sqlx::{PgConnection, postgres::PgConnectOptions};

    use super::*;

    const MIGRATIONS: [&str; 6] = [
        include_str!("../../migrations/postgres/0001_sessions_and_events.sql"),
        include_str!("../../migrations/postgres/0002_views.sql"),
        include_str!("../../migrations/postgres/0003_views_of_any_body.sql"),
        include_str!("../../migrations/postgres/0004_views_of_what_is_open.sql"),
        include_str!("../../migrations/postgres/0005_views_of_requests.sql"),
        include_str!("../../migrations/postgres/0006_views_of_what_waits.sql"),
    ];
    const SESSIONS: &str = "id, parent, role, created, seq, status, run, agent, title, messages, input_tokens, \
         output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_pico, updated, lease_owner, \
         lease_generation, lease_until, checkpoint";
    const EVENTS: &str = "session, seq, at, kind, run, agent, writer, body";

    /// Returns the server and the name of a schema that is not there yet. Prints that the test is skipped and returns
    /// `None` if no server is named.
    pub(crate) fn place(test: &str) -> Option<(String, String)> {
        let Ok(url) = std::env::var("DATABASE_URL") else {
            let line = format!("SKIPPED: {test} on PostgreSQL: DATABASE_URL names no server\n");
            // Past the harness, which captures what tests print.
            drop(std::io::Write::write_all(&mut std::io::stdout(), line.as_bytes()));
            return None;
        };
        Some((url, format!("t_{:032x}", RunId::generate().as_u128())))
    }

    /// Copies `lite` into a schema of its own, which the connection's open transaction undoes at its end.
    /// `None` without a server.
    pub(crate) async fn copy_of(lite: &mut SqliteConnection, test: &str) -> Option<PgConnection> {
        let (url, _) = place(test)?;
        let mut db = PgConnection::connect_with(&url.parse::<PgConnectOptions>().unwrap()).await.unwrap();
        sqlx::raw_sql("BEGIN; CREATE SCHEMA entourage_sql_test; SET LOCAL search_path TO entourage_sql_test")
            .execute(&mut db)
            .await
            .unwrap();
        for sql in MIGRATIONS {
            sqlx::raw_sql(sql).execute(&mut db).await.unwrap();
        }
        for (table, columns, order) in
            [("sessions", SESSIONS, "created, id"), ("events", EVENTS, "session, seq")]
        {
            fill(lite, &mut db, table, columns, order).await;
        }
        Some(db)
    }

    async fn fill(
        lite: &mut SqliteConnection,
        db: &mut PgConnection,
        table: &str,
        columns: &str,
        order: &str,
    ) {
        let rows = find_exact(lite, &format!("SELECT {columns} FROM {table} ORDER BY {order}")).await;
        let sql =
            format!("INSERT INTO {table} SELECT * FROM json_populate_recordset(NULL::{table}, $1::json)");
        sqlx::query(AssertSqlSafe(sql)).bind(rows.to_string()).execute(db).await.unwrap();
    }

    /// Returns rows without rounding, so that large numbers arrive unchanged.
    async fn find_exact(lite: &mut SqliteConnection, sql: &str) -> Value {
        let rows = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).fetch_all(lite).await.unwrap();
        let value = |row: &SqliteRow, index: usize| match row.try_get_raw(index).unwrap() {
            raw if raw.is_null() => Value::Null,
            raw if raw.type_info().name() == "TEXT" => Value::String(row.get(index)),
            _ => Value::from(row.get::<i64, _>(index)),
        };
        let object = |row: &SqliteRow| {
            row.columns()
                .iter()
                .map(|it| (it.name().to_owned(), value(row, it.ordinal())))
                .collect::<Map<_, _>>()
        };
        rows.iter().map(object).collect()
    }

    pub(crate) async fn find(db: &mut PgConnection, sql: &str) -> Value {
        let sql = sql.trim().trim_end_matches(';');
        let sql = format!("SELECT coalesce(json_agg(found), '[]')::text FROM ({sql}) AS found");
        let found: String = sqlx::query_scalar(AssertSqlSafe(sql.clone()))
            .fetch_one(db)
            .await
            .unwrap_or_else(|error| panic!("{sql}\n{error}"));
        normal(serde_json::from_str(&found).unwrap())
    }
}

/// Returns the statements that make this database again, under a line that says what it is.
pub(crate) async fn dump(db: &mut SqliteConnection, title: &str) -> String {
    let version = version(db).await;
    let mut dump = vec![
        format!("-- {title} Never edit this file: it stands for the files that users have."),
        "PRAGMA application_id = 1164866663;".to_owned(),
        format!("PRAGMA user_version = {version};"),
    ];
    dump.extend(
        column(
            db,
            "SELECT sql || ';' FROM sqlite_schema WHERE sql IS NOT NULL AND type = 'table' ORDER BY rowid",
        )
        .await,
    );
    for (table, order) in [("sessions", "created, id"), ("events", "session, seq")] {
        let names = format!("SELECT 'quote(' || name || ')' FROM pragma_table_info('{table}') ORDER BY cid");
        let columns = column(db, &names).await.join(" || ', ' || ");
        let rows = format!(
            "SELECT 'INSERT INTO {table} VALUES (' || {columns} || ');' FROM {table} ORDER BY {order}"
        );
        dump.extend(column(db, &rows).await);
    }
    dump.extend(
        column(
            db,
            "SELECT sql || ';' FROM sqlite_schema WHERE sql IS NOT NULL AND type <> 'table' ORDER BY rowid",
        )
        .await,
    );
    dump.join("\n") + "\n"
}

async fn version(db: &mut SqliteConnection) -> String {
    column(db, "SELECT CAST(user_version AS TEXT) FROM pragma_user_version").await.concat()
}

async fn column(db: &mut SqliteConnection, sql: &str) -> Vec<String> {
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_all(db).await.unwrap()
}

/// Writes the seeded database as the frozen one of its version. Run once, for the release that introduces the version;
/// a frozen version never changes.
#[tokio::test]
#[ignore = "writes a file into the repository"]
async fn freeze() {
    let mut lite = lite().await;
    let version = version(&mut lite.db).await;
    let path = format!("{}/../tests/corpus/sqlite/v{version}.sql", env!("CARGO_MANIFEST_DIR"));
    assert!(!std::path::Path::new(&path).exists(), "version {version} is frozen");
    let title = format!("A database of version {version} as it was released.");
    std::fs::write(path, dump(&mut lite.db, &title).await).unwrap();
}
