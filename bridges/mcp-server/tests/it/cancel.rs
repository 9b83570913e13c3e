//! Calls that end early: the tool's future is dropped.

use std::sync::Arc;

use entourage_core::session::{SessionFilter, SessionStatus};
use entourage_mcp_server::ToolServer;
use entourage_runtime::Runtime;
use rmcp::service::ServiceError;
use serde_json::json;

use crate::kit::{Client, Steps, connect, tools};

async fn started(runtime: &Runtime, tool: &Steps) -> Client {
    connect(ToolServer::new("test", runtime).toolset(tools([Arc::new(tool.clone())]))).await
}

/// Waits until no future of the tool is alive, and no run is.
async fn unwound(runtime: &Runtime, tool: &Steps) {
    tool.alive(0).await;
    let running = SessionFilter::all().with_status(SessionStatus::Running);
    while !runtime.sessions(&running).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_is_dropped_and_others_go_on() {
    let (runtime, tool) = (Runtime::in_memory(), Steps::new());
    let client = started(&runtime, &tool).await;
    let doomed = client.begin("steps", json!({})).await;
    let other = client.begin("steps", json!({})).await;
    tool.gate.arrived(2).await;
    doomed.cancel(Some("no longer needed".to_owned())).await.unwrap();
    tool.alive(1).await;
    tool.gate.open();
    assert_eq!(crate::kit::result(other).await, ("done".to_owned(), false));
    unwound(&runtime, &tool).await;
    client.close().await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_input_ends_the_server_and_its_calls() {
    let (runtime, tool) = (Runtime::in_memory(), Steps::new());
    let client = started(&runtime, &tool).await;
    let call = client.begin("steps", json!({})).await;
    tool.gate.arrived(1).await;
    let before = tokio::time::Instant::now();
    client.close().await;
    // The server has ended, and waited for the call to unwind.
    assert!(!tool.is_alive());
    assert!(before.elapsed().as_secs() < 10);
    assert!(matches!(
        call.await_response().await,
        Err(ServiceError::TransportClosed | ServiceError::Cancelled { .. } | ServiceError::McpError(_))
    ));
    unwound(&runtime, &tool).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_in_flight_at_the_end_of_the_input_may_answer() {
    let (runtime, tool) = (Runtime::in_memory(), Steps::new());
    let server = ToolServer::new("test", &runtime).toolset(tools([Arc::new(tool.clone())]));
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let (output, written) = tokio::io::duplex(64 << 10);
    let serving = tokio::spawn(server.serve_io(theirs, written));
    let mut input = ours;
    let lines = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}
        }}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "steps"}}),
    ];
    for line in lines {
        tokio::io::AsyncWriteExt::write_all(&mut input, format!("{line}\n").as_bytes()).await.unwrap();
    }
    tool.gate.arrived(1).await;
    drop(input);
    tool.gate.open();
    serving.await.unwrap().unwrap();
    let mut all = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut { output }, &mut all).await.unwrap();
    // Each line is a message of the protocol, and the last one is the answer.
    let messages: Vec<serde_json::Value> =
        all.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(messages.iter().all(|it| it["jsonrpc"] == "2.0"), "{all}");
    assert_eq!(messages.last().unwrap()["result"]["content"][0]["text"], "done");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_server_cancels_its_calls() {
    let (runtime, tool) = (Runtime::in_memory(), Steps::new());
    let client = started(&runtime, &tool).await;
    let _call = client.begin("steps", json!({})).await;
    tool.gate.arrived(1).await;
    client.serving.as_ref().unwrap().abort();
    unwound(&runtime, &tool).await;
}
