//! Two live processes resume one run, in one SQLite file: one is admitted, and nothing happens twice.
//!
//! Real processes race here. This binary starts itself again, as the process that began the run and is ended with
//! SIGKILL, and as the two that come after it. The crash suite (`crash.rs`) covers the effects of a death alone.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use entourage::{prelude::*, testkit::ScriptedProvider};
use serde_json::json;

const DIRECTORY: &str = "ENTOURAGE_RACE_DIRECTORY";
const ORDER: &str = "ENTOURAGE_RACE_ORDER";
/// Lifetime of a worker process, so that none outlives a dead parent for long.
const LIFETIME: Duration = Duration::from_secs(60);
/// Number of model replies in the whole run.
const REPLIES: usize = 4;

fn paid() -> PathBuf {
    Path::new(&env::var_os(DIRECTORY).unwrap()).join("paid")
}

#[tool(access = "write")]
/// May not be repeated.
async fn pay() -> Result<String, ToolError> {
    let mut file = fs::OpenOptions::new().append(true).create(true).open(paid())?;
    file.write_all(b".")?;
    Ok("paid".to_owned())
}

#[tool(access = "read")]
/// Shows something.
async fn look() -> Result<String, ToolError> {
    Ok("a tree".to_owned())
}

async fn open(directory: &Path) -> Result<(Runtime, Session)> {
    let store = SqliteStore::open(directory.join("sessions.db")).await?;
    let runtime = Runtime::builder().store(store).policy(Policy::allow_all()).build();
    let session = runtime.session_with_id(SessionId::new("raced")?);
    Ok((runtime, session))
}

/// Started by the other tests only.
#[test]
#[ignore = "the processes that race; the other tests start them"]
fn worker_process() {
    let Some(directory) = env::var_os(DIRECTORY) else { return };
    std::thread::spawn(|| {
        std::thread::sleep(LIFETIME);
        std::process::abort();
    });
    // One thread: a process that stands still stops everything else in it. The test harness may have begun a line.
    println!();
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let end = tokio.block_on(obey(Path::new(&directory), &env::var(ORDER).unwrap()));
    println!("END {}", end.map_or_else(|error| error.kind().as_str().to_owned(), |it| it.status.to_string()));
}

async fn obey(directory: &Path, order: &str) -> Result<Outcome> {
    let provider = ScriptedProvider::by_history()
        .call("look", json!({}))
        .call("pay", json!({}))
        .call("look", json!({}))
        .text("Done.");
    let agent = ReactAgent::builder("worker", provider.model()).tool(look).tool(pay).build()?;
    if let Ok(stored) = order.parse::<usize>() {
        let (_runtime, session) = open(directory).await?;
        let mut run = session.start(&agent, "Do the work.");
        let mut seen = 0;
        while let Some(event) = run.next().await {
            seen += usize::from(event.event.is_stored());
            if seen == stored {
                println!("STANDING");
                std::thread::park_timeout(LIFETIME);
            }
        }
        return run.outcome().await;
    }
    if order == "cold" {
        wait_for_go();
    }
    let (_runtime, session) = open(directory).await?;
    if order == "warm" {
        // Both have read the session before either goes on with it.
        assert!(session.unfinished().await?.is_some());
        wait_for_go();
    }
    session.resume(&agent).outcome().await
}

fn wait_for_go() {
    println!("READY");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// A process that ends with this value.
struct Worker(Child, BufReader<ChildStdout>);

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Worker {
    fn start(directory: &Path, order: &str) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "race::worker_process", "--ignored", "--nocapture", "--test-threads=1"])
            .env(DIRECTORY, directory)
            .env(ORDER, order)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self(child, output)
    }

    /// Reads until a line begins with `what`, and returns the rest of that line.
    fn says(&mut self, what: &str) -> String {
        let mut line = String::new();
        while self.1.read_line(&mut line).unwrap() > 0 {
            if let Some(rest) = line.trim_end().strip_prefix(what) {
                return rest.to_owned();
            }
            line.clear();
        }
        panic!("a worker never said {what}");
    }

    fn go(&mut self) {
        self.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }
}

fn stored(directory: &Path) -> Vec<Envelope> {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio.block_on(async {
        let (_runtime, session) = open(directory).await.unwrap();
        session.events(0, 1_000).await.unwrap()
    })
}

fn count(events: &[Envelope], kind: &str) -> usize {
    events.iter().filter(|event| event.event.kind() == kind).count()
}

/// The ends of the two processes, and the stored events.
fn race(directory: &Path, begun: usize, order: &str) -> ([String; 2], Vec<Envelope>) {
    Worker::start(directory, &begun.to_string()).says("STANDING");
    let before = stored(directory);
    let mut racers = [0; 2].map(|_| Worker::start(directory, order));
    racers.iter_mut().for_each(|racer| drop(racer.says("READY")));
    racers.iter_mut().for_each(Worker::go);
    let ends = racers.map(|mut racer| racer.says("END "));
    let after = stored(directory);
    assert!(after.starts_with(&before), "{begun} {order}: what was stored has changed");
    (ends, after)
}

#[test]
fn attack_09_of_two_processes_that_resume_one_run_one_is_admitted() {
    for begun in (2..14).step_by(2) {
        for order in ["warm", "cold"] {
            let directory = tempfile::tempdir().unwrap();
            let (ends, events) = race(directory.path(), begun, order);
            let ended = |how: &str| ends.iter().filter(|end| *end == how).count();
            // A process that comes after the other has finished finds nothing to resume.
            let late = ended("conflict") + if order == "cold" { ended("not found") } else { 0 };
            assert_eq!((ended("completed"), late), (1, 1), "{begun} {order}: {ends:?}");
            assert_eq!(count(&events, "model_finished"), REPLIES, "{begun} {order}");
            assert_eq!(count(&events, "run_finished"), 1, "{begun} {order}");
            if order == "warm" {
                assert_eq!(count(&events, "run_resumed"), 1, "{begun}: both were admitted");
            }
            let paid = fs::read(directory.path().join("paid")).map_or(0, |marks| marks.len());
            assert!(paid <= 1, "{begun} {order}: it was paid {paid} times");
        }
    }
}
