//! The retry layer: the failures that are retried, the delays, and the reader's view.

use std::{sync::Arc, time::Duration};

use entourage_core::{
    Error, ErrorKind, RetryStatus,
    event::{Envelope, Event},
    provider::{CallContext, Delta, FinishReason, Layer, Model, Provider},
};
use entourage_runtime::layers::Retry;
use entourage_testkit::{Script, ScriptedProvider};
use futures_util::StreamExt;
use tokio::time::Instant;

use crate::{
    common::{agent, drain, memory, runtime_on, stored},
    layers_play::{Played, Reply, breaks, error_of, line, lines, question, read, says},
};

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn busy(text: &str) -> Error {
    Error::new(ErrorKind::RateLimited, text.to_owned())
}

fn retried(provider: &Arc<Played>, layer: Retry) -> Arc<dyn Provider> {
    layer.layer(Arc::clone(provider) as _)
}

/// The text in front of a reader that discards deltas voided by a restart.
fn shown(events: &[Envelope]) -> String {
    events.iter().fold(String::new(), |mut text, event| {
        match &event.event {
            Event::Delta(Delta::Text(more)) => text.push_str(more),
            Event::Delta(Delta::Restart(_)) => text.clear(),
            _ => {}
        }
        text
    })
}

#[tokio::test(start_paused = true)]
async fn cm09_two_failures_and_a_reply_in_a_run() {
    let provider = ScriptedProvider::new()
        .fail(ErrorKind::RateLimited, "slow down")
        .step(Script::new().text("Hel").usage(10, 1).fail(ErrorKind::RateLimited, "slow down, please"))
        .text("Hello!");
    let store = memory();
    let runtime = runtime_on(&store);
    let agent = agent(provider.model().layer(Retry::new())).build().unwrap();
    let session = runtime.session();
    let began = Instant::now();
    let mut run = session.start(&agent, "Hello?");
    let events = drain(&mut run).await;
    assert_eq!(run.outcome().await.unwrap().text, "Hello!");
    assert_eq!(began.elapsed().as_secs(), 15);
    assert_eq!(shown(&events), "Hello!");

    let events = stored(&store, session.id()).await;
    let mut request = None;
    let mut restarts = Vec::new();
    for event in &events {
        match &event.event {
            Event::ModelStarted(call) => request = call.request,
            Event::ModelRestarted(call) => {
                assert_eq!((Some(call.request), call.step), (request, 1));
                let restart = &call.restart;
                restarts.push((restart.attempt, restart.delay, restart.error.message.clone()));
            }
            Event::ModelFinished(reply) => {
                assert_eq!((reply.request, reply.attempt), (request, 3));
                assert_eq!((reply.message.text().as_str(), reply.wasted.output), ("Hello!", Some(1)));
            }
            _ => {}
        }
    }
    assert!(request.is_some());
    let expected = [(2, secs(5), "slow down".to_owned()), (3, secs(10), "slow down, please".to_owned())];
    assert_eq!(restarts, expected);
    assert_eq!(session.history().await.unwrap().last().unwrap().text(), "Hello!");
}

#[tokio::test(start_paused = true)]
async fn cm09_a_failed_attempt_is_stored_before_the_wait_for_the_next() {
    let provider = ScriptedProvider::new().fail(ErrorKind::RateLimited, "slow down").text("Hello!");
    let store = memory();
    let runtime = runtime_on(&store);
    let agent = agent(provider.model().layer(Retry::new())).build().unwrap();
    let session = runtime.session();
    let mut run = session.start(&agent, "Hello?");
    let began = Instant::now();
    while let Some(event) = run.next().await {
        if matches!(event.event, Event::ModelRestarted(_)) {
            break;
        }
    }
    assert!(began.elapsed() < secs(5), "the event came after the wait");
    let events = stored(&store, session.id()).await;
    let kinds: Vec<_> = events.iter().map(|event| event.event.kind()).collect();
    assert_eq!(kinds, ["run_started", "model_started", "model_restarted"]);
    assert_eq!(run.outcome().await.unwrap().text, "Hello!");
}

