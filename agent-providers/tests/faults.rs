//! What servers do wrong on the connection: each scripted byte for byte on a raw loopback listener.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic, in its helpers too")]

use std::time::Duration;

use entourage_core::{
    Error, ErrorKind, Result, Retry,
    message::Message,
    provider::{CallContext, Delta, Egress, FinishReason, Provider, ProviderExt, Request},
};
use entourage_providers::openai_chat::{Builder, OpenAiChat};
use futures_util::StreamExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinHandle,
};

const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
const HELLO: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"}}]}\n\n";
const STOP: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// Reads one request: head and body as text.
async fn read_request(stream: &mut TcpStream) -> String {
    let mut request = Vec::new();
    loop {
        let mut piece = [0; 4_096];
        let n = stream.read(&mut piece).await.unwrap();
        request.extend_from_slice(&piece[..n]);
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        assert_ne!(n, 0, "the request broke off: {text}");
    }
}

/// A server that answers each connection with the next of `answers`, in the pieces given, and returns the requests.
async fn serve(answers: Vec<Vec<Vec<u8>>>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let mut requests = Vec::new();
        for pieces in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            requests.push(read_request(&mut stream).await);
            for piece in pieces {
                stream.write_all(&piece).await.unwrap();
                stream.flush().await.unwrap();
                tokio::task::yield_now().await;
            }
            stream.shutdown().await.ok();
        }
        requests
    });
    (format!("http://{address}/v1"), server)
}

async fn answer(text: impl Into<String>) -> (String, JoinHandle<Vec<String>>) {
    serve(vec![vec![text.into().into_bytes()]]).await
}

fn provider(url: &str) -> OpenAiChat {
    keyed(url).build().unwrap()
}

fn keyed(url: &str) -> Builder {
    OpenAiChat::builder().base_url(url).api_key("sk-very-secret").vendor_name("test")
}

fn request() -> Request {
    Request::new("m", [Message::user("Hi")].into_iter().collect())
}

async fn collect(url: &str) -> Result<Vec<Result<Delta>>> {
    let stream = provider(url).stream(request(), &CallContext::new()).await?;
    Ok(stream.collect().await)
}

async fn refused(status: &str, headers: &str, body: &str) -> Error {
    let (url, server) = answer(format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    ))
    .await;
    let error = collect(&url).await.unwrap_err();
    server.await.unwrap();
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("very-secret"), "a key leaked: {shown}");
    error
}

#[tokio::test]
async fn a_reply_streams_and_the_request_is_as_it_should_be() {
    let (url, server) = answer([STREAM, HELLO, STOP].concat()).await;
    let reply = keyed(&url).header("x-team", "blue").build().unwrap();
    let reply = reply.complete(request(), &CallContext::new()).await.unwrap();
    assert_eq!((reply.finish.reason, reply.into_message().text().as_str()), (FinishReason::Stop, "Hello"));
    let sent = server.await.unwrap().remove(0);
    let (head, body) = sent.split_once("\r\n\r\n").unwrap();
    let head = head.to_lowercase();
    assert!(head.starts_with("post /v1/chat/completions http/1.1\r\n"), "{head}");
    for line in [
        "authorization: bearer sk-very-secret",
        "content-type: application/json",
        "x-team: blue",
        "user-agent: entourage/",
    ] {
        assert!(head.contains(line), "{line} is missing in {head}");
    }
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!((&body["stream"], &body["messages"][0]["content"]), (&true.into(), &"Hi".into()));
}

#[tokio::test]
async fn what_the_headers_say_comes_first() {
    let head = STREAM.replace(
        "\r\n\r\n",
        "\r\nx-request-id: req-7\r\nx-ratelimit-remaining-tokens: 9\r\nx-ratelimit-reset-tokens: 6m0s\r\n\r\n",
    );
    let (url, server) = answer([&head, HELLO, STOP].concat()).await;
    let items = collect(&url).await.unwrap();
    server.await.unwrap();
    let Delta::Response(info) = items[0].as_ref().unwrap() else { panic!("{:?}", items[0]) };
    assert_eq!(info.request.as_deref(), Some("req-7"));
    let tokens = info.limits.as_ref().unwrap().tokens;
    assert_eq!(
        (tokens.limit, tokens.remaining, tokens.reset),
        (None, Some(9), Some(Duration::from_secs(360)))
    );
    assert_eq!(items[1].as_ref().unwrap(), &Delta::Text("Hello".into()));
}

