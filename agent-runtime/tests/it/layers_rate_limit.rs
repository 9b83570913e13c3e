//! The rate limit layer: which calls may start, when, and how many at once.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    provider::{
        CallContext, Delta, DeltaStream, FinishReason, Layer, Provider, RateLimits, Request, ResponseInfo,
    },
};
use entourage_runtime::layers::{Priority, RateLimit};
use entourage_testkit::{Gate, Script, ScriptedProvider};
use futures_util::StreamExt;
use tokio::time::Instant;

use crate::layers_common::{Clocked, behind, hello, saying, settle_until, spawn};

fn one_at_once() -> RateLimit {
    RateLimit::builder().concurrency(1..=1).build().unwrap()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn lo14_urgent_calls_go_first_and_equals_in_order() {
    let gate = Gate::new();
    let service = ["c", "d", "e", "f", "g"]
        .into_iter()
        .fold(ScriptedProvider::new().step(behind(&gate)), |service, text| service.step(saying(text)));
    let limit = one_at_once();
    let at = |priority| limit.at(priority).layer(service.provider());
    let cx = CallContext::new();
    let mut calls = vec![spawn(&limit.clone().layer(service.provider()), hello("running"), &cx)];
    gate.arrived(1).await;
    let queue = [
        (Priority::BACKGROUND, "background"),
        (Priority::COMMAND, "command 1"),
        (Priority::CHAT, "chat"),
        (Priority::default(), "command 2"),
        (Priority::FILE_CHANGE, "file"),
    ];
    for (place, (priority, name)) in queue.into_iter().enumerate() {
        calls.push(spawn(&at(priority), hello(name), &cx));
        settle_until(|| limit.waiting() == place + 1).await;
    }
    assert_eq!((service.count(), limit.running()), (1, 1));
    gate.open();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let order: Vec<_> = service.requests().iter().map(|request| request.model.to_string()).collect();
    assert_eq!(order, ["running", "chat", "command 1", "command 2", "file", "background"]);
    assert_eq!((limit.waiting(), limit.running()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn lo14_a_call_has_two_minutes_waiting_and_running_together() {
    let never = Gate::new();
    let service = ScriptedProvider::new().step(behind(&never)).step(behind(&never));
    let limit = one_at_once();
    let provider = limit.clone().layer(service.provider());
    let cx = CallContext::new();
    let start = Instant::now();
    let first = spawn(&provider, hello("a"), &cx);
    never.arrived(1).await;
    tokio::time::advance(seconds(30)).await;
    let second = spawn(&provider, hello("b"), &cx);
    let mut short = cx.clone();
    short.timeout = Some(seconds(10));
    let waiting = spawn(&provider, hello("c"), &short).await.unwrap().unwrap_err();
    assert_eq!((waiting.kind(), start.elapsed()), (ErrorKind::Timeout, seconds(40)));
    assert!(waiting.message().contains("(waiting for a slot)"), "{waiting}");
    let error = first.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), start.elapsed()), (ErrorKind::Timeout, seconds(120)));
    assert!(error.message().contains("the call timed out after 120s (running)"), "{error}");
    assert_eq!(second.await.unwrap().unwrap_err().kind(), ErrorKind::Timeout);
    assert_eq!(start.elapsed(), seconds(150));
    assert_eq!((limit.waiting(), limit.running(), service.count()), (0, 0, 2));
}

#[tokio::test(start_paused = true)]
async fn lo14_a_complete_reply_is_never_failed_for_its_time() {
    let late = Script::new().text("ok").finish(FinishReason::Stop).delay(seconds(300));
    let service = ScriptedProvider::new().step(late);
    let provider = one_at_once().layer(service.provider());
    let start = Instant::now();
    let reply = spawn(&provider, hello("a"), &CallContext::new()).await.unwrap().unwrap();
    assert_eq!((reply.into_message().text(), start.elapsed()), ("ok".into(), seconds(120)));
}

#[tokio::test(start_paused = true)]
async fn lo14_a_newer_call_supersedes_waiting_and_running_ones() {
    let never = Gate::new();
    let service = ScriptedProvider::new().step(behind(&never)).step(saying("new"));
    let limit = one_at_once();
    let titles = limit.superseding("title").layer(service.provider());
    let cx = CallContext::new();
    let running = spawn(&titles, hello("1"), &cx);
    never.arrived(1).await;
    let waiting = spawn(&titles, hello("2"), &cx);
    let error = running.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert!(error.message().contains("a newer call"), "{error}");
    assert_eq!(waiting.await.unwrap().unwrap().into_message().text(), "new");

    let never = Gate::new();
    let service = ScriptedProvider::new().step(behind(&never)).step(saying("newest"));
    let limit = one_at_once();
    let titles = limit.superseding("title").layer(service.provider());
    let other = spawn(&limit.clone().layer(service.provider()), hello("other"), &cx);
    never.arrived(1).await;
    let older = spawn(&titles, hello("old"), &cx);
    settle_until(|| limit.waiting() == 1).await;
    let newer = spawn(&titles, hello("new"), &cx);
    assert_eq!(older.await.unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(limit.waiting(), 1, "it left the queue");
    never.open();
    other.await.unwrap().unwrap();
    newer.await.unwrap().unwrap();
    assert_eq!(service.requests()[1].model.as_ref(), "new");
}

#[derive(Debug)]
struct Panics;

#[async_trait]
impl Provider for Panics {
    fn name(&self) -> &'static str {
        "panics"
    }
    async fn stream(&self, request: Request, _: &CallContext) -> Result<DeltaStream> {
        assert_ne!(&*request.model, "at once", "a defect");
        Ok(Box::pin(futures_util::stream::poll_fn(|_| panic!("a later defect"))))
    }
}

#[tokio::test(start_paused = true)]
async fn lo14_a_place_comes_back_however_a_call_ends() {
    let never = Gate::new();
    let limit = one_at_once();
    let cx = CallContext::new();
    let service = ScriptedProvider::new()
        .step(behind(&never))
        .fail(ErrorKind::Overloaded, "busy")
        .step(Script::new().text("half").fail(ErrorKind::Transport, "gone"))
        .step(Script::new().text("cut off"))
        .step(behind(&never))
        .step(saying("last"));
    let provider = limit.clone().layer(service.provider());
    // Dropped while it runs, with another dropped while it waits.
    let mut stream = provider.stream(hello("1"), &cx).await.unwrap();
    assert!(futures_util::poll!(stream.next()).is_pending());
    let waits = spawn(&provider, hello("given up"), &cx);
    settle_until(|| limit.waiting() == 1).await;
    waits.abort();
    assert!(waits.await.is_err());
    assert_eq!((limit.waiting(), limit.running()), (0, 1));
    drop(stream);
    assert_eq!(limit.running(), 0);
    // Refused, broken off, cut off.
    for kind in [ErrorKind::Overloaded, ErrorKind::Transport, ErrorKind::Protocol] {
        let error = spawn(&provider, hello("2"), &cx).await.unwrap().unwrap_err();
        assert_eq!((error.kind(), limit.running()), (kind, 0));
    }
    // Granted, and dropped before it knows.
    let running = spawn(&provider, hello("3"), &cx);
    never.arrived(2).await;
    let granted = spawn(&provider, hello("granted"), &cx);
    settle_until(|| limit.waiting() == 1).await;
    running.abort();
    granted.abort();
    let _ = (running.await, granted.await);
    assert_eq!((limit.waiting(), limit.running()), (0, 0));
    // Panics, at once and later.
    let panics = limit.clone().layer(Arc::new(Panics));
    for model in ["at once", "later"] {
        assert!(spawn(&panics, hello(model), &cx).await.unwrap_err().is_panic());
        assert_eq!(limit.running(), 0);
    }
    spawn(&provider, hello("4"), &cx).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn lo14_a_cancel_ends_a_wait() {
    let never = Gate::new();
    let service = ScriptedProvider::new().step(behind(&never));
    let limit = one_at_once();
    let provider = limit.clone().layer(service.provider());
    let running = spawn(&provider, hello("1"), &CallContext::new());
    never.arrived(1).await;
    let cx = CallContext::new();
    let waits = spawn(&provider, hello("2"), &cx);
    settle_until(|| limit.waiting() == 1).await;
    cx.cancel.cancel();
    assert_eq!(waits.await.unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(spawn(&provider, hello("3"), &cx).await.unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(limit.waiting(), 0);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn lo14_no_more_requests_begin_within_a_minute_than_allowed() {
    let service = (0..5).fold(ScriptedProvider::new(), |service, _| service.step(saying("ok")));
    let limit = RateLimit::builder().requests_per_minute(2).timeout(None).build().unwrap();
    let provider = limit.layer(service.provider());
    let start = Instant::now();
    let calls: Vec<_> = (0..5).map(|_| spawn(&provider, hello("m"), &CallContext::new())).collect();
    let mut ends = Vec::new();
    for call in calls {
        call.await.unwrap().unwrap();
        ends.push(start.elapsed().as_secs());
    }
    assert_eq!(ends, [0, 0, 60, 60, 120]);
}

#[tokio::test(start_paused = true)]
async fn lo14_tokens_are_reserved_by_estimate_and_settled_by_report() {
    let reply = |input, output| Script::new().text("ok").usage(input, output).finish(FinishReason::Stop);
    let service =
        ScriptedProvider::new().step(reply(50, 48)).step(reply(1, 1)).step(reply(5_000, 1)).step(reply(1, 1));
    let limit = RateLimit::builder().tokens_per_minute(100).timeout(None).build().unwrap();
    let provider = limit.layer(service.provider());
    let cx = CallContext::new();
    let start = Instant::now();
    let call = async |request| {
        spawn(&provider, request, &cx).await.unwrap().unwrap();
        start.elapsed().as_secs()
    };
    // The first is estimated at 2 tokens and used 98, so that just 2 are left.
    assert_eq!(call(hello("a")).await, 0);
    assert_eq!(call(hello("b")).await, 0);
    // Larger than any minute: alone, when all else is forgotten.
    assert_eq!(call(hello("c").with_instructions("x".repeat(1_000))).await, 60);
    assert_eq!(call(hello("d")).await, 120);
}

#[tokio::test(start_paused = true)]
async fn lo14_concurrency_adapts_to_how_long_completed_calls_take() {
    let slow = || Script::new().delay(seconds(16)).text("ok").finish(FinishReason::Stop);
    let fast = || Script::new().delay(seconds(4)).text("ok").finish(FinishReason::Stop);
    let failed = || Script::new().fail(ErrorKind::Transport, "gone");
    let scripts = [slow(), slow(), slow(), slow(), failed(), failed(), fast(), fast()];
    let service = scripts.into_iter().fold(ScriptedProvider::new(), ScriptedProvider::step);
    let limit = RateLimit::builder().window(2).build().unwrap();
    let provider = limit.clone().layer(service.provider());
    let mut permits = Vec::new();
    for _ in 0..4 {
        for _ in 0..2 {
            let _ = spawn(&provider, hello("m"), &CallContext::new()).await.unwrap();
        }
        permits.push(limit.permits());
    }
    // What failed at once says nothing about the service's speed.
    assert_eq!(permits, [2, 1, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn lo14_no_more_run_at_once_than_permitted() {
    let gate = Gate::new();
    let service = (0..7).fold(ScriptedProvider::new(), |service, _| service.step(behind(&gate)));
    let limit = RateLimit::new();
    let provider = limit.clone().layer(service.provider());
    let calls: Vec<_> = (0..7).map(|_| spawn(&provider, hello("m"), &CallContext::new())).collect();
    gate.arrived(3).await;
    settle_until(|| limit.waiting() == 4).await;
    assert_eq!((limit.running(), service.count()), (3, 3));
    gate.open();
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

/// A provider whose first call asks to wait.
#[derive(Debug)]
struct AsksToWait(Arc<dyn Provider>);

#[async_trait]
impl Provider for AsksToWait {
    fn name(&self) -> &str {
        self.0.name()
    }
    async fn stream(&self, request: Request, cx: &CallContext) -> Result<DeltaStream> {
        if cx.attempt == 1 {
            return Err(Error::new(ErrorKind::RateLimited, "slow down").with_retry_after(seconds(9)));
        }
        self.0.stream(request, cx).await
    }
}

#[tokio::test(start_paused = true)]
async fn lo14_everybody_waits_when_the_service_has_nothing_left() {
    let mut limits = RateLimits::default();
    (limits.requests.remaining, limits.requests.reset) = (Some(0), Some(seconds(7)));
    let mut info = ResponseInfo::default();
    info.limits = Some(Box::new(limits));
    let empty = Script::new().delta(Delta::Response(Box::new(info))).text("ok").finish(FinishReason::Stop);
    let service = ScriptedProvider::new().step(empty).step(saying("ok")).step(saying("ok"));
    let limit = RateLimit::new();
    let provider = limit.clone().layer(service.provider());
    let start = Instant::now();
    let mut ends = Vec::new();
    for _ in 0..2 {
        spawn(&provider, hello("m"), &CallContext::new()).await.unwrap().unwrap();
        ends.push(start.elapsed().as_secs());
    }
    let provider = limit.layer(Arc::new(AsksToWait(service.provider())));
    assert_eq!(provider.name(), "scripted");
    spawn(&provider, hello("m"), &CallContext::new()).await.unwrap().unwrap_err();
    spawn(&provider, hello("m"), &CallContext::new().with_attempt(2)).await.unwrap().unwrap();
    ends.push(start.elapsed().as_secs());
    assert_eq!(ends, [0, 7, 16]);
}

#[tokio::test]
async fn lo14_settings_that_let_nothing_run_are_refused() {
    let wrong = [
        RateLimit::builder().requests_per_minute(0),
        RateLimit::builder().tokens_per_minute(0),
        RateLimit::builder().concurrency(0..=3),
        #[allow(clippy::reversed_empty_ranges)]
        RateLimit::builder().concurrency(3..=2),
        RateLimit::builder().window(0),
        RateLimit::builder().speed(seconds(9), seconds(8)),
    ];
    for builder in wrong {
        assert_eq!(builder.build().unwrap_err().kind(), ErrorKind::Config);
    }
    let shown = format!("{:?}", RateLimit::new().at(Priority(7)).superseding("k"));
    assert!(shown.contains("Priority(7)") && shown.contains("\"k\""), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn lo14_the_service_is_told_how_much_time_is_left_after_the_wait() {
    let slow = Script::new().delay(seconds(10)).text("ok").finish(FinishReason::Stop);
    let service = ScriptedProvider::new().step(slow).step(saying("ok"));
    let clocked = Clocked::new(service.provider());
    let provider = one_at_once().layer(Arc::clone(&clocked) as _);
    let mut cx = CallContext::new();
    let first = spawn(&provider, hello("a"), &cx);
    cx.timeout = Some(seconds(30));
    let second = spawn(&provider, hello("b"), &cx);
    for call in [first, second] {
        call.await.unwrap().unwrap();
    }
    assert_eq!(clocked.told(), [(1, None), (1, Some(20))]);
}
