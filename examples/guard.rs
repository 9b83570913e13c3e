//! Guards, around a scripted model: one masks card numbers, a layer refuses a call, and one looks at each answer.

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use async_trait::async_trait;
use entourage::tool::{LayerVerdict, ToolLayer, ToolSpec};
use entourage::{prelude::*, testkit::ScriptedProvider};
use serde_json::{Value, json};

#[tool(access = "write")]
/// Refund an amount.
async fn refund(amount: u64) -> String {
    format!("refunded {amount}")
}

/// Masks each word that looks like the number of a card.
fn masked(text: &str) -> String {
    let mask =
        |word| if str::chars(word).filter(char::is_ascii_digit).count() < 12 { word } else { "[card]" };
    text.split(' ').map(mask).collect::<Vec<_>>().join(" ")
}

/// Refuses refunds of more than 100.
#[derive(Debug)]
struct SmallRefunds;

#[async_trait]
impl ToolLayer for SmallRefunds {
    async fn before(&self, _: &ToolSpec, arguments: &mut Value, _: &RunContext) -> Result<LayerVerdict> {
        let small = arguments["amount"].as_u64().is_some_and(|amount| amount <= 100);
        Ok(if small { LayerVerdict::Pass } else { LayerVerdict::Refuse("refund 100 at most".into()) })
    }
}

/// Refuses promises, and leaves out a name.
fn polite(answer: &mut String, _: &RunContext) -> LayerVerdict {
    if answer.contains("promise") {
        return LayerVerdict::Refuse("promise nothing".into());
    }
    *answer = answer.replace("Ada", "a colleague");
    LayerVerdict::Pass
}

#[tokio::main]
async fn main() -> Result<()> {
    let provider = ScriptedProvider::by_history()
        .calls([("refund", json!({ "amount": 900 })), ("refund", json!({ "amount": 100 }))])
        .text("I promise that Ada will look at it.")
        .text("Ada will look at it.");
    let agent = ReactAgent::builder("clerk", provider.model()).tool(refund).guard_answers(polite).build()?;
    let runtime = Runtime::builder().guard_prompts(|prompt| Ok(Message::user(masked(&prompt.text()))));
    let session = runtime.policy(Policy::allow_all()).tool_layer(SmallRefunds).build().session();
    let outcome = session.start(&agent, "Refund 900 to 4111-1111-1111-1111 please").outcome().await?;
    for message in session.history().await?.iter() {
        let results: Vec<_> = message.tool_results().map(|result| result.to_text()).collect();
        println!("{:?}: {}{}", message.role(), message.text(), results.join("; "));
    }
    println!("answer: {}", outcome.text);
    Ok(())
}