#[tokio::test(start_paused = true)]
async fn cm09_delays_grow_from_the_first_and_the_restart_comes_before_the_wait() {
    let provider = Played::new([Err(busy("a")), Err(busy("b")), Err(busy("c")), says("ok")]);
    let model = retried(&provider, Retry::new());
    let mut stream = model.stream(question(), &CallContext::new()).await.unwrap();
    let mut seen = Vec::new();
    while let Some(item) = stream.next().await {
        seen.push((line(&item), provider.asked().len()));
    }
    let expected = [
        ("restart 2 in 5s: a", 1),
        ("restart 3 in 10s: b", 2),
        ("restart 4 in 20s: c", 3),
        ("ok", 4),
        ("finish", 4),
    ];
    assert_eq!(seen, expected.map(|(line, asked)| (line.to_owned(), asked)));
    assert_eq!(provider.times(), [0, 5_000, 15_000, 35_000]);
    assert_eq!(provider.attempts(), [1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn cm09_settings_bound_the_delays() {
    let layer = Retry::new()
        .with_retries(4)
        .with_first_delay(Duration::from_millis(100))
        .with_factor(10)
        .with_max_delay(secs(2));
    let failures = || (0..4).map(|_| -> Reply { Err(busy("no")) });
    let provider = Played::new(failures().chain([says("ok")]));
    read(&retried(&provider, layer), &CallContext::new()).await;
    assert_eq!(provider.times(), [0, 100, 1_100, 3_100, 5_100]);

    let provider = Played::new(failures().chain([says("ok")]));
    read(&retried(&provider, layer.with_factor(0)), &CallContext::new()).await;
    assert_eq!(provider.times(), [0, 100, 200, 300, 400]);
}

#[tokio::test(start_paused = true)]
async fn cm09_what_a_service_asks_for() {
    let hour = Retry::new().with_first_delay(secs(3_600)).with_max_delay(secs(3_600));
    let table = [
        (Retry::new(), Duration::ZERO, secs(5)),
        (Retry::new(), Duration::from_millis(1), Duration::from_millis(1)),
        (Retry::new(), secs(7), secs(7)),
        (Retry::new(), Duration::from_millis(59_999), Duration::from_millis(59_999)),
        (Retry::new(), secs(60), secs(5)),
        (Retry::new(), secs(1_000_000_000), secs(5)),
        (Retry::new(), Duration::MAX, secs(5)),
        (hour, secs(60), secs(60)),
        (hour, secs(3_599), secs(3_599)),
        (hour, secs(3_601), secs(3_600)),
    ];
    for (layer, asked, expected) in table {
        let provider = Played::new([Err(busy("wait").with_retry_after(asked)), says("ok")]);
        let lines = read(&retried(&provider, layer), &CallContext::new()).await;
        assert_eq!(lines[0], format!("restart 2 in {expected:?}: wait"), "{asked:?}");
        assert_eq!(provider.asked()[1].at, expected, "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn cm09_a_jitter_lengthens_and_is_the_same_for_the_same_call() {
    let layer = Retry::new().with_jitter(secs(3));
    let delay = |cx: CallContext| async move {
        let provider = Played::new([Err(busy("no")), says("ok")]);
        read(&retried(&provider, layer), &cx).await;
        provider.asked()[1].at
    };
    let cx = CallContext::new();
    let first = delay(cx.clone()).await;
    assert_eq!(delay(cx).await, first);
    let mut others = Vec::new();
    for _ in 0..8 {
        others.push(delay(CallContext::new()).await);
    }
    assert!(others.iter().all(|delay| (secs(5)..secs(8)).contains(delay)), "{others:?}");
    assert!(others.iter().any(|delay| *delay != first), "all calls come back together: {others:?}");
}

#[tokio::test(start_paused = true)]
async fn cm09_without_retries_an_error_comes_as_it_is() {
    let provider = Played::new([Err(busy("slow down").with_retry_after(secs(9))), breaks("a", busy("slow"))]);
    let model = retried(&provider, Retry::new().with_retries(0));
    let cx = CallContext::new();
    let error = model.stream(question(), &cx).await.err().unwrap();
    assert_eq!((error.message(), error.retry()), ("slow down", RetryStatus::Temporary));
    assert_eq!(error.retry_after(), Some(secs(9)));
    assert_eq!(read(&model, &cx).await, ["a", "error: slow"]);
    assert_eq!(provider.attempts(), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn cm09_an_exhausted_error_tells_of_every_attempt() {
    let overloaded = Error::new(ErrorKind::Overloaded, "no room").with_retry_after(secs(70));
    let provider = Played::new([
        Err(busy("too fast")),
        breaks("Hel", Error::new(ErrorKind::Transport, "reset")),
        Err(overloaded),
    ]);
    let error = error_of(&retried(&provider, Retry::new().with_retries(2)), &CallContext::new()).await;
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Overloaded, RetryStatus::Exhausted));
    assert_eq!(error.retry_after(), Some(secs(70)));
    let text = "the model call failed 3 times and no retry is left; try again later. attempt 1: too fast (rate limited); \
        attempt 2: reset (transport); attempt 3: no room (overloaded)";
    assert_eq!(error.message(), text);
    assert_eq!(provider.asked().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn cm09_attempts_that_failed_alike_are_told_once() {
    let away = || Err(Error::new(ErrorKind::Transport, "no way there"));
    let provider = Played::new([away(), away(), Err(busy("too fast")), away()]);
    let error = error_of(&retried(&provider, Retry::new()), &CallContext::new()).await;
    let list = "attempts 1 to 2: no way there (transport); attempt 3: too fast (rate limited); \
        attempt 4: no way there (transport)";
    assert!(error.message().ends_with(list), "{error}");
    let report = format!("{error:?}");
    assert_eq!(report.matches("no way there").count(), 2, "the cause is not told again: {report}");
}

#[tokio::test(start_paused = true)]
async fn cm09_what_cannot_pass_is_not_tried_again() {
    let refusal = || Error::new(ErrorKind::InvalidInput, "no such model");
    let provider = Played::new([Err(refusal()), Err(busy("slow down")), Err(refusal())]);
    let (model, cx) = (retried(&provider, Retry::new()), CallContext::new());
    assert_eq!(read(&model, &cx).await, ["refused: no such model"]);
    // A permanent error ends the retries as it is: what came before it was announced.
    assert_eq!(read(&model, &cx).await, ["restart 2 in 5s: slow down", "error: no such model"]);
    assert_eq!(provider.asked().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn cm09_a_reply_that_breaks_off_is_restarted_and_let_go_of() {
    let provider = Played::new([breaks("Hel", Error::new(ErrorKind::Transport, "reset")), says("Hello")]);
    let mut stream = retried(&provider, Retry::new()).stream(question(), &CallContext::new()).await.unwrap();
    assert_eq!(line(&stream.next().await.unwrap()), "Hel");
    assert_eq!(provider.open_streams(), 1);
    assert_eq!(line(&stream.next().await.unwrap()), "restart 2 in 5s: reset");
    assert_eq!(provider.open_streams(), 0, "the broken connection is not kept during the wait");
    assert_eq!(lines(stream).await, ["Hello", "finish"]);
}

#[tokio::test(start_paused = true)]
async fn cm09_the_wait_begins_with_the_failure() {
    let provider = Played::new([Err(busy("slow down")), says("Hello")]);
    let mut stream = retried(&provider, Retry::new()).stream(question(), &CallContext::new()).await.unwrap();
    stream.next().await.unwrap().unwrap();
    tokio::time::advance(secs(4)).await;
    assert_eq!(lines(stream).await, ["Hello", "finish"]);
    assert_eq!(provider.times(), [0, 5_000]);
}

#[tokio::test(start_paused = true)]
async fn cm09_a_stream_without_an_end_is_tried_again() {
    let provider = Played::new([Ok(vec![Ok(Delta::text("Hel"))]), Ok(Vec::new()), says("Hello")]);
    let lines = read(&retried(&provider, Retry::new()), &CallContext::new()).await;
    let cut = "the model's reply broke off before its end; the connection was closed too early, try again";
    let (first, second) = (format!("restart 2 in 5s: {cut}"), format!("restart 3 in 10s: {cut}"));
    assert_eq!(lines, ["Hel", &first, &second, "Hello", "finish"]);
}

#[tokio::test(start_paused = true)]
async fn cm09_nothing_is_tried_again_after_the_finish() {
    let finish = || Ok(Delta::finish(FinishReason::Stop));
    let provider = Played::new([Ok(vec![Ok(Delta::text("Hello")), finish(), Err(busy("late"))])]);
    let lines = read(&retried(&provider, Retry::new()), &CallContext::new()).await;
    assert_eq!(lines, ["Hello", "finish", "error: late"]);
}

#[tokio::test(start_paused = true)]
async fn cm09_a_reader_who_cannot_take_back_is_passed_the_error() {
    let layer = Retry::new().before_output_only();
    let silent = Ok(vec![Ok(Delta::text("")), Err(busy("slow down"))]);
    let provider = Played::new([Err(busy("slow down")), silent, breaks("Hel", busy("cut"))]);
    let error = error_of(&retried(&provider, layer), &CallContext::new()).await;
    assert_eq!((error.message(), error.retry()), ("cut", RetryStatus::Temporary));
    assert_eq!(provider.asked().len(), 3);

    for output in
        [Delta::tool_call(0, "1", "look"), Delta::Reasoning("Hm".into()), Delta::Refusal("No".into())]
    {
        let provider = Played::new([Ok(vec![Ok(output.clone()), Err(busy("cut"))])]);
        let error = error_of(&retried(&provider, layer), &CallContext::new()).await;
        assert_eq!(error.message(), "cut", "{output:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn cm09_a_cancel_ends_the_wait() {
    let provider = Played::new([Err(busy("slow down"))]);
    let cx = CallContext::new();
    let mut stream = retried(&provider, Retry::new()).stream(question(), &cx).await.unwrap();
    stream.next().await.unwrap().unwrap();
    let (cancel, began) = (cx.cancel.clone(), Instant::now());
    let canceller = tokio::spawn(async move {
        tokio::time::sleep(secs(1)).await;
        cancel.cancel();
    });
    let error = stream.next().await.unwrap().unwrap_err();
    assert_eq!((error.kind(), began.elapsed().as_secs()), (ErrorKind::Cancelled, 1));
    assert!(stream.next().await.is_none());
    canceller.await.unwrap();
    assert_eq!(provider.asked().len(), 1);

    // What fails because of the cancel is not tried again either, and is called by its name.
    let provider = Played::new([Err(Error::new(ErrorKind::Transport, "the connection was dropped"))]);
    let lines = read(&retried(&provider, Retry::new()), &cx).await;
    assert_eq!(lines, ["refused: the call or run was cancelled"]);
}

#[tokio::test(start_paused = true)]
async fn cm09_a_run_is_cancelled_during_the_wait() {
    let provider = ScriptedProvider::new().fail(ErrorKind::Overloaded, "no room");
    let store = memory();
    let runtime = runtime_on(&store);
    let agent = agent(provider.model().layer(Retry::new())).build().unwrap();
    let session = runtime.session();
    let mut run = session.start(&agent, "Hello?");
    let began = Instant::now();
    while let Some(event) = run.next().await {
        if matches!(event.event, Event::Delta(Delta::Restart(_))) {
            run.cancel();
        }
    }
    run.outcome().await.unwrap();
    assert!(began.elapsed() < secs(1), "the wait went on for {:?}", began.elapsed());
    let events = stored(&store, session.id()).await;
    let finish = events.iter().find_map(|event| match &event.event {
        Event::ModelFinished(reply) => Some((reply.finish.reason, reply.attempt)),
        _ => None,
    });
    assert_eq!(finish, Some((FinishReason::Cancelled, 2)));
}

#[tokio::test(start_paused = true)]
async fn cm09_no_attempt_begins_after_the_deadline() {
    let mut cx = CallContext::new();
    cx.timeout = Some(secs(12));
    let provider = Played::new([Err(busy("a")), Err(busy("b"))]);
    let error = error_of(&retried(&provider, Retry::new()), &cx).await;
    assert_eq!((error.kind(), error.retry()), (ErrorKind::RateLimited, RetryStatus::Exhausted));
    assert!(error.message().contains("2 times and the call's time would be over"), "{error}");
    assert_eq!(provider.times(), [0, 5_000]);
    let left: Vec<_> = provider.asked().iter().map(|asked| asked.timeout).collect();
    assert_eq!(left, [Some(secs(12)), Some(secs(7))]);

    cx.timeout = Some(secs(5));
    let provider = Played::new([Err(busy("a"))]);
    let error = error_of(&retried(&provider, Retry::new()), &cx).await;
    assert_eq!((error.message(), error.retry()), ("a", RetryStatus::Temporary));
}

#[tokio::test(start_paused = true)]
async fn cm09_attempts_of_all_layers_are_counted_as_one() {
    let provider = Played::new([Err(busy("a")), Err(busy("b")), Err(busy("c")), says("ok")]);
    let inner = retried(&provider, Retry::new().with_retries(1).with_first_delay(secs(1)));
    // The inner layer gives up for good; only a failure that may still pass goes up to the outer one.
    let error = error_of(&Retry::new().layer(Arc::clone(&inner)), &CallContext::new()).await;
    assert_eq!(error.retry(), RetryStatus::Exhausted);
    assert_eq!(provider.attempts(), [1, 2]);

    let failures = [Err(busy("a")), breaks("Hel", busy("b")), says("Hello")];
    let provider = Played::new(failures);
    let inner = retried(&provider, Retry::new().with_first_delay(secs(1)).before_output_only());
    let lines = read(&Retry::new().layer(inner), &CallContext::new()).await;
    assert_eq!(lines, ["restart 2 in 1s: a", "Hel", "restart 3 in 5s: b", "Hello", "finish"]);
    assert_eq!(provider.attempts(), [1, 2, 3]);
}

#[tokio::test]
async fn cm09_the_layer_is_not_seen_in_names_and_shows_what_it_wraps() {
    let provider = Played::named("acme", []);
    let model = Model::new(Arc::clone(&provider) as _, "large").layer(Retry::new());
    assert_eq!(&**model.provider_name(), "acme");
    let shown = format!("{:?}", model.provider());
    assert!(shown.contains("retries: 3") && shown.contains("acme"), "{shown}");
}
