//! What can stand around a model: a check, a budget, a timeout, a rate limit, retries, another model to fall back on,
//! a cache. The services here are scripted and fail on purpose; the clock is paused, so no wait takes any time.

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

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
    let limits = BudgetLimits::none().with_money(Money::from_pico(500_000_000_000)).with_model_calls(10);
    let budget = Budget::new(limits);
    let cache = ResponseCache::new();
    let fallback = Fallback::to([ModelChoice::new(here(&budget), Tier::Local)]);
    let stats = fallback.stats();

    // From the inside out: the layer that is added last is asked first.
    let (far, seconds) = (far(), Duration::from_secs);
    let model = far
        .model()
        .with_profile(priced(Prices::per_million_micros(3_000_000, 15_000_000)))
        .layer(Check::new())
        .layer(budget.layer("far"))
        .layer(Timeout::new().first_delta(seconds(60)).idle(seconds(30)))
        .layer(RateLimit::builder().requests_per_minute(50).build()?)
        .layer(Retry::new().retries(1))
        .layer(fallback)
        .layer(cache.clone());
    let agent = ReactAgent::builder("guide", model).build()?;

    let runtime = Runtime::in_memory();
    for question in ["What is a lamp?", "And the moon?", "And the moon?"] {
        let mut run = runtime.session().start(&agent, question);
        while let Some(event) = run.next().await {
            match event.event {
                // What a failed attempt streamed is void: a terminal that showed it would take it back now.
                Event::ModelRestarted(_) | Event::RunStarted(_) | Event::ModelFinished(_) => println!("{event}"),
                _ => {}
            }
        }
        let outcome = run.outcome().await?;
        println!("{}\n[{outcome}]\n", outcome.text);
    }

    for (label, spend) in budget.report() {
        println!("{label}: {} calls, {} tokens, {}", spend.model_calls, spend.tokens, spend.money);
    }
    for model in stats.report().models {
        println!("{}: {} of {} asked calls failed", model.provider, model.failures, model.calls);
    }
    println!("the cache answered {} calls; left of the budget: {:?}", cache.stats().hits, budget.remaining());
    Ok(())
}

/// Breaks off in its first reply, gives the second, falls silent in the third, and has no room for a fourth.
fn far() -> ScriptedProvider {
    let silent = Script::new().text("The m").delay(Duration::from_secs(3_600));
    ScriptedProvider::named("far")
        .step(Script::new().text("A lamp is a").fail(ErrorKind::Transport, "the connection broke"))
        .step(Script::new().text("A lamp gives light.").usage(1_000, 200).finish(FinishReason::Stop))
        .step(silent)
        .fail(ErrorKind::Overloaded, "no room; try again later")
}

/// A model on this machine: every call costs 0, which is not the same as unknown.
fn here(budget: &Budget) -> Model {
    let reply = Script::new().text("So does the moon.").usage(900, 100).finish(FinishReason::Stop);
    let provider = ScriptedProvider::named("here").step(reply);
    provider.model().with_profile(priced(Prices::flat_rate())).layer(budget.layer("here"))
}

fn priced(prices: Prices) -> Profile {
    let mut profile = Profile::default();
    profile.prices = Some(prices);
    profile
}
