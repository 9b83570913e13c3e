//! The tables: plain SQL reads them, old ones are migrated, damage in them is found.

use std::path::{Path, PathBuf};

use entourage_core::{
    ErrorKind, Money, SessionId, Timestamp,
    session::{ReadRange, SessionFilter, SessionRecord, SessionStatus, SessionStore},
};
use entourage_store::{Durability, SqliteStore};
use sqlx::{Connection, SqliteConnection};

use crate::{batch, count, create, id, plain, root, run};

const FROZEN: [&str; 6] = [
    include_str!("../../../tests/corpus/sqlite/v1.sql"),
    include_str!("../../../tests/corpus/sqlite/v2.sql"),
    include_str!("../../../tests/corpus/sqlite/v3.sql"),
    include_str!("../../../tests/corpus/sqlite/v4.sql"),
    include_str!("../../../tests/corpus/sqlite/v5.sql"),
    include_str!("../../../tests/corpus/sqlite/v6.sql"),
];

/// Opens a database of an older version, as its users have it.
async fn thawed(directory: &Path, version: usize) -> (PathBuf, SqliteStore) {
    let path = directory.join(format!("v{version}.db"));
    let mut frozen = plain(&path).await;
    run(&mut frozen, FROZEN.get(version - 1).unwrap()).await;
    frozen.close().await.unwrap();
    let store = SqliteStore::open(&path).await.unwrap();
    (path, store)
}

#[tokio::test]
async fn a_frozen_database_of_version_1_loads() {
    let directory = tempfile::tempdir().unwrap();
    let (_, store) = thawed(directory.path(), 1).await;
    let listed = store.query(&SessionFilter::all()).await.unwrap();
    let [talk, child] = listed.as_slice() else { panic!("{listed:?}") };
    assert_eq!((talk.record.id.as_str(), &*talk.record.role, talk.head.seq), ("talk", "user", 2));
    assert_eq!(
        (talk.head.status, talk.head.cost),
        (SessionStatus::Running, Some(Money::from_pico(4_200_000_000)))
    );
    assert_eq!((talk.head.usage.input, talk.head.usage.cache_read), (Some(1_200), None));
    assert_eq!((talk.head.checkpoint, talk.lease), (0, None), "nobody had leases then");
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
}

#[tokio::test]
async fn a_frozen_database_of_version_2_loads() {
    let directory = tempfile::tempdir().unwrap();
    let (path, store) = thawed(directory.path(), 2).await;
    let trip = store.query(&SessionFilter::tree(id("trip"))).await.unwrap();
    let ids: Vec<_> = trip.iter().map(|info| info.record.id.as_str()).collect();
    assert_eq!(ids, ["trip", "trip.10$$0", "trip.10$$1"]);
    let killed = store.query(&SessionFilter::id(id("killed"))).await.unwrap();
    let lease = killed[0].lease.unwrap();
    assert_eq!((lease.generation, killed[0].head.status), (1, SessionStatus::Running));
    // Every event of that version still parses.
    for info in store.query(&SessionFilter::all()).await.unwrap() {
        let session = info.record.id.clone();
        let rows = store.read(&session, ReadRange::all()).await.unwrap();
        assert_eq!(rows.len() as u64, info.head.seq);
        for row in rows {
            row.into_envelope(&session).unwrap();
        }
    }
    let mut db = plain(&path).await;
    let sql = "SELECT total_cost_pico FROM session_totals WHERE session = 'trip'";
    let total: i64 = sqlx::query_scalar(sql).fetch_one(&mut db).await.unwrap();
    assert_eq!(total, 51_430_000_000);
}

/// A migrated database has the tables of a new one, whatever its first version.
#[tokio::test]
async fn each_frozen_version_becomes_what_a_new_database_is() {
    let directory = tempfile::tempdir().unwrap();
    let new = directory.path().join("new.db");
    SqliteStore::open(&new).await.unwrap().close().await;
    let expected = schema(&mut plain(&new).await).await;
    for version in 1..=FROZEN.len() {
        let (path, store) = thawed(directory.path(), version).await;
        store.close().await;
        assert_eq!(schema(&mut plain(&path).await).await, expected, "version {version}");
    }
    let version: i64 =
        sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut plain(&new).await).await.unwrap();
    assert_eq!(version, i64::try_from(FROZEN.len()).unwrap(), "each version is frozen");
}

