//! Calls tools as a run does, through a session, its scope and its policy; programs beside them.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use entourage_core::{
    Result,
    agent::Agent,
    message::ToolResult,
    run::{Outcome, RunContext, Task},
    tool::{Tool, Tools},
};
use entourage_runtime::{Runtime, Session};
use serde_json::Value;
use tokio::sync::oneshot;

#[derive(Clone)]
struct Caller {
    tools: Tools,
    calls: Arc<Vec<(String, Value)>>,
    results: Arc<Mutex<Vec<ToolResult>>>,
}

#[async_trait]
impl Agent for Caller {
    fn name(&self) -> &str {
        "caller"
    }

    async fn run(&self, _: Task, cx: &RunContext) -> Result<Outcome> {
        for (name, arguments) in self.calls.iter() {
            let result = cx.call_tool(&self.tools, name, arguments).await?;
            self.results.lock().unwrap().push(result);
        }
        Ok(Outcome::completed("done"))
    }
}

/// The results of `calls`, made one after another.
#[allow(dead_code, reason = "not each test has calls without a session")]
pub(crate) async fn call_all(
    runtime: &Runtime,
    tools: Vec<Arc<dyn Tool>>,
    calls: Vec<(&str, Value)>,
) -> Vec<ToolResult> {
    call_in(&runtime.session(), tools, calls).await
}

/// The results of `calls`, made one after another in a run of `session`.
#[allow(dead_code, reason = "not each test goes on in a session")]
pub(crate) async fn call_in(
    session: &Session,
    tools: Vec<Arc<dyn Tool>>,
    calls: Vec<(&str, Value)>,
) -> Vec<ToolResult> {
    let calls = calls.into_iter().map(|(name, arguments)| (name.to_owned(), arguments)).collect();
    let caller =
        Caller { tools: Tools::new(tools).unwrap(), calls: Arc::new(calls), results: Arc::default() };
    let outcome = session.start(&caller, "go").outcome().await.unwrap();
    assert!(outcome.is_completed(), "{outcome}");
    std::mem::take(&mut *caller.results.lock().unwrap())
}

/// Runs git with settings of its own, without those of this machine, and returns its output.
#[allow(dead_code, reason = "not each test has a repository")]
pub(crate) fn git(dir: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=b@c.example", "-c", "init.defaultBranch=main"])
        .args(arguments)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A pipe that programs hold open. The first line written to it is sent, and then, once nobody holds it any more, its
/// end.
#[cfg(unix)]
#[allow(dead_code, reason = "not each test has programs")]
pub(crate) fn pipe(path: &Path) -> (oneshot::Receiver<String>, oneshot::Receiver<()>) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    let ((line, on_line), (end, on_end)) = (oneshot::channel(), oneshot::channel());
    let path = path.to_owned();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(File::open(path).unwrap());
        let mut first = String::new();
        reader.read_line(&mut first).unwrap();
        let _ = line.send(first);
        reader.read_to_end(&mut Vec::new()).unwrap();
        let _ = end.send(());
    });
    (on_line, on_end)
}
