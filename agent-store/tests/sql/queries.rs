//! Every query of the README finds the expected rows, the same on both engines.

use serde_json::{Map, Value, json};
use sqlx::SqliteConnection;

use crate::engines::{find, lite, normal};

/// Returns the blocks of the README that begin with this line, in order.
fn blocks(begin: &str) -> Vec<&'static str> {
    let rest = include_str!("../../README.md").split(begin).skip(1);
    rest.filter_map(|rest| rest.split("```").next()).collect()
}

/// Returns the queries that both engines take, each with the line that introduces it.
fn portable() -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    let mut before = "";
    for part in include_str!("../../README.md").split("\n```") {
        if let Some(sql) = part.strip_prefix("sql\n") {
            found.push((before.trim_end().trim_end_matches(':').lines().last().unwrap_or_default(), sql));
        }
        before = part;
    }
    found
}

/// Moves the events, made on a clock of tests, into the last minutes before now.
const RECENT: &str =
    "UPDATE events SET at = at + (SELECT now FROM clock) - (SELECT max(at) FROM events) - 60000000";

/// Runs `sql` on both engines, the second if there is one, and expects `expected` of both.
pub(crate) async fn check(lite: &mut SqliteConnection, sql: [&str; 2], expected: &Value) {
    assert_eq!(find(lite, sql[0]).await, *expected, "{}", sql[0]);
    #[cfg(feature = "postgres")]
    if let Some(mut postgres) = crate::engines::postgres::copy_of(lite, sql[1]).await {
        let found = crate::engines::postgres::find(&mut postgres, sql[1]).await;
        assert_eq!(found, *expected, "PostgreSQL: {}", sql[1]);
    }
}

#[tokio::test]
async fn the_documented_queries_find_the_same_on_both_engines() {
    let mut lite = lite().await;
    sqlx::raw_sql(RECENT).execute(&mut lite.db).await.unwrap();
    // Expected rows, by the line that introduces the query.
    let expected: Map<String, Value> = serde_json::from_str(include_str!("queries.json")).unwrap();
    let queries = portable();
    assert!(queries.len() >= 10);
    assert_eq!(queries.len(), expected.len(), "each query has its expected rows, and each of those a query");
    for (title, sql) in queries {
        let rows = expected.get(title).unwrap_or_else(|| panic!("{title}: no expected rows"));
        check(&mut lite.db, [sql, sql], &normal(rows.clone())).await;
    }
}

#[tokio::test]
async fn the_documented_queries_of_one_engine_find_the_same() {
    let mut lite = lite().await;
    let (sqlite, postgres) = (blocks("```sql sqlite\n"), blocks("```sql postgres\n"));
    assert_eq!((sqlite.len(), postgres.len()), (1, 1));
    let row = |session: &str, status: &str, updated: &str, title: &str| json!({"session": session, "title": title, "status": status, "updated": updated});
    let expected = [
        row("broken", "idle", "2026-01-01 00:02:00", "Go on."),
        row("clerk", "idle", "2026-01-01 00:02:00", "File this."),
        row("refused", "idle", "2026-01-01 00:02:00", "Go on."),
    ];
    check(&mut lite.db, [sqlite[0], postgres[0]], &json!(expected)).await;
}
