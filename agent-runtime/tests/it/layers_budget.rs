//! Model calls charged to a budget.

use std::{sync::Arc, time::Duration};

use entourage_core::{
    ErrorKind, Money, Prices, Usage,
    budget::{Budget, BudgetLimits, Spend},
    provider::{CallContext, Delta, FinishReason, Layer, Profile, PromptCache, Provider, Request},
};
use entourage_runners::ReactAgent;
use entourage_runtime::{
    AgentExt,
    layers::{BudgetLayer, Retry},
};
use entourage_testkit::{Gate, Script, ScriptedProvider};
use futures_util::StreamExt;
use tokio::time::Instant;

use crate::layers_common::{Clocked, all, behind, hello, priced, saying, settle_until, spawn, up_to};

const DOLLAR: Money = Money::from_pico(1_000_000_000_000);

/// A request of 2 tokens in at 3, at most 100 out at 15: 1,506 pico-dollars.
fn request() -> Request {
    hello("m").with_profile(priced(3, 15)).with_params(up_to(100))
}

fn spent(tokens: u64, pico: u64, model_calls: u64) -> Spend {
    let mut spend = Spend::default();
    (spend.tokens, spend.money, spend.model_calls) = (tokens, Money::from_pico(pico), model_calls);
    spend
}

/// The spend of one call of `script`, dropped after `take` deltas.
async fn costs(script: Script, take: usize) -> Spend {
    let service = ScriptedProvider::new().step(script);
    let budget = Budget::new(BudgetLimits::none().with_money(DOLLAR));
    let provider = BudgetLayer::new(&budget, "scout").layer(service.provider());
    if let Ok(mut stream) = provider.stream(request(), &CallContext::new()).await {
        assert_eq!(budget.reserved(), spent(102, 1_506, 1));
        for _ in 0..take {
            stream.next().await;
        }
    }
    assert_eq!(budget.reserved(), Spend::default());
    assert_eq!(budget.report().get("scout").copied().unwrap_or_default(), budget.spent());
    budget.spent()
}

#[tokio::test]
async fn design_7_a_call_is_settled_at_what_it_used() {
    let reply = || Script::new().text("Well, hello").usage(40, 10);
    let done = usize::MAX >> 48;
    let cases = [
        ("finished", reply().finish(FinishReason::Stop), done, spent(50, 270, 1)),
        ("dropped after its end", reply().finish(FinishReason::Stop), 3, spent(50, 270, 1)),
        ("broken off", reply().fail(ErrorKind::Transport, "gone"), done, spent(50, 270, 1)),
        ("cut off", reply(), done, spent(50, 270, 1)),
        // 11 bytes came: 3 tokens.
        ("finished, unreported", saying("Well, hello"), done, spent(5, 51, 1)),
        (
            "finished, zeros",
            Script::new().text("Well, hello").usage(0, 0).finish(FinishReason::Stop),
            done,
            spent(5, 51, 1),
        ),
        (
            "broken off, unreported",
            Script::new().text("We").fail(ErrorKind::Transport, ""),
            done,
            spent(102, 1_506, 1),
        ),
        ("dropped, unreported", saying("Well, hello"), 1, spent(102, 1_506, 1)),
        ("dropped at once", saying("Well, hello"), 0, spent(102, 1_506, 1)),
        (
            "broken off after a first figure",
            Script::new().usage(40, 1).text("Well, hello"),
            done,
            spent(43, 165, 1),
        ),
        ("refused", Script::refuse(ErrorKind::RateLimited, "slow down"), done, spent(0, 0, 1)),
        ("refused in the stream", Script::new().fail(ErrorKind::Overloaded, "busy"), done, spent(0, 0, 1)),
        ("never left", Script::refuse(ErrorKind::Config, "no address"), done, spent(0, 0, 0)),
        ("unknown", Script::refuse(ErrorKind::Timeout, "silence"), done, spent(102, 1_506, 1)),
    ];
    for (name, script, take, expected) in cases {
        assert_eq!(costs(script, take).await, expected, "{name}");
    }
}

#[tokio::test]
async fn design_7_a_restart_inside_is_paid_for_twice() {
    let failed = Script::new().usage(40, 10).text("half").fail(ErrorKind::Overloaded, "busy");
    let service =
        ScriptedProvider::new().step(failed).step(Script::new().usage(40, 20).finish(FinishReason::Stop));
    let budget = Budget::new(BudgetLimits::none());
    let retry = Retry::new().with_first_delay(Duration::ZERO);
    let provider = BudgetLayer::new(&budget, "a").layer(retry.layer(service.provider()));
    all(provider.stream(request(), &CallContext::new()).await.unwrap()).await;
    assert_eq!(budget.spent(), spent(110, 80 * 3 + 30 * 15, 1));
}

