//! The schemas that a store accepts, and that a refused one stays as it was.

use entourage_core::{
    Error, ErrorKind,
    session::{SessionFilter, SessionStore},
};
use entourage_store::PostgresStore;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::{Place, count, create, number, place, run};

/// Returns all relations of a schema, with their rows.
async fn contents(place: &Place) -> Vec<String> {
    let sql = format!(
        "SELECT relname || ' ' || relkind::text || ' ' || CASE WHEN relkind = 'r' THEN \
         query_to_xml('SELECT * FROM {0}.' || quote_ident(relname), true, false, '')::text ELSE '' END \
         FROM pg_class WHERE relnamespace = to_regnamespace('{0}') ORDER BY relname",
        place.schema
    );
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&mut place.plain().await).await.unwrap()
}

/// Opens the place, which must be refused with a text that holds `hint`, and be left as it was.
async fn refused(place: &Place, kind: ErrorKind, hint: &str) -> Error {
    let before = contents(place).await;
    let error = place.builder().build().await.expect_err("the schema must be refused");
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(error.to_string().contains(hint) && error.to_string().contains(&place.schema), "{error}");
    assert_eq!(contents(place).await, before, "the refused schema was changed");
    error
}

#[tokio::test]
async fn attack_08_a_newer_version_is_refused() {
    let place = place!("attack_08_a_newer_version_is_refused");
    let store = place.open().await;
    create(&store, "s", 2).await;
    run(&mut place.plain().await, "INSERT INTO entourage_schema (version) VALUES (99)").await;
    refused(&place, ErrorKind::NewerVersion, "update").await;
}

#[tokio::test]
async fn another_programs_schema_is_refused() {
    for sql in [
        "CREATE TABLE sessions (id TEXT)",
        "CREATE VIEW events AS SELECT 1 AS x",
        "CREATE SEQUENCE sessions",
        "CREATE TABLE t (x INT); CREATE INDEX sessions_by_update ON t (x)",
        "CREATE TYPE events AS (x INT)",
    ] {
        let place = place!("another_programs_schema_is_refused");
        let mut plain = place.plain().await;
        run(&mut plain, &format!("CREATE SCHEMA {}; {sql}", place.schema)).await;
        refused(&place, ErrorKind::Store, "belongs to another program").await;
    }
}

#[tokio::test]
async fn attack_08_tables_that_are_not_whole_are_refused() {
    let place = place!("attack_08_tables_that_are_not_whole_are_refused");
    place.open().await.close().await;
    run(&mut place.plain().await, "DELETE FROM entourage_schema").await;
    refused(&place, ErrorKind::Corrupt, "restore a backup").await;
    run(
        &mut place.plain().await,
        "INSERT INTO entourage_schema (version) VALUES (1); DROP TABLE sessions, events CASCADE",
    )
    .await;
    refused(&place, ErrorKind::Corrupt, "restore a backup").await;
    run(&mut place.plain().await, "DROP TABLE entourage_schema; CREATE TABLE entourage_schema (x INT)").await;
    refused(&place, ErrorKind::Corrupt, "missing").await;
}

#[tokio::test]
async fn tables_beside_the_stores_are_left_alone() {
    let place = place!("tables_beside_the_stores_are_left_alone");
    run(
        &mut place.plain().await,
        &format!(
            "CREATE SCHEMA {0}; CREATE TABLE {0}.accounts (n INT); INSERT INTO {0}.accounts VALUES (7)",
            place.schema
        ),
    )
    .await;
    let store = place.open().await;
    let session = create(&store, "s", 2).await;
    assert_eq!(count(&place.open().await, &session).await, 2);
    assert_eq!(number(&mut place.plain().await, "SELECT n::bigint FROM accounts").await, 7);
}

