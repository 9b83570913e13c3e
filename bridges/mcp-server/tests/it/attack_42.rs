//! Attack 42: a web page that makes its visitor's browser talk to a server on the visitor's machine, by a foreign name
//! that resolves to it (DNS rebinding) or across origins. Raw requests, since clients would not send these.

use std::sync::Arc;

use entourage_core::ErrorKind;
use entourage_mcp_server::ToolServer;
use entourage_runtime::Runtime;
use entourage_testkit::FakeTool;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    http::{INITIALIZE, Site, post, status},
    kit::tools,
};

fn server() -> ToolServer {
    ToolServer::new("test", &Runtime::in_memory()).toolset(tools([Arc::new(FakeTool::new("ok"))]))
}

#[tokio::test]
async fn attack_42_a_foreign_host_gets_403() {
    let site = Site::open(server().allow_hosts(["files.example:8080"]).max_sessions(1_000)).await;
    let port = site.port;
    let own = [format!("localhost:{port}"), format!("127.0.0.1:{port}"), format!("[::1]:{port}")];
    let served = ["localhost", "LOCALHOST", "127.0.0.1", "[::1]", "files.example:8080"];
    for host in served.into_iter().chain(own.iter().map(String::as_str)) {
        assert_eq!(status(port, &post(&format!("Host: {host}\r\n"), INITIALIZE)).await, 200, "{host}");
    }
    let foreign = [
        "evil.example",
        "localhost.evil.example",
        "localhost-evil.example",
        "127.0.0.1.evil.example",
        "evil.example:80",
        "evil.localhost",
        "localhost.",
        "files.example",
        "files.example:8081",
        "sub.files.example:8080",
        "0.0.0.0",
        "127.1",
        "127.0.0.2",
        "2130706433",
        "169.254.169.254",
        "[::]",
        "[fe80::1]",
        "[::ffff:127.0.0.1]",
    ];
    let port_of_ours = format!("evil.example:{port}");
    for host in foreign.into_iter().chain([port_of_ours.as_str()]) {
        for method in ["POST", "GET", "DELETE", "OPTIONS"] {
            let request = post(&format!("Host: {host}\r\n"), INITIALIZE).replacen("POST", method, 1);
            let status = status(port, &request).await;
            assert_eq!(status, 403, "{method} {host}");
        }
    }
    // What names no host, or more than one: rmcp alone would take some of these.
    for headers in [
        "",
        "Host: \r\n",
        "Host: local host\r\n",
        "Host: localhost\r\nHost: evil.example\r\n",
        "Host: evil.example\r\nHost: localhost\r\n",
        "Host: evil.example@localhost\r\n",
        "Host: localhost@evil.example\r\n",
        "Host: [::1].evil.example\r\n",
        "Host: localhost:evil.example\r\n",
    ] {
        assert_eq!(status(port, &post(headers, INITIALIZE)).await, 400, "{headers:?}");
    }
    let proxied = post("Host: localhost\r\n", INITIALIZE).replacen("/mcp", "http://evil.example/mcp", 1);
    assert_eq!(status(port, &proxied).await, 400);
    site.close().await;
}

#[tokio::test]
async fn attack_42_a_browsers_origin_gets_403() {
    let site = Site::open(server().max_sessions(1_000)).await;
    let own = format!("http://127.0.0.1:{}", site.port);
    for origin in [
        "http://evil.example",
        "https://localhost.evil.example",
        "http://localhost:3000",
        "null",
        "file://",
        "",
        &own,
    ] {
        for method in ["POST", "GET", "DELETE", "OPTIONS"] {
            let headers = format!("Host: localhost\r\nOrigin: {origin}\r\n");
            let request = post(&headers, INITIALIZE).replacen("POST", method, 1);
            assert_eq!(status(site.port, &request).await, 403, "{method} {origin:?}");
        }
    }
    // The server's own origin, under the name of the request, and nothing beside it.
    let port = site.port;
    for (headers, expected) in [
        (format!("Host: 127.0.0.1:{port}\r\nOrigin: {own}\r\n"), 200),
        ("Host: localhost\r\nOrigin: http://localhost\r\n".to_owned(), 200),
        (format!("Host: localhost:{port}\r\nOrigin: {own}\r\n"), 403),
        (format!("Host: 127.0.0.1:{port}\r\nOrigin: https://127.0.0.1:{port}\r\n"), 403),
        (format!("Host: 127.0.0.1:{port}\r\nOrigin: {own}0\r\n"), 403),
        (format!("Host: 127.0.0.1:{port}\r\nOrigin: http://evil.example\r\nOrigin: {own}\r\n"), 403),
        ("Host: evil.example\r\nOrigin: http://evil.example\r\n".to_owned(), 403),
    ] {
        assert_eq!(status(port, &post(&headers, INITIALIZE)).await, expected, "{headers}");
    }
    site.close().await;

    let origins = ["http://localhost:*", "https://app.example:443"];
    let site = Site::open(server().allow_origins(origins).max_sessions(1_000)).await;
    for (origin, expected) in [
        ("http://localhost:3000", 200),
        ("http://localhost", 200),
        ("https://app.example", 200),
        ("https://localhost:3000", 403),
        ("http://app.example", 403),
        ("https://app.example:8443", 403),
        ("https://app.example.evil.example", 403),
        ("null", 403),
    ] {
        let headers = format!("Host: localhost\r\nOrigin: {origin}\r\n");
        assert_eq!(status(site.port, &post(&headers, INITIALIZE)).await, expected, "{origin}");
    }
    // An origin does not stand for the host.
    let headers = "Host: evil.example\r\nOrigin: https://app.example\r\n";
    assert_eq!(status(site.port, &post(headers, INITIALIZE)).await, 403);
    site.close().await;
}

#[tokio::test]
async fn attack_42_a_name_that_would_allow_everything_is_refused() {
    for server in [
        server().allow_hosts(["*"]),
        server().allow_hosts([""]),
        server().allow_origins(["*"]),
        server().allow_origins([""]),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let error = server.serve_http(listener, CancellationToken::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
    }
}
