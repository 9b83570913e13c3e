//! Servers over HTTP on a loopback port: rmcp's client, and raw requests for what it does not send.

use std::{sync::Arc, time::Duration};

use entourage_core::Result;
use entourage_mcp_server::ToolServer;
use entourage_runtime::Runtime;
use entourage_testkit::FakeTool;
use rmcp::{
    service::{ClientLifecycleMode, ClientServiceExt},
    transport::StreamableHttpClientTransport,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::mpsc,
    task::JoinHandle,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::kit::{Client, Listener, Steps, lifecycles, result, tools};

pub(crate) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}"#;

/// A server on a port of this machine.
pub(crate) struct Site {
    pub(crate) port: u16,
    shutdown: CancellationToken,
    serving: JoinHandle<Result<()>>,
}

impl Site {
    pub(crate) async fn open(server: ToolServer) -> Self {
        Self::at(TcpListener::bind("127.0.0.1:0").await.unwrap(), server)
    }

    fn at(listener: TcpListener, server: ToolServer) -> Self {
        let (port, shutdown) = (listener.local_addr().unwrap().port(), CancellationToken::new());
        let serving = tokio::spawn(server.serve_http(listener, shutdown.clone()));
        Self { port, shutdown, serving }
    }

    pub(crate) async fn client(&self, lifecycle: ClientLifecycleMode) -> Client {
        // Plain HTTP needs none, but reqwest does. A second call finds it installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let transport =
            StreamableHttpClientTransport::from_uri(format!("http://127.0.0.1:{}/mcp", self.port));
        let (sender, progress) = mpsc::unbounded_channel();
        let service = Listener(sender).serve_with_lifecycle(transport, lifecycle).await.unwrap();
        Client { service, progress, serving: None }
    }

    pub(crate) async fn close(self) {
        self.shutdown.cancel();
        self.serving.await.unwrap().unwrap();
    }
}

/// Returns a request with these headers, beside those that the protocol asks for.
pub(crate) fn post(headers: &str, body: &str) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\n{headers}Accept: application/json, text/event-stream\r\nContent-Type: \
         application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Sends bytes, and returns the connection and the head of the answer.
pub(crate) async fn send(port: u16, request: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    // A server that refuses a request need not read all of it.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    (stream, String::from_utf8(head).unwrap())
}

pub(crate) async fn status(port: u16, request: &str) -> u16 {
    let (_, head) = send(port, request).await;
    head.split(' ').nth(1).unwrap_or_else(|| panic!("no answer to {request}")).parse().unwrap()
}

fn server(tool: impl entourage_core::tool::Tool + 'static) -> ToolServer {
    ToolServer::new("test", &Runtime::in_memory()).toolset(tools([Arc::new(tool)]))
}

