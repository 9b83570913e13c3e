//! Calls that are kept and not polled, or that wait for others than the server.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Result,
    permission::{ApprovalRequest, Approver, Decision},
    tool::{Access, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec, Toolset},
};
use entourage_runtime::{AllowAll, Runtime, permission::Policy};
use entourage_tools::mcp::{Mcp, McpLifecycle, McpServer, McpState};
use serde_json::json;
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinHandle,
    time::timeout,
};

use crate::{
    call,
    common::call_all,
    eventually,
    fake::notes,
    logins::{Person, World, ends, field},
    manners::is_alive,
    questions::asking_site,
    started, state,
};

/// What keeps a call, and lets it go on.
#[derive(Debug, Default)]
struct Gates {
    keep: Notify,
    kept: Notify,
    go: Notify,
}

/// A call of another tool, which is polled until it is to be kept.
#[derive(Debug)]
struct Keeping {
    spec: ToolSpec,
    inner: Arc<dyn Tool>,
    gates: Arc<Gates>,
}

#[async_trait]
impl Tool for Keeping {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let mut called = self.inner.call(input, cx);
        tokio::select! {
            biased;
            () = self.gates.keep.notified() => {}
            done = &mut called => return done,
        }
        self.gates.kept.notify_one();
        self.gates.go.notified().await;
        called.await
    }
}

/// Begins a call of this tool in a task.
fn begun(mcp: &Mcp, tool: &str) -> (Arc<Gates>, JoinHandle<String>) {
    let inner = mcp.tools().iter().find(|it| it.spec().name() == tool).unwrap().clone();
    let gates = Arc::<Gates>::default();
    let spec = ToolSpec::new("keep", "Keeps.", json!({"type": "object"})).with_access(Access::READ);
    let keeping: Arc<dyn Tool> = Arc::new(Keeping { spec, inner, gates: Arc::clone(&gates) });
    let called = tokio::spawn(async move {
        let runtime = Runtime::builder().approver(AllowAll).policy(Policy::allow_all()).build();
        call_all(&runtime, vec![keeping], vec![("keep", json!({}))]).await.remove(0).to_text().to_string()
    });
    (gates, called)
}

/// Begins a call in a task.
fn called_by_a_task(mcp: &Mcp, tool: &'static str) -> JoinHandle<Result<String, String>> {
    let mcp = mcp.clone();
    tokio::spawn(async move { call(&mcp, tool, json!({})).await })
}

/// The person opens this address, logs in, and is sent back.
async fn logs_in(address: &reqwest::Url) {
    ends(address, &[("code", "c-1"), ("state", &field(address, "state"))]).await;
}

pub(crate) async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(60), work).await.unwrap_or_else(|_| panic!("never: {what}"))
}

/// A server in the shell, which does this when its tools are listed, and this when one is called.
pub(crate) fn shell(dir: &std::path::Path, listed: &str, called: &str) -> McpServer {
    const SCRIPT: &str = r#"echo $$ >> "$0/started"
        lives=$(wc -l < "$0/started")
        schema='"inputSchema":{"type":"object"}'
        while read -r line; do
            id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
            answer() { printf '{"jsonrpc":"2.0","id":%s,"result":{%s}}\n' "$id" "$1"; }
            case "$line" in
                *'"initialize"'*)
                    about='"capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}'
                    answer "\"protocolVersion\":\"2025-06-18\",$about" ;;
                *'"tools/list"'*) eval "$1" ;;
                *'"tools/call"'*) eval "$2" ;;
            esac
        done"#;
    McpServer::command("fake", "sh", ["-c", SCRIPT, dir.to_str().unwrap(), listed, called])
        .with_lifecycle(McpLifecycle::Initialize)
}

/// A server whose first life answers no call, and closes its output once it is told to, but lives on.
fn closing(dir: &std::path::Path) -> McpServer {
    let called = r#"echo >> "$0/called"
        while ! [ -e "$0/close" ]; do sleep 0.01; done
        exec >&-
        sleep 600"#;
    shell(dir, r#"answer "\"tools\":[{\"name\":\"wait\",$schema}]""#, called)
}

#[tokio::test]
async fn a_broken_server_ends_although_a_call_of_it_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mcp = started([closing(dir.path())]).await;
    let (gates, called) = begun(&mcp, "mcp_fake_wait");
    eventually("it is called", || !notes(dir.path(), "called").is_empty()).await;
    gates.keep.notify_one();
    in_time("it is kept", gates.kept.notified()).await;
    std::fs::write(dir.path().join("close"), "").unwrap();
    eventually("the end is known", || matches!(state(&mcp), McpState::Failed(_))).await;
    let there = mcp.reconnect("fake").await.unwrap();
    assert_eq!(there, McpState::Connected { tools: 1, left_out: 0 });
    let lives = notes(dir.path(), "started");
    let alive: Vec<_> = lives.iter().filter(|pid| is_alive(pid)).collect();
    assert_eq!(alive, [&lives[1]], "two servers live side by side");
    in_time("the end", mcp.shut_down()).await;
    assert!(!lives.iter().any(|pid| is_alive(pid)));
    gates.go.notify_one();
    let told = in_time("the call ends", called).await.unwrap();
    assert!(told.contains("is unknown"), "{told}");
}

