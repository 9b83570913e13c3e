//! The texts and metadata in which calls show a command and its end.

use std::path::Path;

use entourage_core::tool::ToolOutput;
use serde_json::{Value, json};

use super::{
    confine::Enforced,
    output::Cut,
    running::{End, Running},
};

const NOTHING: &str = "no output";

/// The result of a command that ended, or `None` for one that goes on as the job `job`.
pub(super) fn result(running: &Running, end: Option<End>, job: Option<&str>, dir: &Path) -> ToolOutput {
    let mut all = running.output();
    let lost = all.lost_bytes();
    let refused = refused(running);
    let notes = [end.and_then(note), refused_line(&refused), running.restored().map(str::to_owned)];
    for note in notes.into_iter().flatten() {
        line(&mut all, &note);
    }
    let body = if all.is_empty() { NOTHING.to_owned() } else { all.show() };
    let gap = if body.ends_with('\n') { "" } else { "\n" };
    let text = format!("{body}{gap}<cwd>{}</cwd>", dir.display());
    ToolOutput::text(text).with_metadata(metadata(running, end, job, lost))
}

fn refused(running: &Running) -> Vec<String> {
    running.enforced.as_ref().map(Enforced::refused).unwrap_or_default()
}

fn refused_line(refused: &[String]) -> Option<String> {
    (!refused.is_empty()).then(|| format!("refused by the sandbox: {}", refused.join("; ")))
}

/// The end of a command, unless it was a success.
pub(super) fn note(end: End) -> Option<String> {
    let how = match (end.code, end.signal) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("exit code {code}")),
        (None, Some(signal)) => Some(format!("ended by signal {signal}")),
        (None, None) => None,
    };
    match (end.aborted, how) {
        (Some(why), Some(how)) => Some(format!("aborted: {why} ({how})")),
        (Some(why), None) => Some(format!("aborted: {why}")),
        (None, how) => how,
    }
}

fn line(all: &mut Cut, text: &str) {
    if !all.is_empty() && !all.ends_line() {
        all.push_str("\n");
    }
    all.push_str(text);
}

/// The facts about a command, for programs.
pub(super) fn metadata(running: &Running, end: Option<End>, job: Option<&str>, lost: u64) -> Value {
    let took = u64::try_from(running.took().as_millis()).unwrap_or(u64::MAX);
    json!({
        "exit_code": end.and_then(|end| end.code),
        "signal": end.and_then(|end| end.signal),
        "aborted": end.and_then(|end| end.aborted),
        "duration_ms": took,
        "dropped_bytes": lost,
        "job": job,
        "sandbox": running.enforced,
        "refused": refused(running),
        "restored": running.restored(),
        "changed": running.changed(),
    })
}
