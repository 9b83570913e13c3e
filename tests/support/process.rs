//! The half of the kill tests that kills: starts workers, ends them, and looks at what they left.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use entourage::{
    event::Envelope,
    prelude::{SessionStore, SqliteStore},
    session::{Columns, ReadRange},
};

use crate::worker::{ASK_ABOUT, DIRECTORY, ORDER, STAND_STILL_AT, database, session_id, side_log};

/// When a worker is killed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kill {
    Never,
    /// It stands still at this point.
    At(usize),
    /// It goes on after this point, for so long.
    After(usize, Duration),
    /// So long after it was started.
    In(Duration),
}

/// What became of a worker.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) killed: bool,
    /// The points that it told of, without their numbers.
    pub(crate) points: Vec<String>,
    /// How it ended, if it got that far.
    pub(crate) end: Option<String>,
}

impl Ended {
    /// Numbers and kinds of the stored events that it showed.
    pub(crate) fn shown(&self) -> impl Iterator<Item = (u64, &str)> {
        self.points.iter().filter_map(|point| {
            let (seq, kind) = point.strip_prefix("stored ")?.split_once(' ')?;
            Some((seq.parse().unwrap(), kind))
        })
    }
}

/// A worker that does not outlive this value.
pub(crate) struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    ended: Ended,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Worker {
    pub(crate) fn start(directory: &Path, order: &str, ask_about: Option<&str>, kill: Kill) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "worker_process", "--ignored", "--nocapture", "--test-threads=1"])
            .env(DIRECTORY, directory)
            .env(ORDER, order)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(tool) = ask_about {
            command.env(ASK_ABOUT, tool);
        }
        if let Kill::At(point) = kill {
            command.env(STAND_STILL_AT, point.to_string());
        }
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output, ended: Ended { killed: false, points: Vec::new(), end: None } }
    }

    /// Takes in what the worker says until it says a line that begins with `until`, or nothing more.
    fn listen(&mut self, until: &str) {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 && line.ends_with('\n') {
            let said = line.trim_end();
            if let Some((_, point)) = said.strip_prefix("AT ").and_then(|said| said.split_once(' ')) {
                self.ended.points.push(point.to_owned());
            } else if let Some(end) = said.strip_prefix("END ") {
                self.ended.end = Some(end.to_owned());
            }
            if !until.is_empty() && said.starts_with(until) {
                return;
            }
            line.clear();
        }
    }

    pub(crate) fn wait_until_ready(&mut self) {
        self.listen("READY");
    }

    pub(crate) fn go(&mut self) {
        self.input.take().unwrap().write_all(b"go\n").unwrap();
    }

    /// Kills it when `kill` says so and waits for its end.
    pub(crate) fn end(mut self, kill: Kill) -> Ended {
        match kill {
            Kill::Never => {}
            Kill::At(point) => self.listen(&format!("AT {point} ")),
            Kill::After(point, delay) => {
                self.listen(&format!("AT {point} "));
                std::thread::sleep(delay);
            }
            Kill::In(delay) => std::thread::sleep(delay),
        }
        if !matches!(kill, Kill::Never) {
            self.child.kill().unwrap();
        }
        self.listen("");
        let status = self.child.wait().unwrap();
        self.ended.killed = status.signal() == Some(9);
        assert!(self.ended.killed || status.success(), "a worker failed: {status}; {:?}", self.ended);
        std::mem::replace(&mut self.ended, Ended { killed: false, points: Vec::new(), end: None })
    }
}

/// Runs one worker to its end.
pub(crate) fn run(directory: &Path, order: &str, ask_about: Option<&str>, kill: Kill) -> Ended {
    Worker::start(directory, order, ask_about, kill).end(kill)
}

/// What a worker left: the stored events and the side log.
#[derive(Debug)]
pub(crate) struct Left {
    /// Byte for byte.
    pub(crate) rows: Vec<(Columns, String)>,
    pub(crate) events: Vec<Envelope>,
    pub(crate) log: Vec<String>,
}

/// Looks at copies of the files, so that the next worker finds them as the dead one left them.
pub(crate) fn look(directory: &Path) -> Left {
    let copies = tempfile::tempdir().unwrap();
    for file in ["sessions.db", "sessions.db-wal"] {
        if directory.join(file).exists() {
            fs::copy(directory.join(file), copies.path().join(file)).unwrap();
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let rows = runtime.block_on(async {
        let store = SqliteStore::open(database(copies.path())).await.unwrap();
        let rows = match store.read(&session_id(), ReadRange::all()).await {
            Ok(rows) => rows,
            Err(error) if error.kind() == entourage::ErrorKind::NotFound => Vec::new(),
            Err(error) => panic!("{error:?}"),
        };
        store.close().await;
        rows
    });
    let log = fs::read_to_string(side_log(directory)).unwrap_or_default();
    Left {
        events: rows.iter().map(|row| row.clone().into_envelope(&session_id()).unwrap()).collect(),
        rows: rows.iter().map(|row| (row.columns(), row.body().unwrap().into_owned())).collect(),
        log: log.lines().map(str::to_owned).collect(),
    }
}
