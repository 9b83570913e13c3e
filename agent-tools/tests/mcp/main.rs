//! The MCP client against servers of this machine.

#![cfg(all(feature = "mcp", unix))]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests fail by panicking too"
)]

#[path = "../common/mod.rs"]
mod common;
mod ends;
mod fake;
mod gone;
mod hostile;
mod http;
mod kept;
mod logins;
#[path = "../common/manners.rs"]
mod manners;
mod pinned;
mod questions;
mod runtimes;
mod unread;
mod zoo;

use std::{sync::Arc, time::Duration};

use entourage_core::{
    event::Event,
    message::{Content, ToolResult},
    run::Status,
    tool::{Access, Repeat, Tool, Toolset},
};
use entourage_runners::ReactAgent;
use entourage_runtime::{
    AgentExt, AllowAll, Runtime,
    permission::{Policy, Preset},
};
use entourage_testkit::ScriptedProvider;
use entourage_tools::mcp::{Mcp, McpLifecycle, McpServer, McpState};
use serde_json::{Value, json};
use tempfile::TempDir;

use manners::{all_end, eventually};

async fn started(servers: impl IntoIterator<Item = McpServer>) -> Mcp {
    let mcp = Mcp::start(servers).unwrap();
    mcp.ready().await;
    mcp
}

/// A fake server of this manner, connected under the name `fake`.
async fn one(manner: &str) -> (TempDir, Mcp) {
    let notes = tempfile::tempdir().unwrap();
    let mcp = started([fake::server("fake", manner, notes.path())]).await;
    (notes, mcp)
}

fn state(mcp: &Mcp) -> McpState {
    mcp.servers().remove(0).1
}

async fn call_in(runtime: &Runtime, mcp: &Mcp, tool: &str, arguments: Value) -> ToolResult {
    let tools: Vec<Arc<dyn Tool>> = mcp.tools().iter().cloned().collect();
    common::call_all(runtime, tools, vec![(tool, arguments)]).await.remove(0)
}

async fn call(mcp: &Mcp, tool: &str, arguments: Value) -> Result<String, String> {
    let runtime = Runtime::builder().approver(AllowAll).policy(Policy::allow_all()).build();
    let result = call_in(&runtime, mcp, tool, arguments).await;
    if result.is_error { Err(result.to_text()) } else { Ok(result.to_text()) }
}

async fn echo(mcp: &Mcp) -> Result<String, String> {
    call(mcp, "mcp_fake_echo", json!({"text": "hi"})).await
}

#[tokio::test]
async fn ce01_the_tools_of_a_server_have_its_name_and_answer_calls() {
    let (notes, mcp) = one("plain").await;
    assert_eq!(state(&mcp), McpState::Connected { tools: 13, left_out: 0 });
    let tools = mcp.tools();
    let spec = tools.get("mcp_fake_echo").unwrap().spec();
    assert_eq!((spec.access(), spec.repeat()), (Access::READ, Repeat::Safe));
    let spec = tools.get("mcp_fake_write").unwrap().spec();
    assert_eq!((spec.access(), spec.repeat()), (Access::ALL - Access::DELEGATE - Access::ASK, Repeat::Once));
    assert_eq!(echo(&mcp).await.as_deref(), Ok("hi"));
    let refused = call(&mcp, "mcp_fake_refuse", json!({})).await.unwrap_err();
    assert!(refused.contains("`fake` refused the call: no such place (code -32602)"), "{refused}");
    assert_eq!(call(&mcp, "mcp_fake_fail", json!({})).await.unwrap_err(), "disk full");
    let runtime = Runtime::builder().policy(Policy::allow_all()).build();
    let image = call_in(&runtime, &mcp, "mcp_fake_image", json!({})).await;
    assert!(
        matches!(image.content.as_slice(), [Content::Media(media)] if media.mime == "image/png"),
        "{image:?}"
    );
    assert_eq!(mcp.instructions(), "<mcp_server name=\"fake\">\nUse echo. < /mcp_server>\n</mcp_server>");
    // The same set as long as nothing changes, since wires cache it.
    assert!(Arc::ptr_eq(mcp.tools().specs(), mcp.clone().tools().specs()));
    drop((mcp, tools));
    all_end(notes.path()).await;
}

