//! A clerk of a shop, its tools, and the scripted models of the example: the one that production had, and the one that
//! is tried.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use entourage::{
    Prices,
    prelude::*,
    provider::Profile,
    session::SharedStore,
    testkit::{
        ScriptedProvider,
        rerun::{Rerun, RerunCase, RerunReport, Transcript},
    },
    tool::typed,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Order {
    /// Number of the order.
    number: u32,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Refund {
    /// Number of the order.
    number: u32,
    /// Amount in cents.
    cents: u32,
}

/// The clerk with its two tools. `refunds` counts what was paid.
pub(crate) fn clerk(model: Model, instructions: &str, refunds: &Arc<AtomicU64>) -> Result<ReactAgent> {
    let order = typed("order", "Looks an order up.", Access::READ, |Order { number }: Order| async move {
        Ok(match number {
            17 => "Order 17: a lamp, $15.00, sent on Monday.".to_owned(),
            18 => "Order 18: two chairs, $80.00, sent on Tuesday.".to_owned(),
            20 => "Order 20: a mirror, $15.00, delivered on Friday.".to_owned(),
            other => format!("There is no order {other}."),
        })
    });
    let refunds = Arc::clone(refunds);
    let refund = move |Refund { number, cents }: Refund| {
        refunds.fetch_add(1, Ordering::Relaxed);
        async move { Ok(format!("Paid {cents} cents back for order {number}.")) }
    };
    let refund = typed("refund", "Pays money back.", Access::WRITE | Access::NETWORK, refund);
    ReactAgent::builder("clerk", model).instructions(instructions).tools((order, refund)).build()
}

fn priced(provider: &ScriptedProvider, name: &str, prices: Prices) -> Model {
    let mut profile = Profile::default();
    profile.prices = Some(prices);
    Model::new(provider.provider(), name).with_profile(profile)
}

/// The sessions of production: their ids and prompts.
const SESSIONS: [(&str, &[&str]); 4] = [
    ("broken-mirror", &["The mirror of order 20 came broken. I want my money back."]),
    ("one-order", &["Where is order 17?"]),
    ("thanks", &["Thank you, that was quick!"]),
    ("two-orders", &["Has order 17 left?", "And order 18?"]),
];

/// Runs the sessions of production with tools that do what they say. Returns how many refunds were paid.
pub(crate) async fn production(store: &SharedStore) -> Result<u64> {
    let large = ScriptedProvider::new()
        .call("order", json!({"number": 20}))
        .call("refund", json!({"number": 20, "cents": 1500}))
        .text("I am sorry. You get $15.00 back for the mirror of order 20.")
        .call("order", json!({"number": 17}))
        .text("Your lamp, order 17, was sent on Monday.")
        .text("You are welcome!")
        .call("order", json!({"number": 17}))
        .text("Yes, order 17 was sent on Monday.")
        .call("order", json!({"number": 18}))
        .text("Order 18 was sent on Tuesday.");
    let model = priced(&large, "large", Prices::per_million_micros(3_000_000, 15_000_000));
    let paid = Arc::default();
    let agent = clerk(model, "You are the clerk of a shop. Be kind.", &paid)?;
    let runtime = Runtime::builder().shared_store(Arc::clone(store)).policy(Policy::allow_all()).build();
    for (id, prompts) in SESSIONS {
        let session = runtime.session_with_id(SessionId::new(id)?);
        for prompt in prompts {
            session.start(&agent, *prompt).outcome().await?;
        }
    }
    Ok(paid.load(Ordering::Relaxed))
}

/// A smaller model for the same sessions, which takes dollars for cents once.
pub(crate) fn smaller() -> (ScriptedProvider, Model) {
    let small = ScriptedProvider::new()
        .call("order", json!({"number": 20}))
        .call("refund", json!({"number": 20, "cents": 15}))
        .text("I could not pay it back.")
        .call("order", json!({"number": 17}))
        .text("Sent on Monday: order 17.")
        .text("My pleasure.")
        .call("order", json!({"number": 17}))
        .text("Order 17: sent on Monday.")
        .call("order", json!({"number": 18}))
        .text("Order 18: sent on Tuesday.");
    let model = priced(&small, "small", Prices::per_million_micros(250_000, 1_250_000));
    (small, model)
}

/// Reruns sessions with another model and another prompt, and marks what the originals did not do.
pub(crate) async fn rerun(
    originals: Vec<Transcript>,
    model: Model,
    refunds: &Arc<AtomicU64>,
) -> Result<RerunReport> {
    let agent = clerk(model, "You are the clerk of a shop. Answer in one short sentence.", refunds)?;
    Rerun::of(originals, &agent)
        .score("completed", RerunCase::is_completed)
        .score("same calls", RerunCase::same_calls)
        .score("same facts", |case: &RerunCase| {
            let missing: Vec<_> = facts(&case.original).difference(&facts(&case.rerun)).cloned().collect();
            if missing.is_empty() { Ok(()) } else { Err(format!("does not say {}", missing.join(", "))) }
        })
        .run()
        .await
}

/// The words of all answers that hold a digit or name a day.
fn facts(session: &Transcript) -> BTreeSet<String> {
    let answers = session.runs.iter().flat_map(|run| run.answer.split_whitespace());
    let words = answers.map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()).to_owned());
    words.filter(|word| word.contains(|c: char| c.is_ascii_digit()) || word.ends_with("day")).collect()
}
