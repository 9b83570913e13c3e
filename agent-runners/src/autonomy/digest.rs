//! The digest of a phase, made without a model: the checker's report when the executor gave no summary. Pure.

use std::fmt::Write;
use std::sync::Arc;

use entourage_core::message::{Message, Role, ToolCall, ToolResult};
use serde_json::Value;

use super::complete::TASK_COMPLETE;
use crate::{TodoTool, cut::cut};

/// Maximum characters of an agent's text in one message.
const SAID: usize = 500;
/// Maximum characters of a tool's result.
const RESULT: usize = 300;
/// Lines kept at the beginning and at the end of a longer result.
const FIRST: usize = 3;
const LAST: usize = 2;
/// Arguments shown of a call, and characters of each.
const ARGUMENTS: usize = 2;
const ARGUMENT: usize = 30;
/// Entries of a whole digest: half of them the first of a long phase, half the newest.
const ENTRIES: usize = 60;

/// Digests a phase: the agent's texts, and a line per call. Reasoning and the todo list are left out. The size is
/// bounded, however long the phase was.
pub(crate) fn digest(work: &[Arc<Message>]) -> String {
    entries(work, true)
}

/// Digests the calls of a phase alone, of an agent whose texts guards look at. A summary is such a text.
pub(crate) fn digest_of_calls(work: &[Arc<Message>]) -> String {
    entries(work, false)
}

fn entries(work: &[Arc<Message>], says: bool) -> String {
    let mut entries = Vec::new();
    for (place, message) in work.iter().enumerate() {
        if message.role() != Role::Assistant {
            continue;
        }
        let said = message.text();
        if says && !said.trim().is_empty() {
            entries.push(cut(said.trim(), SAID));
        }
        let next = work.get(place + 1).filter(|next| next.role() == Role::Tool);
        let mut results = next.into_iter().flat_map(|next| next.tool_results());
        for call in message.tool_calls() {
            let result = results.next();
            if *call.name != *TodoTool::NAME && (says || *call.name != *TASK_COMPLETE) {
                entries.push(line(call, result));
            }
        }
    }
    let left_out = entries.len().saturating_sub(ENTRIES);
    if left_out > 0 {
        let note = format!("[… {left_out} more …]");
        entries.splice(ENTRIES / 2..ENTRIES / 2 + left_out, [note]);
    }
    entries.join("\n")
}

fn line(call: &ToolCall, result: Option<&ToolResult>) -> String {
    let mut line = format!("- {}(", call.name);
    if let Value::Object(arguments) = call.arguments.to_value() {
        for (place, (name, value)) in arguments.iter().take(ARGUMENTS).enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            let value = match value {
                Value::String(text) => format!("\"{}\"", cut(&one_line(text), ARGUMENT)),
                other => cut(&other.to_string(), ARGUMENT),
            };
            let _ = write!(line, "{comma}{}: {value}", cut(name, ARGUMENT));
        }
        if arguments.len() > ARGUMENTS {
            line.push_str(", …");
        }
    }
    line.push(')');
    match result {
        None => line.push_str(": not run"),
        Some(result) => {
            let verb = if result.is_error { " failed: " } else { ": " };
            let _ = write!(line, "{verb}{}", output(&result.to_text()));
        }
    }
    line
}

/// Puts a tool's result on one line: in full when it is short, else its first and last lines.
pub(super) fn output(text: &str) -> String {
    let text = text.trim();
    if text.chars().nth(RESULT).is_none() {
        return one_line(text);
    }
    let count = text.lines().count();
    if count <= FIRST + LAST {
        return cut(&one_line(text), RESULT);
    }
    let share = RESULT / (FIRST + LAST);
    let short = |line: &str| cut(line.trim(), share);
    let first: Vec<_> = text.lines().take(FIRST).map(short).collect();
    let last: Vec<_> = text.lines().skip(count - LAST).map(short).collect();
    format!("{} | [… {} lines …] | {}", first.join(" | "), count - FIRST - LAST, last.join(" | "))
}

fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use entourage_core::message::{Arguments, Part, Reasoning};

    fn calls(calls: &[(&str, Value)]) -> Message {
        let calls = calls.iter().enumerate().map(|(place, (name, arguments))| {
            Part::ToolCall(ToolCall::new(format!("c{place}"), *name, Arguments::from(arguments)))
        });
        Message::new(Role::Assistant, calls.collect())
    }

    fn results(of: &Message, texts: &[(&str, bool)]) -> Message {
        Message::tool(of.tool_calls().zip(texts).map(|(call, (text, failed))| {
            if *failed { ToolResult::error(call, *text) } else { ToolResult::text(call, *text) }
        }))
    }

    #[test]
    fn cw06_a_turn_is_one_line_per_call_with_small_caps() {
        let long: String = (1..=40).map(|n| format!("line {n} of the output\n")).collect();
        let asked = calls(&[
            ("run", json!({"command": "cargo test --workspace --all-features", "cwd": "/work"})),
            ("todos", json!({"todos": []})),
            ("edit", json!({"a": 1, "b": [1, 2], "c": "never shown"})),
        ])
        .with(Part::Text("I run the tests first.".into()))
        .with(Part::Reasoning(Reasoning::new("A thought.", None)));
        let answered = results(&asked, &[(&long, false), ("kept", false), ("no such\nfile", true)]);
        let late = calls(&[("view", json!({}))]);
        let work = [asked, answered, Message::user("more"), late, Message::assistant("é".repeat(600))];
        let expected = "\
I run the tests first.
- run(command: \"cargo test --workspace --all-…\", cwd: \"/work\"): line 1 of the output | line 2 of the output | \
line 3 of the output | [… 35 lines …] | line 39 of the output | line 40 of the output
- edit(a: 1, b: [1,2], …) failed: no such | file
- view(): not run
";
        let expected = format!("{expected}{}…", "é".repeat(499));
        assert_eq!(digest(&work.map(Arc::new)), expected);
        assert_eq!(digest(&[]), "");
    }

    #[test]
    fn cw06_of_a_long_turn_the_beginning_and_the_end_are_kept() {
        let work: Vec<_> = (0..200).map(|n| Arc::new(Message::assistant(format!("step {n}")))).collect();
        let digest = digest(&work);
        let lines: Vec<_> = digest.lines().collect();
        assert_eq!((lines.len(), lines[0], lines[29], lines[60]), (61, "step 0", "step 29", "step 199"));
        assert_eq!((lines[30], lines[31]), ("[… 140 more …]", "step 170"));
    }

    proptest! {
        /// Cuts never split a character, and no input makes a digest long.
        #[test]
        fn cw06_whatever_a_tool_gives_its_line_is_short(text in "(\\PC|\n|é|🙂){0,900}", argument in "\\PC{0,80}") {
            let asked = calls(&[("run", json!({"x": argument}))]);
            let answered = results(&asked, &[(&text, false)]);
            let digest = digest(&[Arc::new(asked), Arc::new(answered)]);
            prop_assert!(digest.chars().count() <= RESULT * 2);
            prop_assert_eq!(digest.lines().count(), 1);
        }
    }
}
