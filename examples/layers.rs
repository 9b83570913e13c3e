//! Layers around a model: a check, a budget, a timeout, a rate limit, retries, a fallback model, a cache. The services
//! here are scripted and fail on purpose; the clock is paused, so no wait takes any time.

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use entourage::layers::BudgetLayer;
use std::time::Duration;

use entourage::{
    Prices,
    layers::{
        Budget, BudgetLimits, Check, Fallback, ModelChoice, RateLimit, ResponseCache, Retry, Tier, Timeout,
    },
    prelude::*,
    provider::{FinishReason, Profile},
    testkit::{Script, ScriptedProvider},
};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<()> {
    println!("(two scripted models, and a clock that skips every wait; the layers are real)\n");
    // At most $0.50 and ten calls, for both models together.
    let limits = BudgetLimits::none().with_money(Money::cents(50)).with_model_calls(10);
    let budget = Budget::new(limits);
    let cache = ResponseCache::new();
    // On this machine every call costs 0, which is not the same as unknown.
    let (far, here, seconds) = (far(), here(), Duration::from_secs);
    let local =
        here.model().with_profile(priced(Prices::flat_rate())).layer(BudgetLayer::new(&budget, "here"));
    let fallback = Fallback::to([ModelChoice::new(local, Tier::Local)]);
    let stats = fallback.stats();

    // From the inside out: the layer that is added last is called first.
    let model = far
        .model()
        .with_profile(priced(Prices::per_million_micros(3_000_000, 15_000_000)))
        .layer(Check::new())
        .layer(BudgetLayer::new(&budget, "far"))
        .layer(Timeout::new().with_first_delta(seconds(60)).with_idle(seconds(30)))
        .layer(RateLimit::builder().requests_per_minute(50).build()?)
        .layer(Retry::new().with_retries(1))
        .layer(fallback)
        .layer(cache.clone());
    let agent = ReactAgent::builder("guide", model).build()?;

    let runtime = Runtime::in_memory();
    for question in ["What is a lamp?", "And the moon?", "And the moon?"] {
        let mut run = runtime.session().start(&agent, question);
        while let Some(event) = run.next().await {
            // The output of a failed attempt is void: a terminal that showed it would remove it now.
            if let Event::ModelRestarted(_) | Event::RunStarted(_) | Event::ModelFinished(_) = event.event {
                println!("{event}");
            }
        }
        let outcome = run.outcome().await?;
        println!("{}\n[{outcome}]\n", outcome.text);
    }

    for model in stats.report().models {
        println!("{}: {} of {} calls failed, after all retries", model.provider, model.failures, model.calls);
    }
    println!("cache: answered {} calls", cache.stats().hits);
    // The cost of an attempt that broke off is unknown: the budget counts its whole reservation.
    for (label, spend) in budget.report() {
        println!("budget, {label}: {} requests, {} tokens, {}", spend.model_calls, spend.tokens, spend.money);
    }
    let left = budget.remaining();
    println!("budget: {} requests left, {}", left.model_calls.unwrap_or(0), left.money.unwrap_or_default());
    Ok(())
}

/// A service that breaks off in its first reply, gives the second, falls silent in the third, and has no room for a
/// fourth.
fn far() -> ScriptedProvider {
    let silent = Script::new().text("The m").delay(Duration::from_secs(3_600));
    ScriptedProvider::named("far")
        .step(Script::new().text("A lamp is a").fail(ErrorKind::Transport, "the connection broke"))
        .step(Script::new().text("A lamp gives light.").usage(1_000, 200).finish(FinishReason::Stop))
        .step(silent)
        .fail(ErrorKind::Overloaded, "no room; try again later")
}

fn here() -> ScriptedProvider {
    let reply = Script::new().text("So does the moon.").usage(900, 100).finish(FinishReason::Stop);
    ScriptedProvider::named("here").step(reply)
}

fn priced(prices: Prices) -> Profile {
    let mut profile = Profile::default();
    profile.prices = Some(prices);
    profile
}
