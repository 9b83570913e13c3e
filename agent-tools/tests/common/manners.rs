//! Servers in another process of the test's own program: how they are started, what they leave, and their end.
//!
//! A server is an ignored test. It does what its manner says, and leaves lines in files, its notes.

#![allow(dead_code, reason = "not each test waits for servers")]

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

/// Names what the server does, and the directory in which it leaves its notes.
pub(crate) const MANNER: &str = "FAKE_MANNER";
pub(crate) const NOTES: &str = "FAKE_NOTES";

/// This program, and the arguments that have it run the server which is the test `the_server` of `module`.
pub(crate) fn program(module: &str) -> (PathBuf, [String; 5]) {
    let (_, module) = module.split_once("::").unwrap();
    let test = format!("{module}::the_server");
    let args = ["--exact", &test, "--ignored", "--nocapture", "--test-threads=1"].map(str::to_owned);
    (std::env::current_exe().unwrap(), args)
}

/// The manner and the notes of the server that this process is; `None` in a test.
pub(crate) fn asked() -> Option<(String, String)> {
    Some((std::env::var(MANNER).ok()?, std::env::var(NOTES).ok()?))
}

/// The lines that servers left under this name.
pub(crate) fn notes(dir: &Path, name: &str) -> Vec<String> {
    let text = fs::read_to_string(dir.join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Leaves a line under this name.
pub(crate) fn note(dir: &Path, name: &str, text: &str) {
    let mut file = fs::OpenOptions::new().create(true).append(true).open(dir.join(name)).unwrap();
    // One write, so that lines of several processes do not mix.
    file.write_all(format!("{text}\n").as_bytes()).unwrap();
}

/// Waits until something holds that another process brings about.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(60), waited).await.is_ok(), "never: {what}");
}

/// True if the process runs. One that ended and was not waited for does not.
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z')
}

/// Waits until all processes of the servers have ended.
pub(crate) async fn all_end(dir: &Path) {
    let pids = [notes(dir, "started"), notes(dir, "children")].concat();
    assert!(!pids.is_empty());
    eventually("the servers end", || !pids.iter().any(|pid| is_alive(pid))).await;
}
