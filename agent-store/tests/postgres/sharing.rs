//! Many writers on many connections.

use std::{sync::Arc, time::Duration};

use entourage_core::{
    ErrorKind, Timestamp,
    session::{Lease, ReadRange, SessionFilter, SessionStore},
};
use tokio::{sync::Barrier, task::JoinSet};

use crate::{batch, below, count, create, create_below, id, number, place, root, run};

#[tokio::test(flavor = "multi_thread")]
async fn twenty_stores_may_create_one_schema_at_once() {
    let place = Arc::new(place!("twenty_stores_may_create_one_schema_at_once"));
    let start = Arc::new(Barrier::new(20));
    let mut tasks = JoinSet::new();
    for n in 0..20 {
        let (place, start) = (Arc::clone(&place), Arc::clone(&start));
        tasks.spawn(async move {
            start.wait().await;
            let store = place.builder().connections(1).build().await.unwrap();
            create(&store, &format!("s{n}"), 2).await;
            store
        });
    }
    for store in &tasks.join_all().await {
        assert_eq!(store.query(&SessionFilter::all()).await.unwrap().len(), 20);
        store.close().await;
    }
    let mut plain = place.plain().await;
    let versions = number(&mut plain, "SELECT count(*) FROM entourage_schema").await;
    assert_eq!(versions, number(&mut plain, "SELECT max(version) FROM entourage_schema").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn attack_09_of_fifty_writers_through_five_stores_one_wins() {
    let place = place!("attack_09_of_fifty_writers_through_five_stores_one_wins");
    let mut stores = Vec::new();
    for _ in 0..5 {
        stores.push(place.open().await);
    }
    let session = create(&stores[0], "s", 1).await;
    for round in 0..5_u64 {
        let start = Arc::new(Barrier::new(50));
        let mut tasks = JoinSet::new();
        for (writer, store) in (0..50_u64).zip(stores.iter().cycle()) {
            let store = store.clone();
            let (start, session) = (Arc::clone(&start), session.clone());
            tasks.spawn(async move {
                start.wait().await;
                store.append(&session, 1 + round, batch(100 + writer, 1 + round, 1)).await
            });
        }
        let results = tasks.join_all().await;
        let lost = results.iter().filter_map(|result| result.as_ref().err()).collect::<Vec<_>>();
        assert_eq!(lost.len(), 49, "round {round}");
        assert!(lost.iter().all(|error| error.kind() == ErrorKind::Conflict), "{lost:?}");
    }
    assert_eq!(count(&stores[0], &session).await, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_sessions_at_once_lose_nothing() {
    let place = place!("a_thousand_sessions_at_once_lose_nothing");
    let store = place.builder().connect_timeout(Duration::from_secs(60)).build().await.unwrap();
    let start = Arc::new(Barrier::new(1_000));
    let mut tasks = JoinSet::new();
    for n in 0..1_000 {
        let (store, start) = (store.clone(), Arc::clone(&start));
        tasks.spawn(async move {
            start.wait().await;
            let session = id(&format!("s{n}"));
            store.append(&session, 0, batch(n, 0, 1).creating(root(&session))).await.unwrap();
            for expected in [1, 3, 5] {
                store.append(&session, expected, batch(n, expected, 2)).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let mut plain = place.plain().await;
    assert_eq!(number(&mut plain, "SELECT count(*) FROM sessions WHERE seq = 7").await, 1_000);
    let whole = "SELECT count(*) FROM (SELECT session FROM events GROUP BY session, writer \
                 HAVING count(*) = 7 AND max(seq) = 7 AND session = 's' || writer) AS whole";
    assert_eq!(number(&mut plain, whole).await, 1_000);
}

/// Another default isolation level of the server must not change that a late writer gets `Conflict`.
#[tokio::test(flavor = "multi_thread")]
async fn a_stricter_isolation_by_default_changes_nothing() {
    let place = place!("a_stricter_isolation_by_default_changes_nothing");
    let separator = if place.url.contains('?') { '&' } else { '?' };
    let url = format!("{}{separator}options[default_transaction_isolation]=serializable", place.url);
    let store = entourage_store::PostgresStore::builder(url).schema(&place.schema).build().await.unwrap();
    let session = create(&store, "s", 1).await;
    let mut tasks = JoinSet::new();
    for writer in 0..20 {
        let (store, session) = (store.clone(), session.clone());
        tasks.spawn(async move { store.append(&session, 1, batch(100 + writer, 1, 3)).await });
    }
    let results = tasks.join_all().await;
    let lost = results.iter().filter_map(|result| result.as_ref().err()).collect::<Vec<_>>();
    assert_eq!(lost.len(), 19);
    assert!(lost.iter().all(|error| error.kind() == ErrorKind::Conflict), "{lost:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn attack_10_a_stale_owner_is_fenced_and_told_so_last() {
    let place = place!("attack_10_a_stale_owner_is_fenced_and_told_so_last");
    let store = place.open().await;
    let until = Timestamp::from_micros(9);
    let (old, new) = (Lease::new(u64::MAX, 1, until), Lease::new(7, 2, until));
    let session = id("s");
    let first = batch(1, 0, 1).creating(root(&session)).leased(old);
    store.append(&session, 0, first.clone()).await.unwrap();
    let mine = batch(1, 1, 1).leased(old);
    store.append(&session, 1, mine.clone()).await.unwrap();
    store.lease(&session, new).await.unwrap();
    store.lease(&session, new).await.expect("an owner may renew its lease");

    // A repeated batch succeeds, a wrong number is a conflict, and only then does the lease count.
    assert_eq!(store.append(&session, 0, first).await.unwrap(), 2);
    assert_eq!(store.append(&session, 1, mine).await.unwrap(), 2);
    for (expected, hint) in [(1, "it is at event 2, not 1"), (2, "generation 2")] {
        let late = batch(3, expected, 1).leased(old);
        let error = store.append(&session, expected, late).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.to_string().contains(hint), "{error}");
    }
    let same_generation = Lease::new(8, 2, until);
    for stale in [old, same_generation] {
        let error = store.lease(&session, stale).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Conflict && error.to_string().contains("generation 2"), "{error}");
    }
    let error = store.lease(&id("nobody"), new).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let error = store.lease(&session, Lease::new(1, u64::MAX, until)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);

    // Without a lease a batch leaves the stored one alone; with the owner's it moves the expiry.
    store.append(&session, 2, batch(4, 2, 1)).await.unwrap();
    let longer = Lease::new(7, 2, Timestamp::from_micros(99));
    store.append(&session, 3, batch(4, 3, 1).leased(longer)).await.unwrap();
    let info = store.query(&SessionFilter::id(session)).await.unwrap().remove(0);
    assert_eq!((info.lease, info.head.seq), (Some(longer), 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_twenty_takeovers_at_once_one_is_admitted() {
    let place = place!("of_twenty_takeovers_at_once_one_is_admitted");
    let store = place.open().await;
    let session = create(&store, "s", 1).await;
    let mut tasks = JoinSet::new();
    for owner in 0..20 {
        let (store, session) = (store.clone(), session.clone());
        let lease = Lease::new(owner, 5, Timestamp::from_micros(9));
        tasks.spawn(async move { store.lease(&session, lease).await.map(|()| lease) });
    }
    let taken = tasks.join_all().await.into_iter().filter_map(Result::ok).collect::<Vec<_>>();
    assert_eq!(taken.len(), 1);
    let info = store.query(&SessionFilter::id(session)).await.unwrap().remove(0);
    assert_eq!(info.lease, Some(taken[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn trees_deleted_while_they_grow_leave_nothing_behind() {
    let place = place!("trees_deleted_while_they_grow_leave_nothing_behind");
    let store = place.open().await;
    for round in 0..10 {
        let top = create(&store, &format!("top{round}"), 1).await;
        let middle = create_below(&store, &format!("middle{round}"), &top).await;
        let (mut growing, mut deleting) = (JoinSet::new(), JoinSet::new());
        for n in 0..8 {
            let (store, child, parent) = (store.clone(), id(&format!("leaf{round}-{n}")), middle.clone());
            growing.spawn(async move {
                store.append(&child, 0, batch(n, 0, 3).creating(below(&child, &parent))).await?;
                // The count holds also if the child is gone by now.
                let next = store.append(&child, 3, batch(n, 3, 1)).await;
                next.map(|_| ()).or_else(|error| match error.kind() {
                    ErrorKind::NotFound => Ok(()),
                    _ => Err(error),
                })
            });
        }
        for doomed in [middle, top.clone(), top.clone()] {
            let store = store.clone();
            deleting.spawn(async move { store.delete(&doomed).await.unwrap() });
        }
        let mut created = 2;
        for grown in growing.join_all().await {
            match grown {
                Ok(()) => created += 1,
                Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}"),
            }
        }
        let mut deleted: u64 = deleting.join_all().await.iter().sum();
        deleted += store.delete(&top).await.unwrap();
        assert_eq!(deleted, created, "round {round}");
        assert!(store.query(&SessionFilter::all()).await.unwrap().is_empty(), "round {round}");
    }
    let mut plain = place.plain().await;
    assert_eq!(number(&mut plain, "SELECT count(*) FROM events").await, 0);
}

/// A session is created and deleted with its events, so no reader sees it without them.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_comes_and_goes_is_never_seen_half() {
    let place = place!("a_session_that_comes_and_goes_is_never_seen_half");
    let store = place.open().await;
    let mut readers = JoinSet::new();
    for _ in 0..3 {
        let store = store.clone();
        readers.spawn(async move {
            for _ in 0..400 {
                match store.read(&id("s"), ReadRange::all()).await {
                    Ok(rows) => assert_eq!(rows.len(), 2),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}"),
                }
            }
        });
    }
    while !readers.is_empty() {
        let session = create(&store, "s", 2).await;
        assert_eq!(store.delete(&session).await.unwrap(), 1);
        while let Some(ended) = readers.try_join_next() {
            ended.unwrap();
        }
    }
}

#[tokio::test]
async fn readers_do_not_wait_for_a_writer() {
    let place = place!("readers_do_not_wait_for_a_writer");
    let store = place.builder().statement_timeout(Duration::from_millis(300)).build().await.unwrap();
    let session = create(&store, "s", 2).await;
    let mut other = place.plain().await;
    run(&mut other, "BEGIN; UPDATE sessions SET title = 'not yet'; DELETE FROM events").await;
    assert_eq!(store.read(&session, ReadRange::all()).await.unwrap().len(), 2);
    assert_eq!(&*store.query(&SessionFilter::all()).await.unwrap()[0].head.title, "");

    let error = store.append(&session, 2, batch(1, 2, 1)).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.retry()),
        (ErrorKind::Timeout, entourage_core::RetryStatus::Temporary),
        "{error:?}"
    );
    run(&mut other, "ROLLBACK").await;
    assert_eq!(store.append(&session, 2, batch(1, 2, 1)).await.unwrap(), 3);
}

/// The pool reserves room for each connection that it may open.
#[tokio::test]
async fn issue_11_more_connections_than_any_server_has_do_not_end_the_process() {
    let place = place!("issue_11_more_connections_than_any_server_has_do_not_end_the_process");
    let store = place.builder().connections(u32::MAX).build().await.unwrap();
    let session = create(&store, "s", 2).await;
    assert_eq!(count(&store, &session).await, 2);
    store.close().await;
}
