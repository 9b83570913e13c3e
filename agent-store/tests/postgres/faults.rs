//! Faults of the server: an operation that meets one is a typed error, and the next one works once the fault is gone,
//! with one connection for all of them.

use std::time::Duration;

use entourage_core::{
    ErrorKind, Result, SessionId, Timestamp,
    session::{Lease, ReadRange, SessionFilter, SessionStore},
};
use entourage_store::PostgresStore;
use tokio::time::timeout;

use crate::{batch, count, create, id, place, root, run};

/// Time after which an operation counts as hanging.
const HANG: Duration = Duration::from_secs(30);

async fn all_operations(
    store: &PostgresStore,
    session: &SessionId,
    seq: u64,
) -> Vec<(&'static str, Result<()>)> {
    let lease = Lease::new(7, seq, Timestamp::from_micros(5));
    let all = async {
        vec![
            ("append", store.append(session, seq, batch(1, seq, 1)).await.map(drop)),
            (
                "create",
                store.append(&id("new"), 0, batch(1, 0, 1).creating(root(&id("new")))).await.map(drop),
            ),
            ("lease", store.lease(session, lease).await),
            ("delete", store.delete(&id("victim")).await.map(drop)),
            ("read", store.read(session, ReadRange::all()).await.map(drop)),
            ("query", store.query(&SessionFilter::all()).await.map(drop)),
        ]
    };
    timeout(HANG, all).await.unwrap()
}

async fn all_work(store: &PostgresStore, session: &SessionId, seq: u64) {
    for (operation, done) in all_operations(store, session, seq).await {
        done.unwrap_or_else(|error| panic!("{operation}: {error:?}"));
    }
    store.delete(&id("new")).await.unwrap();
    create(store, "victim", 1).await;
}

#[tokio::test]
async fn after_exceptions_of_triggers_the_next_operations_work() {
    let place = place!("after_exceptions_of_triggers_the_next_operations_work");
    let store = place.builder().connections(1).build().await.unwrap();
    let session = create(&store, "s", 1).await;
    create(&store, "victim", 1).await;
    let mut plain = place.plain().await;
    run(
        &mut plain,
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$",
    )
    .await;
    for seq in 1..3 {
        run(
            &mut plain,
            "CREATE TRIGGER t BEFORE INSERT OR UPDATE OR DELETE ON sessions EXECUTE FUNCTION no()",
        )
        .await;
        for _ in 0..2 {
            for (operation, done) in all_operations(&store, &session, seq).await {
                assert_eq!(done.is_ok(), matches!(operation, "read" | "query"), "{operation}");
            }
        }
        run(&mut plain, "DROP TRIGGER t ON sessions").await;
        all_work(&store, &session, seq).await;
    }
    assert_eq!(count(&store, &session).await, 3);
}

#[tokio::test]
async fn after_statements_that_took_too_long_the_next_operations_work() {
    let place = place!("after_statements_that_took_too_long_the_next_operations_work");
    let store =
        place.builder().connections(1).statement_timeout(Duration::from_secs(1)).build().await.unwrap();
    let session = create(&store, "s", 1).await;
    let mut plain = place.plain().await;
    run(&mut plain, "BEGIN; LOCK TABLE sessions IN ACCESS EXCLUSIVE MODE").await;
    let operations = async {
        [
            ("append", store.append(&session, 1, batch(1, 1, 1)).await.map(drop)),
            ("delete", store.delete(&session).await.map(drop)),
            ("read", store.read(&session, ReadRange::all()).await.map(drop)),
        ]
    };
    for (operation, done) in timeout(HANG, operations).await.unwrap() {
        let error = done.expect_err(operation);
        assert_eq!(error.kind(), ErrorKind::Timeout, "{operation}: {error:?}");
    }
    run(&mut plain, "COMMIT").await;
    assert_eq!(store.append(&session, 1, batch(1, 1, 1)).await.unwrap(), 2);
    assert_eq!(count(&store, &session).await, 2);
}

#[tokio::test]
async fn backends_killed_between_operations_are_replaced() {
    let place = place!("backends_killed_between_operations_are_replaced");
    let name = format!("between-{}", place.schema);
    let store = PostgresStore::builder(format!(
        "{}{}application_name={name}",
        place.url,
        if place.url.contains('?') { '&' } else { '?' }
    ))
    .schema(&place.schema)
    .connections(1)
    .build()
    .await
    .unwrap();
    let session = create(&store, "s", 1).await;
    create(&store, "victim", 1).await;
    let mut plain = place.plain().await;
    for seq in 1..4 {
        let kill = format!(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = '{name}'"
        );
        run(&mut plain, &kill).await;
        all_work(&store, &session, seq).await;
    }
    assert_eq!(count(&store, &session).await, 4);
}
