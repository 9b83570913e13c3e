//! A scripted server on a raw listener, byte for byte, and the resulting behaviour of a provider.

use std::sync::Arc;

use entourage_core::{
    Error, Result,
    message::Message,
    provider::{CallContext, Delta, FinishReason, Layer, Provider, Request},
};
use entourage_runtime::layers::Timeout;
use entourage_runtime::reply::{Assembled, Assembler, ProviderExt};
use futures_util::StreamExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinHandle,
};

use crate::wires::Wire;

/// An action of the server on a connection, once it has read the request. It closes the connection at the end.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Send(Vec<u8>),
    /// Reads another request from the same connection.
    Read,
    /// Waits until the caller has seen text.
    AwaitText,
    /// Sends a piece again and again, up to this many bytes in all, or until the caller has gone.
    Flood(Vec<u8>, usize),
    /// Closes the connection with a reset.
    Reset,
    /// Sends nothing until the caller has gone.
    Hold,
}

pub(crate) fn send(text: impl Into<String>) -> Act {
    Act::Send(text.into().into_bytes())
}

/// The server's view of one connection.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) request: String,
    /// Number of requests after the first.
    pub(crate) more: usize,
    /// Number of bytes that the connection accepted.
    pub(crate) pushed: usize,
    /// True if the caller closed it first.
    pub(crate) closed: bool,
}

pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) text: Arc<Notify>,
    pub(crate) task: JoinHandle<Vec<Seen>>,
}

/// Answers each connection with the next of `answers`.
pub(crate) async fn serve(answers: Vec<Vec<Act>>) -> Server {
    serve_on(TcpListener::bind("127.0.0.1:0").await.unwrap(), answers)
}

pub(crate) fn serve_on(listener: TcpListener, answers: Vec<Vec<Act>>) -> Server {
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let text = Arc::new(Notify::new());
    let gate = Arc::clone(&text);
    let task = tokio::spawn(async move {
        let mut all = Vec::new();
        for acts in answers {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            all.push(perform(stream, acts, &gate).await);
        }
        all
    });
    Server { url, text, task }
}

async fn perform(mut stream: TcpStream, acts: Vec<Act>, gate: &Notify) -> Seen {
    let Some(request) = read_request(&mut stream).await else {
        // On a loaded machine a short time limit may pass before the request is out.
        return Seen { closed: true, ..Seen::default() };
    };
    let mut seen = Seen { request, ..Seen::default() };
    for act in acts {
        match act {
            Act::Send(bytes) => seen.push(&mut stream, &bytes).await,
            Act::Read => {
                assert!(read_request(&mut stream).await.is_some(), "the second request broke off");
                seen.more += 1;
            }
            Act::AwaitText => gate.notified().await,
            Act::Flood(piece, bytes) => {
                let end = seen.pushed.saturating_add(bytes);
                while seen.pushed < end && !seen.closed {
                    seen.push(&mut stream, &piece).await;
                }
            }
            Act::Reset => {
                stream.set_zero_linger().unwrap();
                return seen;
            }
            Act::Hold => {
                seen.closed |= matches!(stream.read(&mut [0; 16]).await, Ok(0) | Err(_));
            }
        }
        // Yields to the reader between two pieces.
        tokio::task::yield_now().await;
    }
    stream.shutdown().await.ok();
    seen
}

impl Seen {
    async fn push(&mut self, stream: &mut TcpStream, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.closed {
            match stream.write(bytes).await {
                Ok(n) => {
                    self.pushed += n;
                    bytes = &bytes[n..];
                }
                Err(_) => self.closed = true,
            }
        }
    }
}

/// Reads one request: head and body as text. `None` when the client leaves in the midst of it.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    loop {
        let mut piece = [0; 4_096];
        let n = stream.read(&mut piece).await.unwrap_or(0);
        request.extend_from_slice(&piece[..n]);
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return Some(text);
            }
        }
        if n == 0 {
            return None;
        }
    }
}

/// Yields so that the tasks which return a connection to the pool run. They are ready once a reply has ended.
pub(crate) async fn give_back() {
    for _ in 0..16 {
        tokio::task::yield_now().await;
    }
}

pub(crate) fn request() -> Request {
    Request::new("m", [Message::user("Hi")].into_iter().collect())
}

/// One cell of the matrix: a fault on a wire.
pub(crate) struct Fault {
    wire: Wire,
    name: String,
    answer: Vec<Act>,
    layer: Option<Timeout>,
    cx: CallContext,
}

