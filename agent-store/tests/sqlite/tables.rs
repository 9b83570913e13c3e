//! The tables: plain SQL reads them, old ones are brought up to date, damage in them is found.

use entourage_core::{
    ErrorKind, Money, SessionId, Timestamp,
    session::{ReadRange, SessionFilter, SessionRecord, SessionStatus, SessionStore},
};
use entourage_store::{Durability, SqliteStore};
use sqlx::{Connection, SqliteConnection};

use crate::{batch, count, create, id, plain, root, run};

const FROZEN_V1: &str = include_str!("../frozen/v1.sql");

#[tokio::test]
async fn a_frozen_database_of_version_1_loads() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let mut frozen = plain(&path).await;
    run(&mut frozen, FROZEN_V1).await;
    frozen.close().await.unwrap();

    let store = SqliteStore::open(&path).await.unwrap();
    let listed = store.query(&SessionFilter::all()).await.unwrap();
    let [talk, child] = listed.as_slice() else { panic!("{listed:?}") };
    assert_eq!((talk.record.id.as_str(), &*talk.record.role, talk.head.seq), ("talk", "user", 2));
    assert_eq!(
        (talk.head.status, talk.head.cost),
        (SessionStatus::Running, Some(Money::from_pico(4_200_000_000)))
    );
    assert_eq!((talk.head.usage.input, talk.head.usage.cache_read), (Some(1_200), None));
    assert_eq!(
        (child.record.parent.clone(), child.head.cost, child.head.usage.total()),
        (Some(id("talk")), None, None)
    );
    let rows = store.read(&id("talk"), ReadRange::after(1)).await.unwrap();
    assert_eq!(rows[0].body().unwrap(), r#"{"text":"slow disk"}"#);
    assert_eq!(
        store.append(&id("talk"), 0, batch(u64::MAX, 0, 2).creating(root(&id("talk")))).await.unwrap(),
        2
    );
    assert_eq!(store.append(&id("talk"), 2, batch(5, 2, 1)).await.unwrap(), 3);
    store.close().await;

    // However it got here, the tables are those of a new database.
    let new = directory.path().join("new.db");
    SqliteStore::open(&new).await.unwrap().close().await;
    assert_eq!(schema(&mut plain(&path).await).await, schema(&mut plain(&new).await).await);
}

async fn schema(connection: &mut SqliteConnection) -> Vec<String> {
    sqlx::query_scalar("SELECT name || ': ' || coalesce(sql, '') FROM sqlite_schema ORDER BY name")
        .fetch_all(connection)
        .await
        .unwrap()
}

#[tokio::test]
async fn the_log_is_on_and_the_file_is_labelled() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let store = SqliteStore::open(&path).await.unwrap();
    create(&store, "s", 1).await;
    let mut plain = plain(&path).await;
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut plain).await.unwrap();
    let version: i64 = sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut plain).await.unwrap();
    let damage: String = sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut plain).await.unwrap();
    assert_eq!((mode.as_str(), version, damage.as_str()), ("wal", 1, "ok"));
    assert!(directory.path().join("sessions.db-wal").exists());
}

/// Every query that the README shows finds something in a session that was really recorded.
#[tokio::test]
async fn the_documented_queries_work() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let mut frozen = plain(&path).await;
    run(&mut frozen, FROZEN_V1).await;
    run(
        &mut frozen,
        "UPDATE sessions SET seq = 3 WHERE id = 'talk'; INSERT INTO events VALUES ('talk', 3, 3, 'tool_finished', \
         '019a7b1c-0000-7000-8000-000000000001', 'scout', -1, \
         '{\"index\":0,\"result\":{\"call\":\"c\",\"name\":\"grep\",\"content\":[],\"is_error\":true},\"micros\":1500}')",
    )
    .await;
    let queries: Vec<&'static str> = include_str!("../../README.md")
        .split("```sql\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert_eq!(queries.len(), 4);
    for sql in queries {
        let found =
            sqlx::raw_sql(sql).fetch_all(&mut frozen).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(found.len(), 1, "{sql}");
    }
}

#[tokio::test]
async fn damage_in_one_session_is_found_and_the_others_load() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let (gap, run_id, fine) =
        (create(&store, "gap", 3).await, create(&store, "run", 3).await, create(&store, "fine", 3).await);
    let mut plain = plain(&path).await;
    run(
        &mut plain,
        "PRAGMA ignore_check_constraints = ON; DELETE FROM events WHERE session = 'gap' AND seq = 2; \
         UPDATE events SET run = 'x' WHERE session = 'run' AND seq = 2; UPDATE sessions SET seq = -1 WHERE id = 'gap'",
    )
    .await;
    for session in [&gap, &run_id] {
        let error = store.read(session, ReadRange::all()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        assert!(error.to_string().contains(&format!("session: {session}")), "{error}");
    }
    let error = store.append(&gap, 3, batch(1, 3, 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    let error = store.query(&SessionFilter::all()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    assert!(error.to_string().contains("seq = -1 in session gap"), "{error}");
    assert_eq!(count(&store, &fine).await, 3);
    assert_eq!(store.query(&SessionFilter::id(fine)).await.unwrap().len(), 1);
    // What is damaged can still be removed, and then the list is whole again.
    assert_eq!(store.delete(&gap).await.unwrap(), 1);
    assert_eq!(store.query(&SessionFilter::all()).await.unwrap().len(), 2);
}

#[tokio::test]
async fn numbers_that_do_not_fit_are_refused_before_anything_is_stored() {
    let store = SqliteStore::in_memory().await.unwrap();
    let session = id("s");
    let too_large = u64::MAX / 2 + 1;
    let mut batches = vec![batch(1, 0, 1), batch(1, 0, 1), batch(1, 0, 1)];
    batches[0].head.messages = too_large;
    batches[1].head.cost = Some(Money::from_pico(u64::MAX));
    batches[2].head.usage.reasoning = Some(too_large);
    for batch in batches {
        let error = store.append(&session, 0, batch.creating(root(&session))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error:?}");
    }
    let error = store.append(&session, too_large, batch(1, too_large, 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error:?}");
    assert!(store.query(&SessionFilter::all()).await.unwrap().is_empty());
}

/// Deeper than SQLite lets one delete cascade.
#[tokio::test]
async fn ca07_a_tree_of_a_thousand_levels_is_deleted_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let store = SqliteStore::builder(&path).durability(Durability::ProcessDeath).open().await.unwrap();
    let mut parent = create(&store, "level0", 1).await;
    for level in 1..1_100 {
        let child: SessionId = id(&format!("level{level}"));
        let record = SessionRecord::child(child.clone(), parent, "child", Timestamp::from_micros(1));
        store.append(&child, 0, batch(1, 0, 1).creating(record)).await.unwrap();
        parent = child;
    }
    let kept = create(&store, "level", 1).await;
    assert_eq!(store.delete(&id("level0")).await.unwrap(), 1_100);
    assert_eq!(count(&store, &kept).await, 1);
    let left: i64 =
        sqlx::query_scalar("SELECT count(*) FROM events").fetch_one(&mut plain(&path).await).await.unwrap();
    assert_eq!(left, 1, "events without a session");
}