#[tokio::test]
async fn cc01_the_service_own_figure_goes_first_and_a_flat_rate_costs_nothing() {
    let mut usage = Usage::new(1_000, 100);
    (usage.cache_read, usage.cache_write) = (Some(500), Some(200));
    let mut told = usage;
    told.cost = Some(Money::from_pico(77));
    let mut prices = Prices::per_million_micros(3, 15);
    (prices.cache_read, prices.cache_write) = (Some(1), Some(4));
    for (usage, prices, pico) in [
        (usage, Some(prices.clone()), 300 * 3 + 500 + 200 * 4 + 100 * 15),
        (told, Some(prices), 77),
        (told, None, 77),
        (usage, Some(Prices::flat_rate()), 0),
    ] {
        let reply = Script::new().delta(Delta::Usage(Box::new(usage))).finish(FinishReason::Stop);
        let service = ScriptedProvider::new().step(reply);
        let budget = Budget::new(BudgetLimits::none());
        let mut profile = Profile::default();
        profile.prices = prices;
        let provider = BudgetLayer::new(&budget, "a").layer(service.provider());
        all(provider.stream(hello("m").with_profile(profile), &CallContext::new()).await.unwrap()).await;
        assert_eq!(budget.spent(), spent(1_100, pico, 1));
    }
}

#[tokio::test]
async fn design_7_an_unknown_price_is_refused_where_money_is_bounded() {
    let service = ScriptedProvider::new().text("hi");
    let root = Budget::new(BudgetLimits::none().with_money(DOLLAR));
    let provider = BudgetLayer::new(&root.child(BudgetLimits::none()), "a").layer(service.provider());
    let Err(error) = provider.stream(hello("m"), &CallContext::new()).await else { panic!("it was sent") };
    assert_eq!((error.kind(), service.count()), (ErrorKind::BudgetExceeded, 0));
    assert_eq!(root.spent(), Spend::default());
    // Without a bound on money the call goes on, and is counted as unpriced.
    let open = Budget::new(BudgetLimits::none().with_tokens(100_000));
    let provider = BudgetLayer::new(&open, "a").layer(service.provider());
    all(provider.stream(hello("m"), &CallContext::new()).await.unwrap()).await;
    assert_eq!((open.spent().tokens, open.spent().unpriced), (15, 1));
}

