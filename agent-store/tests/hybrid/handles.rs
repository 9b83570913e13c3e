//! Open handles, and moves that fail, panic or are cut: the next prompt works at once, here and in another process.

use std::{future::poll_fn, sync::Arc, task::Poll};

use entourage_core::{
    ErrorKind, Result, SessionId,
    session::{SessionFilter, SessionStore},
    tool::Access,
};
use entourage_runners::ReactAgent;
use entourage_runtime::Runtime;
use entourage_store::{HybridStore, JsonStore, SqliteStore};
use entourage_testkit::{FakeTool, Gate, ScriptedProvider};
use serde_json::json;

use crate::{
    Place, quick, round,
    wire::{Event, Wire},
};

fn agent() -> ReactAgent {
    let replies = ["r0", "r1", "r2", "r3", "r4"];
    let provider = replies.into_iter().fold(ScriptedProvider::by_history(), ScriptedProvider::text);
    ReactAgent::builder("a", provider.model()).build().unwrap()
}

fn runtime(active: &JsonStore, archive: &SqliteStore) -> Runtime {
    Runtime::builder().store(HybridStore::new(active.clone(), archive.clone())).build()
}

/// Prompts a session through an open handle, and through another process, after a move with an error, a panic or a drop
/// at each of its steps. Returns the number of steps.
async fn prompts_after(mover: impl AsyncFn(&JsonStore, &SqliteStore, &SessionId, usize) -> bool) -> usize {
    for n in 0.. {
        let place = Place::new();
        let (active, archive) = round(&place, n).await;
        let (here, there) = (runtime(&active, &archive), runtime(&active, &archive));
        let session = here.session();
        session.start(&agent(), "one").outcome().await.unwrap();
        if !mover(&active, &archive, session.id(), n).await {
            return n;
        }
        let said = session.start(&agent(), "two").outcome().await;
        assert_eq!(said.unwrap_or_else(|error| panic!("{n}: {error:?}")).text, "r1", "{n}");
        let opened = there.open(session.id()).await.unwrap();
        let said = opened.start(&agent(), "three").outcome().await;
        assert_eq!(said.unwrap_or_else(|error| panic!("{n}, elsewhere: {error:?}")).text, "r2", "{n}");
        assert_eq!(here.sessions(&SessionFilter::all()).await.unwrap().len(), 1);
        let mover = HybridStore::new(active, archive);
        // Another mover, which is refused until the abandoned one is done.
        while let Err(error) = mover.archive(session.id()).await {
            let late = [ErrorKind::Conflict, ErrorKind::NotFound, ErrorKind::Busy];
            assert!(late.contains(&error.kind()), "{n}: {error:?}");
            tokio::task::yield_now().await;
        }
        assert_eq!(place.files(), 0, "{n}");
    }
    0
}

#[tokio::test]
async fn attack_35_after_a_move_that_failed_at_any_step_the_open_handle_goes_on_at_once() {
    for after in [false, true] {
        let steps = prompts_after(async |active, archive, session, n| {
            let wire = Wire::cutting(n, after);
            let moved = wire.store(active, archive).archive(session).await;
            assert_eq!(moved.is_err(), wire.used() > n);
            moved.is_err()
        });
        let steps = steps.await;
        assert!(steps > 10, "{steps}");
    }
}

#[tokio::test]
async fn attack_35_after_a_move_that_panicked_at_any_step_the_open_handle_goes_on_at_once() {
    let steps = prompts_after(async |active, archive, session, n| {
        let moved = Wire::new(Event::Panic(n)).store(active, archive).archive(session).await;
        if let Err(error) = &moved {
            assert_eq!(error.kind(), ErrorKind::Internal, "{n}: {error:?}");
        }
        moved.is_err()
    });
    let steps = steps.await;
    assert!(steps > 10, "{steps}");
}

#[tokio::test]
async fn attack_35_after_a_move_that_was_cut_at_any_poll_the_open_handle_goes_on_at_once() {
    for kept in [false, true] {
        let left = std::sync::Mutex::new(Vec::new());
        prompts_after(async |active, archive, session, n| {
            let (store, session) = (HybridStore::new(active.clone(), archive.clone()), session.clone());
            let mut moving = Box::pin(async move { store.archive(&session).await });
            for _ in 0..=n {
                if poll_fn(|context| Poll::Ready(moving.as_mut().poll(context).is_ready())).await {
                    return false;
                }
                tokio::task::yield_now().await;
            }
            if kept {
                left.lock().unwrap().push(moving);
            }
            // A bound: how far a move is after so many polls depends on the threads.
            n < 40
        })
        .await;
    }
}

/// A move and a delete that are no longer polled do not block the store.
#[tokio::test]
async fn a_move_or_a_delete_that_is_polled_no_more_holds_up_nobody() {
    for polls in 1..4 {
        let place = Place::new();
        let (active, archive) = quick(&place).await;
        let store: Arc<HybridStore> = Arc::new(HybridStore::new(active, archive));
        let sessions = [crate::create(&*store, "s0", None).await, crate::create(&*store, "s1", None).await];
        type Work = std::pin::Pin<Box<dyn Future<Output = Result<u64>> + Send>>;
        let (a, b) = (Arc::clone(&store), Arc::clone(&store));
        let [first, second] = sessions.clone();
        let mut left: [Work; 2] = [
            Box::pin(async move { a.archive(&first).await }),
            Box::pin(async move { b.delete(&second).await }),
        ];
        for _ in 0..polls {
            for work in &mut left {
                poll_fn(|context| {
                    let _ = work.as_mut().poll(context);
                    Poll::Ready(())
                })
                .await;
            }
            tokio::task::yield_now().await;
        }
        let deleted = tokio::time::timeout(std::time::Duration::from_secs(30), store.delete(&sessions[0]));
        assert_eq!(deleted.await.expect("nobody holds it up").unwrap(), 1);
        drop(left);
    }
}

/// A mover comes while a run's tool is at work, and the run ends as if it had not.
#[tokio::test]
async fn attack_34_a_run_whose_tool_is_at_work_outlives_every_move() {
    let place = Place::new();
    let (active, archive) = quick(&place).await;
    let runtime = runtime(&active, &archive);
    let session = runtime.session();
    session.start(&agent(), "one").outcome().await.unwrap();
    let gate = Gate::new();
    let tool = FakeTool::new("look").access(Access::READ).behind(&gate);
    let provider = ScriptedProvider::by_history().text("r0").call("look", json!({})).text("Done.");
    let looking = ReactAgent::builder("a", provider.model()).tool(tool.clone()).build().unwrap();
    let run = session.start(&looking, "look");
    gate.arrived(1).await;
    let mover = HybridStore::new(active, archive);
    assert_eq!(mover.archive(session.id()).await.unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(mover.archive_idle(crate::micros(i64::MAX)).await.unwrap(), []);
    gate.open();
    assert_eq!(run.outcome().await.unwrap().text, "Done.");
    assert_eq!(tool.finished(), 1);
    assert_eq!(mover.archive(session.id()).await.unwrap(), 1);
}
