//! Futures that are polled a few times, kept, and not polled again: nothing else waits for them, in their own session
//! neither.

use std::{future::Future, pin::Pin, sync::Arc, task::Poll, time::Duration};

use entourage::{
    Agents, Moment,
    agent::Mode,
    context::Compaction,
    permission::ApprovalId,
    prelude::*,
    run::Pause,
    session::{MemoryStore, SharedStore},
    testkit::{FakeTool, ScriptedProvider},
};
use futures_util::{StreamExt, stream};
use serde_json::json;

/// Most polls before a future is left alone.
const POLLS: usize = 5;
/// Time after which a request counts as hanging, not slow.
const HANG: Duration = Duration::from_secs(30);

type Work = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Ask {
    Open,
    Head,
    History,
    State,
    Unfinished,
    Mode,
    Events,
    StateAt,
    Fork,
    Sessions,
    Signal,
    SetMode,
    Decide,
    DecideAnywhere,
    Steer,
    Compact,
    CancelWithin,
    Stop,
    Recover,
}

const ASKS: [Ask; 19] = [
    Ask::Open,
    Ask::Head,
    Ask::History,
    Ask::State,
    Ask::Unfinished,
    Ask::Mode,
    Ask::Events,
    Ask::StateAt,
    Ask::Fork,
    Ask::Sessions,
    Ask::Signal,
    Ask::SetMode,
    Ask::Decide,
    Ask::DecideAnywhere,
    Ask::Steer,
    Ask::Compact,
    Ask::CancelWithin,
    Ask::Stop,
    Ask::Recover,
];

fn agent() -> ReactAgent {
    let provider = ScriptedProvider::by_history().call("write", json!({})).text("Done.").text("Yes.");
    ReactAgent::builder("a", provider.model())
        .tool(FakeTool::new("write").access(Access::WRITE))
        .build()
        .unwrap()
}

fn talker() -> ReactAgent {
    let provider = ScriptedProvider::by_history().text("1").text("2").text("3").text("4").text("5").text("6");
    ReactAgent::builder("a", provider.model()).build().unwrap()
}

/// A session for the request, with its open question if it is about one.
async fn ready(runtime: &Runtime, ask: Ask) -> (Session, ApprovalId) {
    let session = runtime.session();
    if ask == Ask::Compact {
        for _ in 0..3 {
            session.start(&talker(), "word ".repeat(2_000)).outcome().await.unwrap();
        }
        return (session, ApprovalId::from("none"));
    }
    let Status::Paused(Pause::Approval(id)) = session.start(&agent(), "Go").outcome().await.unwrap().status
    else {
        panic!("it must ask");
    };
    if ask == Ask::Recover {
        session.decide(&id, Decision::Allow).await.unwrap();
    }
    (session, id)
}

fn request(runtime: &Runtime, session: &Session, id: &ApprovalId, ask: Ask) -> Work {
    let (runtime, session, id) = (runtime.clone(), session.clone(), id.clone());
    Box::pin(async move {
        match ask {
            Ask::Open => runtime.open(session.id()).await.map(drop),
            Ask::Head => session.head().await.map(drop),
            Ask::History => session.history().await.map(drop),
            Ask::State => session.state().await.map(drop),
            Ask::Unfinished => session.unfinished().await.map(drop),
            Ask::Mode => session.mode().await.map(drop),
            Ask::Events => session.events(0, 9).await.map(drop),
            Ask::StateAt => session.state_at(Moment::Event(3)).await.map(drop),
            Ask::Fork => session.fork(Moment::Event(u64::MAX)).await.map(drop),
            Ask::Sessions => runtime.sessions(&SessionFilter::all().page(0, 2)).await.map(drop),
            Ask::Signal => session.signal("x", json!(1)).await,
            Ask::SetMode => session.set_mode("plan", &[Mode::new("plan", "Plan")]).await.map(drop),
            Ask::Decide => session.decide(&id, Decision::Allow).await,
            Ask::DecideAnywhere => runtime.decide(&id, Decision::Allow).await,
            Ask::Steer => session.steer("More").await,
            Ask::Compact => {
                let summaries = (0..9).fold(ScriptedProvider::by_history(), |it, _| it.text("A summary."));
                session.compact(&Compaction::new(), &summaries.model()).await.map(drop)
            }
            Ask::CancelWithin => {
                session.cancel_within(HANG).await;
                Ok(())
            }
            Ask::Stop => session.stop().await.map(drop),
            Ask::Recover => {
                runtime.recover(&Agents::new().with(agent())).await?.detach();
                Ok(())
            }
        }
    })
}

