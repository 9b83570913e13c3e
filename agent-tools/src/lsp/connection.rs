//! The pipes to a server: requests and their answers, and a queue before its input.
//!
//! What a server does not read stays in a queue, and too much of that ends it. Who tells files waits for room before,
//! as long as the call has time.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncWriteExt, BufWriter},
    process::{ChildStdin, ChildStdout},
    sync::{mpsc, oneshot, watch},
    task::AbortHandle,
    time::{Instant, sleep, timeout_at},
};

use super::{
    frame::{Frames, framed},
    incoming,
    known::Known,
    wire::plain,
};
use crate::process::{group::Group, server::ServerProcess};

/// Most messages, and most bytes of them, that wait for a server to read them.
const QUEUE: usize = 1_024;
const QUEUED: usize = 32 << 20;
/// Most bytes in that queue to which files are added without a wait.
const ROOM: usize = 16 << 20;
/// Most bytes of the names that a server gives its requests.
const ID: usize = 200;
/// Time in which the rest of its output is read after its end.
const REST: Duration = Duration::from_millis(500);
/// Size from which on a message is read on a thread that may block.
const LARGE: usize = 1 << 20;

/// Reason that a request has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failed {
    /// The server is of no use any more.
    Over(String),
    /// It refused, with this code and text.
    Refused(i64, String),
    /// It did not answer in time.
    Late,
    /// It answered, too deeply nested to be read.
    Deep,
}

type Answer = Result<Value, Failed>;

/// One side of the pipes. What reads them has it as well.
#[derive(Debug)]
pub(super) struct Wire {
    queue: mpsc::Sender<Vec<u8>>,
    /// Bytes in the queue.
    queued: Arc<watch::Sender<usize>>,
    waiting: Mutex<Waiting>,
    pub(super) known: Known,
    /// Settings that the server may ask for.
    pub(super) settings: Value,
    /// The root of the workspace.
    pub(super) root: PathBuf,
    group: Group,
}

#[derive(Debug, Default)]
struct Waiting {
    last: i64,
    answers: HashMap<i64, oneshot::Sender<Answer>>,
    over: Option<String>,
}

/// The tasks that read and write. Dropping this ends them.
#[derive(Debug)]
pub(super) struct Tasks([AbortHandle; 2]);

