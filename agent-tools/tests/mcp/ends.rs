//! The end of attempts and connections, at whatever point it comes: nothing is left of them, and all who wait know.

use std::{
    pin::Pin,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use entourage_core::tool::Toolset;
use entourage_tools::mcp::{Mcp, McpLifecycle, McpServer, McpState};
use serde_json::json;
use tokio::time;

use crate::{
    all_end, call, echo, eventually,
    fake::{self, notes},
    http::{Asked, FLOOD, SILENCE, Site, speaks},
    manners::is_alive,
    one, started, state,
};

/// A notification, as an event of a stream.
const NEWS: &str = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\
    \"data\":\"x\"}}\n\n";

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Lets so much time pass at once.
async fn pass(time: Duration) {
    time::pause();
    time::advance(time).await;
    time::resume();
}

/// True for a request with this method, of the protocol or else of HTTP.
fn is(asked: &Asked, method: &str) -> bool {
    asked.body["method"] == method || asked.head.starts_with(&format!("{method} /"))
}

/// A server that is of no use from this request on, and the number of those.
fn stuck_at(method: &'static str, manner: &'static str) -> (Site, Arc<AtomicUsize>) {
    let stuck = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&stuck);
    let site = Site::new(move |asked| {
        if !is(asked, method) {
            return speaks(asked);
        }
        count.fetch_add(1, Ordering::SeqCst);
        (manner.to_owned(), NEWS.to_owned())
    });
    (site, stuck)
}

#[tokio::test]
async fn nothing_is_left_of_an_attempt_at_an_address_whatever_ends_it() {
    for (method, manner) in [
        ("server/discover", SILENCE),
        ("server/discover", FLOOD),
        ("initialize", SILENCE),
        ("initialize", FLOOD),
        ("tools/list", SILENCE),
        ("tools/list", FLOOD),
    ] {
        let (site, stuck) = stuck_at(method, manner);
        let what = |end: &str| format!("{method}, {manner}, {end}: nothing is left");
        let is_stuck = |times| {
            let stuck = Arc::clone(&stuck);
            async move { eventually("it is stuck", || stuck.load(Ordering::SeqCst) == times).await }
        };
        let before = tasks();
        let mcp = Mcp::start([site.server()]).unwrap();
        is_stuck(1).await;
        pass(Duration::from_secs(60)).await;
        mcp.ready().await;
        assert!(matches!(state(&mcp), McpState::Failed(_)), "{method}, {manner}: {mcp:?}");
        // One task waits until somebody asks for the tools.
        eventually(&what("timeout"), || site.open() == 0 && tasks() == before + 1).await;

        let reconnects = |mcp: &Mcp| {
            let mcp = mcp.clone();
            tokio::spawn(async move { mcp.reconnect("fake").await.unwrap() })
        };
        let reconnecting = reconnects(&mcp);
        is_stuck(2).await;
        reconnecting.abort();
        eventually(&what("abort"), || site.open() == 0 && tasks() == before + 1).await;
        assert!(matches!(state(&mcp), McpState::Failed(_)), "{method}, {manner}: {mcp:?}");

        let reconnecting = reconnects(&mcp);
        is_stuck(3).await;
        mcp.shut_down().await;
        let after = reconnecting.await.unwrap();
        // A flood may have been found to be no answer before.
        assert!(after == McpState::Disabled || manner == FLOOD, "{method}, {manner}: {after}");
        eventually(&what("shut down"), || site.open() == 0).await;
        drop(mcp);

        let mcp = Mcp::start([site.server()]).unwrap();
        is_stuck(4).await;
        drop(mcp);
        eventually(&what("drop"), || site.open() == 0 && tasks() == before).await;
    }
}

#[tokio::test]
async fn nothing_is_left_of_a_connection_to_an_address_whatever_it_does_at_the_end() {
    for (method, manner) in [("get", SILENCE), ("get", FLOOD), ("delete", SILENCE), ("delete", FLOOD)] {
        for is_shut in [true, false] {
            let (site, stuck) = stuck_at(method, manner);
            let before = tasks();
            let mcp = started([site.server()]).await;
            assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"), "{method}, {manner}");
            if method == "get" {
                eventually("it is stuck", || stuck.load(Ordering::SeqCst) == 1).await;
            }
            if is_shut {
                mcp.shut_down().await;
            }
            drop(mcp);
            let what = format!("{method}, {manner}, {is_shut}: nothing is left");
            eventually(&what, || site.open() == 0 && tasks() == before).await;
        }
    }
}

