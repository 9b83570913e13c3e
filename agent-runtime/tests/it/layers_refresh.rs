//! The refresh layer: one refresh per call, shared by calls that fail together.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    event::Event,
    provider::{CallContext, Delta, Layer, Model, Provider, Restart},
};
use entourage_runtime::layers::{CredentialRefresh, Refresh, Retry};
use entourage_testkit::Gate;
use futures_util::{StreamExt, future::join_all};

use crate::{
    common::{agent, drain, open_runtime},
    layers_play::{Played, Reply, breaks, error_of, line, lines, question, read, says},
};

/// A hook that returns a provider, or fails; it counts its calls.
#[derive(Debug, Clone)]
struct Hook {
    next: Option<Arc<dyn Provider>>,
    gate: Option<Gate>,
    asked: Arc<AtomicUsize>,
}

impl Hook {
    fn giving(next: Arc<dyn Provider>) -> Self {
        Self { next: Some(next), gate: None, asked: Arc::default() }
    }

    fn failing() -> Self {
        Self { next: None, gate: None, asked: Arc::default() }
    }

    fn behind(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    fn count(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn around(&self, provider: &Arc<Played>) -> Arc<dyn Provider> {
        CredentialRefresh::new(self.clone()).layer(Arc::clone(provider) as _)
    }
}

#[async_trait]
impl Refresh for Hook {
    async fn refresh(&self, error: &Error, _: &Arc<dyn Provider>) -> Result<Arc<dyn Provider>> {
        assert_eq!(error.kind(), ErrorKind::Authentication);
        self.asked.fetch_add(1, Ordering::SeqCst);
        if let Some(gate) = &self.gate {
            gate.pass().await;
        }
        self.next.clone().ok_or_else(|| Error::new(ErrorKind::Transport, "the sign-in service is down"))
    }
}

fn refused() -> Error {
    Error::new(ErrorKind::Authentication, "the key was refused; check it")
}

fn busy() -> Error {
    Error::new(ErrorKind::Overloaded, "no room")
}

#[tokio::test(start_paused = true)]
async fn cm10_a_refused_key_is_renewed_and_the_run_goes_on() {
    let (old, new) = (Played::new([Err(refused())]), Played::new([says("Hello!"), says("Again!")]));
    let hook = Hook::giving(Arc::clone(&new) as _);
    let layer = CredentialRefresh::new(hook.clone());
    let agent = agent(Model::new(Arc::clone(&old) as _, "large").layer(layer)).build().unwrap();
    let session = open_runtime().session();
    let mut run = session.start(&agent, "Hello?");
    let events = drain(&mut run).await;
    assert_eq!(run.outcome().await.unwrap().text, "Hello!");
    let restarts: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.event {
            Event::ModelRestarted(call) => {
                let restart = &call.restart;
                Some((restart.attempt, restart.delay, restart.provider.clone()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(restarts, [(2, Duration::ZERO, None)], "a provider of the same name is no other service");

    // Later calls begin with the new key.
    assert_eq!(session.start(&agent, "And?").outcome().await.unwrap().text, "Again!");
    assert_eq!((hook.count(), old.attempts(), new.attempts()), (1, vec![1], vec![2, 1]));
}

#[tokio::test(start_paused = true)]
async fn cm10_a_service_that_refuses_every_key_is_asked_twice() {
    let played = Played::new([Err(refused()), Err(refused()), Err(refused()), Err(refused())]);
    // The same provider again: it reads its key again for each call.
    let hook = Hook::giving(Arc::clone(&played) as _);
    let model = hook.around(&played);
    let expected =
        ["restart 2 in 0ns: the key was refused; check it", "error: the key was refused; check it"];
    assert_eq!(read(&model, &CallContext::new()).await, expected);
    assert_eq!((hook.count(), played.asked().len()), (1, 2));
    // The next call has a refresh of its own.
    assert_eq!(read(&model, &CallContext::new()).await, expected);
    assert_eq!((hook.count(), played.asked().len()), (2, 4));
}

#[tokio::test(start_paused = true)]
async fn cm10_without_a_new_key_the_refusal_comes_as_it_is() {
    let played = Played::new([Err(refused()), Ok(vec![Err(refused())])]);
    let hook = Hook::failing();
    let model = hook.around(&played);
    assert_eq!(read(&model, &CallContext::new()).await, ["refused: the key was refused; check it"]);
    assert_eq!(read(&model, &CallContext::new()).await, ["error: the key was refused; check it"]);
    assert_eq!((hook.count(), played.asked().len()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn cm10_the_second_pass_has_all_its_retries() {
    let once = || Retry::new().with_retries(1);
    let old = Played::new([Err(busy()), Err(refused())]);
    let new = Played::named("other", [Err(busy()), says("Hello!")]);
    let hook = Hook::giving(once().layer(Arc::clone(&new) as _));
    let model = CredentialRefresh::new(hook.clone()).layer(once().layer(Arc::clone(&old) as _));
    let mut stream = model.stream(question(), &CallContext::new()).await.unwrap();
    let (mut lines, mut providers) = (Vec::new(), Vec::new());
    while let Some(item) = stream.next().await {
        if let Ok(Delta::Restart(restart)) = &item {
            providers.push(restart.provider.clone());
        }
        lines.push(line(&item));
    }
    let expected = [
        "restart 2 in 5s: no room",
        "restart 3 in 0ns: the key was refused; check it",
        "restart 4 in 5s: no room",
        "Hello!",
        "finish",
    ];
    assert_eq!(lines, expected);
    assert_eq!(providers, [None, Some("other".into()), None]);
    assert_eq!((old.attempts(), new.attempts()), (vec![1, 2], vec![3, 4]));
    assert_eq!(model.name(), "played");
}

#[tokio::test(start_paused = true)]
async fn cm10_nothing_is_renewed_for_another_error_or_after_output() {
    let forbidden = || Error::new(ErrorKind::PermissionDenied, "not yours");
    let played = Played::new([Err(forbidden()), breaks("Hel", refused())]);
    let hook = Hook::failing();
    let model = hook.around(&played);
    assert_eq!(read(&model, &CallContext::new()).await, ["refused: not yours"]);
    assert_eq!(read(&model, &CallContext::new()).await, ["Hel", "error: the key was refused; check it"]);
    assert_eq!(hook.count(), 0);

    // A delta that a restart voids is not output.
    let restart = Delta::Restart(Box::new(Restart::new(2, busy().record(), Duration::ZERO)));
    let voided = Ok(vec![Ok(Delta::text("Hel")), Ok(restart), Err(refused())]);
    let (old, new) = (Played::new([voided]), Played::new([says("Hello!")]));
    let hook = Hook::giving(Arc::clone(&new) as _);
    let lines = read(&hook.around(&old), &CallContext::new()).await;
    assert_eq!(lines.last().unwrap(), "finish");
    assert_eq!((hook.count(), new.attempts()), (1, vec![3]));
}

#[tokio::test(start_paused = true)]
async fn cm10_calls_that_fail_together_share_one_refresh() {
    let all = || (0..3).map(|_| -> Reply { Err(refused()) });
    for works in [true, false] {
        let gate = Gate::new();
        let (old, new) = (Played::new(all()), Played::new((0..3).map(|_| says("Hello!"))));
        let hook = if works { Hook::giving(Arc::clone(&new) as _) } else { Hook::failing() };
        let hook = hook.behind(&gate);
        let model = hook.around(&old);
        let calls = (0..3).map(|_| {
            let model = Arc::clone(&model);
            tokio::spawn(async move { read(&model, &CallContext::new()).await })
        });
        let calls: Vec<_> = calls.collect();
        while old.asked().len() < 3 {
            tokio::task::yield_now().await;
        }
        gate.arrived(1).await;
        gate.open();
        for lines in join_all(calls).await {
            let lines = lines.unwrap();
            let expected = if works { "finish" } else { "refused: the key was refused; check it" };
            assert_eq!(lines.last().unwrap(), expected);
        }
        assert_eq!((hook.count(), new.asked().len()), (1, if works { 3 } else { 0 }));
    }
}

#[tokio::test(start_paused = true)]
async fn cm10_a_late_failure_of_the_old_key_takes_the_new_one() {
    let (old, new) =
        (Played::new([Ok(vec![Err(refused())]), Err(refused())]), Played::new([says("a"), says("b")]));
    let hook = Hook::giving(Arc::clone(&new) as _);
    let model = hook.around(&old);
    let cx = CallContext::new();
    let late = model.stream(question(), &cx).await.unwrap();
    assert_eq!(read(&model, &cx).await.last().unwrap(), "finish");
    assert_eq!(lines(late).await, ["restart 2 in 0ns: the key was refused; check it", "b", "finish"]);
    assert_eq!(hook.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn cm10_a_call_that_goes_away_leaves_the_refresh_to_the_next() {
    let (old, new) = (Played::new([Err(refused()), Err(refused())]), Played::new([says("Hello!")]));
    let gate = Gate::new();
    let hook = Hook::giving(Arc::clone(&new) as _).behind(&gate);
    let model = hook.around(&old);
    let start = |cx: CallContext| {
        let model = Arc::clone(&model);
        tokio::spawn(async move { read(&model, &cx).await })
    };
    let cx = CallContext::new();
    let first = start(cx.clone());
    gate.arrived(1).await;
    let second = start(CallContext::new());
    while old.asked().len() < 2 {
        tokio::task::yield_now().await;
    }
    cx.cancel.cancel();
    assert_eq!(first.await.unwrap(), ["refused: the call or run was cancelled"]);
    gate.open();
    assert_eq!(second.await.unwrap().last().unwrap(), "finish");
    assert_eq!(hook.count(), 1, "the refresh in flight is the second call's too");
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_no_call_waits_for_is_dropped_and_the_next_call_begins_another() {
    let (old, new) = (Played::new([Err(refused()), Err(refused())]), Played::new([says("Hello!")]));
    let gate = Gate::new();
    let hook = Hook::giving(Arc::clone(&new) as _).behind(&gate);
    let model = hook.around(&old);
    let cx = CallContext::new();
    let mut first = Box::pin(model.stream(question(), &cx));
    assert!(futures_util::poll!(&mut first).is_pending());
    drop(first);
    gate.open();
    assert_eq!(read(&model, &CallContext::new()).await.last().unwrap(), "finish");
    assert_eq!(hook.count(), 2);
}

/// The refusal comes before there is a stream, and within one.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_kept_and_not_polled_holds_up_no_other_refresh() {
    for refusal in [Err(refused()), Ok(vec![Err(refused())])] {
        let (old, new) = (Played::new([refusal, Err(refused())]), Played::new([says("Hello!"), says("Hi!")]));
        let gate = Gate::new();
        let hook = Hook::giving(Arc::clone(&new) as _).behind(&gate);
        let model = hook.around(&old);
        let cx = CallContext::new();
        let mut kept = Box::pin(async { lines(model.stream(question(), &cx).await.unwrap()).await });
        assert!(futures_util::poll!(&mut kept).is_pending());
        gate.arrived(1).await;
        gate.open();
        let hang = Duration::from_secs(30);
        let other = tokio::time::timeout(hang, read(&model, &CallContext::new())).await;
        assert_eq!(other.expect("the kept call blocks this one").last().unwrap(), "finish");
        assert_eq!(kept.await.last().unwrap(), "finish");
        assert_eq!((hook.count(), new.asked().len()), (1, 2));
    }
}

#[derive(Debug)]
struct Panics;

#[async_trait]
impl Refresh for Panics {
    async fn refresh(&self, _: &Error, _: &Arc<dyn Provider>) -> Result<Arc<dyn Provider>> {
        panic!("the hook is broken")
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_panics_counts_as_one_that_fails() {
    let played = Played::new([Err(refused()), Err(refused())]);
    let model = CredentialRefresh::new(Panics).layer(Arc::clone(&played) as _);
    for _ in 0..2 {
        assert_eq!(read(&model, &CallContext::new()).await, ["refused: the key was refused; check it"]);
    }
}

#[tokio::test(start_paused = true)]
async fn cm10_the_deadline_counts_both_passes() {
    let (old, new) = (Played::new([Err(busy()), Err(refused())]), Played::new([says("Hello!")]));
    let hook = Hook::giving(Arc::clone(&new) as _);
    let model = CredentialRefresh::new(hook).layer(Retry::new().layer(Arc::clone(&old) as _));
    let mut cx = CallContext::new();
    cx.timeout = Some(Duration::from_secs(30));
    read(&model, &cx).await;
    assert_eq!(new.asked()[0].timeout, Some(Duration::from_secs(25)));
}

#[tokio::test]
async fn cm10_the_layer_shows_what_it_wraps() {
    let (old, new) = (Played::named("old", [Err(refused())]), Played::named("new", [Err(busy())]));
    let model = Hook::giving(Arc::clone(&new) as _).around(&old);
    assert_eq!(model.name(), "old");
    assert!(format!("{model:?}").contains("inner: Played { name: \"old\""), "{model:?}");
    assert_eq!(error_of(&model, &CallContext::new()).await.kind(), ErrorKind::Overloaded);
    assert!(format!("{model:?}").contains("inner: Played { name: \"new\""), "{model:?}");
}
