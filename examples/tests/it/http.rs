//! A model service that misbehaves on purpose: plain TCP on the loopback interface, HTTP written by hand.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinHandle,
};

/// The head of a successful streamed reply that ends with the connection.
pub(crate) const STREAM: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
/// The head of a reply that promises more bytes than will ever come.
pub(crate) const LONG: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 99999\r\n\r\n";

/// One request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) head: String,
    pub(crate) body: Value,
}

impl Asked {
    /// The messages of the request.
    pub(crate) fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map(Vec::as_slice).unwrap_or_default()
    }

    /// The key of the request.
    pub(crate) fn authorization(&self) -> &str {
        self.head.lines().find_map(|line| line.strip_prefix("authorization: ")).unwrap_or_default()
    }
}

/// The server's behaviour on one connection, once it has read the request.
pub(crate) enum Answer {
    /// Sends this and closes the connection.
    Send(Vec<u8>),
    /// Sends text made from the request and closes the connection.
    Echo(fn(&Asked) -> String),
    /// Sends this, and then nothing until the client closes the connection.
    Stall(Vec<u8>),
}

impl Answer {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Send(text.into().into_bytes())
    }

    /// A successful reply of text.
    pub(crate) fn says(text: &str) -> Self {
        let delta = chunk(&json!({ "content": text }), None);
        Self::text([STREAM, &delta, &chunk(&json!({}), Some("stop")), DONE].concat())
    }

    /// A successful reply of calls, each given by id, name and the text of its arguments.
    pub(crate) fn calls(calls: &[(&str, &str, &str)]) -> Self {
        Self::text([STREAM, &call_chunk(calls), &chunk(&json!({}), Some("tool_calls")), DONE].concat())
    }
}

const DONE: &str = "data: [DONE]\n\n";

/// One piece of a streamed reply.
pub(crate) fn chunk(delta: &Value, finish: Option<&str>) -> String {
    format!("data: {}\n\n", json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] }))
}

pub(crate) fn call_chunk(calls: &[(&str, &str, &str)]) -> String {
    let calls: Vec<_> = calls
        .iter()
        .enumerate()
        .map(|(index, (id, name, arguments))| {
            json!({
                "index": index, "id": id, "type": "function",
                "function": { "name": name, "arguments": arguments },
            })
        })
        .collect();
    chunk(&json!({ "tool_calls": calls }), None)
}

/// A server that gives each connection the next of its answers.
pub(crate) struct Server {
    address: SocketAddr,
    task: JoinHandle<Vec<Asked>>,
    closed: mpsc::UnboundedReceiver<()>,
}

impl Server {
    pub(crate) async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, closed) = mpsc::unbounded_channel();
        let answers: Vec<_> = answers.into_iter().collect();
        let task = tokio::spawn(async move {
            let mut asked = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read_request(&mut stream).await;
                match answer {
                    Answer::Send(bytes) => send(&mut stream, &bytes).await,
                    Answer::Echo(answer) => send(&mut stream, answer(&request).as_bytes()).await,
                    Answer::Stall(bytes) => {
                        stream.write_all(&bytes).await.unwrap();
                        // The client sends nothing more but the end of the connection.
                        let more = stream.read(&mut [0; 64]).await;
                        assert!(matches!(more, Ok(0) | Err(_)), "{more:?}");
                        tell.send(()).ok();
                    }
                }
                asked.push(request);
            }
            asked
        });
        Self { address, task, closed }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Waits until the client has closed a connection on which the server stalls.
    pub(crate) async fn client_left(&mut self) {
        self.closed.recv().await.unwrap();
    }

    /// All requests. Requires that all answers were given.
    pub(crate) async fn asked(self) -> Vec<Asked> {
        self.task.await.unwrap()
    }
}

async fn send(stream: &mut TcpStream, bytes: &[u8]) {
    // A client that has seen enough may be gone already.
    stream.write_all(bytes).await.ok();
    stream.shutdown().await.ok();
}

async fn read_request(stream: &mut TcpStream) -> Asked {
    let mut bytes = Vec::new();
    loop {
        let mut piece = [0; 4_096];
        let n = stream.read(&mut piece).await.unwrap();
        bytes.extend_from_slice(&piece[..n]);
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok());
            if body.len() >= length.unwrap_or(0) {
                return Asked { head: head.to_owned(), body: serde_json::from_str(body).unwrap_or_default() };
            }
        }
        assert_ne!(n, 0, "the request broke off: {text}");
    }
}