#[tokio::test]
async fn a_refused_connection_names_the_address_and_the_fix() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = collect(&format!("http://{address}/v1")).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Transport, Retry::Temporary));
    assert!(
        error.message().contains(&address.to_string()) && error.message().contains("is the server running?"),
        "{error}"
    );
}

#[tokio::test]
async fn a_stream_that_breaks_off_fails_after_what_came() {
    // A length that the body does not reach: the connection broke.
    let (url, server) = answer(format!("HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n{HELLO}")).await;
    let items = collect(&url).await.unwrap();
    server.await.unwrap();
    assert_eq!(items[0].as_ref().unwrap(), &Delta::Text("Hello".into()));
    let error = items[1].as_ref().unwrap_err();
    assert_eq!((items.len(), error.kind(), error.retry()), (2, ErrorKind::Transport, Retry::Temporary));

    // A clean end without a finish: the core says that it was cut off.
    let (url, server) = answer([STREAM, HELLO].concat()).await;
    let error = provider(&url).complete(request(), &CallContext::new()).await.unwrap_err();
    server.await.unwrap();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Protocol, Retry::Temporary));

    // After the reason has come, a break loses nothing.
    let end = STOP.replace("data: [DONE]\n\n", "");
    let (url, server) = answer(format!("HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n{HELLO}{end}")).await;
    let reply = provider(&url).complete(request(), &CallContext::new()).await.unwrap();
    server.await.unwrap();
    assert_eq!(reply.finish.reason, FinishReason::Stop);
}

#[tokio::test]
async fn characters_split_over_chunks_arrive_whole() {
    let body = format!("{STREAM}{}{STOP}", HELLO.replace("Hello", "Grüße 🦀"));
    let pieces = body.as_bytes().chunks(1).map(<[u8]>::to_vec).collect();
    let (url, server) = serve(vec![pieces]).await;
    let reply = provider(&url).complete(request(), &CallContext::new()).await.unwrap();
    server.await.unwrap();
    assert_eq!(reply.into_message().text(), "Grüße 🦀");
}

#[tokio::test]
async fn a_server_that_says_nothing_is_an_error_that_may_be_retried() {
    let (url, server) = answer("").await;
    let error = collect(&url).await.unwrap_err();
    server.await.unwrap();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Transport, Retry::Temporary));
    let (url, server) = answer(STREAM).await;
    assert!(collect(&url).await.unwrap().is_empty());
    server.await.unwrap();
}

#[tokio::test]
async fn refusals_keep_the_services_words_and_never_the_key() {
    let quoting =
        r#"{"error":{"message":"Incorrect API key provided: sk-very-secret","code":"invalid_api_key"}}"#;
    let error = refused("401 Unauthorized", "x-request-id: req-7\r\n", quoting).await;
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Authentication, Retry::Permanent));
    assert!(error.message().contains("Incorrect API key provided: [key]"), "{error}");
    let context: Vec<_> = error.context().collect();
    assert_eq!(context, [("request", "req-7"), ("status", "401"), ("code", "invalid_api_key")]);

    let limited =
        refused("429 Too Many Requests", "Retry-After: 7\r\n", r#"{"error":{"message":"slow down"}}"#).await;
    assert_eq!(
        (limited.kind(), limited.retry_after()),
        (ErrorKind::RateLimited, Some(Duration::from_secs(7)))
    );
    let exact = refused("429 Too Many Requests", "Retry-After: 7\r\nretry-after-ms: 250\r\n", "").await;
    assert_eq!(exact.retry_after(), Some(Duration::from_millis(250)));
    let broken = refused("500 Internal Server Error", "", r#"{"error":"boom"}"#).await;
    assert_eq!((broken.kind(), broken.retry()), (ErrorKind::Overloaded, Retry::Temporary));
    let told = refused("500 Internal Server Error", "x-should-retry: false\r\n", "").await;
    assert_eq!(told.retry(), Retry::Permanent);
    let page =
        refused("502 Bad Gateway", "Content-Type: text/html\r\n", "<html><h1>Bad gateway</h1></html>").await;
    assert!(page.kind() == ErrorKind::Overloaded && !page.message().contains("<h1>"), "{page}");
    let huge = refused("400 Bad Request", "", &"x".repeat(200_000)).await;
    assert!(huge.kind() == ErrorKind::InvalidInput && huge.message().len() < 1_200);
}

#[tokio::test]
async fn an_error_inside_a_stream_ends_it_with_the_services_words() {
    let error = "data: {\"error\":{\"code\":429,\"message\":\"slow down, sk-very-secret\"}}\n\n";
    let (url, server) = answer([STREAM, HELLO, error, STOP].concat()).await;
    let items = collect(&url).await.unwrap();
    server.await.unwrap();
    let error = items[1].as_ref().unwrap_err();
    assert_eq!((items.len(), error.kind()), (2, ErrorKind::RateLimited));
    assert!(error.message().contains("slow down, [key]"), "{error}");
}

#[tokio::test]
async fn a_web_page_or_a_whole_body_with_status_200_is_understood() {
    let (url, server) = answer("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n<html>log in</html>").await;
    let items = collect(&url).await.unwrap();
    server.await.unwrap();
    assert_eq!(items[0].as_ref().unwrap_err().kind(), ErrorKind::Protocol);
    let whole = r#"{"choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}]}"#;
    let (url, server) = answer(format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{whole}")).await;
    let reply = provider(&url).complete(request(), &CallContext::new()).await.unwrap();
    server.await.unwrap();
    assert_eq!(reply.into_message().text(), "Hello");
}

#[tokio::test]
async fn attack_37_a_redirect_never_carries_the_key_away() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = elsewhere.local_addr().unwrap();
    for status in ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let (url, server) =
            answer(format!("HTTP/1.1 {status}\r\nLocation: http://{to}/v1/x\r\nContent-Length: 0\r\n\r\n"))
                .await;
        let error = collect(&url).await.unwrap_err();
        server.await.unwrap();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Transport, Retry::Permanent));
        assert!(error.message().contains(&to.to_string()) && error.message().contains("base URL"), "{error}");
    }
    // Nobody ever connected: a connection made now is the first in the queue.
    let mine = TcpStream::connect(to).await.unwrap();
    let (_, first) = elsewhere.accept().await.unwrap();
    assert_eq!(first, mine.local_addr().unwrap());
}

