//! Grants in a file: shared by processes, taken back by deleting them, and never half read.

#![cfg(feature = "grants")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use entourage_core::{
    ErrorKind, Result,
    permission::{ApprovalRequest, Approver, Decision},
    tool::{Access, ToolSpec},
};
use entourage_runners::{ReactAgent, from_fn::from_fn};
use entourage_testkit::{self as testkit, FakeTool, ScriptedProvider};
use entourage_tools::GrantFile;
use serde_json::json;

/// Allows everything always, and keeps the names of the tools that it was asked about.
#[derive(Debug, Clone, Default)]
struct Always(Arc<Mutex<Vec<String>>>);

impl Always {
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

#[async_trait]
impl Approver for Always {
    async fn decide(&self, request: &ApprovalRequest) -> Result<Decision> {
        self.0.lock().unwrap().push(request.tool.clone());
        Ok(Decision::AllowAlways)
    }

    fn name(&self) -> Option<Arc<str>> {
        Some("ada".into())
    }
}

/// Calls these tools in a session of its own.
async fn run(grants: GrantFile, approver: &Always, tools: &[&str]) {
    let provider = tools.iter().fold(ScriptedProvider::by_history(), |it, tool| it.call(tool, json!({})));
    let builder = ReactAgent::builder("clerk", provider.text("Done.").model());
    let tools: std::collections::BTreeSet<_> = tools.iter().collect();
    let builder = tools.iter().fold(builder, |it, name| it.tool(FakeTool::new(name).access(Access::WRITE)));
    let agent = builder.build().unwrap();
    let runtime = testkit::runtime().grants(grants).approver(approver.clone()).build();
    runtime.session().start(&agent, "Go").outcome().await.unwrap();
}

struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("entourage-grants-{}-{name}", std::process::id()));
        Self(directory)
    }

    fn path(&self) -> PathBuf {
        self.0.join("deep").join("grants.toml")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn cp02_grants_in_a_file_are_shared_by_processes_and_taken_back_by_deleting_them() {
    let file = File::new("shared");
    let approver = Always::default();
    let open = || GrantFile::open(file.path()).unwrap();
    let (one, two) = (open(), open());
    run(one, &approver, &["edit"]).await;
    assert_eq!(approver.asked(), ["edit"]);
    let text = std::fs::read_to_string(file.path()).unwrap();
    assert!(text.contains("tool = \"edit\"") && text.contains("by = \"ada\""), "{text}");
    // The other process opened the file before the grant was there.
    run(two, &approver, &["edit", "write"]).await;
    assert_eq!(approver.asked(), ["write"]);
    let text = std::fs::read_to_string(file.path()).unwrap();
    assert_eq!(text.matches("[[grant]]").count(), 2, "{text}");
    let three = open();
    std::fs::write(file.path(), "").unwrap();
    run(three, &approver, &["edit"]).await;
    assert_eq!(approver.asked(), ["edit"], "deleted");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[tokio::test]
async fn a_file_that_holds_anything_else_is_an_error_when_it_is_opened_and_grants_nothing_later() {
    let file = File::new("broken");
    std::fs::create_dir_all(file.path().parent().unwrap()).unwrap();
    for text in ["allow = true", "[[grant]]\ntool = \"edit\"", "[[grant]]\ntool = 1\nkey = \"x\"", "\u{0}"] {
        std::fs::write(file.path(), text).unwrap();
        let error = GrantFile::open(file.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}");
        assert!(error.context().any(|(name, _)| name == "path"), "{error}");
    }
    std::fs::remove_file(file.path()).unwrap();
    let (grants, approver) = (GrantFile::open(file.path()).unwrap(), Always::default());
    std::fs::write(file.path(), "broken").unwrap();
    run(grants, &approver, &["edit", "edit"]).await;
    assert_eq!(approver.asked(), ["edit"], "allowed for the session, since the broken file takes nothing");
    assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "broken");
}

#[tokio::test]
async fn a_grant_that_is_deleted_while_its_session_runs_is_asked_about_again() {
    let file = File::new("deleted");
    let approver = Always::default();
    let provider =
        ScriptedProvider::new().call("edit", json!({})).call("clear", json!({})).call("edit", json!({}));
    let path = file.path();
    let spec = ToolSpec::new("clear", "Clears.", json!({"type": "object"})).with_access(Access::NONE);
    let clear = from_fn(spec, move |_| {
        std::fs::write(&path, "").unwrap();
        async { Ok("cleared") }
    });
    let edit = FakeTool::new("edit").access(Access::WRITE);
    let provider = provider.text("Done.");
    let agent = ReactAgent::builder("clerk", provider.model()).tool(edit).tool(clear).build().unwrap();
    let grants = GrantFile::open(file.path()).unwrap();
    let runtime = testkit::runtime().grants(grants).approver(approver.clone()).build();
    runtime.session().start(&agent, "Go").outcome().await.unwrap();
    assert_eq!(approver.asked(), ["edit", "edit"]);
}

#[tokio::test]
async fn a_grant_that_would_spoil_its_file_or_follow_a_link_is_not_written() {
    let file = File::new("spoiled");
    let directory = file.path().parent().unwrap().to_owned();
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(file.path(), "grant = []\n").unwrap();
    let (grants, approver) = (GrantFile::open(file.path()).unwrap(), Always::default());
    run(grants, &approver, &["edit", "edit"]).await;
    assert_eq!(approver.asked(), ["edit"], "allowed for the session instead");
    assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "grant = []\n");

    #[cfg(unix)]
    {
        std::fs::remove_file(file.path()).unwrap();
        let victim = directory.join("victim");
        std::fs::write(&victim, "mine").unwrap();
        for ending in ["lock", "new"] {
            let _ = std::fs::remove_file(directory.join(format!("grants.toml.{ending}")));
            std::os::unix::fs::symlink(&victim, directory.join(format!("grants.toml.{ending}"))).unwrap();
        }
        run(GrantFile::open(file.path()).unwrap(), &approver, &["edit"]).await;
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "mine");
        assert!(std::fs::symlink_metadata(file.path()).unwrap().is_file());
    }
}