/// Polls `polls` times, woken or not. Returns true if the request ended.
async fn poll(work: &mut Work, polls: usize) -> bool {
    for _ in 0..polls {
        if std::future::poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await.is_ready() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    false
}

async fn within<T>(who: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(HANG, work).await {
        Ok(done) => done,
        Err(_) => panic!("{who}: waited for a future that nobody polls"),
    }
}

/// Those that take a session's turn come last, each in a session that is as ready as the others were.
async fn keep_everywhere(store: SharedStore) {
    let runtime = Runtime::builder().shared_store(store).build();
    for kept in ASKS {
        for polls in 1..=POLLS {
            let (session, id) = ready(&runtime, kept).await;
            let mut work = request(&runtime, &session, &id, kept);
            let over = poll(&mut work, polls).await;
            for ask in ASKS {
                let which = format!("{ask:?} beside {kept:?} after {polls} polls");
                // Some are refused as things are; none may hang, or be told that another short write is under way.
                let ended = within(&which, request(&runtime, &session, &id, ask)).await;
                if matches!(kept, Ask::Signal | Ask::Decide | Ask::DecideAnywhere) && ask == Ask::Signal {
                    ended.unwrap();
                }
            }
            let which = format!("a run beside {kept:?} after {polls} polls");
            let outcome = within(&which, session.start(&talker(), "Next").outcome()).await.unwrap();
            assert!(outcome.is_completed(), "{which}: {outcome:?}");
            drop(work);
            if over {
                break;
            }
        }
    }
}

/// The forms in which programs come to keep a future: a stream that opens sessions ahead, and a `select!` by reference.
async fn keep_as_programs_do(store: SharedStore) {
    let runtime = Runtime::builder().shared_store(store).build();
    let mut sessions = Vec::new();
    for _ in 0..6 {
        let session = runtime.session();
        session.start(&talker(), "Hi").outcome().await.unwrap();
        sessions.push(session.id().clone());
    }
    let mut opened = stream::iter(&sessions).map(|id| runtime.open(id)).buffered(4);
    while let Some(session) = opened.next().await {
        drop(session.unwrap());
        for id in &sessions {
            within("a loop's body", runtime.session_with_id(id.clone()).head()).await.unwrap();
        }
    }
    let (session, other) =
        (runtime.open(&sessions[0]).await.unwrap(), runtime.open(&sessions[1]).await.unwrap());
    let mut head = Box::pin(session.head());
    let polled = std::future::poll_fn(|cx| Poll::Ready(head.as_mut().poll(cx))).await;
    within("a branch", session.start(&talker(), "Next").outcome()).await.unwrap();
    within("another session", other.start(&talker(), "Next").outcome()).await.unwrap();
    if polled.is_pending() {
        within("the future itself", head).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_future_that_is_kept_holds_nothing_up_in_an_sqlite_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(directory.path().join("s.db")).await.unwrap();
    keep_everywhere(Arc::new(store.clone())).await;
    keep_as_programs_do(Arc::new(store)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_future_that_is_kept_holds_nothing_up_in_a_json_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = JsonStore::open(directory.path().join("j")).await.unwrap();
    keep_everywhere(Arc::new(store.clone())).await;
    keep_as_programs_do(Arc::new(store)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_future_that_is_kept_holds_nothing_up_in_memory() {
    let store: SharedStore = Arc::new(MemoryStore::new());
    keep_everywhere(Arc::clone(&store)).await;
    keep_as_programs_do(store).await;
}
