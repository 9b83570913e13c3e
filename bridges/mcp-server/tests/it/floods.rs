//! A client that asks and asks, and reads nothing.

use std::time::Duration;

use entourage_mcp_server::ToolServer;
use entourage_runtime::Runtime;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

/// More than what fits into the pipe and may wait for the client.
const MANY: u64 = 10_000;

#[tokio::test(start_paused = true)]
async fn attack_38_a_client_that_reads_nothing_is_read_no_further_and_loses_no_answer() {
    let (mut input, theirs) = tokio::io::duplex(64 << 10);
    let (mut output, written) = tokio::io::duplex(2 << 10);
    let serving = tokio::spawn(ToolServer::new("test", &Runtime::in_memory()).serve_io(theirs, written));
    let client = json!({"name": "raw", "version": "1"});
    let begin = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    let begin = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": begin});
    let begun = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    input.write_all(format!("{begin}\n{begun}\n").as_bytes()).await.unwrap();

    let mut sent = 0;
    // The paused clock goes on once nothing else can.
    loop {
        let ask = format!("{}\n", json!({"jsonrpc": "2.0", "id": sent + 1, "method": "tools/list"}));
        if timeout(Duration::from_secs(30), input.write_all(ask.as_bytes())).await.is_err() {
            break;
        }
        sent += 1;
        assert!(sent < MANY, "the server reads on");
    }
    // What is left of the last line is no message.
    drop(input);
    let mut all = String::new();
    output.read_to_string(&mut all).await.unwrap();
    serving.await.unwrap().unwrap();
    let answers = all.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut ids: Vec<_> = answers.filter_map(|answer| answer["id"].as_u64()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..=sent).collect::<Vec<_>>());
}
