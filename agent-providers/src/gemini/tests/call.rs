//! One call over a connection: its address and its key.

use entourage_core::{
    message::Message,
    provider::{CallContext, Provider, Request},
};
use entourage_runtime::reply::ProviderExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::{super::Gemini, parts, stream};

/// Answers one request with a reply that says "ok". Returns the request.
async fn answer(listener: TcpListener) -> String {
    let (mut connection, _) = listener.accept().await.unwrap();
    let mut asked = Vec::new();
    while !asked.ends_with(b"]}") {
        let mut piece = [0; 1_024];
        let read = connection.read(&mut piece).await.unwrap();
        assert!(read > 0, "the request ended early");
        asked.extend_from_slice(&piece[..read]);
    }
    let said = stream(&[&format!(r#"{},"finishReason":"STOP""#, parts(r#"{"text":"ok"}"#))]);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    connection.write_all(format!("{head}{said}").as_bytes()).await.unwrap();
    String::from_utf8(asked).unwrap()
}

#[tokio::test]
async fn the_key_travels_in_the_header_that_is_asked_for() {
    for (bearer, header) in [(false, "x-goog-api-key: k"), (true, "authorization: Bearer k")] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}/v1beta", listener.local_addr().unwrap());
        let builder = Gemini::builder().base_url(base).api_key("k");
        let service = if bearer { builder.bearer() } else { builder }.build().unwrap();
        assert_eq!(service.name(), "127.0.0.1");
        let request = Request::new("models/m 1", [Message::user("Hi")].into_iter().collect());
        let (context, asked) = (CallContext::new(), answer(listener));
        let (reply, asked) = tokio::join!(service.complete(request, &context), asked);
        assert_eq!(reply.unwrap().into_message().text(), "ok");
        assert!(
            asked.starts_with("POST /v1beta/models/m%201:streamGenerateContent?alt=sse HTTP/1.1\r\n"),
            "{asked}"
        );
        assert_eq!(asked.contains("x-goog-api-key"), !bearer);
        assert!(asked.contains(header), "{asked}");
    }
}
