//! Custom tools: a function whose parameters the model fills in, and one that also has state.

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use std::{collections::BTreeMap, sync::Arc};

use entourage::{event::Event, prelude::*, testkit::ScriptedProvider};
use serde_json::json;

type Shelf = Arc<BTreeMap<String, u32>>;

#[tool(access = "read")]
/// Tell how many pieces of an article are on the shelf.
async fn stock(
    #[state] shelf: Shelf,
    /// The article's name, in the singular.
    article: String,
) -> Result<u32, ToolError> {
    // The model reads the error text and can correct its call.
    let stock = shelf.get(&article).copied();
    stock.ok_or_else(|| ToolError::tell(format!("there is no `{article}`, only {:?}", shelf.keys())))
}

#[tool(access = "none")]
/// Multiply two numbers.
async fn multiply(
    a: f64,
    b: f64,
    /// Decimals of the result. Default 2.
    decimals: Option<u8>,
) -> String {
    format!("{:.*}", decimals.unwrap_or(2).into(), a * b)
}

#[tokio::main]
async fn main() -> Result<()> {
    println!("(a scripted model makes the calls; no model is needed for this)");
    let provider = ScriptedProvider::new()
        .call("stock", json!({ "article": "lamps" }))
        .calls([("stock", json!({ "article": "lamp" })), ("multiply", json!({ "a": 3, "b": 9.99 }))])
        .text("The tools have answered.");

    let shelf = Shelf::new(BTreeMap::from([("lamp".to_owned(), 3)]));
    let agent = ReactAgent::builder("clerk", provider.model()).tools((stock(shelf), multiply)).build()?;
    for tool in agent.tool_set().specs().iter() {
        println!("the model is offered {} with {}", tool.name(), tool.schema());
    }

    let mut run = agent.start("What are our lamps worth at 9.99 each?");
    while let Some(event) = run.next().await {
        if let Event::ToolFinished(_) = event.event {
            println!("{event}");
        }
    }
    println!("{}", run.outcome().await?.text);
    Ok(())
}
