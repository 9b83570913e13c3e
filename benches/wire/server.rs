//! The service, in a process of its own so that its time and memory are not measured.
//!
//! Every reply is rendered before its request; the path selects it: `/{deltas}/{burst}/{crowd}/v1/…`. Nothing here
//! reads a request beyond its path and length.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Barrier,
    time::MissedTickBehavior,
};

/// Pause between the writes of a stream that is one of a crowd, long enough to serve the others in between.
const PACE: Duration = Duration::from_millis(20);

/// Parameters of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Script {
    pub(crate) deltas: usize,
    /// Most deltas in one write, which is one chunk of the body; writes carry from one up to this many.
    pub(crate) burst: usize,
    /// Number of requests that must have arrived before any reply begins; above one, replies are also paced.
    pub(crate) crowd: usize,
}

impl Script {
    /// The base address of a service with these parameters.
    pub(crate) fn base(self, port: u16) -> String {
        let Self { deltas, burst, crowd } = self;
        format!("http://127.0.0.1:{port}/{deltas}/{burst}/{crowd}/v1")
    }

    fn parse(path: &str) -> Self {
        let mut numbers = path.split('/').skip(1).map_while(|number| number.parse().ok());
        let mut number = || numbers.next().unwrap();
        Self { deltas: number(), burst: number(), crowd: number() }
    }

    fn writes(self) -> Vec<Vec<u8>> {
        let mut writes = Vec::new();
        let (mut body, mut events) = (Vec::new(), 0);
        // Sizes of 1, 2, … burst, 1, 2, … so that reads of all sizes occur.
        let mut size = 1;
        for event in events_of(self.deltas) {
            body.extend_from_slice(event.as_bytes());
            events += 1;
            if events == size {
                writes.push(chunk(&body));
                body.clear();
                (events, size) = (0, size % self.burst + 1);
            }
        }
        let mut last = if body.is_empty() { Vec::new() } else { chunk(&body) };
        last.extend_from_slice(b"0\r\n\r\n");
        writes.push(last);
        writes
    }
}

fn chunk(body: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", body.len()).as_bytes(), body, b"\r\n"].concat()
}

const WORDS: [&str; 16] = [
    " the",
    " model",
    " answers",
    ",",
    " in",
    " pieces",
    " of",
    " about",
    " one",
    " word",
    ".",
    "\\n\\n",
    " caf\u{e9}",
    " \\\"so\\\"",
    " it",
    " goes",
];

/// The text of `deltas` pieces, as a reader must have it in the end.
pub(crate) fn text(deltas: usize) -> String {
    let whole: String = (0..deltas).map(|n| WORDS[n % WORDS.len()]).collect();
    whole.replace("\\n", "\n").replace("\\\"", "\"")
}

fn events_of(deltas: usize) -> impl Iterator<Item = String> {
    let event = |choices: String, usage: &str| {
        format!(
            "data: {{\"id\":\"chatcmpl-CxQ9b1Yw7LkTzUe4\",\"object\":\"chat.completion.chunk\",\"created\":1780944486,\
             \"model\":\"bench-2026-01-01\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_8b330d02d0\",\
             \"choices\":[{choices}],\"usage\":{usage}}}\n\n"
        )
    };
    let choice = |delta: &str, finish: &str| {
        format!("{{\"index\":0,\"delta\":{{{delta}}},\"logprobs\":null,\"finish_reason\":{finish}}}")
    };
    let first = event(choice("\"role\":\"assistant\",\"content\":\"\",\"refusal\":null", "null"), "null");
    let piece =
        move |n| event(choice(&format!("\"content\":\"{}\"", WORDS[n % WORDS.len()]), "null"), "null");
    let usage =
        format!("{{\"prompt_tokens\":12,\"completion_tokens\":{deltas},\"total_tokens\":{}}}", deltas + 12);
    let end =
        [event(choice("", "\"stop\""), "null"), event(String::new(), &usage), "data: [DONE]\n\n".into()];
    std::iter::once(first).chain((0..deltas).map(piece)).chain(end)
}

/// The server process, which ends with this value.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
}

impl Server {
    pub(crate) fn start() -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut child = command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, port: line.trim().parse().unwrap() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        _ = self.child.wait();
    }
}

#[derive(Default)]
struct Known {
    writes: HashMap<Script, Arc<Vec<Vec<u8>>>>,
    barriers: HashMap<usize, Arc<Barrier>>,
}

/// The `main` of the server process. It ends when its standard input does, and so with its parent.
pub(crate) fn serve() {
    std::thread::spawn(|| {
        _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap().port());
        std::io::stdout().flush().unwrap();
        let known = Arc::new(Mutex::new(Known::default()));
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(connection(stream, Arc::clone(&known)));
        }
    });
}

/// Serves one connection. Ends silently if the client has gone.
async fn connection(mut stream: TcpStream, known: Arc<Mutex<Known>>) {
    stream.set_nodelay(true).unwrap();
    let mut read = Vec::with_capacity(4_096);
    while let Some(path) = request(&mut stream, &mut read).await {
        let script = Script::parse(&path);
        let (writes, barrier) = {
            let mut known = known.lock().unwrap();
            let writes = known.writes.entry(script).or_insert_with(|| Arc::new(script.writes()));
            let writes = Arc::clone(writes);
            let barrier = known.barriers.entry(script.crowd);
            (writes, Arc::clone(barrier.or_insert_with(|| Arc::new(Barrier::new(script.crowd)))))
        };
        if answer(&mut stream, script, &writes, &barrier).await.is_err() {
            return;
        }
    }
}

async fn answer(
    stream: &mut TcpStream,
    script: Script,
    writes: &[Vec<u8>],
    barrier: &Barrier,
) -> std::io::Result<()> {
    barrier.wait().await;
    let head =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n\
        transfer-encoding: chunked\r\nx-request-id: req_bench\r\n\r\n";
    stream.write_all(head).await?;
    let mut pace = tokio::time::interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for write in writes {
        if script.crowd > 1 {
            pace.tick().await;
        }
        stream.write_all(write).await?;
    }
    Ok(())
}

/// The path of the next request, whose body is read too; `None` at the end of the connection.
async fn request(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<String> {
    let head = loop {
        if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(read).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8_lossy(&read[..head]).to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let end = head + length.unwrap_or(0);
    while read.len() < end {
        if stream.read_buf(read).await.ok()? == 0 {
            return None;
        }
    }
    read.drain(..end);
    text.split(' ').nth(1).map(str::to_owned)
}
