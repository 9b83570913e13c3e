//! Clients that go away in the middle of a request: at whichever poll it is cut, other sessions of the same store
//! continue, and so does the same one. Session handles are kept, as in a server; nobody polls the cut future again.

use std::{future::Future, pin::Pin, sync::Arc, task::Poll, time::Duration};

use entourage::{
    Timestamp,
    agent::Mode,
    context::Compaction,
    permission::ApprovalId,
    prelude::*,
    run::Pause,
    session::SharedStore,
    testkit::{FakeTool, ScriptedProvider},
};
use entourage_core::session::Lease;
use serde_json::json;

/// Most polls before a request is cut.
const POLLS: usize = 16;
/// Time after which a request counts as hanging, not slow.
const HANG: Duration = Duration::from_secs(30);

type Request<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

#[derive(Debug, Clone, Copy)]
enum Ask {
    Signal,
    Decide,
    SetMode,
    Compact,
}

const ASKS: [Ask; 4] = [Ask::Signal, Ask::Decide, Ask::SetMode, Ask::Compact];

fn agent() -> ReactAgent {
    let provider = ScriptedProvider::by_history().call("write", json!({})).text("Done.");
    ReactAgent::builder("a", provider.model())
        .tool(FakeTool::new("write").access(Access::WRITE))
        .build()
        .unwrap()
}

fn talker() -> ReactAgent {
    let provider = ScriptedProvider::by_history().text("1").text("2").text("3").text("4").text("5");
    ReactAgent::builder("a", provider.model()).build().unwrap()
}

/// A session that is ready for the request, with its open question if it has one.
async fn ready(runtime: &Runtime, ask: Ask) -> (Session, Option<ApprovalId>) {
    let session = runtime.session();
    if !matches!(ask, Ask::Decide) {
        for _ in 0..3 {
            session.start(&talker(), "word ".repeat(2_000)).outcome().await.unwrap();
        }
        return (session, None);
    }
    match session.start(&agent(), "Go").outcome().await.unwrap().status {
        Status::Paused(Pause::Approval(id)) => (session, Some(id)),
        other => panic!("{other:?}"),
    }
}

fn request<'a>(session: &'a Session, ask: Ask, question: Option<&'a ApprovalId>) -> Request<'a> {
    Box::pin(async move {
        match (ask, question) {
            (Ask::Decide, Some(id)) => session.decide(id, Decision::Allow).await,
            (Ask::SetMode, _) => session.set_mode("plan", &[Mode::new("plan", "Plan")]).await.map(drop),
            (Ask::Compact, _) => {
                let summaries = (0..9).fold(ScriptedProvider::by_history(), |it, _| it.text("A summary."));
                session.compact(&Compaction::new(), &summaries.model()).await.map(drop)
            }
            _ => session.signal("x", json!(1)).await,
        }
    })
}

/// Polls `polls` times, woken or not. Returns true if the request ended.
async fn cut(request: &mut Request<'_>, polls: usize) -> bool {
    for _ in 0..polls {
        let polled = std::future::poll_fn(|cx| Poll::Ready(request.as_mut().poll(cx))).await;
        if let Poll::Ready(ended) = polled {
            ended.unwrap();
            return true;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    false
}

async fn within<T>(who: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(HANG, work).await {
        Ok(done) => done,
        Err(_) => panic!("{who} waited for a request that nobody polls"),
    }
}

async fn cut_everywhere(store: SharedStore) {
    let runtime = Runtime::builder().shared_store(store).build();
    let (other, _) = ready(&runtime, Ask::Signal).await;
    for ask in ASKS {
        for kept in [true, false] {
            for polls in 1..=POLLS {
                let which = format!("{ask:?} cut after {polls} polls, kept: {kept}");
                let (session, question) = ready(&runtime, ask).await;
                let mut request = request(&session, ask, question.as_ref());
                let over = cut(&mut request, polls).await;
                // Moved in both cases: if it is not kept, it is dropped here.
                let kept = kept.then_some(request);
                within(&which, other.signal("y", json!(polls))).await.unwrap();
                within(&which, runtime.sessions(&SessionFilter::all().page(0, 2))).await.unwrap();
                if kept.is_none() {
                    let agent: ReactAgent = if matches!(ask, Ask::Decide) { agent() } else { talker() };
                    let next = within(&which, session.start(&agent, "Next").outcome()).await.unwrap();
                    assert!(
                        matches!(next.status, Status::Completed | Status::Paused(_)),
                        "{which}: {next:?}"
                    );
                }
                drop(kept);
                if over {
                    break;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_cut_at_any_poll_lets_other_sessions_of_an_sqlite_store_append() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("s.db")).await.unwrap();
    cut_everywhere(Arc::new(store)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_cut_at_any_poll_lets_other_sessions_of_a_json_store_append() {
    let directory = tempfile::tempdir().unwrap();
    let store = JsonStore::open(directory.path().join("j")).await.unwrap();
    cut_everywhere(Arc::new(store)).await;
}

/// Another process holds the file of the session, as a backup may: the request waits, is dropped, and the lane is free
/// once the file is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_dropped_while_its_file_is_locked_leaves_the_lane_free() {
    let directory = tempfile::tempdir().unwrap();
    let store = JsonStore::open(directory.path().join("j")).await.unwrap();
    let runtime = Runtime::builder().store(store.clone()).build();
    let (session, _) = ready(&runtime, Ask::Signal).await;
    let file = std::fs::File::open(store.path_of(session.id())).unwrap();
    file.lock_shared().unwrap();
    let lease = |generation| Lease::new(1, generation, Timestamp::from_micros(0));
    let mut first = store.lease(session.id(), lease(1_000));
    let polled = std::future::poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx))).await;
    assert!(polled.is_pending());
    let mut second = request(&session, Ask::Signal, None);
    assert!(!cut(&mut second, 3).await);
    drop(second);
    file.unlock().unwrap();
    within("the first", first).await.unwrap();
    within("the next", store.lease(session.id(), lease(1_001))).await.unwrap();
}
