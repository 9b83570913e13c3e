//! Runs over each store of files, which is away for a moment or loses a file.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use entourage_core::{
    ErrorKind, SessionId,
    message::Role,
    session::{SessionFilter, SharedStore},
    tool::{Access, Repeat},
};
use entourage_runners::{AgentTool, ReactAgent};
use entourage_runtime::Runtime;
use entourage_runtime::permission::Policy;
use entourage_store::{HybridStore, JsonStore, SqliteStore};
use entourage_testkit::{FakeTool, Gate, ScriptedProvider};
use serde_json::json;

const KINDS: [&str; 3] = ["json", "sqlite", "hybrid"];

/// Opens a store in `directory`. Returns it with the file or directory that its active sessions are in.
async fn open(kind: &str, directory: &Path) -> (SharedStore, PathBuf) {
    let path = directory.join("sessions");
    let store: SharedStore = match kind {
        "json" => Arc::new(JsonStore::open(&path).await.unwrap()),
        "sqlite" => Arc::new(SqliteStore::open(&path).await.unwrap()),
        _ => Arc::new(HybridStore::open(&path, directory.join("archive.db")).await.unwrap()),
    };
    (store, path)
}

fn runtime(store: &SharedStore) -> Runtime {
    Runtime::builder().shared_store(Arc::clone(store)).policy(Policy::allow_all()).build()
}

#[tokio::test]
async fn an_outage_loses_no_result_and_runs_no_prompt_twice() {
    for kind in KINDS {
        let directory = tempfile::tempdir().unwrap();
        let (store, path) = open(kind, directory.path()).await;
        let gate = Gate::new();
        let pay = FakeTool::new("pay").access(Access::WRITE).repeat(Repeat::Once).behind(&gate);
        let pay = pay.returning("paid 42");
        let provider =
            ScriptedProvider::by_history().call("pay", json!({})).text("Paid.").text("Transferred.");
        let payer = ReactAgent::builder("payer", provider.model()).tool(pay.clone()).build().unwrap();
        let session = runtime(&store).session();
        let run = session.start(&payer, "Pay");
        let queued = session.start(&payer, "transfer 100");
        gate.arrived(1).await;
        while session.state().await.unwrap().queue().is_empty() {
            tokio::task::yield_now().await;
        }
        let away = directory.path().join("away");
        fs::rename(&path, &away).unwrap();
        gate.open();
        let (run, queued) = (run.outcome().await.unwrap_err(), queued.outcome().await.unwrap_err());
        assert_eq!((run.kind(), queued.kind()), (ErrorKind::Store, ErrorKind::Queued), "{kind}: {queued}");
        fs::rename(&away, &path).unwrap();
        assert_eq!(session.resume(&payer).outcome().await.unwrap().text, "Paid.", "{kind}");
        while session.is_busy() || !session.state().await.unwrap().queue().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let history = session.history().await.unwrap();
        let results: Vec<_> =
            history.iter().flat_map(|message| message.tool_results().map(|it| it.to_text())).collect();
        assert_eq!((pay.started(), results), (1, vec!["paid 42".into()]), "{kind}");
        let prompts: Vec<_> =
            history.iter().filter(|it| it.role() == Role::User).map(|it| it.text()).collect();
        assert_eq!(prompts, ["Pay", "transfer 100"], "{kind}");
    }
}

#[tokio::test]
async fn store_f11_the_children_of_a_lost_file_are_not_taken_by_a_session_made_anew() {
    for kind in ["json", "hybrid"] {
        let directory = tempfile::tempdir().unwrap();
        let id = SessionId::new("x").unwrap();
        let lead = |answer: &str| {
            let below = ScriptedProvider::by_history().text(answer);
            let below = ReactAgent::builder("below", below.model()).build().unwrap();
            let asks = ScriptedProvider::by_history().call("agent", json!({"prompt": "look"})).text("Done.");
            ReactAgent::builder("lead", asks.model()).tool(AgentTool::new(below)).build().unwrap()
        };
        let (store, path) = open(kind, directory.path()).await;
        runtime(&store).session_with_id(id.clone()).start(&lead("OLD"), "go").outcome().await.unwrap();
        fs::remove_file(path.join("s-x.jsonl")).unwrap();
        let (store, _) = open(kind, directory.path()).await;
        let session = runtime(&store).session_with_id(id.clone());
        let error = session.start(&lead("NEW"), "go").outcome().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{kind}: {error}");
        let told = session.history().await.unwrap();
        assert!(!format!("{told:?}").contains("OLD"), "{kind}: {told:?}");
        let below = store.query(&SessionFilter::children_of(id)).await.unwrap();
        assert_eq!(below.len(), 1, "{kind}: nothing is deleted");
    }
}