impl Drop for Tasks {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

impl Wire {
    /// Begins to read and write.
    pub(super) fn begin(
        (output, input): (ChildStdout, ChildStdin),
        process: &ServerProcess,
        settings: Value,
        root: PathBuf,
    ) -> (Arc<Self>, Tasks) {
        let (queue, messages) = mpsc::channel(QUEUE);
        let queued = Arc::new(watch::Sender::new(0));
        let wire = Arc::new(Self {
            queue,
            queued: Arc::clone(&queued),
            waiting: Mutex::default(),
            known: Known::new(),
            settings,
            root,
            group: process.group(),
        });
        let writing = tokio::spawn(write(input, messages, queued)).abort_handle();
        let reading = tokio::spawn(read(Arc::clone(&wire), output, process.watch())).abort_handle();
        (wire, Tasks([reading, writing]))
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reason that the server is of no use any more.
    pub(super) fn over(&self) -> Option<String> {
        self.waiting().over.clone()
    }

    /// Ends the server, for a reason.
    pub(super) fn end(&self, reason: &str) {
        let answers = {
            let mut waiting = self.waiting();
            waiting.over.get_or_insert_with(|| reason.to_owned());
            std::mem::take(&mut waiting.answers)
        };
        // Those who wait see the reason.
        drop(answers);
        self.known.end();
        self.queued.send_replace(0);
        self.group.kill();
    }

    fn queue(&self, frame: Vec<u8>) {
        let mut before = 0;
        self.queued.send_modify(|queued| {
            before = *queued;
            *queued = before.saturating_add(frame.len());
        });
        if before > QUEUED || self.queue.try_send(frame).is_err() {
            self.end("it does not read what it is sent");
        }
    }

    /// Waits until the server has read most of what it was sent. Waits no longer than to the deadline.
    pub(super) async fn drained(&self, deadline: Instant) {
        let mut queued = self.queued.subscribe();
        // What it does not read in time ends it.
        let _ = timeout_at(deadline, queued.wait_for(|queued| *queued <= ROOM)).await;
    }

    pub(super) fn send(&self, message: &Value) {
        if self.over().is_none() {
            self.queue(framed(message));
        }
    }

    pub(super) fn notify(&self, method: &str, params: Value) {
        self.send(&called(json!({ "jsonrpc": "2.0", "method": method }), params));
    }

    /// Closes the server's input after what was sent.
    pub(super) fn close(&self) {
        self.queue(Vec::new());
    }

    /// Asks the server. If the future is dropped, or the time is over, the server is told.
    pub(super) async fn request(&self, method: &str, params: Value, deadline: Instant) -> Answer {
        let (answer, answered) = oneshot::channel();
        let id = {
            let mut waiting = self.waiting();
            if let Some(reason) = &waiting.over {
                return Err(Failed::Over(reason.clone()));
            }
            waiting.last = waiting.last.saturating_add(1);
            let id = waiting.last;
            waiting.answers.insert(id, answer);
            id
        };
        let asked = Asked { wire: self, id };
        self.send(&called(json!({ "jsonrpc": "2.0", "id": id, "method": method }), params));
        match timeout_at(deadline, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(Failed::Over(self.over().unwrap_or_else(|| "it ended".to_owned()))),
            Err(_) => {
                drop(asked);
                Err(Failed::Late)
            }
        }
    }

    /// The one who waits for the answer of this id, who then waits no more.
    fn asked(&self, id: &Value) -> Option<oneshot::Sender<Answer>> {
        let id = id.as_i64().or_else(|| id.as_str().and_then(|id| id.parse().ok()));
        id.and_then(|id| self.waiting().answers.remove(&id))
    }

    /// Takes an answer. One to nobody is passed over.
    fn answered(&self, id: &Value, message: &mut Value) {
        let Some(answer) = self.asked(id) else { return };
        let result = match message.get("error").filter(|error| !error.is_null()) {
            Some(error) => {
                let text = error.get("message").and_then(Value::as_str).unwrap_or("it gave no reason");
                let code = error.get("code").and_then(Value::as_i64).unwrap_or_default();
                Err(Failed::Refused(code, plain(text, 500)))
            }
            None => Ok(message.get_mut("result").map(Value::take).unwrap_or_default()),
        };
        // The one who asked may be gone.
        let _ = answer.send(result);
    }

    /// Takes what can be read of a message that nests too deep. The server lives on: most often somebody asked about a
    /// file that nests as deep. A notice is passed over.
    fn take_head(&self, Head { id, method }: Head) {
        match (id.filter(is_id), method) {
            (Some(id), Some(_)) => self.send(&json!({ "jsonrpc": "2.0", "id": id,
                "error": { "code": -32_600, "message": "the request nests too deep" } })),
            (Some(id), None) => {
                if let Some(answer) = self.asked(&id) {
                    // The one who asked may be gone.
                    let _ = answer.send(Err(Failed::Deep));
                }
            }
            (None, _) => {}
        }
    }

    /// Takes a message of the server.
    fn take(self: &Arc<Self>, mut message: Value) {
        let id = message.get("id").filter(|id| is_id(id)).cloned();
        let method = message.get("method").and_then(Value::as_str).map(str::to_owned);
        let params = message.get_mut("params").map(Value::take).unwrap_or_default();
        match (method, id) {
            (Some(method), Some(id)) => {
                let answer = match incoming::answer(self, &method, &params) {
                    Some(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
                    None => json!({ "jsonrpc": "2.0", "id": id,
                        "error": { "code": -32_601, "message": "this client does not do that" } }),
                };
                self.send(&answer);
            }
            (Some(method), None) => incoming::notice(self, &method, &params),
            (None, Some(id)) => self.answered(&id, &mut message),
            (None, None) => {}
        }
    }
}

/// True for what a server may name a request by.
fn is_id(id: &Value) -> bool {
    id.is_number() || id.as_str().is_some_and(|id| id.len() <= ID)
}

/// The parts that are read of a message that nests too deep. The rest is passed over, which takes no stack.
#[derive(Deserialize)]
struct Head {
    id: Option<Value>,
    method: Option<String>,
}

/// A message, or the head of one that nests too deep. The error is the reason that there is neither.
fn parsed(content: &[u8]) -> Result<Result<Value, Head>, &'static str> {
    match serde_json::from_slice(content) {
        Ok(message) => Ok(Ok(message)),
        // Its reader names this reason by its text alone.
        Err(error) if error.to_string().starts_with("recursion limit exceeded") => {
            serde_json::from_slice(content).map(Err).map_err(|_| "it sent a message that nests too deep")
        }
        Err(_) => Err("it sent a message that is no JSON"),
    }
}

/// A message with its parameters, which are left out where there are none.
fn called(mut message: Value, params: Value) -> Value {
    if let (false, Some(fields)) = (params.is_null(), message.as_object_mut()) {
        fields.insert("params".to_owned(), params);
    }
    message
}

/// A request that is not answered yet.
struct Asked<'a> {
    wire: &'a Wire,
    id: i64,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if self.wire.waiting().answers.remove(&self.id).is_some() {
            self.wire.notify("$/cancelRequest", json!({ "id": self.id }));
        }
    }
}

async fn write(input: ChildStdin, mut messages: mpsc::Receiver<Vec<u8>>, queued: Arc<watch::Sender<usize>>) {
    let mut input = BufWriter::new(input);
    while let Some(message) = messages.recv().await {
        if message.is_empty() {
            break;
        }
        // The end of its output tells that it is gone.
        if input.write_all(&message).await.is_err() || input.flush().await.is_err() {
            break;
        }
        queued.send_modify(|queued| *queued = queued.saturating_sub(message.len()));
    }
}

async fn read(wire: Arc<Wire>, output: ChildStdout, mut ended: watch::Receiver<bool>) {
    let mut frames = Frames::of(output);
    // A process that it started, and that left its group, may hold the pipe open.
    let mut gone = std::pin::pin!(async {
        // An error means that nobody is left to tell, which is the same.
        let _ = ended.wait_for(|ended| *ended).await;
        sleep(REST).await;
    });
    let reason = loop {
        let next = tokio::select! {
            biased;
            next = frames.next() => next,
            () = &mut gone => break "it ended".to_owned(),
        };
        let content = match next {
            Ok(content) => content,
            Err(reason) => break reason,
        };
        let read = match content.len() < LARGE {
            true => parsed(&content),
            false => {
                let read = tokio::task::spawn_blocking(move || parsed(&content)).await;
                read.unwrap_or(Err("its message could not be read"))
            }
        };
        match read {
            Ok(Ok(message)) => wire.take(message),
            Ok(Err(head)) => wire.take_head(head),
            Err(reason) => break reason.to_owned(),
        }
    };
    wire.end(&reason);
}