/// The seeded sessions of each version have the same questions.
#[tokio::test]
async fn a_migrated_database_shows_what_its_sessions_wait_for() {
    let directory = tempfile::tempdir().unwrap();
    for version in 2..=FROZEN.len() {
        let (path, store) = thawed(directory.path(), version).await;
        store.close().await;
        let mut db = plain(&path).await;
        let rows = async |db: &mut SqliteConnection, sql| -> Vec<String> {
            sqlx::query_scalar(sql).fetch_all(db).await.unwrap()
        };
        let waits =
            "SELECT session || ' ' || root || ' ' || kind || ' ' || tool || ' ' || arguments FROM pending";
        assert_eq!(
            rows(&mut db, waits).await,
            [r#"put_off put_off approval write {"path":"later"}"#],
            "{version}"
        );
        let asked = "SELECT session || ' ' || status || ' ' || coalesce(decision, '') FROM approvals ORDER BY session";
        assert_eq!(
            rows(&mut db, asked).await,
            ["put_off open ", "refused answered deny", "trip answered allow"],
            "{version}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_stores_open_an_older_database_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("old.db");
    let mut frozen = plain(&path).await;
    run(&mut frozen, FROZEN.get(4).unwrap()).await;
    frozen.close().await.unwrap();
    let opened: Vec<_> = (0..8)
        .map(|_| {
            let path = path.clone();
            tokio::spawn(async move { SqliteStore::open(&path).await.unwrap() })
        })
        .collect();
    for store in opened {
        let store = store.await.unwrap();
        assert_eq!(store.query(&SessionFilter::all()).await.unwrap().len(), 9);
    }
    let sql = "SELECT count(*) FROM pending";
    let listed: i64 = sqlx::query_scalar(sql).fetch_one(&mut plain(&path).await).await.unwrap();
    assert_eq!(listed, 1);
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
    assert_eq!((mode.as_str(), version, damage.as_str()), ("wal", 6, "ok"));
    assert!(directory.path().join("sessions.db-wal").exists());
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
    // A damaged session can still be deleted, and then the list is whole again.
    assert_eq!(store.delete(&gap).await.unwrap(), 1);
    assert_eq!(store.query(&SessionFilter::all()).await.unwrap().len(), 2);
}

#[tokio::test]
async fn numbers_that_do_not_fit_are_refused_before_anything_is_stored() {
    let store = SqliteStore::in_memory().await.unwrap();
    let session = id("s");
    let too_large = u64::MAX / 2 + 1;
    let error = store.append(&session, too_large, batch(1, too_large, 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error:?}");
    assert!(store.query(&SessionFilter::all()).await.unwrap().is_empty());
}

#[tokio::test]
async fn figures_beyond_a_column_are_stored_as_the_largest_that_it_takes() {
    let store = SqliteStore::in_memory().await.unwrap();
    let (session, largest) = (id("s"), i64::MAX.unsigned_abs());
    let mut first = batch(1, 0, 1);
    (first.head.messages, first.head.checkpoint) = (u64::MAX, u64::MAX);
    first.head.cost = Some(Money::from_pico(largest + 1));
    let usage = &mut first.head.usage;
    for count in [
        &mut usage.input,
        &mut usage.output,
        &mut usage.cache_read,
        &mut usage.cache_write,
        &mut usage.reasoning,
    ] {
        *count = Some(u64::MAX);
    }
    assert_eq!(store.append(&session, 0, first.creating(root(&session))).await.unwrap(), 1);
    let listed = store.query(&SessionFilter::all()).await.unwrap();
    let [stored] = listed.as_slice() else { panic!("one session: {listed:?}") };
    assert_eq!((stored.head.messages, stored.head.checkpoint), (largest, largest));
    assert_eq!(stored.head.cost, Some(Money::from_pico(largest)));
    assert_eq!((stored.head.usage.input, stored.head.usage.reasoning), (Some(largest), Some(largest)));
    assert_eq!(store.append(&session, 1, batch(1, 1, 1)).await.unwrap(), 2, "the session goes on");
}

/// The tree is deeper than SQLite lets one delete cascade.
#[tokio::test]
async fn ca07_a_tree_of_a_thousand_levels_is_deleted_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let store = SqliteStore::builder(&path).durability(Durability::ProcessDeath).build().await.unwrap();
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
