//! A person's answers to tool calls: other arguments, a reason, leave for the session, and leave for always that comes
//! later, in another process. It needs no key: its model is scripted.

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use async_trait::async_trait;
use entourage::{permission::GrantFile, prelude::*, session::Waiting, testkit::ScriptedProvider};
use serde_json::{Value, json};

#[tool(access = "write")]
/// Save a page.
async fn save(#[arg(write)] page: String, text: String) -> String {
    format!("{page} says: {text}")
}

#[derive(Debug)]
struct Person;

#[async_trait]
impl Approver for Person {
    async fn decide(&self, request: &ApprovalRequest) -> Result<Decision> {
        let decision = match request.arguments.to_value().get("page").and_then(Value::as_str) {
            Some("news") => Decision::edit(&json!({ "page": "news", "text": "Open on Monday!" }))?,
            Some("prices") => Decision::refuse("the shop sets the prices"), // and the run goes on
            Some("log") => Decision::AllowSession, // nobody is asked about this page again
            _ => Decision::Later,
        };
        println!("{} {}: {decision}", request.tool, request.arguments.as_str());
        Ok(decision)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let store = || SqliteStore::open(folder.path().join("pages.db"));
    let page = |page: &str, text: &str| ("save", json!({ "page": page, "text": text }));
    let provider = ScriptedProvider::new()
        .calls([page("news", "Open."), page("prices", "Free!"), page("log", "Begun.")])
        .calls([page("log", "Nearly done."), page("home", "Welcome.")])
        .text("All but the prices are saved.");
    let agent = ReactAgent::builder("editor", provider.model()).tool(save).build()?;
    let session = Runtime::builder().store(store().await?).approver(Person).build().session();
    println!("{}\n", session.start(&agent, "Bring the pages up to date.").outcome().await?.status);

    // Another process: it has the files and the id of the session.
    let grants = GrantFile::open(folder.path().join("grants.toml"))?;
    let session = Runtime::builder().store(store().await?).grants(grants).build().open(session.id()).await?;
    for pending in session.pending().await? {
        let Waiting::Approval(question) = &pending.waits_for else { continue };
        println!("{} waits: {} {}", pending.agent, question.tool, question.arguments.as_str());
        session.decide(&question.id, Decision::AllowAlways.by("ada")).await?; // in later sessions too
    }
    println!("{}\n", session.resume(&agent).outcome().await?.status);
    println!("{}", std::fs::read_to_string(folder.path().join("grants.toml"))?);
    for result in session.history().await?.iter().flat_map(|message| message.tool_results()) {
        println!("the model was told: {}", result.to_text());
    }
    Ok(())
}
