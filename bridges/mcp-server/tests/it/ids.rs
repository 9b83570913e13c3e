//! Requests of one id, of which the first has no answer yet.

use std::time::Duration;

use rmcp::service::ClientLifecycleMode;
use serde_json::json;
use tokio::{io::AsyncReadExt, time::timeout};

use crate::{
    ends::{Raw, server, steps},
    http::{INITIALIZE, Site, post, send},
    kit::Steps,
};

const CANCEL: &str = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"7"}}"#;

#[tokio::test(start_paused = true)]
async fn a_second_request_of_an_id_in_flight_is_refused_over_pipes() {
    let tool = Steps::new();
    let mut raw = Raw::begin(server(&tool)).await;
    raw.say(&steps("7")).await;
    tool.gate.arrived(1).await;
    for again in [steps("7"), r#"{"jsonrpc":"2.0","id":"7","method":"tools/list"}"#.to_owned()] {
        raw.say(&again).await;
        let refusal = raw.hear().await;
        assert_eq!((&refusal["id"], &refusal["error"]["code"]), (&json!("7"), &json!(-32600)), "{refusal}");
    }
    // The first goes on, and can be cancelled.
    assert!(tool.is_alive());
    raw.say(CANCEL).await;
    timeout(Duration::from_secs(60), tool.alive(0)).await.unwrap();
    // Once answered, or cancelled, an id is free.
    tool.gate.open();
    for _ in 0..2 {
        let answer = loop {
            raw.say(&steps("7")).await;
            let answer = raw.hear().await;
            if answer.get("error").is_none() {
                break answer;
            }
        };
        assert_eq!(answer["result"]["content"][0]["text"], "done", "{answer}");
    }
    raw.say(CANCEL).await;
    raw.say(r#"{"jsonrpc":"2.0","id":"7","method":"ping"}"#).await;
    assert!(raw.hear().await.get("result").is_some());
}

#[tokio::test]
async fn a_second_request_of_an_id_in_flight_is_refused_in_a_session() {
    let tool = Steps::new();
    let site = Site::open(server(&tool)).await;
    let (_, head) = send(site.port, &post("Host: localhost\r\n", INITIALIZE)).await;
    let session = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().to_owned();
    let headers = format!("Host: localhost\r\nMcp-Session-Id: {session}\r\n");
    send(site.port, &post(&headers, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)).await;
    let call = post(&headers, &steps("7"));
    let (mut first, _) = send(site.port, &call).await;
    tool.gate.arrived(1).await;
    let answer = |mut stream: tokio::net::TcpStream| async move {
        let mut all = String::new();
        let read = stream.read_to_string(&mut all);
        timeout(Duration::from_secs(60), read).await.unwrap().unwrap();
        all
    };
    let (second, head) = send(site.port, &call).await;
    let refusal = answer(second).await;
    assert!(head.starts_with("HTTP/1.1 200") && refusal.contains("-32600"), "{head}{refusal}");
    // Another client may have the same id, and the first call is answered.
    let other = site.client(ClientLifecycleMode::Initialize).await;
    let beside = other.begin("steps", json!({})).await;
    tool.gate.arrived(2).await;
    tool.gate.open();
    let mut all = String::new();
    timeout(Duration::from_secs(60), first.read_to_string(&mut all)).await.unwrap().unwrap();
    assert!(all.contains("done"), "{all}");
    assert_eq!(crate::kit::result(beside).await, ("done".to_owned(), false));
    // An answered id is free.
    let (third, _) = send(site.port, &call).await;
    assert!(answer(third).await.contains("done"));
    other.close().await;
    site.close().await;
}
