//! Embeddings over a connection: batches, refusals, cuts, floods, and ends by the caller.

use std::time::Duration;

use entourage_core::{
    Error, ErrorKind, Result, RetryStatus, Usage,
    provider::{CallContext, Egress, Embedder, Embeddings},
};
use entourage_providers::openai_chat::{OpenAiChat, OpenAiEmbedder};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::{
    server::{Act, Seen, Server, check_words, send, serve},
    wires::{HEADER, KEY},
};

fn embedder(url: &str, model: &str) -> OpenAiEmbedder {
    let service = OpenAiChat::builder().base_url(url).vendor_name("test").api_key(KEY);
    service.header("x-team", HEADER).build().unwrap().embedder(model)
}

fn texts(all: &[&str]) -> Vec<String> {
    all.iter().map(|&text| text.to_owned()).collect()
}

fn answer(status: &str, headers: &str, body: &str) -> Vec<Act> {
    let length = body.len();
    vec![send(format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    ))]
}

/// A reply with these vectors, the last first.
fn reply(vectors: &[&[f32]], tokens: Option<u64>) -> Vec<Act> {
    let item = |(index, vector)| json!({"object": "embedding", "index": index, "embedding": vector});
    let data: Vec<_> = vectors.iter().enumerate().map(item).rev().collect();
    let usage = tokens.map(|tokens| json!({"prompt_tokens": tokens, "total_tokens": tokens}));
    let body = json!({"object": "list", "data": data, "model": "m", "usage": usage});
    answer("200 OK", "Content-Type: application/json\r\n", &body.to_string())
}

fn body(seen: &Seen) -> Value {
    serde_json::from_str(seen.request.split_once("\r\n\r\n").unwrap().1).unwrap()
}

async fn embed(server: &Server, all: &[&str]) -> Result<Embeddings> {
    embedder(&server.url, "m").with_batch(2).embed(&texts(all), &CallContext::new()).await
}

/// The error of one text that the server answers with `acts`, and the server's view of the call.
async fn fail(name: &str, acts: Vec<Act>) -> (Error, Seen) {
    let server = serve(vec![acts]).await;
    let error = embed(&server, &["a"]).await.unwrap_err();
    check_words(&error, name);
    assert!(format!("{error:?}").contains("model.embed"), "{name}: {error:?}");
    (error, server.task.await.unwrap().remove(0))
}

#[tokio::test]
async fn embeddings_come_in_order_over_all_batches() {
    let server = serve(vec![
        reply(&[&[1.0], &[2.0]], Some(7)),
        reply(&[&[3.0], &[4.0]], Some(2)),
        reply(&[&[5.0]], Some(1)),
    ])
    .await;
    let found = embed(&server, &["a", "b", "c", "d", "e"]).await.unwrap();
    assert_eq!(found.vectors, [[1.0], [2.0], [3.0], [4.0], [5.0]]);
    assert_eq!(found.usage, Usage::new(10, 0));
    let seen = server.task.await.unwrap();
    let inputs: Vec<_> = seen.iter().map(|seen| body(seen)["input"].clone()).collect();
    assert_eq!(inputs, [json!(["a", "b"]), json!(["c", "d"]), json!(["e"])]);
    assert!(seen[0].request.starts_with("POST /v1/embeddings HTTP/1.1\r\n"), "{}", seen[0].request);
    assert!(seen[0].request.contains(&format!("authorization: Bearer {KEY}\r\n")), "{}", seen[0].request);

    let server = serve(vec![reply(&[&[1.0], &[2.0]], Some(7)), reply(&[&[3.0]], None)]).await;
    let found = embed(&server, &["a", "b", "c"]).await.unwrap();
    assert!(found.usage.is_unknown(), "a part would pass for the whole: {:?}", found.usage);
}

#[tokio::test]
async fn embeddings_of_no_texts_need_no_service() {
    let embedder = embedder("http://127.0.0.1:1/v1", "m");
    let none = embedder.embed(&[], &CallContext::new().with_egress(Egress::Forbidden)).await.unwrap();
    assert_eq!((none.vectors.len(), none.usage), (0, Usage::new(0, 0)));
}

