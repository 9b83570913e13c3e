//! Connections that break at the worst moment, and the errors that callers get.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use entourage_core::{
    ErrorKind, RetryStatus,
    session::{ReadRange, SessionFilter, SessionStore},
};
use entourage_store::{PostgresBuilder, PostgresStore};
use sqlx::PgConnection;
use tokio::task::JoinSet;

use crate::{Place, batch, below, count, create, id, number, place, proxy::Proxy, run};

/// Returns the place's URL with another host, and with `name` as the application's name.
fn url(place: &Place, name: &str, host: Option<String>) -> String {
    let (scheme, rest) = place.url.split_once("://").unwrap();
    let (authority, path) = rest.split_once('/').unwrap();
    let (user, own) = authority.split_once('@').map_or(("", authority), |(user, host)| (user, host));
    let host = host.unwrap_or_else(|| own.to_owned());
    let separator = if path.contains('?') { '&' } else { '?' };
    format!("{scheme}://{user}@{host}/{path}{separator}application_name={name}")
}

/// Returns `host:port` of the place's server.
fn server(place: &Place) -> String {
    let (_, rest) = place.url.split_once("://").unwrap();
    let authority = rest.split(['/', '?']).next().unwrap();
    let host = authority.rsplit('@').next().unwrap();
    if host.contains(':') { host.to_owned() } else { format!("{host}:5432") }
}

fn named(place: &Place, name: &str) -> PostgresBuilder {
    PostgresStore::builder(url(place, name, None)).schema(&place.schema)
}

/// Fewest connections that are killed at random.
const KILLS: u64 = 12;