#[tokio::test]
async fn tables_of_version_1_are_brought_up_to_date() {
    let place = place!("tables_of_version_1_are_brought_up_to_date");
    let mut plain = place.plain().await;
    run(&mut plain, &format!("CREATE SCHEMA {}", place.schema)).await;
    run(&mut plain, include_str!("../../migrations/postgres/0001_sessions_and_events.sql")).await;
    run(
        &mut plain,
        "INSERT INTO entourage_schema (version) VALUES (1); \
         INSERT INTO sessions (id, role, created, seq, status, agent, title, messages, updated, checkpoint) \
         VALUES ('old', 'user', 1, 1, 'idle', 'a', 't', 1, 1, 0); \
         INSERT INTO events VALUES ('old', 1, 1, 'warning', '019a7b1c-0000-7000-8000-000000000001', 'a', -1, '{}')",
    )
    .await;
    let store = place.open().await;
    assert_eq!(count(&store, &crate::id("old")).await, 1);

    // The migrated tables are those of a new schema.
    let new = place!("tables_of_version_1_are_brought_up_to_date");
    new.open().await.close().await;
    assert_eq!(shape(&place).await, shape(&new).await);
    assert!(shape(&new).await.len() > 30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_stores_bring_tables_of_version_5_up_to_date_at_once() {
    let place = place!("several_stores_bring_tables_of_version_5_up_to_date_at_once");
    let mut plain = place.plain().await;
    run(&mut plain, &format!("CREATE SCHEMA {}", place.schema)).await;
    for sql in [
        include_str!("../../migrations/postgres/0001_sessions_and_events.sql"),
        include_str!("../../migrations/postgres/0002_views.sql"),
        include_str!("../../migrations/postgres/0003_views_of_any_body.sql"),
        include_str!("../../migrations/postgres/0004_views_of_what_is_open.sql"),
        include_str!("../../migrations/postgres/0005_views_of_requests.sql"),
        "INSERT INTO entourage_schema (version) VALUES (1), (2), (3), (4), (5); \
         INSERT INTO sessions (id, role, created, seq, status, run, agent, title, messages, updated, checkpoint) VALUES \
         ('old', 'user', 1, 3, 'paused', '019a7b1c-0000-7000-8000-000000000001', 'a', 't', 1, 1, 0); \
         INSERT INTO events SELECT 'old', seq, seq, kind, '019a7b1c-0000-7000-8000-000000000001', 'a', -1, body \
         FROM (VALUES (1, 'run_started', '{}'), (2, 'approval_requested', '{\"id\":\"old.1$$0\",\"tool\":\"look\"}'), \
         (3, 'approval_decided', '{\"id\":\"old.1$$0\",\"decision\":\"later\"}')) AS old (seq, kind, body)",
    ] {
        run(&mut plain, sql).await;
    }
    let opened: Vec<_> = (0..8).map(|_| tokio::spawn(place.builder().build())).collect();
    for store in opened {
        assert_eq!(count(&store.await.unwrap().unwrap(), &crate::id("old")).await, 3);
    }
    let sql = "SELECT count(*) FROM pending JOIN approvals USING (session, id, tool) WHERE status = 'open' AND \
               decision = 'later' AND pending.since = approvals.asked_at";
    assert_eq!(number(&mut plain, sql).await, 1);
    let new = place!("several_stores_bring_tables_of_version_5_up_to_date_at_once");
    new.open().await.close().await;
    assert_eq!(shape(&place).await, shape(&new).await);
}

/// Returns the tables, views, columns and indexes of a schema.
async fn shape(place: &Place) -> Vec<String> {
    let sql = format!(
        "SELECT concat_ws(' ', table_name, column_name, data_type, collation_name, is_nullable, column_default) AS line \
         FROM information_schema.columns WHERE table_schema = '{0}' UNION ALL \
         SELECT replace(indexdef, '{0}.', '') FROM pg_indexes WHERE schemaname = '{0}' UNION ALL \
         SELECT version::text FROM {0}.entourage_schema ORDER BY line",
        place.schema
    );
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&mut place.plain().await).await.unwrap()
}

/// A user who may use the tables and not change them works with tables that are up to date.
#[tokio::test]
async fn who_may_not_create_is_told_so_and_works_with_what_is_there() {
    let place = place!("who_may_not_create_is_told_so_and_works_with_what_is_there");
    let mut plain = place.plain().await;
    let role = format!("r{}", place.schema);
    let made = sqlx::raw_sql(AssertSqlSafe(format!("CREATE ROLE {role} LOGIN PASSWORD 'hunter2'")));
    if let Err(error) = made.execute(&mut plain).await {
        println!("SKIPPED: the user of DATABASE_URL may not create roles: {error}");
        return;
    }
    let (scheme, rest) = place.url.split_once("://").unwrap();
    let rest = rest.split_once('@').map_or(rest, |(_, rest)| rest);
    let as_role = PostgresStore::builder(format!("{scheme}://{role}:hunter2@{rest}")).schema(&place.schema);
    let error = as_role.clone().build().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error:?}");

    let session = create(&place.open().await, "s", 1).await;
    run(
        &mut plain,
        &format!(
            "GRANT USAGE ON SCHEMA {0} TO {role}; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {0} TO {role}",
            place.schema
        ),
    )
    .await;
    let store = as_role.build().await.unwrap();
    assert_eq!(store.append(&session, 1, crate::batch(1, 1, 1)).await.unwrap(), 2);
    store.close().await;
    run(&mut plain, &format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

#[tokio::test]
async fn a_database_that_cannot_hold_every_text_is_refused() {
    let place = place!("a_database_that_cannot_hold_every_text_is_refused");
    let mut plain = place.plain().await;
    let name = format!("d{}", place.schema);
    let sql = format!("CREATE DATABASE {name} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0");
    if let Err(error) = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut plain).await {
        println!("SKIPPED: the user of DATABASE_URL may not create such a database: {error}");
        return;
    }
    let (server, _) = place.url.rsplit_once('/').unwrap();
    let error = PostgresStore::connect(format!("{server}/{name}")).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Store && error.to_string().contains("UTF8"), "{error}");
    let mut other = PgConnection::connect(&format!("{server}/{name}")).await.unwrap();
    assert_eq!(number(&mut other, "SELECT count(*) FROM pg_class WHERE relname = 'sessions'").await, 0);
    other.close().await.unwrap();
    run(&mut plain, &format!("DROP DATABASE {name}")).await;
}

#[tokio::test]
async fn without_a_name_the_first_schema_of_the_path_is_taken() {
    let place = place!("without_a_name_the_first_schema_of_the_path_is_taken");
    let mut plain = place.plain().await;
    let separator = if place.url.contains('?') { '&' } else { '?' };
    let url = format!("{}{separator}options[search_path]={}", place.url, place.schema);
    let error = PostgresStore::connect(&url).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Store && error.to_string().contains("search path"), "{error}");
    run(&mut plain, &format!("CREATE SCHEMA {}", place.schema)).await;
    create(&PostgresStore::connect(&url).await.unwrap(), "s", 1).await;
    assert_eq!(place.open().await.query(&SessionFilter::all()).await.unwrap().len(), 1);
}
