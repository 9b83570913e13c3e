//! Views that a store installs for others: once, whole, and never in the place of a newer version.

use entourage_core::ErrorKind;
use entourage_runners::{SqlViews, planner, team};
use entourage_store::SqliteStore;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use tempfile::TempDir;

use crate::engines::find;

type Texts = &'static [(&'static str, &'static str)];

const ONE: Texts = &[("own_kinds", "SELECT kind, count(*) AS events FROM events GROUP BY kind")];
const TWO: Texts = &[
    ("own_runs", "SELECT session, status FROM agent_executions"),
    ("own_counts", "SELECT count(*) AS runs FROM own_runs"),
];
const SETS: [SqlViews; 2] = [planner::VIEWS, team::VIEWS];

async fn plain(directory: &TempDir) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(directory.path().join("team.db"));
    SqliteConnection::connect_with(&options).await.unwrap()
}

async fn open(directory: &TempDir) -> SqliteStore {
    SqliteStore::open(directory.path().join("team.db")).await.unwrap()
}

async fn run(db: &mut SqliteConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(db).await.unwrap();
}

const VERSION: &str = "SELECT schema_version FROM pragma_schema_version";
const NAMES: &str = "SELECT name FROM sqlite_schema WHERE type = 'view' AND name LIKE 'own%' ORDER BY name";

#[tokio::test]
async fn bo09_views_are_installed_once_and_replaced_by_newer_ones_alone() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory).await;
    let mut db = plain(&directory).await;
    assert_eq!(store.install_views("own", 1, ONE).await.unwrap(), 1);
    let before = find(&mut db, VERSION).await;
    // The same again, from another store too, changes nothing.
    assert_eq!(store.install_views("own", 1, ONE).await.unwrap(), 1);
    assert_eq!(open(&directory).await.install_views("own", 1, ONE).await.unwrap(), 1);
    assert_eq!(find(&mut db, VERSION).await, before);
    assert_eq!(store.install_views("own", 2, TWO).await.unwrap(), 2);
    assert_eq!(find(&mut db, NAMES).await, json!([{"name": "own_counts"}, {"name": "own_runs"}]));
    assert_eq!(find(&mut db, "SELECT runs FROM own_counts").await, json!([{"runs": 0.0}]));
    // An older program leaves what a newer one needs.
    assert_eq!(store.install_views("own", 1, ONE).await.unwrap(), 2);
    assert_eq!(find(&mut db, NAMES).await, json!([{"name": "own_counts"}, {"name": "own_runs"}]));
    // Other texts of the same version take its place, and so does what somebody dropped.
    assert_eq!(store.install_views("own", 2, ONE).await.unwrap(), 2);
    assert_eq!(find(&mut db, NAMES).await, json!([{"name": "own_kinds"}]));
    run(&mut db, "DROP VIEW own_kinds").await;
    assert_eq!(store.install_views("own", 2, ONE).await.unwrap(), 2);
    assert_eq!(find(&mut db, NAMES).await, json!([{"name": "own_kinds"}]));
}

#[tokio::test]
async fn bo09_views_that_cannot_be_installed_change_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory).await;
    let mut db = plain(&directory).await;
    store.install_views("own", 1, ONE).await.unwrap();
    let wrong: [(Texts, ErrorKind); 6] = [
        (&[("own_a", "SELECT 1 AS one"), ("own_b", "SELECT FROM")], ErrorKind::InvalidInput),
        (&[("own_a", "SELECT one FROM nothing")], ErrorKind::InvalidInput),
        (&[("own_a", "DELETE FROM events")], ErrorKind::InvalidInput),
        (&[("own_a", "SELECT 1; DROP VIEW own_kinds")], ErrorKind::InvalidInput),
        (&[("kinds", "SELECT 1")], ErrorKind::InvalidInput),
        (&[("own_taken", "SELECT 1")], ErrorKind::Conflict),
    ];
    run(&mut db, "CREATE TABLE own_taken (x)").await;
    for (views, kind) in wrong {
        let error = store.install_views("own", 2, views).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error:?}");
        assert_eq!(find(&mut db, NAMES).await, json!([{"name": "own_kinds"}]), "{views:?}");
    }
    // The store works on.
    assert_eq!(store.install_views("own", 2, TWO).await.unwrap(), 2);
}

#[tokio::test]
async fn bo09_sets_do_not_know_of_each_other_and_a_store_in_memory_takes_them_too() {
    let directory = tempfile::tempdir().unwrap();
    let stores = [open(&directory).await, SqliteStore::in_memory().await.unwrap()];
    for store in stores {
        for views in SETS {
            assert_eq!(
                store.install_views(views.set, views.version, views.sqlite).await.unwrap(),
                views.version
            );
        }
        store.install_views("own", 1, ONE).await.unwrap();
        store.install_views("own", 2, TWO).await.unwrap();
        for views in SETS {
            assert_eq!(store.install_views(views.set, 0, views.sqlite).await.unwrap(), views.version);
        }
    }
    let mut db = plain(&directory).await;
    for (name, _) in SETS.iter().flat_map(|views| views.sqlite) {
        assert_eq!(find(&mut db, &format!("SELECT * FROM {name}")).await, json!([]), "{name}");
    }
}

