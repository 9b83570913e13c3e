//! A proxy whose connections break when a test says so: forwards bytes, and can lose an answer after the server sent
//! it.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::{AbortHandle, JoinSet},
};

/// A proxy between a store and its server, until it is dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    losing: Arc<Mutex<Losing>>,
    full: Arc<AtomicBool>,
    task: AbortHandle,
}

/// The answers to lose: those to the next `left` questions that hold `mark`.
#[derive(Debug, Default)]
struct Losing {
    mark: &'static str,
    left: usize,
}

impl Losing {
    /// Returns true, and counts it, if the answer to `question` is one of them.
    fn takes(&mut self, question: &[u8]) -> bool {
        let mark = self.mark.as_bytes();
        let meant = mark.is_empty() || question.windows(mark.len()).any(|window| window == mark);
        let takes = meant && self.left > 0;
        self.left -= usize::from(takes);
        takes
    }
}

impl Proxy {
    pub(crate) async fn before(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let losing = Arc::new(Mutex::new(Losing::default()));
        let shared = Arc::clone(&losing);
        let full = Arc::new(AtomicBool::new(false));
        let is_full = Arc::clone(&full);
        let task = tokio::spawn(async move {
            let mut links = JoinSet::new();
            let mut waiting = Vec::new();
            while let Ok((client, _)) = listener.accept().await {
                if is_full.load(Ordering::SeqCst) {
                    waiting.push(client);
                    continue;
                }
                let server = TcpStream::connect(&server).await.unwrap();
                links.spawn(link(client, server, Arc::clone(&shared)));
            }
        });
        Self { address, losing, full, task: task.abort_handle() }
    }

    /// Loses the answers to the next `count` questions that hold `mark`, with their connections. The questions reach
    /// the server and are answered.
    pub(crate) fn lose(&self, mark: &'static str, count: usize) {
        *self.losing.lock().unwrap() = Losing { mark, left: count };
    }

    /// Answers no new connection from now on.
    pub(crate) fn fill(&self) {
        self.full.store(true, Ordering::SeqCst);
    }

    /// Returns the number of answers still to be lost.
    pub(crate) fn left(&self) -> usize {
        self.losing.lock().unwrap().left
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn link(client: TcpStream, server: TcpStream, losing: Arc<Mutex<Losing>>) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let lost = AtomicBool::new(false);
    let question = |bytes: &[u8]| {
        if losing.lock().unwrap().takes(bytes) {
            lost.store(true, Ordering::SeqCst);
        }
        true
    };
    tokio::select! {
        () = forward(from_client, to_server, question) => {}
        () = forward(from_server, to_client, |_| !lost.load(Ordering::SeqCst)) => {}
    }
}

/// Forwards the bytes that `passes` admits. Ends with the connection, or with bytes that it rejects.
async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, passes: impl Fn(&[u8]) -> bool) {
    let mut buffer = vec![0; 64 * 1_024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let Some(bytes) = buffer.get(..read) else { return };
        if !passes(bytes) || to.write_all(bytes).await.is_err() {
            return;
        }
    }
}