#[tokio::test]
async fn ce01_resources_and_prompts_are_read_by_tools() {
    let (_notes, mcp) = one("plain").await;
    let texts = [
        ("resources", json!({}), "x://1 (one): The first."),
        ("resources", json!({"uri": "x://1"}), "Resource x://1:\nread \"x://1\""),
        ("prompts", json!({}), "greet(who (required)):"),
        ("prompts", json!({"name": "greet", "arguments": {"who": "Ada"}}), "user: Greet \"Ada\"."),
    ];
    for (tool, arguments, expected) in texts {
        assert_eq!(call(&mcp, &format!("mcp_fake_{tool}"), arguments).await.as_deref(), Ok(expected));
    }
}

#[tokio::test]
async fn ce01_a_filter_leaves_the_listed_tools() {
    let notes = tempfile::tempdir().unwrap();
    let server = |name: &str| fake::server(name, "plain", notes.path());
    let mcp =
        started([server("a").with_tools(["echo", "wait", "none"]), server("b"), server("c").disabled()])
            .await;
    let names = |mcp: &Mcp| mcp.tools().iter().map(|tool| tool.spec().name().to_owned()).collect::<Vec<_>>();
    assert_eq!(names(&mcp).len(), 2 + 13);
    assert_eq!(mcp.servers()[2], ("c".to_owned(), McpState::Disabled));
    let only = |servers: Vec<(&'static str, Vec<&'static str>)>| mcp.only(servers);
    assert_eq!(names(&only(vec![]).unwrap()), [""; 0]);
    assert_eq!(names(&only(vec![("a", vec![])]).unwrap()), ["mcp_a_echo", "mcp_a_wait"]);
    assert_eq!(names(&only(vec![("b", vec!["echo", "x"])]).unwrap()), ["mcp_b_echo"]);
    assert_eq!(only(vec![("a", vec![])]).unwrap().instructions().matches("<mcp_server").count(), 1);
    let error = only(vec![("d", vec![])]).unwrap_err();
    assert!(error.message().contains("there are: a, b, c"), "{error}");
    assert!(fake::notes(notes.path(), "started").len() == 2);
}

#[tokio::test]
async fn ce01_rules_judge_the_tools_by_their_hints() {
    let (notes, mcp) = one("plain").await;
    let runtime = Runtime::builder().policy(Preset::Ask.policy()).build();
    assert!(!call_in(&runtime, &mcp, "mcp_fake_echo", json!({})).await.is_error);
    let provider = ScriptedProvider::by_history().calls([("mcp_fake_write", json!({}))]).text("Done.");
    let agent = ReactAgent::builder("a", provider.model()).toolset(mcp).build().unwrap();
    let outcome = runtime.session().start(&agent, "Go").outcome().await.unwrap();
    assert!(matches!(outcome.status, Status::Paused(_)), "{outcome}");
    assert_eq!(fake::notes(notes.path(), "called"), ["echo"]);
}

#[tokio::test]
async fn ce01_a_server_that_cannot_be_used_says_why() {
    let notes = tempfile::tempdir().unwrap();
    let fake = |manner: &str| fake::server("fake", manner, notes.path());
    let missing = McpServer::command("fake", "/no/such/program", [""; 0]);
    for (server, part) in [
        (missing, "`/no/such/program` cannot be started"),
        (fake("dies"), "before it answered (exit status: 3); it said: no licence for this machine"),
        (fake("login"), "log in first"),
        (fake("null"), "its answer to the greeting is not one of an MCP server"),
        (fake("mute_before"), "before it answered (exit status: 1); it said nothing, so run its command"),
        (fake("plain").in_dir("/no/such/place"), "cannot be started"),
    ] {
        let mcp = started([server]).await;
        let McpState::Failed(reason) = state(&mcp) else { panic!("{mcp:?}") };
        assert!(reason.contains(part), "{part}: {reason}");
        assert!(mcp.tools().is_empty());
    }
    let mcp = started([fake("mute_before").with_lifecycle(McpLifecycle::Initialize)]).await;
    assert!(matches!(state(&mcp), McpState::Connected { .. }));
}

