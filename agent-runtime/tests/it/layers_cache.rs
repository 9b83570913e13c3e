//! The response cache: an equal request gets an equal answer.

use std::{sync::Arc, time::Duration};

use entourage_core::{
    ErrorKind, Money, Usage,
    budget::{Budget, BudgetLimits},
    message::Message,
    provider::{
        CallContext, Delta, FinishReason, Layer, Params, Provider, RateLimits, Request, ResponseInfo,
        Restart, Warning, WarningKind,
    },
};
use entourage_runtime::layers::{BudgetLayer, ResponseCache};
use entourage_runtime::reply::ProviderExt;
use entourage_testkit::{Script, ScriptedProvider};
use futures_util::StreamExt;
use serde_json::json;

use crate::layers_common::{all, hello, saying};

async fn ask(provider: &Arc<dyn Provider>, request: Request) -> String {
    provider.complete(request, &CallContext::new()).await.unwrap().into_message().text()
}

fn warm(temperature: f64) -> Params {
    let mut params = Params::default();
    params.temperature = Some(temperature);
    params
}

#[tokio::test]
async fn an_equal_request_is_answered_without_asking() {
    let service =
        ["one", "two", "three", "four"].into_iter().fold(ScriptedProvider::new(), ScriptedProvider::text);
    let cache = ResponseCache::new();
    let provider = cache.clone().layer(service.provider());
    assert_eq!(provider.name(), "scripted");
    assert_eq!(ask(&provider, hello("m")).await, "one");
    assert_eq!(ask(&provider, hello("m")).await, "one");
    // Facts about the model are not part of the question.
    assert_eq!(ask(&provider, hello("m").with_profile(crate::layers_common::priced(1, 2))).await, "one");
    assert_eq!(ask(&provider, hello("other")).await, "two");
    assert_eq!(ask(&provider, hello("m").with_instructions("be brief")).await, "three");
    let mut longer = hello("m");
    longer.messages.push(Message::assistant("one"));
    assert_eq!(ask(&provider, longer).await, "four");
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.entries, service.count()), (2, 4, 4, 4));
    // Another service of another name is asked for itself.
    let other = ScriptedProvider::named("other").text("five");
    assert_eq!(ask(&cache.layer(other.provider()), hello("m")).await, "five");
}

#[tokio::test]
async fn a_played_reply_is_what_came_at_no_cost() {
    let mut info = ResponseInfo::new(Some("r1".into()), None);
    info.limits = Some(Box::new(RateLimits::default()));
    let warning = Delta::Warning(Box::new(Warning::new(WarningKind::Setting, "top_k", "left out")));
    let error = entourage_core::Error::new(ErrorKind::Overloaded, "busy").record();
    let script = Script::new()
        .delta(warning.clone())
        .usage(9, 9)
        .text("void")
        .delta(Delta::Restart(Box::new(Restart::new(2, error, Duration::ZERO))))
        .delta(Delta::Response(Box::new(info)))
        .text("He")
        .text("llo")
        .call("look", &json!({"at": 1}))
        .finish(FinishReason::ToolCalls)
        .usage(100, 7);
    let service = ScriptedProvider::new().step(script);
    let provider = ResponseCache::new().layer(service.provider());
    let first = provider.complete(hello("m"), &CallContext::new()).await.unwrap();
    let items = all(provider.stream(hello("m"), &CallContext::new()).await.unwrap()).await;
    let played: Vec<_> = items.into_iter().map(Result::unwrap).collect();
    let mut usage = Usage::new(100, 7);
    usage.cost = Some(Money::default());
    assert_eq!(
        played,
        [
            warning,
            Delta::Response(Box::new(ResponseInfo::new(Some("r1".into()), None))),
            Delta::text("He"),
            Delta::text("llo"),
            Delta::tool_call(0, "call_0", "look"),
            Delta::arguments(0, "{\"at\":1}"),
            Delta::Usage(Box::new(usage)),
            Delta::finish(FinishReason::ToolCalls),
        ]
    );
    let second = provider.complete(hello("m"), &CallContext::new()).await.unwrap();
    assert_eq!(first.into_message(), second.into_message());
}

#[tokio::test]
async fn only_finished_replies_are_kept() {
    let bad = [
        Script::refuse(ErrorKind::Overloaded, "busy"),
        Script::new().text("half").fail(ErrorKind::Transport, "gone"),
        Script::new().text("half"),
        Script::new().text("long").finish(FinishReason::Length),
        Script::new().text("no").finish(FinishReason::Refusal),
        Script::new().text("no").finish(FinishReason::ContentFilter),
        Script::new().text("x").finish(FinishReason::Stop).fail(ErrorKind::Transport, "gone after all"),
    ];
    let count = bad.len();
    let service = bad.into_iter().fold(ScriptedProvider::new(), ScriptedProvider::step);
    let service = service.text("dropped").text("good");
    let cache = ResponseCache::new();
    let provider = cache.clone().layer(service.provider());
    for _ in 0..count {
        if let Ok(stream) = provider.stream(hello("m"), &CallContext::new()).await {
            all(stream).await;
        }
    }
    let mut stream = provider.stream(hello("m"), &CallContext::new()).await.unwrap();
    stream.next().await;
    drop(stream);
    assert_eq!(cache.stats().entries, 0);
    assert_eq!(ask(&provider, hello("m")).await, "good");
    assert_eq!(ask(&provider, hello("m")).await, "good");
    let cx = CallContext::new();
    cx.cancel.cancel();
    let error = provider.complete(hello("m"), &cx).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
}

