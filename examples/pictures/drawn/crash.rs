//! A run whose process dies twice, each time during a tool call: one that may run again, and one that may not.

use std::sync::Arc;

use entourage::{
    prelude::*,
    session::SharedStore,
    testkit::{FakeTool, Gate, ScriptedProvider},
    tool::Repeat,
};
use serde_json::json;

use super::{
    process,
    watched::{Note, Notes},
};

pub(super) fn draw() -> Result<String> {
    let (notes, id) = (Notes::default(), SessionId::new("orders")?);
    let store: SharedStore = Arc::new(MemoryStore::new());
    for life in 1..=3 {
        process(lived(life, &notes, &store, id.clone()))?;
    }
    Ok(notes.sequence())
}

/// The life of one process. The first dies while it counts, the second while it pays, and the third ends the run.
async fn lived(life: u32, notes: &Notes, store: &SharedStore, id: SessionId) -> Result<()> {
    let gate = Gate::new();
    let provider = ScriptedProvider::by_history()
        .call("look", json!({}))
        .call("count", json!({}))
        .call("pay", json!({}))
        .text("I cannot tell if it was paid: please look.");
    let tool = |name: &str, repeat, dies_in: u32| {
        let tool = FakeTool::new(name).repeat(repeat);
        notes.tool(if life == dies_in { tool.behind(&gate) } else { tool })
    };
    let agent = ReactAgent::builder("clerk", notes.model(&provider.model()))
        .tool(tool("look", Repeat::Safe, 0))
        .tool(tool("count", Repeat::Safe, 1))
        .tool(tool("pay", Repeat::Once, 2))
        .build()?;

    let runtime = notes.runtime(store);
    let run = match life {
        1 => runtime.session_with_id(id).start(&agent, "Pay the open order"),
        _ => runtime.open(&id).await?.resume(&agent),
    };
    tokio::select! {
        outcome = run.outcome() => {
            outcome?;
        }
        () = gate.arrived(1) => {
            let remark = format!("process {life} is killed, process {} resumes", life + 1);
            notes.add(Note::Remark(remark));
        }
    }
    Ok(())
}
