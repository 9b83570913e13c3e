//! The sessions of one run: a graph with a pair of agents, one of which asks another one, which is a node as well.

use std::fmt::Write as _;

use entourage::{
    prelude::*,
    testkit::{self, ScriptedProvider},
};
use serde_json::json;

use super::label;

pub(super) async fn draw() -> Result<String> {
    let reads = ScriptedProvider::new().text("In src/lexer.rs.").text("Number, digit.");
    let writes = ScriptedProvider::new()
        .call("agent", json!({ "prompt": "Where are numbers read?" }))
        .text("Numbers are read by `number`.")
        .text("A page about numbers.");
    let checks = ScriptedProvider::new().call("task_complete", json!({ "summary": "It is right." }));

    let scout = ReactAgent::builder("scout", reads.model()).build()?;
    let writer = ReactAgent::builder("writer", writes.model()).tool(AgentTool::read_only(&scout)).build()?;
    let checker = ReactAgent::builder("checker", checks.model()).build()?;
    let pair = DualAgent::builder("pair", writer, checker).build()?;
    let graph = TaskGraph::builder("manual");
    let page = graph.agent("page", &pair, "Describe numbers.");
    let index = graph.agent("index", &scout, "List its terms.").after(&page);
    let graph = graph.returning(&index).build()?;

    let runtime = testkit::runtime().build();
    let session = runtime.session();
    session.start(&graph, "Write the manual").outcome().await?;
    drawn(&runtime, session.id()).await
}

async fn drawn(runtime: &Runtime, root: &SessionId) -> Result<String> {
    let mut sessions = runtime.sessions(&SessionFilter::tree(root.clone())).await?;
    sessions.sort_by(|a, b| a.record.id.as_str().cmp(b.record.id.as_str()));
    let place = |id: &SessionId| sessions.iter().position(|session| session.record.id == *id);
    let mut text = "flowchart TD\n".to_owned();
    for (number, session) in sessions.iter().enumerate() {
        let (record, head) = (&session.record, &session.head);
        let own = record.id.as_str().rsplit_once("$$").map(|(_, own)| format!("session …$${own}"));
        let own = own.unwrap_or_else(|| "session".to_owned());
        let spent =
            if head.usage.is_unknown() { "no model calls".to_owned() } else { head.usage.to_string() };
        let said = label(&format!("{}\n{own}, role {}\n{spent}", head.agent, record.role));
        let _ = writeln!(text, "    s{number}[\"{said}\"]");
        if let Some(parent) = record.parent.as_ref().and_then(place) {
            let _ = writeln!(text, "    s{parent} --> s{number}");
        }
    }
    Ok(text)
}