/// Polls a future so many times at most, and drops it.
pub(crate) async fn polled<F: Future>(future: F, mut times: usize) -> Option<F::Output> {
    let mut future = Box::pin(future);
    std::future::poll_fn(move |cx| {
        if times == 0 {
            return Poll::Ready(None);
        }
        times -= 1;
        match Pin::as_mut(&mut future).poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if times == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[tokio::test]
async fn an_attempt_that_is_dropped_at_any_point_leaves_a_server_that_is_tried_again() {
    // The first attempt fails, the one that is dropped does as its manner says, and all others succeed.
    for manner in ["500 Internal Server Error", SILENCE, "good"] {
        for polls in 0.. {
            let (attempt, stuck) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let (number, count) = (Arc::clone(&attempt), Arc::clone(&stuck));
            let site = Site::new(move |asked| match number.load(Ordering::SeqCst) {
                0 => ("500 Internal Server Error".to_owned(), String::new()),
                1 if manner != "good" && asked.body["method"] == "initialize" => {
                    count.fetch_add(1, Ordering::SeqCst);
                    (manner.to_owned(), String::new())
                }
                _ => speaks(asked),
            });
            let mcp = started([site.server()]).await;
            assert!(matches!(state(&mcp), McpState::Failed(_)), "{mcp:?}");
            attempt.store(1, Ordering::SeqCst);
            let has_ended = tokio::select! {
                biased;
                ended = polled(mcp.reconnect("fake"), polls) => ended.is_some(),
                () = eventually("silence", || manner == SILENCE && stuck.load(Ordering::SeqCst) > 0) => true,
            };
            let after = state(&mcp);
            assert!(
                matches!(after, McpState::Failed(_) | McpState::Connected { .. }),
                "{manner}, {polls} polls: {after}"
            );
            attempt.store(2, Ordering::SeqCst);
            if matches!(after, McpState::Failed(_)) {
                pass(Duration::from_secs(61)).await;
            }
            eventually("it is there", || !mcp.tools().is_empty()).await;
            let there = mcp.reconnect("fake").await.unwrap();
            assert_eq!(there, McpState::Connected { tools: 1, left_out: 0 }, "{manner}, {polls} polls");
            if has_ended {
                break;
            }
        }
    }
}

#[tokio::test]
async fn one_attempt_is_made_for_all_who_wait_and_they_share_its_failure() {
    let (notes_of, mcp) = one("silent_later").await;
    call(&mcp, "mcp_fake_die", json!({})).await.unwrap_err();
    eventually("the end is known", || matches!(state(&mcp), McpState::Failed(_))).await;
    // All wait before any time passes.
    let mut waiting: Vec<_> = (0..20).map(|_| Box::pin(mcp.reconnect("fake"))).collect();
    for reconnect in &mut waiting {
        assert!(polled(reconnect.as_mut(), 1).await.is_none());
    }
    eventually("it is being started", || state(&mcp) == McpState::Starting).await;
    // Who came first need not stay.
    drop(waiting.remove(0));
    eventually("it is started", || notes(notes_of.path(), "started").len() == 2).await;
    let mut ended = Vec::new();
    pass(Duration::from_secs(60)).await;
    for reconnect in waiting {
        ended.push(reconnect.await.unwrap());
    }
    let reason = "it was not ready within 20 s".to_owned();
    assert!(ended.iter().all(|state| *state == McpState::Failed(reason.clone())), "{ended:?}");
    assert_eq!(notes(notes_of.path(), "started").len(), 2);
}

#[tokio::test]
async fn a_server_ends_with_its_last_user_also_while_it_does_not_list_its_tools_anew() {
    let dir = tempfile::tempdir().unwrap();
    let server = fake::server("fake", "no_second_list", dir.path());
    let mcp = started([server.with_connect_timeout(Duration::MAX)]).await;
    call(&mcp, "mcp_fake_change", json!({})).await.unwrap();
    eventually("it is asked", || !notes(dir.path(), "not_listed").is_empty()).await;
    drop(mcp);
    all_end(dir.path()).await;
}

#[tokio::test]
async fn a_server_that_ended_is_started_again_although_another_process_has_its_pipes() {
    let (dir, mcp) = one("orphan").await;
    let told = call(&mcp, "mcp_fake_die", json!({})).await.unwrap_err();
    assert!(told.contains("its outcome is unknown"), "{told}");
    eventually("the end is known", || matches!(state(&mcp), McpState::Failed(_))).await;
    assert_eq!(echo(&mcp).await.as_deref(), Ok("hi"));
    assert_eq!(notes(dir.path(), "started").len(), 2);
    call(&mcp, "mcp_fake_die", json!({})).await.unwrap_err();
    eventually("the end is known", || matches!(state(&mcp), McpState::Failed(_))).await;
    let there = mcp.reconnect("fake").await.unwrap();
    assert_eq!(there, McpState::Connected { tools: 13, left_out: 0 });
    assert_eq!(notes(dir.path(), "started").len(), 3);
    for orphan in notes(dir.path(), "orphans") {
        assert!(is_alive(&orphan));
        assert!(Command::new("kill").arg(orphan).status().unwrap().success());
    }
}

#[tokio::test]
async fn a_server_without_tools_that_closes_its_output_is_tried_again() {
    const SCRIPT: &str = r#"echo $$ >> "$0/started"
        read -r line
        id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
        about='"capabilities":{},"serverInfo":{"name":"sh","version":"1"}'
        printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18",%s}}\n' "$id" "$about"
        read -r line
        while ! [ -e "$0/close" ]; do sleep 0.01; done
        exec >&-
        sleep 600"#;
    let dir = tempfile::tempdir().unwrap();
    let notes_of = dir.path().to_str().unwrap().to_owned();
    let server = McpServer::command("fake", "sh", ["-c".to_owned(), SCRIPT.to_owned(), notes_of]);
    let mcp = started([server.with_lifecycle(McpLifecycle::Initialize)]).await;
    assert_eq!(state(&mcp), McpState::Connected { tools: 0, left_out: 0 });
    std::fs::write(dir.path().join("close"), "").unwrap();
    eventually("the end is known", || matches!(state(&mcp), McpState::Failed(_))).await;
    pass(Duration::from_secs(61)).await;
    eventually("it is tried again", || {
        mcp.tools();
        notes(dir.path(), "started").len() == 2
    })
    .await;
    drop(mcp);
    all_end(dir.path()).await;
}

#[tokio::test]
async fn a_server_that_was_there_for_long_is_tried_again_soon() {
    const SCRIPT: &str = r#"echo $$ >> "$0/started"
        [ "$(wc -l < "$0/started")" -eq 7 ] || exit 3
        read -r line
        id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
        about='"capabilities":{},"serverInfo":{"name":"sh","version":"1"}'
        printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18",%s}}\n' "$id" "$about"
        read -r line
        while ! [ -e "$0/close" ]; do sleep 0.01; done"#;
    let dir = tempfile::tempdir().unwrap();
    let notes_of = dir.path().to_str().unwrap().to_owned();
    let server = McpServer::command("fake", "sh", ["-c".to_owned(), SCRIPT.to_owned(), notes_of])
        .with_lifecycle(McpLifecycle::Initialize)
        .with_connect_timeout(Duration::MAX);
    let mcp = started([server]).await;
    let lives = || notes(dir.path(), "started").len();
    // Now it is tried again after a minute.
    while lives() < 7 {
        pass(Duration::from_secs(61)).await;
        mcp.tools();
        time::sleep(Duration::from_millis(5)).await;
    }
    eventually("it is there", || state(&mcp) == McpState::Connected { tools: 0, left_out: 0 }).await;
    pass(Duration::from_secs(3_600)).await;
    std::fs::write(dir.path().join("close"), "").unwrap();
    eventually("the end is known", || matches!(state(&mcp), McpState::Failed(_))).await;
    let since = time::Instant::now();
    eventually("it is tried again, and once more", || {
        mcp.tools();
        lives() == 9
    })
    .await;
    assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
}

#[tokio::test]
async fn each_who_shuts_servers_down_waits_for_their_end() {
    let (dir, mcp) = one("deaf").await;
    assert!(polled(mcp.shut_down(), 1).await.is_none());
    assert_eq!(mcp.reconnect("fake").await.unwrap(), McpState::Disabled);
    // The time that a deaf one has is over at once.
    time::pause();
    mcp.shut_down().await;
    time::resume();
    let left: Vec<_> = notes(dir.path(), "started").into_iter().filter(|pid| is_alive(pid)).collect();
    assert_eq!(left, [""; 0]);
    assert_eq!(state(&mcp), McpState::Disabled);
}

/// A server that fails at its start, and its client after that; later it is there.
async fn failed_at_first() -> (Site, Mcp) {
    let attempts = AtomicUsize::new(0);
    let site = Site::new(move |asked| match attempts.fetch_add(1, Ordering::SeqCst) {
        0 => ("500 Internal Server Error".to_owned(), String::new()),
        _ => speaks(asked),
    });
    let mcp = started([site.server()]).await;
    assert!(matches!(state(&mcp), McpState::Failed(_)), "{mcp:?}");
    (site, mcp)
}

#[tokio::test]
async fn an_attempt_goes_on_although_those_who_wait_are_not_polled() {
    let (_site, mcp) = failed_at_first().await;
    let mut kept = Box::pin(mcp.reconnect("fake"));
    assert!(polled(kept.as_mut(), 1).await.is_none());
    eventually("it is there", || !mcp.tools().is_empty()).await;
    let there = McpState::Connected { tools: 1, left_out: 0 };
    assert_eq!(mcp.reconnect("fake").await.unwrap(), there);
    assert_eq!(kept.await.unwrap(), there);
}

#[tokio::test]
async fn an_attempt_goes_on_although_the_runtime_of_those_who_wait_ended_or_is_not_driven() {
    for has_ended in [true, false] {
        let (_site, mcp) = failed_at_first().await;
        let mut kept = Box::pin(mcp.reconnect("fake"));
        let waiting = kept.as_mut();
        let other = std::thread::scope(|scope| {
            let in_another = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                assert!(runtime.block_on(polled(waiting, 1)).is_none());
                (!has_ended).then_some(runtime)
            });
            in_another.join().unwrap()
        });
        eventually("it is there", || !mcp.tools().is_empty()).await;
        let there = McpState::Connected { tools: 1, left_out: 0 };
        assert_eq!(mcp.reconnect("fake").await.unwrap(), there);
        assert_eq!(kept.await.unwrap(), there);
        mcp.shut_down().await;
        if let Some(other) = other {
            other.shutdown_background();
        }
    }
}

#[tokio::test]
async fn those_who_wait_need_no_runtime() {
    let (_site, mcp) = failed_at_first().await;
    let (tell, told) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let state = without_runtime(mcp.reconnect("fake")).unwrap();
        without_runtime(mcp.shut_down());
        tell.send((state, mcp.servers().remove(0).1)).unwrap();
    });
    let there = McpState::Connected { tools: 1, left_out: 0 };
    assert_eq!(told.await.unwrap(), (there, McpState::Disabled));
}