/// The result of a fault.
pub(crate) struct Outcome {
    /// `wire: fault`, for messages of failed tests.
    pub(crate) name: String,
    pub(crate) result: Result<Assembled>,
    /// The text that came before the end.
    pub(crate) text: String,
    /// True if the reply had begun when it failed.
    pub(crate) begun: bool,
    pub(crate) seen: Seen,
}

impl Fault {
    pub(crate) fn new(wire: Wire, name: impl Into<String>, answer: impl Into<Vec<Act>>) -> Self {
        Self { wire, name: name.into(), answer: answer.into(), layer: None, cx: CallContext::new() }
    }

    pub(crate) fn within(mut self, layer: Timeout) -> Self {
        self.layer = Some(layer);
        self
    }

    pub(crate) fn called_with(mut self, cx: CallContext) -> Self {
        self.cx = cx;
        self
    }

    /// Makes the call, and another one after it, which must succeed.
    pub(crate) async fn run(self) -> Outcome {
        let good = vec![send(self.wire.good())];
        let server = serve(vec![self.answer, good]).await;
        let name = format!("{:?}: {}", self.wire, self.name);
        let provider = self.wire.provider(&server.url);
        let called = Arc::clone(&provider);
        let called = match self.layer {
            Some(layer) => layer.layer(called),
            None => called,
        };
        let (result, text, begun) = collect(called, &self.cx, &server.text).await;
        if let Err(error) = &result {
            check_words(error, &name);
        }
        check_works(&*provider, &name).await;
        let seen = server.task.await.unwrap().remove(0);
        report(&name, &result, &seen);
        Outcome { name, result, text, begun, seen }
    }

    /// Like `Fault::run`, for a call that must fail.
    pub(crate) async fn fail(self) -> (Error, Outcome) {
        let mut outcome = self.run().await;
        let ended = std::mem::replace(&mut outcome.result, Err(Error::cancelled()));
        match ended {
            Err(error) => (error, outcome),
            Ok(reply) => panic!("{}: no error but {reply:?}", outcome.name),
        }
    }
}

/// Reads a reply to its end.
async fn collect(
    provider: Arc<dyn Provider>,
    cx: &CallContext,
    gate: &Notify,
) -> (Result<Assembled>, String, bool) {
    let mut text = String::new();
    let mut stream = match provider.stream(request(), cx).await {
        Ok(stream) => stream,
        Err(error) => return (Err(error), text, false),
    };
    let mut assembler = Assembler::default();
    while let Some(item) = stream.next().await {
        let pushed = item.and_then(|delta| {
            if let Delta::Text(piece) = &delta {
                text.push_str(piece);
                gate.notify_one();
            }
            assembler.push(&delta)
        });
        if let Err(error) = pushed {
            return (Err(error), text, true);
        }
    }
    (assembler.finish(), text, true)
}

/// Checks that an error shows no secret, is of limited length, and has no control characters for a terminal.
pub(crate) fn check_words(error: &Error, name: &str) {
    let record = serde_json::to_string(&error.record()).unwrap();
    let shown = format!("{error}\n{error:?}\n{record}");
    assert!(!shown.contains("very-secret"), "{name}: a key leaked: {shown}");
    let message = error.message();
    assert!(message.chars().count() < 1_400, "{name}: {message}");
    assert!(!message.chars().any(char::is_control), "{name}: {message:?}");
}

async fn check_works(provider: &dyn Provider, name: &str) {
    let again = provider.complete(request(), &CallContext::new()).await;
    let reply = again.unwrap_or_else(|error| panic!("{name}: the next call failed: {error}"));
    assert_eq!(
        (reply.finish.reason, reply.into_message().text().as_str()),
        (FinishReason::Stop, "Hello"),
        "{name}"
    );
}

/// A row of the matrix, for `-- --nocapture`.
pub(crate) fn report(name: &str, result: &Result<Assembled>, seen: &Seen) {
    let came = match result {
        Ok(reply) => format!("reply, {:?}", reply.finish.reason),
        Err(error) => {
            let wait = error.retry_after().map_or_else(String::new, |wait| format!(", after {wait:?}"));
            format!("{}, {:?}{wait}", error.kind().as_str(), error.retry())
        }
    };
    println!("{name}: {came}; {} bytes pushed", seen.pushed);
}