/// Kills the connections of `name` that wait for a lock, as soon as there is one.
async fn kill_waiting(plain: &mut PgConnection, name: &str) {
    let sql = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
         WHERE application_name = '{name}' AND wait_event_type = 'Lock'"
    );
    while number(plain, &sql).await == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_connection_killed_in_an_append_leaves_the_batch_whole() {
    let place = place!("a_connection_killed_in_an_append_leaves_the_batch_whole");
    let name = format!("killed-{}", place.schema);
    let store = named(&place, &name).build().await.unwrap();
    let session = create(&store, "s", 1).await;
    let (mut blocker, mut killer) = (place.plain().await, place.plain().await);

    // Killed once, the append goes on over another connection.
    run(&mut blocker, "BEGIN; SELECT 1 FROM sessions FOR UPDATE").await;
    let appending = tokio::spawn({
        let (store, session) = (store.clone(), session.clone());
        async move { store.append(&session, 1, batch(1, 1, 50)).await }
    });
    kill_waiting(&mut killer, &name).await;
    run(&mut blocker, "COMMIT").await;
    assert_eq!(appending.await.unwrap().unwrap(), 51);
    assert_eq!(count(&store, &session).await, 51);

    // Killed each time, it is an error that says so, and nothing is stored.
    run(&mut blocker, "BEGIN; SELECT 1 FROM sessions FOR UPDATE").await;
    let appending = tokio::spawn({
        let (store, session) = (store.clone(), session.clone());
        async move { store.append(&session, 51, batch(1, 51, 50)).await }
    });
    while !appending.is_finished() {
        tokio::select! {
            () = kill_waiting(&mut killer, &name) => {}
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
        }
    }
    let error = appending.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Transport, RetryStatus::Temporary), "{error:?}");
    run(&mut blocker, "COMMIT").await;
    assert_eq!(count(&store, &session).await, 51);
    assert_eq!(store.append(&session, 51, batch(1, 51, 50)).await.unwrap(), 101);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_killed_at_random_lose_nothing_and_double_nothing() {
    let place = place!("connections_killed_at_random_lose_nothing_and_double_nothing");
    let name = format!("random-{}", place.schema);
    let store = named(&place, &name).connections(4).build().await.unwrap();
    let mut tasks = JoinSet::new();
    let killed = Arc::new(AtomicU64::new(0));
    for n in 0..8 {
        let session = create(&store, &format!("s{n}"), 1).await;
        let (store, killed) = (store.clone(), Arc::clone(&killed));
        tasks.spawn(async move {
            let mut rounds = 0_u64;
            // A loaded machine kills seldom.
            while rounds < 40 || killed.load(Ordering::Relaxed) < KILLS {
                let expected = 1 + rounds * 5;
                rounds += 1;
                // A caller repeats the same batch after a temporary error.
                let batch = batch(n, expected, 5);
                while let Err(error) = store.append(&session, expected, batch.clone()).await {
                    assert_eq!(error.retry(), RetryStatus::Temporary, "{error:?}");
                }
            }
            (n, rounds)
        });
    }
    let mut killer = place.plain().await;
    let kill = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity \
         WHERE application_name = '{name}' ORDER BY random() LIMIT 1) AS unlucky"
    );
    let mut ended = Vec::new();
    while !tasks.is_empty() {
        tokio::select! {
            end = tasks.join_next() => ended.push(end.unwrap().unwrap()),
            () = tokio::time::sleep(Duration::from_millis(2)) => {
                let count = u64::try_from(number(&mut killer, &kill).await).unwrap();
                killed.fetch_add(count, Ordering::Relaxed);
            }
        }
    }
    for (n, rounds) in ended {
        let rows = store.read(&id(&format!("s{n}")), ReadRange::all()).await.unwrap();
        assert_eq!(rows.len() as u64, 1 + 5 * rounds, "each batch once, in order");
    }
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_stored_once() {
    let place = place!("a_commit_whose_answer_was_lost_is_stored_once");
    let proxy = Proxy::before(server(&place)).await;
    let store = PostgresStore::builder(url(&place, "lossy", Some(proxy.address.to_string())))
        .schema(&place.schema)
        .connections(1)
        .build()
        .await
        .unwrap();
    let session = create(&store, "s", 1).await;
    let mut plain = place.plain().await;

    proxy.lose("by 7", 1);
    assert_eq!(store.append(&session, 1, batch(7, 1, 3)).await.unwrap(), 4, "the same batch was known again");
    assert_eq!((proxy.left(), count(&store, &session).await), (0, 4));
    proxy.lose("by 8", 1);
    let child = id("child");
    store.append(&child, 0, batch(8, 0, 2).creating(below(&child, &session))).await.unwrap();
    assert_eq!((proxy.left(), count(&store, &child).await), (0, 2));

    // Lost for good: the error is temporary, and the batch is there although nobody knows.
    proxy.lose("by 9", usize::MAX);
    let error = store.append(&session, 4, batch(9, 4, 3)).await.unwrap_err();
    assert_eq!(error.retry(), RetryStatus::Temporary, "{error:?}");
    assert_eq!(number(&mut plain, "SELECT seq FROM sessions WHERE id = 's'").await, 7);
    proxy.lose("", 0);
    assert_eq!(store.append(&session, 4, batch(9, 4, 3)).await.unwrap(), 7);
    let error = store.append(&session, 4, batch(2, 4, 3)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "another writer's batch is not taken for it");
    assert_eq!(count(&store, &session).await, 7);
}

#[tokio::test]
async fn connections_that_died_while_they_rested_are_not_noticed() {
    let place = place!("connections_that_died_while_they_rested_are_not_noticed");
    let name = format!("rested-{}", place.schema);
    let store = named(&place, &name).connections(6).build().await.unwrap();
    let session = create(&store, "s", 1).await;
    let mut tasks = JoinSet::new();
    for _ in 0..6 {
        let (store, session) = (store.clone(), session.clone());
        tasks.spawn(async move { count(&store, &session).await });
    }
    tasks.join_all().await;
    let mut killer = place.plain().await;
    let sql = format!(
        "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE application_name = '{name}'"
    );
    assert!(number(&mut killer, &sql).await > 1);
    assert_eq!(store.append(&session, 1, batch(1, 1, 1)).await.unwrap(), 2);
    assert_eq!(count(&store, &session).await, 2);
}