/// Polls a future to its end on this thread, which is none of a runtime.
fn without_runtime<F: Future>(future: F) -> F::Output {
    assert!(tokio::runtime::Handle::try_current().is_err());
    let (mut future, mut cx) = (Box::pin(future), Context::from_waker(Waker::noop()));
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

#[tokio::test]
async fn the_end_waits_for_the_process_of_an_attempt_and_all_who_wait_are_told_of_it() {
    for _ in 0..10 {
        let dir = tempfile::tempdir().unwrap();
        let notes_of = dir.path().to_str().unwrap().to_owned();
        let script = r#"echo $$ >> "$0/started"; sleep 600"#;
        let server = McpServer::command("fake", "sh", ["-c".to_owned(), script.to_owned(), notes_of]);
        let mcp = Mcp::start([server]).unwrap();
        eventually("it is started", || !notes(dir.path(), "started").is_empty()).await;
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let mcp = mcp.clone();
                tokio::spawn(async move { mcp.reconnect("fake").await.unwrap() })
            })
            .collect();
        tokio::task::yield_now().await;
        mcp.shut_down().await;
        let left: Vec<_> = notes(dir.path(), "started").into_iter().filter(|pid| is_alive(pid)).collect();
        assert_eq!(left, [""; 0]);
        for waiting in waiting {
            assert_eq!(waiting.await.unwrap(), McpState::Disabled);
        }
    }
}
