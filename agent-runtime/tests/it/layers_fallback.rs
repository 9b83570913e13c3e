//! The fallback layer: another model when one cannot begin, and the resulting savings.

use std::{sync::Arc, time::Duration};

use entourage_core::{
    ErrorKind, Money, RetryStatus, Usage,
    provider::{CallContext, Delta, Egress, FinishReason, Model, Params, Profile},
};
use entourage_runners::ReactAgent;
use entourage_runtime::reply::ProviderExt;
use entourage_runtime::{
    AgentExt,
    layers::{self, Fallback, ModelChoice, Tier, UsageReport},
};
use entourage_testkit::{Script, ScriptedProvider};
use futures_util::StreamExt;
use serde_json::json;

use crate::layers_common::{Clocked, all, hello, priced, saying, spawn, up_to};

fn model(service: &ScriptedProvider, name: &str) -> Model {
    Model::new(service.provider(), name)
}

fn choice(service: &ScriptedProvider, name: &str, tier: Tier) -> ModelChoice {
    ModelChoice::new(model(service, name), tier)
}

fn refusing(kind: ErrorKind) -> ScriptedProvider {
    ScriptedProvider::named("far").fail(kind, "no")
}

#[tokio::test]
async fn ai06_same_tier_first_then_lower_ones_then_local() {
    let services: Vec<_> = ["large", "medium 1", "medium 2", "small", "local"]
        .into_iter()
        .map(|_| ScriptedProvider::named("service").fail(ErrorKind::Overloaded, "no room"))
        .collect();
    let first = refusing(ErrorKind::Overloaded);
    let [large, medium, other, small, local] = services.as_slice() else { panic!() };
    let fallback = Fallback::to([
        choice(local, "local", Tier::Local),
        choice(medium, "medium 1", Tier::Medium),
        choice(large, "large", Tier::Large),
        choice(small, "small", Tier::Small),
        choice(other, "medium 2", Tier::Medium),
    ])
    .with_primary(Tier::Medium);
    let provider = Arc::clone(model(&first, "wanted").layer(fallback).provider());
    assert_eq!(provider.name(), "far");
    let items = all(provider.stream(hello("wanted"), &CallContext::new()).await.unwrap()).await;
    let order: Vec<_> = items
        .iter()
        .filter_map(|item| match item {
            Ok(Delta::Restart(restart)) => Some((restart.attempt, restart.model.clone()?.to_string())),
            _ => None,
        })
        .collect();
    let named = |names: [&str; 4]| (2..).zip(names.map(str::to_owned)).collect::<Vec<_>>();
    assert_eq!(order, named(["medium 1", "medium 2", "small", "local"]));
    // None is left: all causes, and the large one was never asked.
    let error = items.last().unwrap().as_ref().unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Overloaded, RetryStatus::Temporary));
    for name in
        ["far:wanted: no", "service:medium 1: no room", "service:medium 2", "service:small", "service:local"]
    {
        assert!(error.message().contains(name), "{error}");
    }
    assert_eq!((items.len(), large.count()), (5, 0));
    assert!(large.provider().stream(hello("left over"), &CallContext::new()).await.is_err());
}

#[tokio::test]
async fn ai06_the_next_model_is_asked_in_its_own_terms() {
    let (first, second) = (refusing(ErrorKind::NotFound), ScriptedProvider::named("near").step(saying("hi")));
    let mut own = Params::default();
    own.top_p = Some(0.5);
    let mut profile = priced(1, 2);
    profile.max_output = Some(100);
    let next = model(&second, "small").with_params(own).with_profile(profile.clone());
    let fallback = Fallback::to([ModelChoice::new(next, Tier::Small)]);
    let provider = Arc::clone(model(&first, "large").layer(fallback).provider());
    let mut params = up_to(5_000);
    (params.temperature, params.top_p, params.extra) = (Some(0.1), Some(0.9), Some(json!({"theirs": 1})));
    let request = hello("large").with_params(params).with_instructions("be brief");
    let cx = CallContext::new().with_attempt(4);
    let items = all(provider.stream(request, &cx).await.unwrap()).await;
    let Ok(Delta::Restart(restart)) = &items[0] else { panic!("{items:?}") };
    assert_eq!(
        (restart.attempt, restart.delay, restart.error.kind),
        (5, Duration::ZERO, ErrorKind::NotFound)
    );
    assert_eq!((restart.provider.as_deref(), restart.model.as_deref()), (Some("near"), Some("small")));
    let asked = &second.requests()[0];
    assert_eq!((&*asked.model, &*asked.instructions, &*asked.profile), ("small", "be brief", &profile));
    let params = &asked.params;
    assert_eq!((params.temperature, params.top_p, params.max_output), (Some(0.1), Some(0.5), Some(100)));
    assert_eq!(params.extra, None, "another service does not know it");
}

