//! Clients over HTTP that listen for changes, as many as may.

use std::time::Duration;

use serde_json::json;
use tokio::{io::AsyncReadExt, net::TcpStream, time::timeout};

use crate::{
    ends::server,
    http::{INITIALIZE, Site, post, send, status},
    kit::Steps,
};

const MOST: usize = 256;

fn listen() -> String {
    let body = json!({"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen", "params": {
        "notifications": {"toolsListChanged": true},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }});
    let headers =
        "Host: localhost\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\n";
    post(headers, &body.to_string())
}

/// Reads until the text, or the end.
async fn told(stream: &mut TcpStream, text: &str) -> bool {
    let mut all = Vec::new();
    while !String::from_utf8_lossy(&all).contains(text) {
        match timeout(Duration::from_secs(60), stream.read_u8()).await.unwrap() {
            Ok(byte) => all.push(byte),
            Err(_) => return false,
        }
    }
    true
}

#[tokio::test]
async fn clients_that_listen_leave_room_for_others() {
    let site = Site::open(server(&Steps::new())).await;
    let (_, head) = send(site.port, &post("Host: localhost\r\n", INITIALIZE)).await;
    let session = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap();
    let get = format!(
        "GET /mcp HTTP/1.1\r\nHost: localhost\r\nMcp-Session-Id: {session}\r\nAccept: text/event-stream\r\n\r\n"
    );
    let mut all = Vec::new();
    for _ in 0..MOST {
        let (mut stream, head) = send(site.port, &listen()).await;
        assert!(head.starts_with("HTTP/1.1 200") && told(&mut stream, "acknowledged").await, "{head}");
        all.push(stream);
    }
    // Those have their places soon after they were told so.
    let full = async { while status(site.port, &get).await != 503 {} };
    timeout(Duration::from_secs(60), full).await.unwrap();
    let (mut refused, _) = send(site.port, &listen()).await;
    assert!(told(&mut refused, "try again later").await);
    assert_eq!(status(site.port, &post("Host: localhost\r\n", INITIALIZE)).await, 200);
    // One that leaves makes room.
    drop(all.pop());
    let free = async { while status(site.port, &get).await != 200 {} };
    timeout(Duration::from_secs(60), free).await.unwrap();
    site.close().await;
}