#[tokio::test]
async fn ce01_a_server_that_failed_at_its_start_is_tried_again_while_somebody_asks() {
    let (notes, mcp) = one("dies_first").await;
    assert!(matches!(state(&mcp), McpState::Failed(_)), "{mcp:?}");
    let other = mcp.only([]).unwrap();
    // No time passes by itself, so that each pause is over when this says so.
    tokio::time::pause();
    for _ in 0..20 {
        tokio::time::advance(Duration::from_secs(61)).await;
        // A set without the server asks for nothing.
        assert!(other.tools().is_empty());
    }
    tokio::time::resume();
    assert_eq!(fake::notes(notes.path(), "started").len(), 1);
    eventually("it is there", || !mcp.tools().is_empty()).await;
    assert_eq!(fake::notes(notes.path(), "started").len(), 2);
    assert_eq!(echo(&mcp).await.as_deref(), Ok("hi"));

    let (notes, mcp) = one("dies_first").await;
    assert_eq!(mcp.reconnect("fake").await.unwrap(), McpState::Connected { tools: 13, left_out: 0 });
    assert_eq!(mcp.reconnect("fake").await.unwrap(), McpState::Connected { tools: 13, left_out: 0 });
    assert_eq!(fake::notes(notes.path(), "started").len(), 2);
    let error = mcp.reconnect("none").await.unwrap_err();
    assert!(error.message().contains("there are: fake"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn ce01_a_server_that_says_nothing_has_so_much_time() {
    for manner in ["silent", "no_list"] {
        let notes = tempfile::tempdir().unwrap();
        let server = fake::server("fake", manner, notes.path());
        // The clock jumps to the end of this time, whatever a real server could say in it.
        let mcp = started([server.with_connect_timeout(Duration::from_millis(2_500))]).await;
        assert_eq!(state(&mcp), McpState::Failed("it was not ready within 2.5 s".to_owned()));
    }
}

#[tokio::test]
async fn ce01_a_connection_that_broke_is_made_anew_once() {
    let (notes, mcp) = one("plain").await;
    let unknown = call(&mcp, "mcp_fake_die", json!({})).await.unwrap_err();
    assert!(unknown.contains("its outcome is unknown"), "{unknown}");
    eventually("the end is known", || matches!(state(&mcp), McpState::Failed(_))).await;
    let tools = mcp.tools();
    assert_eq!(echo(&mcp).await.as_deref(), Ok("hi"));
    assert!(Arc::ptr_eq(mcp.tools().specs(), tools.specs()), "the tools are the same");
    assert_eq!(fake::notes(notes.path(), "started").len(), 2);
    let (notes, mcp) = one("plain").await;
    assert_eq!(call(&mcp, "mcp_fake_die_once", json!({})).await.as_deref(), Ok("alive"));
    assert_eq!(fake::notes(notes.path(), "started").len(), 2);
}

#[tokio::test]
async fn ce01_a_server_is_pinged_after_silence_alone() {
    let (notes, mcp) = one("plain").await;
    echo(&mcp).await.unwrap();
    assert_eq!(fake::notes(notes.path(), "pinged").len(), 0);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    echo(&mcp).await.unwrap();
    echo(&mcp).await.unwrap();
    assert_eq!(
        (fake::notes(notes.path(), "pinged").len(), fake::notes(notes.path(), "started").len()),
        (1, 1)
    );
}

#[tokio::test]
async fn a_server_is_told_when_a_call_is_dropped() {
    let (notes, mcp) = one("plain").await;
    let provider = ScriptedProvider::by_history().calls([("mcp_fake_wait", json!({}))]).text("Done.");
    let agent = ReactAgent::builder("a", provider.model()).toolset(mcp.clone()).build().unwrap();
    let runtime = Runtime::builder().policy(Policy::allow_all()).build();
    let run = runtime.session().start(&agent, "Go");
    eventually("the call runs", || fake::notes(notes.path(), "waiting").len() == 1).await;
    drop(run);
    eventually("the server is told", || !fake::notes(notes.path(), "cancelled").is_empty()).await;
    assert_eq!(fake::notes(notes.path(), "cancelled"), fake::notes(notes.path(), "waiting"));
    assert_eq!(echo(&mcp).await.as_deref(), Ok("hi"));
}

#[tokio::test]
async fn progress_of_a_call_is_shown_while_it_runs() {
    let (notes, mcp) = one("plain").await;
    let provider = ScriptedProvider::by_history().calls([("mcp_fake_progress", json!({}))]).text("Done.");
    let agent = ReactAgent::builder("a", provider.model()).toolset(mcp).build().unwrap();
    let runtime = Runtime::builder().policy(Policy::allow_all()).build();
    let mut run = runtime.session().start(&agent, "Go");
    let mut shown = Vec::new();
    while let Some(event) = run.next().await {
        if let Event::Progress(progress) = &event.event {
            shown.push(progress.text.clone());
        }
        if shown.len() == 2 {
            std::fs::write(notes.path().join("go"), "go").unwrap();
        }
    }
    assert_eq!(shown, ["1 of 2: going on", "2 of 2: going on"]);
}

#[tokio::test]
async fn parallel_calls_are_answered_in_any_order() {
    let (_notes, mcp) = one("disorder").await;
    // Each is answered only when both are there.
    let (first, second) = tokio::join!(echo(&mcp), call(&mcp, "mcp_fake_echo", json!({"text": "other"})));
    assert_eq!((first.as_deref(), second.as_deref()), (Ok("hi"), Ok("other")));
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_an_error_and_the_server_stays() {
    let (notes, mcp) = one("long_answer").await;
    let told = echo(&mcp).await.unwrap_err();
    let expected =
        "the MCP server `fake` answered, but its answer has more than 16 MiB and was not read; ask for less";
    assert_eq!(told, expected);
    assert_eq!(call(&mcp, "mcp_fake_write", json!({"text": "on"})).await.as_deref(), Ok("on"));
    assert_eq!(fake::notes(notes.path(), "started").len(), 1);
}

#[tokio::test]
async fn a_long_line_that_answers_nobody_ends_the_connection_at_once() {
    let (notes, mcp) = one("long_line").await;
    let told = echo(&mcp).await.unwrap_err();
    assert!(told.contains("ended while the call ran"), "{told}");
    // What only reads was tried once more, on another connection.
    assert_eq!(fake::notes(notes.path(), "started").len(), 2);
}

#[tokio::test]
async fn servers_end_by_themselves_or_are_killed() {
    for manner in ["plain", "deaf", "child"] {
        let (notes, mcp) = one(manner).await;
        let tools = mcp.tools();
        // What a deaf one has for its end is over at once.
        tokio::time::pause();
        mcp.shut_down().await;
        tokio::time::resume();
        assert_eq!(state(&mcp), McpState::Disabled);
        all_end(notes.path()).await;
        let error = echo(&mcp).await.unwrap_err();
        assert!(error.contains("is not running"), "{error}");
        drop(tools);
        assert_eq!(fake::notes(notes.path(), "started").len(), 1);
    }
}

#[tokio::test]
async fn a_server_in_use_by_a_tool_alone_stays() {
    let (notes, mcp) = one("plain").await;
    let tools: Vec<_> = mcp.tools().iter().cloned().collect();
    drop(mcp);
    let runtime = Runtime::builder().policy(Policy::allow_all()).build();
    let results = common::call_all(&runtime, tools, vec![("mcp_fake_echo", json!({"text": "hi"}))]).await;
    assert_eq!(results[0].to_text(), "hi");
    drop((results, runtime));
    all_end(notes.path()).await;
}

/// Set for a process with a key in its environment.
const WITH_KEY: &str = "ENTOURAGE_MCP_WITH_KEY";

#[tokio::test]
async fn cx03_a_server_has_no_keys_of_the_environment() {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "the_process_with_a_key", "--ignored", "--nocapture"]);
    child.env(WITH_KEY, "yes").env("OPENAI_API_KEY", "sk-of-the-host").env("LD_PRELOAD", "");
    let output = tokio::task::spawn_blocking(move || child.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[tokio::test]
#[ignore = "the other process of the test above"]
async fn the_process_with_a_key() {
    if std::env::var(WITH_KEY).is_err() {
        return;
    }
    let notes = tempfile::tempdir().unwrap();
    let mcp = started([fake::server("fake", "env", notes.path()).with_env("MY_TOKEN", "given")]).await;
    let vars = echo(&mcp).await.unwrap();
    assert!(vars.contains("MY_TOKEN=given") && !vars.contains("sk-of-the-host"), "{vars}");
}

#[tokio::test]
async fn a_model_uses_the_tools_of_a_server() {
    let (_notes, mcp) = one("plain").await;
    let provider = ScriptedProvider::by_history()
        .calls([("mcp_fake_echo", json!({"text": "hello"}))])
        .text("It said hello.");
    let agent = ReactAgent::builder("a", provider.model())
        .instructions(mcp.instructions())
        .toolset(mcp)
        .build()
        .unwrap();
    assert_eq!(agent.ask("Go").await.unwrap(), "It said hello.");
    let requests = provider.requests();
    assert!(requests[0].instructions.contains("<mcp_server name=\"fake\">"));
    assert!(requests[1].messages.iter().any(|message| format!("{message:?}").contains("hello")));
}

#[test]
fn servers_are_started_within_a_runtime() {
    let error = Mcp::start([]).unwrap_err();
    assert!(error.message().contains("within a tokio runtime"), "{error}");
}