#[tokio::test]
async fn ai06_what_fails_anywhere_is_not_tried_elsewhere() {
    let kinds = [
        (ErrorKind::NotFound, true),
        (ErrorKind::Authentication, true),
        (ErrorKind::PermissionDenied, true),
        (ErrorKind::RateLimited, true),
        (ErrorKind::Overloaded, true),
        (ErrorKind::Timeout, true),
        (ErrorKind::Transport, true),
        (ErrorKind::Protocol, true),
        (ErrorKind::Unsupported, true),
        (ErrorKind::InvalidInput, false),
        (ErrorKind::ContentFiltered, false),
        (ErrorKind::ContextOverflow, false),
        (ErrorKind::TooLarge, false),
        (ErrorKind::BudgetExceeded, false),
        (ErrorKind::Cancelled, false),
        (ErrorKind::Config, false),
        (ErrorKind::Internal, false),
    ];
    for (kind, helps) in kinds {
        let first = refusing(kind);
        let second = if helps { ScriptedProvider::new().step(saying("hi")) } else { ScriptedProvider::new() };
        let fallback = Fallback::to([choice(&second, "small", Tier::Small)]);
        let layered = model(&first, "large").layer(fallback);
        let answer = layered.provider().complete(hello("large"), &CallContext::new()).await;
        match answer {
            Ok(_) => assert!(helps, "{kind:?}"),
            Err(error) => assert_eq!((error.kind(), error.message(), helps), (kind, "no", false)),
        }
    }
    // Where hosts are restricted, a refusal is not to be got round.
    let (first, second) = (refusing(ErrorKind::PermissionDenied), ScriptedProvider::new());
    let layered = model(&first, "large").layer(Fallback::to([choice(&second, "small", Tier::Small)]));
    let cx = CallContext::new().with_egress(Egress::Loopback);
    let error = layered.provider().complete(hello("large"), &cx).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
}