#[tokio::test]
async fn lists_and_calls_in_each_lifecycle() {
    let site = Site::open(server(FakeTool::new("echo").echoing())).await;
    for lifecycle in lifecycles() {
        let client = site.client(lifecycle).await;
        assert_eq!(client.names().await, ["echo"]);
        assert_eq!(client.text("echo", json!({"a": 1})).await, (r#"{"a":1}"#.to_owned(), false));
        assert!(client.text("none", json!({})).await.1);
        client.close().await;
    }
    site.close().await;
}

#[tokio::test]
async fn progress_and_parallel_calls_in_each_lifecycle() {
    for lifecycle in lifecycles() {
        let tool = Steps::new();
        let site = Site::open(server(tool.clone())).await;
        let mut client = site.client(lifecycle).await;
        let calls = [client.begin("steps", json!({})).await, client.begin("steps", json!({})).await];
        // Both run at once: the gate is closed.
        tool.gate.arrived(2).await;
        for _ in 0..2 {
            assert_eq!(client.progress.recv().await, Some((1.0, "half".to_owned())));
        }
        tool.gate.open();
        for call in calls {
            assert_eq!(result(call).await, ("done".to_owned(), false));
        }
        client.close().await;
        site.close().await;
    }
}

#[tokio::test]
async fn clients_with_sessions_have_conversations_of_their_own_and_others_share_one() {
    let runtime = Runtime::in_memory();
    let server = ToolServer::new("test", &runtime).toolset(tools([Arc::new(FakeTool::new("ok"))]));
    let site = Site::open(server).await;
    let all = entourage_core::session::SessionFilter::all();
    let [with, without] = lifecycles();
    for (lifecycle, sessions) in [(&with, 1), (&with, 2), (&without, 3), (&without, 3)] {
        let client = site.client(lifecycle.clone()).await;
        for _ in 0..2 {
            client.text("ok", json!({})).await;
        }
        client.close().await;
        assert_eq!(runtime.sessions(&all).await.unwrap().len(), sessions);
    }
    site.close().await;
}

#[tokio::test]
async fn a_cancel_and_the_end_of_the_server_drop_the_call() {
    let tool = Steps::new();
    let site = Site::open(server(tool.clone())).await;
    let client = site.client(ClientLifecycleMode::Initialize).await;
    let doomed = client.begin("steps", json!({})).await;
    tool.gate.arrived(1).await;
    doomed.cancel(None).await.unwrap();
    tool.alive(0).await;
    let _call = client.begin("steps", json!({})).await;
    tool.gate.arrived(2).await;
    site.close().await;
    assert!(!tool.is_alive(), "the server waits for its calls");
}

#[tokio::test]
async fn a_client_without_session_that_goes_away_drops_its_call() {
    let tool = Steps::new();
    let site = Site::open(server(tool.clone())).await;
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "steps",
        "arguments": {},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }});
    let headers = "Host: localhost\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: steps\r\n";
    let mut stream = TcpStream::connect(("127.0.0.1", site.port)).await.unwrap();
    stream.write_all(post(headers, &call.to_string()).as_bytes()).await.unwrap();
    tool.gate.arrived(1).await;
    drop(stream);
    tool.alive(0).await;
    site.close().await;
}

#[tokio::test]
async fn bodies_are_bounded() {
    let site = Site::open(server(FakeTool::new("ok")).max_message(1_000)).await;
    let long = INITIALIZE.replacen("raw", &"x".repeat(2_000), 1);
    assert_eq!(status(site.port, &post("Host: localhost\r\n", &long)).await, 413);
    // No length is given before.
    let chunked = post("Host: localhost\r\nTransfer-Encoding: chunked\r\n", "").replacen(
        "Content-Length: 0\r\n",
        "",
        1,
    );
    let chunk = format!("{:x}\r\n{}\r\n", 600, "x".repeat(600));
    assert_eq!(status(site.port, &format!("{chunked}{chunk}{chunk}0\r\n\r\n")).await, 413);
    let head = post(&format!("Host: localhost\r\nX: {}\r\n", "x".repeat(100 << 10)), INITIALIZE);
    assert_eq!(status(site.port, &head).await, 431);
    assert_eq!(status(site.port, &post("Host: localhost\r\n", INITIALIZE)).await, 200);
    assert_eq!(status(site.port, &post("Host: localhost\r\n", "{").replacen("/mcp", "/", 1)).await, 404);
    site.close().await;
}

#[tokio::test]
async fn sessions_are_bounded_and_a_closed_one_makes_room() {
    let site = Site::open(server(FakeTool::new("ok")).max_sessions(1)).await;
    let request = post("Host: localhost\r\n", INITIALIZE);
    let (_, head) = send(site.port, &request).await;
    let session = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().to_owned();
    assert_eq!(status(site.port, &request).await, 503);
    let headers = format!("Host: localhost\r\nMcp-Session-Id: {session}\r\n");
    let ping: Value = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    // The session that there is goes on.
    assert_eq!(status(site.port, &post(&headers, &ping.to_string())).await, 200);
    let unknown = post("Host: localhost\r\nMcp-Session-Id: none\r\n", &ping.to_string());
    assert_eq!(status(site.port, &unknown).await, 404);
    assert_eq!(status(site.port, &post(&headers, "").replacen("POST", "DELETE", 1)).await, 204);
    assert_eq!(status(site.port, &request).await, 200);
    site.close().await;
}