#[tokio::test]
async fn a_request_for_variety_passes_by() {
    let service = (0..7).fold(ScriptedProvider::new(), |service, n| service.text(n.to_string()));
    let cache = ResponseCache::new();
    let provider = cache.clone().layer(service.provider());
    let warmed = || hello("m").with_params(warm(0.7));
    assert_eq!((ask(&provider, warmed()).await, ask(&provider, warmed()).await), ("0".into(), "1".into()));
    let cold = || hello("m").with_params(warm(0.0));
    assert_eq!((ask(&provider, cold()).await, ask(&provider, cold()).await), ("2".into(), "2".into()));
    let mut seeded = warm(0.7);
    seeded.seed = Some(1);
    let seeded = || hello("m").with_params(seeded.clone());
    assert_eq!((ask(&provider, seeded()).await, ask(&provider, seeded()).await), ("3".into(), "3".into()));
    // Another rule replaces the default.
    let all = ResponseCache::new().only_when(|request| &*request.model == "m").layer(service.provider());
    assert_eq!((ask(&all, warmed()).await, ask(&all, warmed()).await), ("4".into(), "4".into()));
    assert_eq!((ask(&all, hello("n")).await, ask(&all, hello("n")).await), ("5".into(), "6".into()));
}

#[tokio::test]
async fn replies_with_tool_calls_can_be_left_out() {
    let service = ScriptedProvider::new().call("look", json!({})).call("look", json!({})).text("hi");
    let cache = ResponseCache::new().without_tool_calls();
    let provider = cache.clone().layer(service.provider());
    for _ in 0..2 {
        provider.complete(hello("m"), &CallContext::new()).await.unwrap();
    }
    assert_eq!(cache.stats().entries, 0);
    assert_eq!(
        (ask(&provider, hello("m")).await, ask(&provider, hello("m")).await),
        ("hi".into(), "hi".into())
    );
}

#[tokio::test]
async fn the_longest_unused_goes_first() {
    let service =
        ["a", "b", "c", "b again"].into_iter().fold(ScriptedProvider::new(), ScriptedProvider::text);
    let cache = ResponseCache::with_bounds(2, 10_000);
    let provider = cache.clone().layer(service.provider());
    for (model, text) in [("a", "a"), ("b", "b"), ("a", "a"), ("c", "c"), ("a", "a"), ("b", "b again")] {
        assert_eq!(ask(&provider, hello(model)).await, text);
    }
    assert_eq!(cache.stats().entries, 2);
    cache.clear();
    assert_eq!((cache.stats().entries, cache.stats().bytes), (0, 0));
}

#[tokio::test]
async fn bytes_are_bounded() {
    let long = "x".repeat(400);
    let (large, small) = ("y".repeat(2_000), "z");
    let service = ScriptedProvider::new().text(&long).text(&long).text(&long).text(&large).text(small);
    let cache = ResponseCache::with_bounds(100, 1_200);
    let provider = cache.clone().layer(service.provider());
    for model in ["a", "b", "c"] {
        ask(&provider, hello(model)).await;
        assert!(cache.stats().bytes <= 1_200, "{:?}", cache.stats());
    }
    assert_eq!(cache.stats().entries, 2);
    // Too large for all of it: passed on, not kept, and nothing else goes for it.
    assert_eq!(ask(&provider, hello("d")).await, large);
    assert_eq!(cache.stats().entries, 2);
    ask(&provider, hello("e")).await;
    assert_eq!(cache.stats().entries, 3);
}

#[tokio::test(start_paused = true)]
async fn old_replies_are_forgotten() {
    let service = ScriptedProvider::new().text("old").text("new");
    let provider = ResponseCache::new().with_max_age(Duration::from_secs(60)).layer(service.provider());
    assert_eq!(ask(&provider, hello("m")).await, "old");
    tokio::time::advance(Duration::from_secs(59)).await;
    assert_eq!(ask(&provider, hello("m")).await, "old");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(ask(&provider, hello("m")).await, "new");
}

#[tokio::test]
async fn a_played_reply_is_no_call_of_the_budget_below() {
    let service = ScriptedProvider::new().step(saying("hi"));
    let budget = Budget::new(BudgetLimits::none().with_model_calls(1));
    let provider = ResponseCache::new().layer(BudgetLayer::new(&budget, "a").layer(service.provider()));
    for _ in 0..3 {
        assert_eq!(ask(&provider, hello("m")).await, "hi");
    }
    assert_eq!(budget.spent().model_calls, 1);
}