#[tokio::test]
async fn ai06_a_reply_of_which_something_was_shown_is_never_left() {
    let start = |script: Script| (ScriptedProvider::named("far").step(script), ScriptedProvider::new());
    for shown in [
        Script::new().text("We").fail(ErrorKind::Transport, "gone"),
        Script::new().reasoning("Hm").fail(ErrorKind::Transport, "gone"),
        Script::new().call("look", &json!({})).fail(ErrorKind::Transport, "gone"),
    ] {
        let (first, second) = start(shown);
        let layered = model(&first, "large").layer(Fallback::to([choice(&second, "small", Tier::Small)]));
        let error = layered.provider().complete(hello("large"), &CallContext::new()).await.unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Transport, "gone"));
    }
    for hidden in [
        Script::new().usage(10, 0).fail(ErrorKind::Transport, "gone"),
        Script::new().text("").fail(ErrorKind::Transport, "gone"),
        Script::new().usage(10, 0),
        Script::new(),
    ] {
        let (first, second) = start(hidden);
        let second = second.step(saying("hi"));
        let layered = model(&first, "large").layer(Fallback::to([choice(&second, "small", Tier::Small)]));
        let reply = layered.provider().complete(hello("large"), &CallContext::new()).await.unwrap();
        assert_eq!((reply.restarts.len(), reply.into_message().text()), (1, "hi".into()));
    }
    // A reply that was cut off after something was shown stays cut off.
    let (first, second) = start(Script::new().text("We"));
    let layered = model(&first, "large").layer(Fallback::to([choice(&second, "small", Tier::Small)]));
    let items = all(layered.stream(hello("large"), &CallContext::new()).await.unwrap()).await;
    assert_eq!(items.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn ai06_nobody_else_is_asked_once_the_time_is_over_or_the_call_cancelled() {
    let slow = || Script::new().delay(Duration::from_secs(10)).fail(ErrorKind::Overloaded, "no room");
    let (first, second) = (ScriptedProvider::named("far").step(slow()).step(slow()), ScriptedProvider::new());
    let layered = model(&first, "large").layer(Fallback::to([choice(&second, "small", Tier::Small)]));
    let mut cx = CallContext::new();
    cx.timeout = Some(Duration::from_secs(10));
    let error = layered.provider().complete(hello("large"), &cx).await.unwrap_err();
    assert_eq!((error.kind(), second.count()), (ErrorKind::Overloaded, 0));
    let cx = CallContext::new();
    let call = spawn(layered.provider(), hello("large"), &cx);
    tokio::time::advance(Duration::from_secs(5)).await;
    cx.cancel.cancel();
    assert_eq!(call.await.unwrap().unwrap_err().kind(), ErrorKind::Overloaded);
    assert_eq!(layered.stream(hello("large"), &cx).await.err().unwrap().kind(), ErrorKind::Cancelled);
}

#[tokio::test]
async fn ai06_a_later_failure_that_would_come_anywhere_ends_the_chain() {
    let (first, second, third) =
        (refusing(ErrorKind::RateLimited), ScriptedProvider::named("near"), ScriptedProvider::new());
    let second = second.fail(ErrorKind::InvalidInput, "a bad schema");
    let choices = [choice(&second, "small", Tier::Small), choice(&third, "local", Tier::Local)];
    let layered = model(&first, "large").layer(Fallback::to(choices));
    let error = layered.provider().complete(hello("large"), &CallContext::new()).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::InvalidInput, RetryStatus::Permanent));
    assert!(
        error.message().contains("far:large: no") && error.message().contains("near:small: a bad schema")
    );
}

/// Model, calls, failures, tokens in and cost.
type Figures = (String, u64, u64, Option<u64>, Option<u64>);

fn usage(report: &UsageReport) -> Vec<Figures> {
    let each = report.models.iter();
    each.map(|it| {
        (it.model.to_string(), it.calls, it.failures, it.usage.input, it.usage.cost.map(Money::as_pico))
    })
    .collect()
}

#[tokio::test]
async fn ai06_figures_of_each_model_and_what_was_saved() {
    let reply = || Script::new().text("ok").usage(100, 10).finish(FinishReason::Stop);
    let first = ScriptedProvider::named("far")
        .step(reply())
        .fail(ErrorKind::Overloaded, "")
        .fail(ErrorKind::Timeout, "");
    let second = ScriptedProvider::named("near").step(reply()).fail(ErrorKind::Overloaded, "");
    let local = ScriptedProvider::named("here").step(reply());
    let small = model(&second, "small").with_profile(priced(1, 5));
    let fallback = Fallback::to([ModelChoice::new(small, Tier::Small), choice(&local, "local", Tier::Local)]);
    let stats = fallback.stats();
    assert_eq!((stats.report().saved_percent(), stats.report().models.len()), (0, 0));
    let layered = model(&first, "large").with_profile(priced(3, 15)).layer(fallback);
    let ask = async || {
        let request = layered.request(hello("large").messages);
        layered.provider().complete(request, &CallContext::new()).await.unwrap()
    };
    assert_eq!(ask().await.usage.cost, Some(Money::from_pico(450)));
    let second_reply = ask().await;
    let mut told = Usage::new(100, 10);
    told.cost = Some(Money::from_pico(150));
    assert_eq!(second_reply.usage, told, "at the prices of the model that answered");
    assert_eq!(ask().await.usage.cost, Some(Money::default()), "a local model costs nothing");
    let report = stats.report();
    assert_eq!(
        usage(&report),
        [
            ("large".into(), 3, 2, Some(100), Some(450)),
            ("local".into(), 1, 0, Some(100), Some(0)),
            ("small".into(), 2, 1, Some(100), Some(150)),
        ]
    );
    assert_eq!((report.baseline, report.compared), (Money::from_pico(1_350), Money::from_pico(600)));
    assert_eq!((report.saved(), report.saved_percent(), report.incomparable), (Money::from_pico(750), 55, 0));
    let stored: UsageReport = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
    assert_eq!(stored, report);
}

