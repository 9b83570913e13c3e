//! A run of two agents, exported to a socket of this test and to a real collector (`.ci/otlp.sh`).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use entourage_core::{
    ErrorKind, SessionId,
    agent::Agent,
    permission::Scope,
    provider::FinishReason,
    tool::{Access, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec},
};
use entourage_otel::Otlp;
use entourage_runners::ReactAgent;
use entourage_runtime::permission::Policy;
use entourage_runtime::{Runtime, telemetry::Spans};
use entourage_testkit::{FakeTool, Script, ScriptedProvider};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// A text that is part of all content.
const SECRET: &str = "hunter2";

/// A tool that passes its call on to another agent.
struct Ask(ToolSpec, Arc<dyn Agent>);

#[async_trait]
impl Tool for Ask {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let outcome = cx.run_agent(Arc::clone(&self.1), format!("Help with {SECRET}"), Scope::all()).await?;
        Ok(ToolOutput::text(outcome.text))
    }
}

/// A lead that asks a helper, and another tool that fails.
async fn run(spans: Spans) {
    let other = ScriptedProvider::named("other")
        .step(Script::new().text(format!("I know {SECRET}.")).usage(3, 4).finish(FinishReason::Stop));
    let helper = ReactAgent::builder("helper", other.model()).build().unwrap();
    let spec = ToolSpec::new("ask", "Asks another agent.", json!({"type": "object"}))
        .with_access(Access::DELEGATE)
        .with_repeat(Repeat::Resume);
    let provider = ScriptedProvider::new()
        .step(
            Script::new()
                .text(format!("Let me ask about {SECRET}."))
                .call("ask", &json!({"about": SECRET}))
                .call("tell", &json!({"what": SECRET}))
                .usage(10, 5)
                .finish(FinishReason::ToolCalls),
        )
        .step(Script::new().text(format!("It is {SECRET}.")).usage(30, 6).finish(FinishReason::Stop));
    let lead = ReactAgent::builder("lead", provider.model())
        .tool(Ask(spec, Arc::new(helper)))
        .tool(FakeTool::new("tell").telling(format!("no {SECRET} here")))
        .build()
        .unwrap();
    let runtime = Runtime::builder().policy(Policy::allow_all()).observer(spans).build();
    let session = runtime.session_with_id(SessionId::new("otlp-run").unwrap());
    let outcome = session.start(&lead, format!("What is {SECRET}?")).outcome().await.unwrap();
    assert!(outcome.is_completed(), "{outcome:?}");
}

#[tokio::test]
#[ignore = "needs a receiver at OTLP_URL; see .ci/otlp.sh"]
async fn a_run_arrives_at_a_real_receiver() {
    let url = std::env::var("OTLP_URL").unwrap();
    let otlp =
        Otlp::builder(url).service_name("entourage-ci").header("x-otlp-key", "receiver-key").build().unwrap();
    run(Spans::new().to(otlp.subscriber())).await;
    otlp.shutdown().unwrap();
}

/// Accepts one request and answers it with `status`.
async fn receive(listener: TcpListener, status: &'static str) -> Vec<u8> {
    let (mut socket, _) = listener.accept().await.unwrap();
    let mut request = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let read = socket.read(&mut piece).await.unwrap();
        assert!(read > 0, "the request broke off");
        request.extend(piece.iter().take(read));
        let text = String::from_utf8_lossy(&request).to_ascii_lowercase();
        let Some((head, _)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        if request.len() >= head.len() + 4 + length.parse::<usize>().unwrap() {
            break;
        }
    }
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    socket.write_all(answer.as_bytes()).await.unwrap();
    request
}

async fn listening() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

/// Runs on one thread: the export must not need the runtime that it is ended from.
#[tokio::test]
async fn the_run_is_sent_with_the_headers_and_without_what_was_said() {
    let (listener, url) = listening().await;
    let received = std::thread::spawn(move || {
        let listener = listener.into_std().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { receive(TcpListener::from_std(listener).unwrap(), "200 OK").await })
    });
    let otlp = Otlp::builder(url + "/").header("x-key", "the key").build().unwrap();
    run(Spans::new().to(otlp.subscriber())).await;
    otlp.shutdown().unwrap();
    let received = String::from_utf8_lossy(&received.join().unwrap()).into_owned();
    assert!(received.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{received}");
    assert!(received.contains("x-key: the key\r\n"), "{received}");
    for name in ["invoke_agent lead", "invoke_agent helper", "execute_tool ask", "gen_ai.usage.input_tokens"]
    {
        assert!(received.contains(name), "{name}");
    }
    assert!(!received.contains(SECRET));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_told_without_the_key() {
    let (listener, url) = listening().await;
    let received = tokio::spawn(receive(listener, "401 Unauthorized"));
    let otlp = Otlp::builder(url).header("x-key", SECRET).build().unwrap();
    run(Spans::new().to(otlp.subscriber())).await;
    let error = otlp.flush().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Transport);
    assert!(error.to_string().contains("401") || error.to_string().contains("collector"), "{error}");
    assert!(!format!("{error:?} {otlp:?}").contains(SECRET));
    received.await.unwrap();
}

#[tokio::test]
async fn a_collector_that_never_answers_is_waited_for_as_long_as_said() {
    // Connections wait in the listener's queue, and nobody takes them.
    let (_listener, url) = listening().await;
    let otlp = Otlp::builder(url).timeout(Duration::from_millis(200)).build().unwrap();
    run(Spans::new().to(otlp.subscriber())).await;
    let began = Instant::now();
    assert_eq!(otlp.shutdown().unwrap_err().kind(), ErrorKind::Transport);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_that_were_lost_in_the_background_are_told_at_the_next_flush() {
    let (listener, url) = listening().await;
    let otlp = Otlp::builder(url).build().unwrap();
    let refused = tokio::spawn(receive(listener, "401 Unauthorized"));
    run(Spans::new().to(otlp.subscriber())).await;
    // Nobody but the background asks for it, after a second.
    let request = tokio::time::timeout(Duration::from_secs(30), refused).await.unwrap().unwrap();
    assert!(!request.is_empty());
    let error = tokio::task::spawn_blocking(move || otlp.shutdown().unwrap_err()).await.unwrap();
    assert_eq!(error.kind(), ErrorKind::Transport);
}

#[tokio::test]
async fn dropping_it_within_a_runtime_is_no_trouble() {
    let (_listener, url) = listening().await;
    let otlp = Otlp::builder(url).timeout(Duration::from_millis(200)).build().unwrap();
    let spans = Spans::new().to(otlp.subscriber());
    run(spans).await;
    let began = Instant::now();
    drop(otlp);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[test]
fn what_cannot_work_is_refused_at_once() {
    for endpoint in ["", "127.0.0.1:4318", "ftp://127.0.0.1", "http://me:hunter2@127.0.0.1:4318"] {
        let error = Otlp::builder(endpoint).build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{endpoint}");
        assert!(!error.to_string().contains(SECRET));
    }
    for (name, value) in [("a b", "c"), ("x-key", "hunter2\n")] {
        let error = Otlp::builder("http://127.0.0.1:4318").header(name, value).build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(!format!("{error:?}").contains(SECRET));
    }
    let builder = Otlp::builder("http://127.0.0.1:4318").header("x-key", SECRET);
    assert!(!format!("{builder:?}").contains(SECRET));
}