#[tokio::test]
async fn embeddings_ask_the_server_for_its_model_when_none_is_named() {
    let models = answer("200 OK", "", r#"{"data":[{"id":"nomic"}]}"#);
    let server = serve(vec![models, reply(&[&[1.0]], None), reply(&[&[1.0]], None)]).await;
    let embedder = embedder(&server.url, "default");
    for _ in 0..2 {
        embedder.embed(&texts(&["a"]), &CallContext::new()).await.unwrap();
    }
    let seen = server.task.await.unwrap();
    assert!(seen[0].request.starts_with("GET /v1/models "), "{}", seen[0].request);
    assert_eq!((&body(&seen[1])["model"], &body(&seen[2])["model"]), (&json!("nomic"), &json!("nomic")));
    assert_eq!(embedder.model(), "default");
}

#[tokio::test]
async fn embeddings_that_are_refused_say_if_and_when_to_try_again() {
    use RetryStatus::{Permanent, Temporary};
    let no = json!({"error": {"message": format!("no, {KEY}, not with {HEADER}\u{1b}[2J")}}).to_string();
    let long = r#"{"error":{"message":"the input is too long","type":"invalid_request_error"}}"#;
    for (status, body, kind, retry) in [
        ("400 Bad Request", no.as_str(), ErrorKind::InvalidInput, Permanent),
        ("400 Bad Request", long, ErrorKind::ContextOverflow, Permanent),
        ("401 Unauthorized", &no, ErrorKind::Authentication, Permanent),
        ("404 Not Found", &no, ErrorKind::NotFound, Permanent),
        ("429 Too Many Requests", &no, ErrorKind::RateLimited, Temporary),
        ("500 Internal Server Error", &no, ErrorKind::Overloaded, Temporary),
        ("307 Temporary Redirect", "", ErrorKind::Transport, Permanent),
        ("200 OK", &no, ErrorKind::Protocol, Permanent),
        ("200 OK", "", ErrorKind::Protocol, Temporary),
        ("200 OK", "<html>", ErrorKind::Protocol, Permanent),
    ] {
        let (error, _) = fail(status, answer(status, "Retry-After: 7\r\nX-Request-Id: r1\r\n", body)).await;
        assert_eq!((error.kind(), error.retry()), (kind, retry), "{status} {body}: {error:?}");
        assert!(error.context().any(|value| value == ("request", "r1")), "{status}: {error:?}");
        if !status.starts_with(['2', '3']) {
            assert_eq!(error.retry_after(), Some(Duration::from_secs(7)), "{status}");
        }
    }
}

#[tokio::test]
async fn embeddings_over_a_connection_that_breaks_may_be_tried_again() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"data\":[";
    for (name, acts) in [
        ("closed before the answer", vec![]),
        ("reset before the answer", vec![Act::Reset]),
        ("closed inside the headers", vec![send("HTTP/1.1 200 OK\r\nContent-Le")]),
        ("closed inside the body", vec![send(head)]),
        ("reset inside the body", vec![send(head), Act::Reset]),
    ] {
        let (error, _) = fail(name, acts).await;
        assert_eq!(
            (error.kind(), error.retry()),
            (ErrorKind::Transport, RetryStatus::Temporary),
            "{name}: {error}"
        );
    }
}

#[tokio::test]
async fn embeddings_without_end_are_left_within_bounds() {
    let acts = vec![
        send("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"data\":[{\"index\":0,\"embedding\":[0.5"),
        Act::Flood(b",0.5".repeat(16 << 10), 200 << 20),
    ];
    let (error, seen) = fail("a vector without end", acts).await;
    assert_eq!((error.kind(), error.retry()), (ErrorKind::TooLarge, RetryStatus::Permanent), "{error}");
    assert!(seen.closed && seen.pushed < 16 << 20, "took {} bytes", seen.pushed);
}

#[tokio::test]
async fn embeddings_end_with_the_first_batch_that_fails() {
    for (second, kind) in [
        (answer("503 Service Unavailable", "", "{}"), ErrorKind::Overloaded),
        (reply(&[&[3.0]], None), ErrorKind::Protocol),
        (reply(&[&[3.0, 3.0], &[4.0, 4.0]], None), ErrorKind::Protocol),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = crate::server::serve_on(listener, vec![reply(&[&[1.0], &[2.0]], None), second]);
        // A third request would find nobody and fail as one that was not sent.
        let error = embed(&server, &["a", "b", "c", "d", "e"]).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!(server.task.await.unwrap().len(), 2);
    }
}

#[tokio::test]
async fn embeddings_end_at_once_with_a_cancel() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let embedder = embedder(&format!("http://{}/v1", listener.local_addr().unwrap()), "m").with_batch(1);
    let (cx, all) = (CallContext::new(), texts(&["a", "b", "c"]));
    let server = async {
        let Act::Send(first) = reply(&[&[1.0]], None).remove(0) else { panic!("no answer") };
        let mut piece = [0; 4_096];
        let (mut one, _) = listener.accept().await.unwrap();
        assert!(one.read(&mut piece).await.unwrap() > 0);
        one.write_all(&first).await.unwrap();
        let (mut two, _) = listener.accept().await.unwrap();
        assert!(two.read(&mut piece).await.unwrap() > 0);
        cx.cancel.cancel();
        // The caller leaves: the connection ends, and no third one comes.
        while two.read(&mut piece).await.is_ok_and(|n| n > 0) {}
    };
    let (ended, ()) = tokio::join!(embedder.embed(&all, &cx), server);
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Cancelled);
    // A call that is cancelled already does not connect.
    assert_eq!(embedder.embed(&all, &cx).await.unwrap_err().kind(), ErrorKind::Cancelled);
    drop(listener);
}

#[tokio::test]
async fn embeddings_are_bounded_by_the_time_of_the_call() {
    let server = serve(vec![vec![Act::Hold]]).await;
    let mut cx = CallContext::new();
    cx.timeout = Some(Duration::from_millis(400));
    let error = embedder(&server.url, "m").embed(&texts(&["a"]), &cx).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Timeout, RetryStatus::Temporary), "{error}");
    assert!(server.task.await.unwrap()[0].closed);
    // No time is left: nothing listens, and nothing is asked.
    cx.timeout = Some(Duration::ZERO);
    let error = embedder("http://127.0.0.1:1/v1", "m").embed(&texts(&["a"]), &cx).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
}

#[tokio::test]
async fn embeddings_stay_within_the_egress_of_the_call() {
    for (url, egress) in
        [("http://127.0.0.1:1/v1", Egress::Forbidden), ("https://model.example/v1", Egress::Loopback)]
    {
        for model in ["m", "default"] {
            let cx = CallContext::new().with_egress(egress);
            let error = embedder(url, model).embed(&texts(&["a"]), &cx).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{url} {model}: {error}");
        }
    }
}