#[tokio::test]
async fn ai06_unknown_costs_are_excluded_from_the_comparison() {
    let reply = || Script::new().text("ok").usage(100, 10).finish(FinishReason::Stop);
    let service = ScriptedProvider::new().step(reply()).step(saying("no usage")).step(reply());
    let fallback = Fallback::to([]);
    let stats = fallback.stats();
    let layered = model(&service, "large").layer(fallback);
    // No prices at all, then no usage either.
    for _ in 0..2 {
        layered.provider().complete(hello("large"), &CallContext::new()).await.unwrap();
    }
    let report = stats.report();
    assert_eq!((report.baseline, report.saved_percent(), report.incomparable), (Money::default(), 0, 2));
    assert_eq!(report.models[0].unpriced, 2);
    // Dropped on the way: counted, and as a failure.
    let request = hello("large").with_profile(priced(3, 15));
    let mut stream = layered.stream(request, &CallContext::new()).await.unwrap();
    stream.next().await;
    drop(stream);
    assert_eq!((stats.report().models[0].calls, stats.report().models[0].failures), (3, 1));
}

#[tokio::test]
async fn ai06_a_run_tells_which_model_answered_and_what_it_cost() {
    let (first, second) = (refusing(ErrorKind::Overloaded), ScriptedProvider::named("near").text("Hello!"));
    let small = model(&second, "small").with_profile(priced(1, 5));
    let mut dear = Profile::default();
    dear.prices = priced(3, 15).prices;
    let layered =
        model(&first, "large").with_profile(dear).layer(Fallback::to([ModelChoice::new(small, Tier::Small)]));
    let agent = ReactAgent::builder("a", layered).build().unwrap();
    assert_eq!(agent.ask("Hello?").await.unwrap(), "Hello!");
    assert_eq!(second.requests()[0].model.as_ref(), "small");
}

#[tokio::test(start_paused = true)]
async fn ai06_later_models_are_told_how_much_time_is_left() {
    let slow = Script::new().delay(Duration::from_secs(10)).fail(ErrorKind::Overloaded, "no room");
    let first = ScriptedProvider::named("far").step(slow);
    let second = ScriptedProvider::named("near").step(saying("hi"));
    let clocked = Clocked::new(second.provider());
    let next = ModelChoice::new(Model::new(Arc::clone(&clocked) as _, "small"), Tier::Small);
    let layered = model(&first, "large").layer(Fallback::to([next]));
    let mut cx = CallContext::new();
    cx.timeout = Some(Duration::from_secs(25));
    layered.provider().complete(hello("large"), &cx).await.unwrap();
    assert_eq!(clocked.told(), [(2, Some(15))]);
}

#[tokio::test]
async fn ai06_attempt_numbers_go_on_after_retries_inside() {
    let busy = |service: ScriptedProvider| service.fail(ErrorKind::Overloaded, "no room");
    let first = busy(busy(ScriptedProvider::named("far")));
    let second = busy(ScriptedProvider::named("near")).text("hi");
    let once = || layers::Retry::new().with_retries(1).with_first_delay(Duration::ZERO);
    let next = ModelChoice::new(model(&second, "small").layer(once()), Tier::Small);
    let layered = model(&first, "large").layer(once()).layer(Fallback::to([next]));
    let items = all(layered.stream(hello("large"), &CallContext::new()).await.unwrap()).await;
    let attempts: Vec<_> = items
        .iter()
        .filter_map(|item| match item {
            Ok(Delta::Restart(restart)) => Some((restart.attempt, restart.model.as_deref())),
            _ => None,
        })
        .collect();
    assert_eq!(attempts, [(2, None), (3, Some("small")), (4, None)]);
}