#[tokio::test]
async fn design_7_the_estimate_takes_the_worst_that_is_stated() {
    let gate = Gate::new();
    let mut profile = priced(3, 15);
    let mut cached = up_to(100);
    cached.cache = Some(PromptCache::Short);
    profile.prices.as_mut().unwrap().cache_write = Some(10);
    let mut bounded = priced(3, 15);
    bounded.max_output = Some(200);
    for (request, expected, reserved) in [
        (hello("m").with_profile(priced(3, 15)), None, spent(4_098, 6 + 4_096 * 15, 1)),
        (hello("m").with_profile(bounded.clone()), None, spent(202, 6 + 200 * 15, 1)),
        (hello("m").with_profile(bounded.clone()).with_params(up_to(0)), None, spent(202, 6 + 200 * 15, 1)),
        // No more than the model gives, and no more than was asked for.
        (
            hello("m").with_profile(bounded.clone()).with_params(up_to(16_000)),
            None,
            spent(202, 6 + 200 * 15, 1),
        ),
        (
            hello("m").with_profile(bounded.clone()).with_params(up_to(16_000)),
            Some(500),
            spent(202, 6 + 200 * 15, 1),
        ),
        (hello("m").with_profile(bounded.clone()).with_params(up_to(50)), None, spent(52, 6 + 50 * 15, 1)),
        (hello("m").with_profile(bounded.clone()), Some(50), spent(52, 6 + 50 * 15, 1)),
        (hello("m").with_profile(bounded), Some(500), spent(202, 6 + 200 * 15, 1)),
        (hello("m").with_profile(profile).with_params(cached), None, spent(102, 2 * 10 + 100 * 15, 1)),
    ] {
        let service = ScriptedProvider::new().step(behind(&gate));
        let budget = Budget::new(BudgetLimits::none());
        let layer = BudgetLayer::new(&budget, "a");
        let layer = match expected {
            Some(tokens) => layer.expecting_output(tokens),
            None => layer,
        };
        let stream = layer.layer(service.provider()).stream(request, &CallContext::new()).await.unwrap();
        assert_eq!(budget.reserved(), reserved);
        drop(stream);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn design_7_parallel_calls_never_reserve_more_than_there_is() {
    let gate = Gate::new();
    let service = (0..3).fold(ScriptedProvider::new(), |service, _| service.step(behind(&gate)));
    // Room for 3 calls of up to 1,506 each.
    let root = Budget::new(BudgetLimits::none().with_money(Money::from_pico(5_000)));
    let calls: Vec<_> = (0..40)
        .map(|n| {
            let child = root.child(BudgetLimits::none());
            let provider = BudgetLayer::new(&child, format!("agent {}", n % 4)).layer(service.provider());
            spawn(&provider, request(), &CallContext::new())
        })
        .collect();
    gate.arrived(3).await;
    let refused = || calls.iter().filter(|call| call.is_finished()).count();
    while refused() < 37 {
        tokio::task::yield_now().await;
    }
    assert_eq!((root.reserved().model_calls, service.count()), (3, 3));
    gate.open();
    let mut done = 0;
    for call in calls {
        match call.await.unwrap() {
            Ok(_) => done += 1,
            Err(error) => assert_eq!(error.kind(), ErrorKind::BudgetExceeded),
        }
    }
    assert_eq!((done, root.spent().model_calls, root.reserved()), (3, 3, Spend::default()));
}

#[tokio::test(start_paused = true)]
async fn design_7_time_ends_calls_and_then_refuses_them() {
    let never = Gate::new();
    let slow = Script::new().text("Well").wait(&never);
    let service = ScriptedProvider::new().step(slow);
    let clocked = Clocked::new(service.provider());
    let budget = Budget::new(BudgetLimits::none().with_time(Duration::from_secs(10)));
    let provider = BudgetLayer::new(&budget, "a").layer(Arc::clone(&clocked) as _);
    let start = Instant::now();
    tokio::time::advance(Duration::from_secs(4)).await;
    let error = spawn(&provider, request(), &CallContext::new()).await.unwrap().unwrap_err();
    assert_eq!((error.kind(), start.elapsed().as_secs()), (ErrorKind::BudgetExceeded, 10));
    assert_eq!((budget.spent().model_calls, clocked.told()), (1, vec![(1, Some(6))]));
    let error = spawn(&provider, request(), &CallContext::new()).await.unwrap().unwrap_err();
    assert_eq!((error.kind(), service.count()), (ErrorKind::BudgetExceeded, 1));
}

#[tokio::test]
async fn design_7_a_cancelled_call_reserves_nothing_and_a_panic_counts() {
    let service = ScriptedProvider::new();
    let budget = Budget::new(BudgetLimits::none());
    let provider = BudgetLayer::new(&budget, "a").layer(service.provider());
    let cx = CallContext::new();
    cx.cancel.cancel();
    assert_eq!(spawn(&provider, request(), &cx).await.unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(budget.spent(), Spend::default());
    let panics: Arc<dyn Provider> = Arc::new(Panics);
    let provider = BudgetLayer::new(&budget, "a").layer(panics);
    assert_eq!(provider.name(), "panics");
    assert!(spawn(&provider, request(), &CallContext::new()).await.unwrap_err().is_panic());
    settle_until(|| budget.reserved() == Spend::default()).await;
    assert_eq!(budget.spent(), spent(102, 1_506, 1));
}

#[derive(Debug)]
struct Panics;

#[async_trait::async_trait]
impl Provider for Panics {
    fn name(&self) -> &'static str {
        "panics"
    }
    async fn stream(
        &self,
        _: Request,
        _: &CallContext,
    ) -> entourage_core::Result<entourage_core::provider::DeltaStream> {
        panic!("a defect")
    }
}

#[tokio::test]
async fn design_7_agents_of_a_tree_share_a_budget_and_are_told_apart() {
    let (first, second) =
        (ScriptedProvider::new().text("one"), ScriptedProvider::new().text("two").text("three"));
    let root = Budget::new(BudgetLimits::none().with_model_calls(2));
    for (name, service, works) in
        [("captain", &first, true), ("scout", &second, true), ("scout", &second, false)]
    {
        let model = service
            .model()
            .with_profile(priced(3, 15))
            .layer(BudgetLayer::new(&root.child(BudgetLimits::none()), name));
        let answer = ReactAgent::builder(name, model).build().unwrap().ask("Go!").await;
        assert_eq!(answer.is_ok(), works, "{answer:?}");
    }
    let report = root.report();
    assert_eq!(report["captain"], spent(15, 105, 1));
    assert_eq!(report["scout"], spent(15, 105, 1));
    assert_eq!(root.remaining().model_calls, Some(0));
    assert_eq!(second.model().name().as_ref(), "scripted");
    // The third call never reached the service.
    assert_eq!(second.count(), 1);
    assert!(second.provider().stream(hello("left over"), &CallContext::new()).await.is_ok());
}
