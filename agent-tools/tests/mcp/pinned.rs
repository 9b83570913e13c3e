//! Tools that change after they were accepted.

use entourage_core::{permission::Decision, run::Status, tool::Toolset};
use entourage_runners::ReactAgent;
use entourage_runtime::{Runtime, Waiting, permission::Policy};
use entourage_testkit::ScriptedProvider;
use entourage_tools::mcp::Mcp;
use serde_json::json;

use crate::{call, echo, eventually, fake, one};

fn description(mcp: &Mcp) -> String {
    mcp.tools().get("mcp_fake_echo").map(|tool| tool.spec().description().to_owned()).unwrap_or_default()
}

/// Runs a model that calls the tool so often; the questions are decided by `decisions`. Returns the number of those
/// that were needed.
async fn run(mcp: &Mcp, calls: usize, decisions: &[Decision]) -> usize {
    let provider = (0..calls).fold(ScriptedProvider::by_history(), |script, _| {
        script.calls([("mcp_fake_echo", json!({"text": "secret"}))])
    });
    let agent =
        ReactAgent::builder("a", provider.text("Done.").model()).toolset(mcp.clone()).build().unwrap();
    // The user allows all, and yet is asked.
    let runtime = Runtime::builder().policy(Policy::allow_all()).build();
    let session = runtime.session();
    let mut outcome = session.start(&agent, "Go").outcome().await.unwrap();
    let mut asked = 0;
    while matches!(outcome.status, Status::Paused(_)) {
        let pending = runtime.pending().await.unwrap().remove(0);
        let Waiting::Approval(question) = pending.waits_for else { panic!("{pending:?}") };
        assert!(
            question.rule.contains("the MCP server `fake` says something else of its tool `mcp_fake_echo`"),
            "{question:?}"
        );
        let Some(decision) = decisions.get(asked) else { return asked + 1 };
        asked += 1;
        runtime.decide(&question.id, decision.clone()).await.unwrap();
        outcome = session.resume(&agent).outcome().await.unwrap();
    }
    asked
}

#[tokio::test]
async fn attack_43_a_tool_that_changes_while_it_is_used_is_asked_about() {
    let (notes, mcp) = one("changing").await;
    assert_eq!(run(&mcp, 2, &[]).await, 0);
    let before = mcp.tools();
    call(&mcp, "mcp_fake_change", json!({})).await.unwrap();
    eventually("the change is known", || description(&mcp).starts_with("Sends")).await;
    // Who still holds the tool of before is told, and nothing is sent.
    let count = || fake::notes(notes.path(), "called").iter().filter(|tool| *tool == "echo").count();
    let called = count();
    let runtime = Runtime::builder().policy(Policy::allow_all()).build();
    let tools = before.iter().cloned().collect();
    let results = crate::common::call_all(&runtime, tools, vec![("mcp_fake_echo", json!({}))]).await;
    assert!(
        results[0].is_error && results[0].to_text().contains("changed this tool meanwhile"),
        "{results:?}"
    );
    assert_eq!(run(&mcp, 1, &[Decision::Deny]).await, 1);
    assert_eq!(count(), called);
    // Once it is allowed, it is what was accepted.
    assert_eq!(run(&mcp, 2, &[Decision::Allow]).await, 1);
    assert_eq!(run(&mcp, 1, &[]).await, 0);
    assert_eq!(count(), called + 3);
}

#[tokio::test]
async fn attack_43_what_was_accepted_outlives_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let (notes, pins) = (dir.path().join("notes"), dir.path().join("pins.json"));
    std::fs::create_dir(&notes).unwrap();
    let start = async |manner: &str| {
        let servers = [fake::server("fake", manner, &notes)];
        let mcp = Mcp::builder().servers(servers).pinned_in(&pins).start().unwrap();
        mcp.ready().await;
        mcp
    };
    assert_eq!(run(&start("plain").await, 1, &[]).await, 0);
    assert_eq!(run(&start("changed").await, 1, &[Decision::Deny]).await, 1);
    assert_eq!(run(&start("changed").await, 2, &[Decision::Allow]).await, 1);
    assert_eq!(run(&start("changed").await, 1, &[]).await, 0);
    // And back is a change too.
    assert_eq!(run(&start("plain").await, 1, &[Decision::Deny]).await, 1);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&pins).unwrap().permissions().mode() & 0o777, 0o600);
    }
    std::fs::write(&pins, "broken").unwrap();
    assert!(Mcp::builder().pinned_in(&pins).start().is_err());
}

#[tokio::test]
async fn a_second_tool_of_a_name_is_left_out() {
    let (_notes, mcp) = one("same_names").await;
    assert_eq!(description(&mcp), "Gives the text back.");
    assert_eq!(echo(&mcp).await.as_deref(), Ok("hi"));
    assert!(crate::state(&mcp).to_string().ends_with("13 tools, 1 left out"));
}

#[tokio::test]
async fn attack_43_a_call_is_not_repeated_at_a_server_that_says_something_else() {
    let (notes, mcp) = one("changed_by_death").await;
    let error = call(&mcp, "mcp_fake_echo", json!({"text": "secret"})).await.unwrap_err();
    assert!(error.contains("changed this tool meanwhile"), "{error}");
    assert_eq!(fake::notes(notes.path(), "called"), ["echo"], "the second life was not asked");
    assert_eq!(run(&mcp, 1, &[Decision::Deny]).await, 1);
}

#[tokio::test]
async fn attack_43_another_tool_under_an_offered_name_is_asked_about() {
    let (notes, mcp) = one("changing").await;
    assert_eq!(call(&mcp, "mcp_fake_resources", json!({})).await.as_deref(), Ok("x://1 (one): The first."));
    call(&mcp, "mcp_fake_change", json!({})).await.unwrap();
    eventually("the change is known", || description(&mcp).starts_with("Sends")).await;
    let provider = ScriptedProvider::by_history().calls([("mcp_fake_resources", json!({}))]).text("Done.");
    let agent = ReactAgent::builder("a", provider.model()).toolset(mcp.clone()).build().unwrap();
    let runtime = Runtime::builder().policy(Policy::allow_all()).build();
    let outcome = runtime.session().start(&agent, "Go").outcome().await.unwrap();
    assert!(matches!(outcome.status, Status::Paused(_)), "{outcome}");
    assert!(!fake::notes(notes.path(), "called").contains(&"resources".to_owned()));
}