#[tokio::test]
async fn egress_is_asked_before_anything_connects() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let provider = provider(&format!("http://{}/v1", listener.local_addr().unwrap()));
    let cx = CallContext::new().with_egress(Egress::Forbidden);
    let error = provider.stream(request(), &cx).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    let far = OpenAiChat::builder().base_url("https://model.example/v1").build().unwrap();
    let cx = CallContext::new().with_egress(Egress::Loopback);
    let error = far.stream(request(), &cx).await.err().unwrap();
    assert!(error.message().contains("model.example"), "{error}");
}

#[tokio::test]
async fn a_call_that_outlives_its_timeout_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let provider = provider(&format!("http://{}/v1", listener.local_addr().unwrap()));
    let mut cx = CallContext::new();
    cx.timeout = Some(Duration::from_millis(20));
    let error = provider.stream(request(), &cx).await.err().unwrap();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Timeout, Retry::Temporary));
}

#[tokio::test]
async fn dropping_the_stream_closes_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (tell, mut closed) = mpsc::channel(1);
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        stream.write_all([STREAM, HELLO].concat().as_bytes()).await.unwrap();
        let end = stream.read(&mut [0; 16]).await;
        tell.send(matches!(end, Ok(0) | Err(_))).await.unwrap();
    });
    let mut stream = provider(&url).stream(request(), &CallContext::new()).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap(), Delta::Text("Hello".into()));
    drop(stream);
    assert_eq!(closed.recv().await, Some(true));
    server.await.unwrap();
}

#[tokio::test]
async fn a_connection_is_used_again_after_a_reply() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        // One connection only: a second one would never be accepted.
        let (mut stream, _) = listener.accept().await.unwrap();
        for _ in 0..3 {
            read_request(&mut stream).await;
            let body = [HELLO, STOP].concat();
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            let answer = format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let provider = provider(&url);
    for _ in 0..3 {
        provider.complete(request(), &CallContext::new()).await.unwrap();
        // The tasks that give the connection back are ready by now; on this runtime, yielding runs them.
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
    }
    server.await.unwrap();
}

#[tokio::test]
async fn a_model_that_nobody_named_is_asked_for_once() {
    let list = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"data\":[{\"id\":\"qwen3\"}]}";
    let stream = [STREAM, HELLO, STOP].concat();
    let (url, server) =
        serve([list, &stream, &stream].map(|text| vec![text.as_bytes().to_vec()]).into()).await;
    let provider = OpenAiChat::builder().base_url(&url).build().unwrap();
    for name in ["default", ""] {
        let mut request = request();
        request.model = name.into();
        provider.complete(request, &CallContext::new()).await.unwrap();
    }
    let requests = server.await.unwrap();
    assert!(requests[0].starts_with("GET /v1/models "), "{}", requests[0]);
    assert!(requests[1..].iter().all(|request| request.contains("\"model\":\"qwen3\"")));
}