/// A server whose first life reads nothing after its tools were listed, and lives on.
fn deaf(dir: &std::path::Path) -> McpServer {
    let listed = r#"look="{\"name\":\"look\",\"annotations\":{\"readOnlyHint\":true},$schema}"
        answer "\"tools\":[$look,{\"name\":\"write\",$schema}]"
        if [ "$lives" -eq 1 ]; then
            exec <&-
            echo >> "$0/deaf"
            sleep 600
        fi"#;
    shell(dir, listed, r#"answer '"content":[{"type":"text","text":"heard"}]'"#)
}

#[tokio::test]
async fn a_server_that_takes_no_request_is_started_anew() {
    // A call that could not be written was not performed either, so it is made on the next connection.
    for tool in ["mcp_fake_look", "mcp_fake_write"] {
        let dir = tempfile::tempdir().unwrap();
        let mcp = started([deaf(dir.path())]).await;
        eventually("it is deaf", || !notes(dir.path(), "deaf").is_empty()).await;
        assert_eq!(
            in_time("the call ends", call(&mcp, tool, json!({}))).await.as_deref(),
            Ok("heard"),
            "{tool}"
        );
        assert_eq!(in_time("the next call", call(&mcp, "mcp_fake_write", json!({}))).await.unwrap(), "heard");
        let lives = notes(dir.path(), "started");
        assert_eq!(lives.len(), 2);
        assert!(!is_alive(&lives[0]), "two servers live side by side");
        in_time("the end", mcp.shut_down()).await;
    }
}

/// Never answers, and tells when it is asked.
#[derive(Debug, Clone)]
struct Absent(Arc<Semaphore>);

#[async_trait]
impl Approver for Absent {
    async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
        self.0.add_permits(1);
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_call_that_waits_for_the_user_fails_when_its_server_is_shut_down() {
    let asked = Arc::new(Semaphore::new(0));
    let (_site, server) = asking_site();
    let servers = [server];
    let mcp = Mcp::builder().servers(servers).approver(Absent(Arc::clone(&asked))).start().unwrap();
    mcp.ready().await;
    let called = called_by_a_task(&mcp, "mcp_fake_ask");
    in_time("the user is asked", asked.acquire()).await.unwrap().forget();
    in_time("the end", mcp.shut_down()).await;
    let told = in_time("the call ends", called).await.unwrap().unwrap_err();
    assert_eq!(told, "the MCP server `fake` is not running");
}

/// A server that was logged in to, and wants more rights for the next call.
async fn wanting_more(person: &mut Person, login: entourage_tools::mcp::McpLogin) -> (World, Mcp) {
    let world = World::new();
    let mcp = Mcp::start([world.server(login)]).unwrap();
    logs_in(&person.address().await).await;
    mcp.ready().await;
    assert_eq!(state(&mcp), McpState::Connected { tools: 1, left_out: 0 });
    world.made.lock().unwrap().wanted = vec!["write"];
    (world, mcp)
}

#[tokio::test]
async fn the_login_of_a_call_that_is_kept_goes_on() {
    let (mut person, login) = Person::new();
    let (world, mcp) = wanting_more(&mut person, login).await;
    let (gates, called) = begun(&mcp, "mcp_fake_echo");
    let address = person.address().await;
    gates.keep.notify_one();
    in_time("it is kept", gates.kept.notified()).await;
    in_time("the person logs in", logs_in(&address)).await;
    eventually("the login ends", || world.token_requests() == 2).await;
    eventually("it is there", || matches!(state(&mcp), McpState::Connected { .. })).await;
    // Another login has its turn.
    world.made.lock().unwrap().wanted = vec!["admin"];
    let other = called_by_a_task(&mcp, "mcp_fake_echo");
    logs_in(&person.address().await).await;
    assert_eq!(in_time("the other call ends", other).await.unwrap().as_deref(), Ok("over http"));
    gates.go.notify_one();
    assert_eq!(in_time("the call ends", called).await.unwrap(), "over http");
}

#[tokio::test]
async fn a_call_that_is_dropped_while_it_logs_in_leaves_the_connection_as_it_was() {
    let (mut person, login) = Person::new();
    let (_world, mcp) = wanting_more(&mut person, login).await;
    let called = called_by_a_task(&mcp, "mcp_fake_echo");
    person.address().await;
    assert_eq!(state(&mcp), McpState::NeedsAuth);
    called.abort();
    eventually("it is there", || matches!(state(&mcp), McpState::Connected { .. })).await;
    assert_eq!(
        in_time("another call", call(&mcp, "mcp_fake_echo", json!({}))).await.as_deref(),
        Ok("over http")
    );
}
