//! Progress of calls, for clients that ask for it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Result,
    tool::{Access, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec},
};
use entourage_mcp_server::ToolServer;
use entourage_runtime::Runtime;
use entourage_testkit::Gate;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, sleep, timeout},
};

use crate::kit::{Steps, connect, result, tools};

/// Returns the lines of a client that begins, and calls `steps` with this `_meta`.
fn call(meta: &Value) -> String {
    let client = json!({"name": "raw", "version": "1"});
    let begin = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    let call = json!({"name": "steps", "arguments": {}, "_meta": meta});
    [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}),
    ]
    .map(|message| format!("{message}\n"))
    .concat()
}

fn messages(output: &str) -> Vec<Value> {
    output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn progress_of_a_tool_arrives_before_its_result() {
    let tool = Steps::new();
    let server = ToolServer::new("test", &Runtime::in_memory()).toolset(tools([Arc::new(tool.clone())]));
    let mut client = connect(server).await;
    let call = client.begin("steps", json!({})).await;
    assert_eq!(client.progress.recv().await, Some((1.0, "half".to_owned())));
    tool.gate.open();
    assert_eq!(result(call).await, ("done".to_owned(), false));
    client.close().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_token_nothing_but_the_result_is_sent() {
    let tool = Steps::new();
    tool.gate.open();
    let server = ToolServer::new("test", &Runtime::in_memory()).toolset(tools([Arc::new(tool)]));
    let (mut input, theirs) = tokio::io::duplex(64 << 10);
    let (mut output, written) = tokio::io::duplex(64 << 10);
    let serving = tokio::spawn(server.serve_io(theirs, written));
    input.write_all(call(&json!({})).as_bytes()).await.unwrap();
    drop(input);
    serving.await.unwrap().unwrap();
    let mut all = String::new();
    output.read_to_string(&mut all).await.unwrap();
    let ids: Vec<_> = messages(&all).into_iter().map(|message| message["id"].clone()).collect();
    assert_eq!(ids, [json!(1), json!(2)], "{all}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_slowly_misses_steps_and_no_result() {
    let tool = Steps::new().times(1_000);
    let server = ToolServer::new("test", &Runtime::in_memory()).toolset(tools([Arc::new(tool.clone())]));
    let (mut input, theirs) = tokio::io::duplex(64 << 10);
    // Room for some messages.
    let (mut output, written) = tokio::io::duplex(2 << 10);
    let serving = tokio::spawn(server.serve_io(theirs, written));
    input.write_all(call(&json!({"progressToken": "mine"})).as_bytes()).await.unwrap();
    tool.gate.arrived(1).await;
    // The paused clock goes on once nothing else can.
    sleep(Duration::from_secs(1)).await;
    tool.gate.open();
    drop(input);
    let mut all = String::new();
    output.read_to_string(&mut all).await.unwrap();
    serving.await.unwrap().unwrap();
    let messages = messages(&all);
    let steps: Vec<_> = messages.iter().filter_map(|it| it["params"]["progress"].as_f64()).collect();
    assert!(steps.is_sorted_by(|one, other| one < other) && (2..100).contains(&steps.len()), "{steps:?}");
    assert!(messages.iter().all(|it| it["method"].is_null() || it["params"]["progressToken"] == "mine"));
    assert_eq!(messages.last().unwrap()["result"]["content"][0]["text"], "done");
}

/// A tool that reports steps once a gate is open.
#[derive(Debug)]
struct Late(ToolSpec, Gate);

#[async_trait]
impl Tool for Late {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        self.1.pass().await;
        for _ in 0..5 {
            cx.progress("late");
        }
        Ok(ToolOutput::text("done"))
    }
}

#[tokio::test(start_paused = true)]
async fn the_answer_after_the_end_of_the_input_does_not_wait_for_progress() {
    let gate = Gate::new();
    let spec = ToolSpec::new("steps", "Is late.", json!({"type": "object"})).with_access(Access::READ);
    let server = ToolServer::new("test", &Runtime::in_memory())
        .toolset(tools([Arc::new(Late(spec, gate.clone())) as Arc<dyn Tool>]));
    let (mut input, theirs) = tokio::io::duplex(64 << 10);
    let (mut output, written) = tokio::io::duplex(64 << 10);
    let serving = tokio::spawn(server.serve_io(theirs, written));
    input.write_all(call(&json!({"progressToken": "mine"})).as_bytes()).await.unwrap();
    gate.arrived(1).await;
    drop(input);
    // The server sees the end before anything else happens.
    sleep(Duration::from_secs(1)).await;
    let before = Instant::now();
    gate.open();
    let mut all = String::new();
    timeout(Duration::from_secs(60), output.read_to_string(&mut all)).await.unwrap().unwrap();
    serving.await.unwrap().unwrap();
    assert_eq!(messages(&all).last().unwrap()["result"]["content"][0]["text"], "done", "{all}");
    assert!(before.elapsed() < Duration::from_secs(1), "{:?}", before.elapsed());
}