#[tokio::test]
async fn least_bounds_serve_a_client() {
    let server = server(FakeTool::new("ok"));
    let server = server.max_calls(0).max_sessions(0).max_message(0).idle_timeout(Duration::ZERO);
    let site = Site::open(server).await;
    let client = site.client(ClientLifecycleMode::Initialize).await;
    assert_eq!(client.text("ok", json!({})).await, ("ok".to_owned(), false));
    // The bound is there all the same.
    let long = INITIALIZE.replacen("raw", &"x".repeat(2_000), 1);
    assert_eq!(status(site.port, &post("Host: localhost\r\n", &long)).await, 413);
    client.close().await;
    site.close().await;
}

/// Waits until no more than so many questions are open.
async fn until_pending(runtime: &Runtime, most: usize) {
    let closed = async {
        while runtime.pending().await.is_ok_and(|open| open.len() > most) {
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(tokio::time::timeout(Duration::from_secs(60), closed).await, Ok(()));
}

#[tokio::test]
async fn questions_are_closed_when_a_session_or_the_server_ends() {
    let runtime = Runtime::in_memory();
    let tool = FakeTool::new("write").access(entourage_core::tool::Access::WRITE);
    let server = ToolServer::new("test", &runtime).toolset(tools([Arc::new(tool)]));
    let site = Site::open(server.scope(entourage_core::permission::Scope::all())).await;
    let [with, without] = lifecycles();
    let (leaves, stays) = (site.client(with.clone()).await, site.client(with).await);
    let stateless = site.client(without).await;
    for client in [&leaves, &stays, &stateless] {
        let (text, _) = client.text("write", json!({})).await;
        assert!(text.contains("by the approval"), "{text}");
    }
    assert_eq!(runtime.pending().await.unwrap().len(), 3);
    leaves.close().await;
    until_pending(&runtime, 2).await;
    site.close().await;
    assert_eq!(runtime.pending().await.unwrap(), []);
}

#[tokio::test]
async fn questions_are_closed_when_a_server_is_dropped() {
    for lifecycle in lifecycles() {
        let runtime = Runtime::in_memory();
        let tool = FakeTool::new("write").access(entourage_core::tool::Access::WRITE);
        let server = ToolServer::new("test", &runtime).toolset(tools([Arc::new(tool)]));
        let site = Site::open(server.scope(entourage_core::permission::Scope::all())).await;
        let client = site.client(lifecycle).await;
        let (text, _) = client.text("write", json!({})).await;
        assert!(text.contains("by the approval"), "{text}");
        assert_eq!(runtime.pending().await.unwrap().len(), 1);
        site.serving.abort();
        assert!(site.serving.await.unwrap_err().is_cancelled());
        until_pending(&runtime, 0).await;
    }
}

/// Sends a request, and reads nothing.
async fn unread(port: u16, request: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(1 << 10).unwrap();
    let mut client = socket.connect(([127, 0, 0, 1], port).into()).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    client
}

#[tokio::test]
async fn the_end_cancels_all_calls_at_once_also_of_clients_that_read_nothing() {
    let tool = Steps::new().for_ever();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_send_buffer_size(4 << 10).unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let site = Site::at(socket.listen(16).unwrap(), server(tool.clone()));
    let meta = json!({
        "progressToken": "p",
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let call = |id: u32, meta: &Value| {
        let params = json!({"name": "steps", "arguments": {}, "_meta": meta});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
    };
    let alone = "Host: localhost\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: steps\r\n";
    let (_, begun) = send(site.port, &post("Host: localhost\r\n", INITIALIZE)).await;
    let session = begun.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap();
    let within =
        format!("Host: localhost\r\nMcp-Session-Id: {session}\r\nMCP-Protocol-Version: 2025-06-18\r\n");
    let (none, token) = (json!({}), json!({"progressToken": "p"}));
    let clients = [
        unread(site.port, &post(alone, &call(1, &meta))).await,
        unread(site.port, &post(&within, &call(2, &none))).await,
        unread(site.port, &post(&within, &call(3, &token))).await,
    ];
    tool.alive(3).await;
    // Until the sockets are full.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let Site { shutdown, serving, .. } = site;
    shutdown.cancel();
    for _ in 0..100_000 {
        tokio::task::yield_now().await;
    }
    assert!(!tool.is_alive());
    tokio::time::pause();
    let before = Instant::now();
    serving.await.unwrap().unwrap();
    // That is the time of connections.
    assert!(before.elapsed() <= Duration::from_secs(6), "{:?}", before.elapsed());
    drop(clients);
}
