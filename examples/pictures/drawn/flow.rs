//! One run of one agent with one tool call: everything that it does, and the store before each.

use std::sync::Arc;

use entourage::{
    prelude::*,
    session::SharedStore,
    testkit::{FakeTool, ScriptedProvider},
};
use serde_json::json;

use super::watched::Notes;

pub(super) async fn draw() -> Result<String> {
    let notes = Notes::default();
    let provider = ScriptedProvider::new().call("look", json!({})).text("It holds three crates.");
    let look = FakeTool::new("look").returning("core, store, tools");
    let agent =
        ReactAgent::builder("scout", notes.model(&provider.model())).tool(notes.tool(look)).build()?;

    let store: SharedStore = Arc::new(MemoryStore::new());
    notes.runtime(&store).session().start(&agent, "Which crates are there?").outcome().await?;
    Ok(notes.sequence())
}
