//! A service's connection: HTTP/1.1 on a loopback listener, which gives one answer after the other.
//!
//! It keeps connections open between calls and cases as services do, and notifies the watch of a request and of a
//! caller that goes away. It knows no wire.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex},
};

use entourage_testkit::stream::Watch;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

/// The server's answer to one request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Sends a whole body.
    Refusal { status: u16, headers: Vec<(&'static str, String)>, body: String },
    /// Sends status 200 and a body in pieces, each in a chunk of its own and flushed.
    Stream { content_type: &'static str, pieces: Vec<Vec<u8>>, then: Then },
    /// Sends nothing until the caller goes away.
    Silence,
}

/// The action after the last piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// Ends the body, and takes the next request on the connection.
    Ends,
    /// Ends the body, and closes the connection.
    Closes,
    /// Closes the connection in the middle of the body.
    Breaks,
    /// Sends nothing until the caller goes away.
    StaysOpen,
    /// Sends these bytes again and again until the caller goes away.
    Floods(&'static str),
}

/// A server that runs until it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    /// Its address, such as `http://127.0.0.1:40001`.
    pub(crate) address: String,
    calls: Arc<Calls>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Starts a server that refuses every request whose head lacks any of `wanted`, and every request without an
    /// answer.
    pub(crate) async fn start(wanted: &'static [&'static str]) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = format!("http://{}", listener.local_addr()?);
        let calls = Arc::new(Calls { play: Mutex::default(), wanted });
        let task = tokio::spawn(listen(listener, Arc::clone(&calls)));
        Ok(Self { address, calls, task })
    }

    /// Answers the next requests with `answers`, in order, and notifies `watch` of them.
    pub(crate) fn play(&self, answers: Vec<Answer>, watch: &Watch) {
        *self.calls.play.lock().unwrap() = Play { answers: answers.into(), watch: watch.clone() };
    }
}

async fn listen(listener: TcpListener, calls: Arc<Calls>) {
    // They end with this task.
    let mut connections = JoinSet::new();
    while let Ok((connection, _)) = listener.accept().await {
        let calls = Arc::clone(&calls);
        connections.spawn(async move { calls.serve(connection).await });
    }
}

#[derive(Debug)]
struct Calls {
    play: Mutex<Play>,
    wanted: &'static [&'static str],
}

#[derive(Debug, Default)]
struct Play {
    answers: VecDeque<Answer>,
    watch: Watch,
}

impl Calls {
    async fn serve(&self, mut connection: TcpStream) {
        connection.set_nodelay(true).ok();
        while let Some(head) = read_request(&mut connection).await {
            let (answer, watch) = self.answer(&head);
            watch.saw_request();
            match give(&mut connection, answer).await {
                Ok(Next::Request) => {}
                Ok(Next::End) => return,
                Ok(Next::CallerLeft) | Err(_) => return watch.saw_close(),
            }
        }
    }

    fn answer(&self, head: &str) -> (Answer, Watch) {
        let refuse = |body: String| Answer::Refusal { status: 418, headers: Vec::new(), body };
        let mut play = self.play.lock().unwrap();
        let answer = match self.wanted.iter().find(|line| !head.contains(*line)) {
            Some(missing) => refuse(format!("`{missing}` is not in the request")),
            None => {
                let next = play.answers.pop_front();
                next.unwrap_or_else(|| refuse("the scenario has no reply for this call".to_owned()))
            }
        };
        (answer, play.watch.clone())
    }
}

/// Reads a whole request. Returns its head, or `None` if the caller went away first.
async fn read_request(connection: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    loop {
        if let Some(head_end) = request.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&request[..head_end]).into_owned();
            let length = head
                .lines()
                .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok());
            if request.len() >= head_end + 4 + length.unwrap_or(0) {
                return Some(head);
            }
        }
        let mut piece = [0; 8_192];
        let read = connection.read(&mut piece).await.ok().filter(|read| *read > 0)?;
        request.extend_from_slice(&piece[..read]);
    }
}

enum Next {
    Request,
    End,
    CallerLeft,
}

async fn give(connection: &mut TcpStream, answer: Answer) -> io::Result<Next> {
    match answer {
        Answer::Refusal { status, headers, body } => {
            let mut reply = format!("HTTP/1.1 {status} No\r\nContent-Length: {}\r\n", body.len());
            for (name, value) in headers {
                reply.push_str(&format!("{name}: {value}\r\n"));
            }
            connection.write_all(format!("{reply}\r\n{body}").as_bytes()).await?;
            Ok(Next::Request)
        }
        Answer::Stream { content_type, pieces, then } => {
            // Without this header, the caller would race its next request against the end of the connection.
            let close = if then == Then::Closes { "Connection: close\r\n" } else { "" };
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n{close}Transfer-Encoding: chunked\r\n\r\n"
            );
            connection.write_all(head.as_bytes()).await?;
            for piece in pieces {
                let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), &piece, b"\r\n"].concat();
                connection.write_all(&chunk).await?;
            }
            end(connection, then).await
        }
        Answer::Silence => left(connection).await,
    }
}

async fn end(connection: &mut TcpStream, then: Then) -> io::Result<Next> {
    match then {
        Then::StaysOpen => return left(connection).await,
        Then::Floods(filler) => {
            let filler = filler.repeat(1_024);
            let chunk = format!("{:x}\r\n{filler}\r\n", filler.len());
            while connection.write_all(chunk.as_bytes()).await.is_ok() {}
            return Ok(Next::CallerLeft);
        }
        Then::Breaks => {}
        Then::Ends | Then::Closes => connection.write_all(b"0\r\n\r\n").await?,
    }
    if then == Then::Ends {
        return Ok(Next::Request);
    }
    connection.shutdown().await?;
    Ok(Next::End)
}

/// Waits until the caller goes away.
async fn left(connection: &mut TcpStream) -> io::Result<Next> {
    while connection.read(&mut [0; 64]).await? > 0 {}
    Ok(Next::CallerLeft)
}
