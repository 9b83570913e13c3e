//! Calls that end early: a prompt that does not fit, and a caller that goes away.

use std::time::{Duration, Instant};

use entourage_core::{
    ErrorKind, RetryStatus,
    message::Message,
    provider::{CallContext, Delta, Request, ToolChoice},
    run::Status,
    tool::{Access, ToolSpec},
};
use entourage_runners::{ReactAgent, from_fn::from_fn};
use entourage_runtime::AgentExt;
use entourage_runtime::reply::ProviderExt;
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{Peer, SERVER, params, peers, request, server};

#[tokio::test]
#[ignore = "needs LLM_PEER_URL, the address of a llama.cpp server"]
async fn a_prompt_beyond_the_window_is_told_apart() {
    let _server = SERVER.read().await;
    for peer in peers() {
        let long = Request::new("default", [Message::user("word ".repeat(10_000))].into_iter().collect());
        let error = peer.provider.complete(long, &CallContext::new()).await.unwrap_err();
        println!("{}: {error}", peer.wire);
        assert_eq!(
            (error.kind(), error.retry()),
            (ErrorKind::ContextOverflow, RetryStatus::Permanent),
            "{error}"
        );
        for value in [("status", "400"), ("code", "exceed_context_size_error")] {
            assert!(error.context().any(|known| known == value), "{}: {error}", peer.wire);
        }
        assert!(error.message().contains("shorten or compact"), "{error}");
        peer.provider.complete(request("Hi"), &CallContext::new()).await.unwrap();
    }
}

/// Time within which the server must notice that its caller left; otherwise it would work several times as long.
const NOTICED: Duration = Duration::from_secs(3);

/// A tool whose arguments the grammar makes thousands of bytes long.
fn long() -> ToolSpec {
    let names = ["a", "b", "c", "d", "e", "f"];
    let fields = names.map(|name| (name.to_owned(), json!({"type": "string", "minLength": 1_000})));
    let fields = Value::Object(fields.into_iter().collect());
    let schema = json!({"type": "object", "properties": fields, "required": names});
    ToolSpec::new("write", "Writes at length.", schema).with_access(Access::NONE)
}

fn at_length() -> Request {
    let mut params = params();
    params.max_output = Some(7_000);
    request("Write.").with_tools([long()]).with_tool_choice(ToolChoice::Required).with_params(params)
}

/// Number of calls that the server works on.
async fn busy() -> usize {
    let server = server();
    let address = server.trim_start_matches("http://");
    let mut connection = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /slots HTTP/1.0\r\nHost: {address}\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    connection.read_to_string(&mut reply).await.unwrap();
    let (_, slots) = reply.split_once("\r\n\r\n").unwrap();
    let slots: Vec<Value> = serde_json::from_str(slots).unwrap();
    slots.iter().filter(|slot| slot["is_processing"] == true).count()
}

/// Waits until the server is idle. Returns the time that took.
async fn idle(peer: &Peer) -> Duration {
    let since = Instant::now();
    while busy().await > 0 {
        assert!(since.elapsed() < NOTICED, "{}: the server still works for nobody", peer.wire);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    since.elapsed()
}

#[tokio::test]
#[ignore = "needs LLM_PEER_URL, the address of a llama.cpp server"]
async fn a_cancel_in_the_middle_frees_the_server() {
    let _server = SERVER.write().await;
    for peer in peers() {
        idle(&peer).await;
        // As many as the server has room for.
        let mut streams = Vec::new();
        for _ in 0..4 {
            let mut stream = peer.provider.stream(at_length(), &CallContext::new()).await.unwrap();
            loop {
                if matches!(stream.next().await.unwrap().unwrap(), Delta::ToolCallArguments { .. }) {
                    break;
                }
            }
            streams.push(stream);
        }
        let before = busy().await;
        drop(streams);
        let dropped = idle(&peer).await;
        assert_eq!(before, 4, "{}", peer.wire);
        peer.provider.complete(request("Hi"), &CallContext::new()).await.unwrap();
        idle(&peer).await;

        let write = from_fn(long(), |_| async { Ok("written") });
        let mut params = params();
        params.max_output = Some(7_000);
        let agent =
            ReactAgent::builder("writer", peer.model.clone()).tool(write).params(params).build().unwrap();
        let run = agent.start("Write.");
        let since = Instant::now();
        while busy().await == 0 {
            assert!(since.elapsed() < NOTICED, "{}: the run never called its model", peer.wire);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        run.cancel();
        let outcome = run.outcome().await.unwrap();
        assert_eq!(outcome.status, Status::Cancelled, "{}", peer.wire);
        let cancelled = idle(&peer).await;
        println!(
            "{}: 4 streams dropped, idle after {dropped:?}; run cancelled, idle after {cancelled:?}",
            peer.wire
        );
        peer.provider.complete(request("Hi"), &CallContext::new()).await.unwrap();
    }
}
