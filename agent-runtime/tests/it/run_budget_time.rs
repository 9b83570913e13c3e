//! The time limit of a run, and of everything that it starts.

use std::time::Duration;

use entourage_core::{
    Clock, Timestamp,
    provider::FinishReason,
    run::{Pause, Status, StopReason},
};
use entourage_testkit::{FakeTool, PausedClock, Script, ScriptedProvider};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    common::{act, agent, assert_valid, open_runtime, results},
    run_budget::{go, none, stopped_by},
};

#[tokio::test(start_paused = true)]
async fn design_7_time_ends_a_waiting_model_call() {
    let start = Instant::now();
    let reply = Script::new().text("Well").delay(Duration::from_secs(3_600)).finish(FinishReason::Stop);
    let provider = ScriptedProvider::new().step(reply);
    let agent = agent(provider.model()).build().unwrap();
    let session = open_runtime().session();
    let outcome =
        session.start(&agent, go(none().with_time(Duration::from_secs(10)))).outcome().await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 10);
    let (bound, left) = stopped_by(&outcome);
    assert_eq!((&*bound, left.time, outcome.text.as_str()), ("time", Some(Duration::ZERO), "Well"));
    assert_valid(&session.history().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn design_7_time_ends_a_waiting_tool_and_says_so_to_the_model() {
    let start = Instant::now();
    let provider = ScriptedProvider::new().calls([("hang", json!({})), ("hang", json!({"n": 2}))]);
    let tool = FakeTool::new("hang").hanging();
    let agent = agent(provider.model()).tool(tool.clone()).build().unwrap();
    let session = open_runtime().session();
    let outcome =
        session.start(&agent, go(none().with_time(Duration::from_secs(7)))).outcome().await.unwrap();
    assert_eq!((start.elapsed().as_secs(), stopped_by(&outcome).0.as_str()), (7, "time"));
    assert_eq!(tool.running(), 0);
    let history = session.history().await.unwrap();
    assert_valid(&history);
    let told = results(history.get(2).unwrap());
    assert!(told[0].starts_with(
        "interrupted while it ran; its outcome is unknown: stopped: the budget's limit of time"
    ));
}

#[tokio::test(start_paused = true)]
async fn design_7_time_ends_a_hand_written_agents_wait_and_the_deadline_keeps_its_name() {
    let sleeper =
        act(|cx| Box::pin(async move { cx.sleep(Duration::from_secs(99)).await.map(|()| "up".into()) }));
    let limits = none().with_time(Duration::from_secs(9));
    let outcome = open_runtime().session().start(&sleeper, go(limits)).outcome().await.unwrap();
    assert_eq!(stopped_by(&outcome).0, "time");
    let soon = now().after(Duration::from_secs(5));
    let outcome =
        open_runtime().session().start(&sleeper, go(limits).with_deadline(soon)).outcome().await.unwrap();
    assert_eq!(outcome.status, Status::Stopped(StopReason::Deadline));
}

fn now() -> Timestamp {
    PausedClock::new().now()
}

#[tokio::test(start_paused = true)]
async fn design_7_time_stands_still_while_a_run_is_paused() {
    let waiter = act(|cx| {
        Box::pin(async move {
            cx.sleep(Duration::from_secs(6)).await?;
            cx.signal("go").await?;
            cx.sleep(Duration::from_secs(6)).await?;
            Ok("through".into())
        })
    });
    for (limit, through) in [(13, true), (11, false)] {
        let session = open_runtime().session();
        let limits = none().with_time(Duration::from_secs(limit));
        let outcome = session.start(&waiter, go(limits)).outcome().await.unwrap();
        assert!(matches!(outcome.status, Status::Paused(Pause::Signal { .. })), "{outcome}");
        tokio::time::advance(Duration::from_secs(86_400)).await;
        session.signal("go", json!(1)).await.unwrap();
        let start = Instant::now();
        let outcome = session.resume(&waiter).outcome().await.unwrap();
        if through {
            assert!(outcome.is_completed(), "{outcome}");
        } else {
            assert_eq!((stopped_by(&outcome).0.as_str(), start.elapsed().as_secs()), ("time", 5));
        }
    }
}