#[tokio::test]
async fn bo09_a_migration_drops_installed_views_until_they_are_installed_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory).await;
    store.install_views("own", 3, ONE).await.unwrap();
    let mut db = plain(&directory).await;
    let labelled = find(&mut db, "SELECT sql FROM sqlite_schema WHERE name = 'own_kinds'").await;
    let old = include_str!("../../../tests/corpus/sqlite/v5.sql");
    let again = tempfile::tempdir().unwrap();
    let options = SqliteConnectOptions::new().filename(again.path().join("team.db")).create_if_missing(true);
    let mut frozen = SqliteConnection::connect_with(&options).await.unwrap();
    run(&mut frozen, old).await;
    run(&mut frozen, labelled[0]["sql"].as_str().unwrap()).await;
    run(&mut frozen, "CREATE VIEW own_view AS SELECT kind FROM own_kinds").await;
    drop(frozen);
    let store = open(&again).await;
    let mut db = plain(&again).await;
    assert_eq!(find(&mut db, NAMES).await, json!([{"name": "own_view"}]), "a view of somebody else stays");
    assert_eq!(store.install_views("own", 1, ONE).await.unwrap(), 1);
    assert!(!find(&mut db, "SELECT * FROM own_view").await.as_array().unwrap().is_empty());
}

#[cfg(feature = "postgres")]
mod postgres {
    use sqlx::PgConnection;

    use super::*;
    use crate::both::postgres::Place;

    const NAMES: &str = "SELECT viewname AS name FROM pg_views WHERE schemaname = current_schema() \
                         AND viewname LIKE 'own%' ORDER BY viewname";

    async fn names(db: &mut PgConnection) -> Vec<String> {
        sqlx::query_scalar(NAMES).fetch_all(db).await.unwrap()
    }

    async fn run(db: &mut PgConnection, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(db).await.unwrap();
    }

    #[tokio::test]
    async fn bo09_a_server_installs_views_once_and_an_older_version_never() {
        let Some(place) = Place::find("bo09_a_server_installs_views_once_and_an_older_version_never") else {
            return;
        };
        let store = place.store().await;
        let mut db = place.plain().await;
        let each = (0..8).map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.install_views("own", 1, ONE).await.unwrap() })
        });
        for installed in each.collect::<Vec<_>>() {
            assert_eq!(installed.await.unwrap(), 1);
        }
        let identity = "SELECT 'own_kinds'::regclass::oid::bigint";
        let before: i64 = sqlx::query_scalar(identity).fetch_one(&mut db).await.unwrap();
        assert_eq!(store.install_views("own", 1, ONE).await.unwrap(), 1);
        let after: i64 = sqlx::query_scalar(identity).fetch_one(&mut db).await.unwrap();
        assert_eq!(before, after, "a second time does nothing");
        assert_eq!(store.install_views("own", 2, TWO).await.unwrap(), 2);
        assert_eq!(names(&mut db).await, ["own_counts", "own_runs"]);
        assert_eq!(store.install_views("own", 1, ONE).await.unwrap(), 2);
        run(&mut db, "DROP VIEW own_counts").await;
        assert_eq!(store.install_views("own", 2, TWO).await.unwrap(), 2);
        assert_eq!(names(&mut db).await, ["own_counts", "own_runs"]);
        for views in SETS {
            assert_eq!(
                store.install_views(views.set, views.version, views.postgres).await.unwrap(),
                views.version
            );
        }
    }

    #[tokio::test]
    async fn bo09_a_server_installs_views_whole_or_not_at_all() {
        let Some(place) = Place::find("bo09_a_server_installs_views_whole_or_not_at_all") else { return };
        let store = place.store().await;
        let mut db = place.plain().await;
        store.install_views("own", 1, ONE).await.unwrap();
        run(&mut db, "CREATE TABLE own_taken (x INT)").await;
        let wrong: [(Texts, ErrorKind); 5] = [
            (&[("own_a", "SELECT 1 AS one"), ("own_b", "SELECT WHERE FROM")], ErrorKind::InvalidInput),
            (&[("own_a", "SELECT one FROM nothing")], ErrorKind::InvalidInput),
            (&[("own_a", "DELETE FROM events")], ErrorKind::InvalidInput),
            (&[("own_a", "SELECT json_extract(json_body, '$.x') FROM events")], ErrorKind::InvalidInput),
            (&[("own_taken", "SELECT 1")], ErrorKind::Conflict),
        ];
        for (views, kind) in wrong {
            let error = store.install_views("own", 2, views).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error:?}");
            assert_eq!(names(&mut db).await, ["own_kinds"], "{views:?}");
        }
        // What somebody made of them is not dropped along.
        run(&mut db, "CREATE VIEW mine AS SELECT kind FROM own_kinds").await;
        let error = store.install_views("own", 2, TWO).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
        run(&mut db, "DROP VIEW mine").await;
        assert_eq!(store.install_views("own", 2, TWO).await.unwrap(), 2);
    }

    #[tokio::test]
    async fn bo09_a_migration_of_a_server_drops_installed_views() {
        let Some(place) = Place::find("bo09_a_migration_of_a_server_drops_installed_views") else { return };
        let store = place.store().await;
        let mut db = place.plain().await;
        store.install_views("own", 3, TWO).await.unwrap();
        let undone = "DELETE FROM entourage_schema WHERE version = 6; DROP VIEW pending, approvals; \
                      DROP FUNCTION event_word(jsonb)";
        run(&mut db, undone).await;
        let again = place.store().await;
        assert!(names(&mut db).await.is_empty());
        assert_eq!(again.install_views("own", 1, ONE).await.unwrap(), 1);
        assert_eq!(names(&mut db).await, ["own_kinds"]);
    }
}