#[tokio::test]
async fn a_server_that_is_away_is_a_typed_error_without_the_password() {
    let place = place!("a_server_that_is_away_is_a_typed_error_without_the_password");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let away = format!("postgres://me:hunter2@{free}/team");
    let missing = format!("postgres://test:hunter2@{}/no_such_database", server(&place));
    for (url, kind) in [(away, ErrorKind::Transport), (missing, ErrorKind::Store)] {
        let error = PostgresStore::connect(&url).await.unwrap_err();
        let shown = format!("{error} {error:?} {:?}", error.record());
        assert!(error.kind() == kind && !shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("database: 127.0.0.1:") || !url.contains("127.0.0.1"), "{shown}");
    }

    let proxy = Proxy::before(server(&place)).await;
    let store = PostgresStore::builder(url(&place, "gone", Some(proxy.address.to_string())).replacen(
        "@",
        ":hunter2@",
        1,
    ))
    .schema(&place.schema)
    .connect_timeout(Duration::from_millis(500))
    .build()
    .await
    .unwrap();
    let session = create(&store, "s", 1).await;
    assert!(!format!("{store:?}").contains("hunter2"), "{store:?}");
    proxy.lose("", usize::MAX);
    let error = store.append(&session, 1, batch(1, 1, 1)).await.unwrap_err();
    assert_eq!(error.retry(), RetryStatus::Temporary, "{error:?}");
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    drop(proxy);
    let error = store.query(&SessionFilter::all()).await.unwrap_err();
    assert_eq!(error.retry(), RetryStatus::Temporary, "{error:?}");
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let place = place!("a_closed_store_says_so");
    let store = place.open().await;
    let session = create(&store, "s", 1).await;
    store.clone().close().await;
    let error = store.append(&session, 1, batch(1, 1, 1)).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Store && error.to_string().contains("connect again"), "{error}");
    assert_eq!(error.retry(), RetryStatus::Permanent);
}

/// Futures dropped at every await: the pool keeps its size, and no batch is stored in part.
#[tokio::test]
async fn dropped_operations_leave_the_store_usable() {
    let place = place!("dropped_operations_leave_the_store_usable");
    let store = place.builder().connections(2).build().await.unwrap();
    let (session, all) = (create(&store, "s", 1).await, SessionFilter::all());
    for _ in 0..50 {
        let seq = count(&store, &session).await as u64;
        tokio::select! {
            biased;
            _ = store.append(&session, seq, batch(1, seq, 4)) => {}
            () = tokio::task::yield_now() => {}
        }
        tokio::select! {
            biased;
            _ = store.query(&all) => {}
            () = tokio::task::yield_now() => {}
        }
    }
    // Statements still running on the server end before this lock is granted.
    let mut plain = place.plain().await;
    run(&mut plain, "BEGIN; LOCK TABLE sessions IN EXCLUSIVE MODE; COMMIT").await;
    let seq = count(&store, &session).await as u64;
    assert_eq!(seq % 4, 1, "{seq}");
    assert_eq!(store.append(&session, seq, batch(2, seq, 1)).await.unwrap(), seq + 1);
}

#[tokio::test]
async fn attack_f15_operations_share_the_connections_that_there_are_when_the_server_has_no_room_for_more() {
    let place = place!(
        "attack_f15_operations_share_the_connections_that_there_are_when_the_server_has_no_room_for_more"
    );
    let proxy = Proxy::before(server(&place)).await;
    let store = PostgresStore::builder(url(&place, "full", Some(proxy.address.to_string())))
        .schema(&place.schema)
        .connections(4)
        .build()
        .await
        .unwrap();
    let sessions = [create(&store, "a", 1).await, create(&store, "b", 1).await, create(&store, "c", 1).await];
    proxy.fill();
    for expected in 1..4 {
        let appends =
            sessions.each_ref().map(|session| store.append(session, expected, batch(1, expected, 1)));
        let [a, b, c] = appends;
        let (a, b, c) = tokio::join!(a, b, c);
        for appended in [a, b, c] {
            assert_eq!(appended.unwrap(), expected + 1);
        }
    }
}
