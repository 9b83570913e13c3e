//! The layers that limit the time of a call and hold a stream to its contract.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result, RetryStatus, Usage,
    message::Signature,
    provider::{
        CallContext, Delta, DeltaStream, FinishReason, Layer, Provider, Request, Restart, Warning,
        WarningKind,
    },
};
use entourage_runtime::layers::{Check, Retry, Timeout};
use entourage_testkit::{Gate, Script, ScriptedProvider};
use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use crate::layers_play::{Played, error_of, line, lines, question, read, says};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn all_bounds() -> Timeout {
    Timeout::new().with_total(secs(60)).with_first_delta(secs(20)).with_idle(secs(10))
}

/// The bound that ends a call, and the time at which it does.
async fn bound(layer: Timeout, script: Script) -> (String, u64) {
    let service = ScriptedProvider::new().step(script);
    let began = Instant::now();
    let error = error_of(&layer.layer(service.provider()), &CallContext::new()).await;
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Timeout, RetryStatus::Temporary));
    let bound = error.context().find(|(name, _)| *name == "bound").unwrap().1.to_owned();
    (bound, began.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn each_bound_ends_a_call_and_is_named() {
    let finish = |script: Script| script.finish(FinishReason::Stop);
    let late = finish(Script::new().delay(secs(21)).text("Hello"));
    assert_eq!(bound(all_bounds(), late).await, ("first delta".into(), 20));
    let pausing = finish(Script::new().delay(secs(19)).text("Hel").delay(secs(11)).text("lo"));
    assert_eq!(bound(all_bounds(), pausing).await, ("idle".into(), 29));
    let slow = finish((0..9).fold(Script::new(), |script, _| script.text("H").delay(secs(9))));
    assert_eq!(bound(all_bounds(), slow).await, ("total".into(), 60));
    // A warning is made before anything was sent.
    let warning = Delta::Warning(Box::new(Warning::new(WarningKind::Setting, "top_k", "left out")));
    let warned = finish(Script::new().delay(secs(5)).delta(warning).delay(secs(16)).text("Hello"));
    assert_eq!(bound(all_bounds(), warned).await, ("first delta".into(), 20));
}

#[tokio::test(start_paused = true)]
async fn a_reply_within_its_bounds_is_left_as_it_is() {
    let script = Script::new()
        .delay(secs(19))
        .text("a")
        .delay(secs(9))
        .text("b")
        .delay(secs(9))
        .text("c")
        .finish(FinishReason::Stop);
    let service = ScriptedProvider::new().step(script.clone()).step(script.clone()).step(script);
    for layer in
        [all_bounds(), Timeout::new(), Timeout::new().with_idle(Duration::MAX).with_total(Duration::MAX)]
    {
        let lines = read(&layer.layer(service.provider()), &CallContext::new()).await;
        assert_eq!(lines, ["a", "b", "c", "finish"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_is_not_a_slow_service() {
    let script = Script::new().text("a").text("b").delay(secs(9)).text("c").finish(FinishReason::Stop);
    let service = ScriptedProvider::new().step(script);
    let layer = Timeout::new().with_first_delta(secs(10)).with_idle(secs(10));
    let mut stream = layer.layer(service.provider()).stream(question(), &CallContext::new()).await.unwrap();
    for expected in ["a", "b", "c", "finish"] {
        assert_eq!(line(&stream.next().await.unwrap()), expected);
        tokio::time::sleep(secs(100)).await;
    }
}

/// A service that never accepts a call, or never stops streaming.
#[derive(Debug)]
enum Odd {
    Hangs(Gate),
    Endless,
}

#[async_trait]
impl Provider for Odd {
    fn name(&self) -> &'static str {
        "odd"
    }

    async fn stream(&self, _: Request, _: &CallContext) -> Result<DeltaStream> {
        match self {
            Self::Hangs(gate) => {
                gate.pass().await;
                Err(Error::new(ErrorKind::Internal, "the gate was opened"))
            }
            Self::Endless => Ok(Box::pin(stream::repeat_with(|| Ok(Delta::text("x"))))),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_answered_is_ended_too() {
    for (layer, expected) in [(all_bounds(), 20), (Timeout::new().with_total(secs(7)), 7)] {
        let began = Instant::now();
        let model = layer.layer(Arc::new(Odd::Hangs(Gate::new())));
        let error = model.stream(question(), &CallContext::new()).await.err().unwrap();
        assert_eq!((error.kind(), began.elapsed().as_secs()), (ErrorKind::Timeout, expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_always_has_more_is_ended_by_the_total() {
    let model = Timeout::new().with_total(secs(3)).layer(Arc::new(Odd::Endless));
    let mut stream = model.stream(question(), &CallContext::new()).await.unwrap();
    let mut pieces = 0;
    let error = loop {
        match stream.next().await.unwrap() {
            Ok(_) => pieces += 1,
            Err(error) => break error,
        }
        if pieces % 100 == 0 {
            tokio::time::advance(secs(1)).await;
        }
    };
    assert_eq!((error.kind(), pieces), (ErrorKind::Timeout, 300));
}

/// The end of a reply and its figures are there when the total has passed, since the reader was slow.
#[tokio::test(start_paused = true)]
async fn issue_11_a_reply_that_came_before_its_total_is_neither_failed_nor_free() {
    for (script, expected) in [
        (Script::new().text("a").finish(FinishReason::Stop).usage(3, 4), vec!["finish", "usage"]),
        (Script::new().text("a").usage(3, 4).finish(FinishReason::Stop), vec!["usage", "timeout"]),
        (Script::new().text("a").text("b").usage(3, 4).finish(FinishReason::Stop), vec!["timeout"]),
    ] {
        let service = ScriptedProvider::new().step(script);
        let layer = Timeout::new().with_total(secs(10));
        let mut stream =
            layer.layer(service.provider()).stream(question(), &CallContext::new()).await.unwrap();
        stream.next().await.unwrap().unwrap();
        tokio::time::advance(secs(11)).await;
        let mut lines = Vec::new();
        while let Some(item) = stream.next().await {
            lines.push(match item {
                Ok(Delta::Finish(_)) => "finish",
                Ok(Delta::Usage(_)) => "usage",
                Ok(_) => "text",
                Err(error) => error.kind().as_str(),
            });
        }
        assert_eq!(lines, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_finished_reply_is_not_failed_by_a_stall() {
    let script = Script::new().text("Hello").finish(FinishReason::Stop).delay(secs(3_600)).usage(1, 1);
    let service = ScriptedProvider::new().step(script);
    let began = Instant::now();
    let lines = read(&all_bounds().layer(service.provider()), &CallContext::new()).await;
    assert_eq!((lines, began.elapsed().as_secs()), (vec!["Hello".into(), "finish".into()], 10));
}

#[tokio::test(start_paused = true)]
async fn the_calls_own_timeout_is_kept_and_the_shorter_one_told() {
    let mut cx = CallContext::new();
    for (own, callers, expected) in
        [(None, Some(4), Some(4)), (Some(3), Some(4), Some(3)), (Some(5), None, Some(5))]
    {
        cx.timeout = callers.map(secs);
        let layer = own.map_or(Timeout::new(), |own| Timeout::new().with_total(secs(own)));
        let played = Played::new([says("Hello")]);
        read(&layer.layer(Arc::clone(&played) as _), &cx).await;
        assert_eq!(played.asked()[0].timeout, expected.map(secs));

        let began = Instant::now();
        let error = error_of(&layer.layer(Arc::new(Odd::Hangs(Gate::new()))), &cx).await;
        assert_eq!((error.kind(), Some(began.elapsed().as_secs())), (ErrorKind::Timeout, expected));
    }
}

#[tokio::test(start_paused = true)]
async fn the_order_of_timeout_and_retry_matters() {
    let stall = || Script::new().text("Hel").delay(secs(60)).finish(FinishReason::Stop);
    let inside = ScriptedProvider::new().step(stall()).text("Hello");
    let model = Retry::new().layer(Timeout::new().with_idle(secs(10)).layer(inside.provider()));
    let lines = read(&model, &CallContext::new()).await;
    assert!(lines[1].starts_with("restart 2 in 5s: the model's reply paused for more than 10s"), "{lines:?}");
    assert_eq!(lines[2], "Hello");

    // The wrong way round: the wait between two attempts is taken for a silent model.
    let outside = ScriptedProvider::new().fail(ErrorKind::Overloaded, "no room");
    let model = Timeout::new().with_first_delta(secs(3)).layer(Retry::new().layer(outside.provider()));
    assert_eq!(error_of(&model, &CallContext::new()).await.kind(), ErrorKind::Timeout);
}

async fn checked(deltas: Vec<Delta>) -> Vec<String> {
    let played = Played::new([Ok(deltas.into_iter().map(Ok).collect())]);
    read(&Check::new().layer(played), &CallContext::new()).await
}

fn finish() -> Delta {
    Delta::finish(FinishReason::Stop)
}

fn usage() -> Delta {
    Delta::Usage(Box::new(Usage::new(1, 1)))
}

fn restart(attempt: u32) -> Delta {
    let error = Error::new(ErrorKind::Overloaded, "no room").record();
    Delta::Restart(Box::new(Restart::new(attempt, error, Duration::ZERO)))
}

#[tokio::test]
async fn a_stream_that_keeps_the_contract_passes() {
    let call = |index: u32| Delta::tool_call(index, "", "look");
    let deltas = vec![
        Delta::text("Hel"),
        call(0),
        Delta::arguments(0, "{"),
        restart(2),
        Delta::Response(Box::default()),
        Delta::Reasoning("Hm".into()),
        Delta::signature(Signature::new("acme", "c2ln")),
        Delta::text(""),
        call(0),
        call(3),
        Delta::arguments(3, "{"),
        Delta::arguments(0, "{}"),
        Delta::arguments(3, "}"),
        finish(),
        usage(),
        Delta::Response(Box::default()),
        usage(),
    ];
    let expected: Vec<_> = deltas.iter().map(|delta| line(&Ok(delta.clone()))).collect();
    assert_eq!(checked(deltas).await, expected);
}

#[tokio::test]
async fn a_stream_that_breaks_the_contract_is_named() {
    let call = |index: u32| Delta::tool_call(index, "", "look");
    let endless = || [finish()].into_iter().chain((0..65).map(|_| usage())).collect();
    let table: Vec<(Vec<Delta>, &str)> = vec![
        (vec![finish(), finish()], "it finished twice"),
        (vec![finish(), Delta::text("x")], "it sent content after its finish"),
        (vec![finish(), call(0)], "it sent content after its finish"),
        (vec![finish(), restart(2)], "it restarted after its finish"),
        (endless(), "it sent more than 64 pieces after its finish"),
        (vec![Delta::arguments(0, "{}")], "it sent arguments of call 0, which never began"),
        (vec![call(0), Delta::arguments(1, "{}")], "it sent arguments of call 1, which never began"),
        (
            vec![call(0), restart(2), Delta::arguments(0, "{}")],
            "it sent arguments of call 0, which never began",
        ),
        (vec![call(0), call(1), call(0)], "call 0 began twice"),
        (vec![call(2), call(1)], "call 1 began after call 2"),
        (vec![restart(1)], "attempt 1 was followed by attempt 1"),
        (vec![restart(3), restart(2)], "attempt 3 was followed by attempt 2"),
    ];
    for (deltas, broken) in table {
        let count = deltas.len();
        let lines = checked(deltas).await;
        assert_eq!(lines.len(), count, "{broken}: {lines:?}");
        let last = lines.last().unwrap();
        assert!(last.starts_with(&format!("error: the stream broke its contract: {broken}; fix")), "{last}");
    }
}

#[tokio::test]
async fn a_cut_off_stream_and_a_talkative_failure_are_found() {
    let played = Played::new([Ok(vec![Ok(Delta::text("Hel"))])]);
    let error = error_of(&Check::new().layer(played), &CallContext::new()).await;
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Protocol, RetryStatus::Temporary));

    let failure = || Err(Error::new(ErrorKind::Transport, "reset"));
    let played = Played::new([Ok(vec![failure()])]);
    assert_eq!(read(&Check::new().layer(played), &CallContext::new()).await, ["error: reset"]);

    let played = Played::new([Ok(vec![failure(), Ok(Delta::text("lo")), Ok(finish())])]);
    let stream = Check::new().layer(played).stream(question(), &CallContext::new()).await.unwrap();
    let lines = lines(stream).await;
    assert_eq!((lines.len(), &*lines[0]), (2, "error: reset"));
    assert!(lines[1].contains("it went on after its error"), "{lines:?}");
}

#[tokio::test]
async fn a_broken_contract_is_permanent_and_names_the_provider() {
    let played = Played::named("acme", [Ok(vec![Ok(Delta::arguments(0, "{}"))])]);
    let model = Check::new().layer(Arc::clone(&played) as _);
    assert_eq!(model.name(), "acme");
    let error = error_of(&model, &CallContext::new()).await;
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Protocol, RetryStatus::Permanent));
    assert!(error.to_string().contains("provider: acme"), "{error}");
    for model in
        [Check::new().layer(Arc::clone(&played) as _), Timeout::new().layer(Arc::clone(&played) as _)]
    {
        assert!(format!("{model:?}").contains("acme"), "{model:?}");
    }
}
