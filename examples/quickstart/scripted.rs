//! The model used when none is found: a provider that explores by a fixed plan. Its words are canned, its tool calls
//! are real, and the facts in its answer are computed from their results.
//!
//! It keeps no state. Its position in the plan follows from the request, so a resumed run continues where it was.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage::{
    Result,
    message::{History, Role, ToolResult},
    provider::{CallContext, Delta, DeltaStream, FinishReason, Model, Provider, Request},
};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use crate::args::GO_ON;

/// Pause between two words, so that they visibly stream.
const PACE: Duration = Duration::from_millis(15);

const MARKS: &str = "TODO|FIXME";

pub(crate) fn model() -> Model {
    Model::new(Arc::new(Scripted), "scripted")
}

#[derive(Debug)]
struct Scripted;

#[async_trait]
impl Provider for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    async fn stream(&self, request: Request, _: &CallContext) -> Result<DeltaStream> {
        let seen = Seen::since_the_question(&request.messages);
        let deltas = seen.next_reply();
        Ok(stream::iter(deltas)
            .then(|delta| async {
                tokio::time::sleep(PACE).await;
                Ok(delta)
            })
            .boxed())
    }
}

/// The tool results since the user last asked something.
struct Seen(Vec<Arc<ToolResult>>);

impl Seen {
    fn since_the_question(history: &History) -> Self {
        let mut results = Vec::new();
        for message in history {
            match message.role() {
                // What was done is done; a call that was cut short is made again.
                Role::User if message.text() == GO_ON => {
                    while results.pop_if(|result: &mut Arc<ToolResult>| result.is_error).is_some() {}
                }
                Role::User => results.clear(),
                _ => {}
            }
            results.extend(message.tool_results().cloned().map(Arc::new));
        }
        Self(results)
    }

    /// The next part of the plan: one tool call after another, then the answer.
    fn next_reply(&self) -> Vec<Delta> {
        let files = format!("*{}", self.commonest_ending());
        match (self.0.len(), self.file_to_view()) {
            (0, _) => call(0, "First the tree.", "ls", &json!({})),
            (1, _) => {
                call(1, "Which files of the commonest kind are there?", "glob", &json!({ "pattern": files }))
            }
            (2, _) => {
                call(2, "Is work left in them?", "grep", &json!({ "pattern": MARKS, "include": files }))
            }
            (3, Some(path)) => call(3, "And one file from the inside.", "view", &json!({ "path": path })),
            _ => answer(&self.report()),
        }
    }

    /// The text of a tool's result, unless it failed.
    fn text(&self, tool: &str) -> Option<String> {
        self.0.iter().find(|result| &*result.name == tool && !result.is_error).map(|result| result.to_text())
    }

    /// The names in the tree, without their depth; directories end with `/`.
    fn names(&self) -> Vec<String> {
        let tree = self.text("ls").unwrap_or_default();
        tree.lines().filter_map(|line| line.strip_prefix("  ")).map(|name| name.trim().to_owned()).collect()
    }

    /// The most common file ending, such as `.rs`; empty if no file has an ending.
    fn commonest_ending(&self) -> String {
        let mut counts = BTreeMap::new();
        for name in self.names() {
            if let Some((_, ending)) = name.rsplit_once('.')
                && ending.chars().all(char::is_alphanumeric)
            {
                *counts.entry(format!(".{ending}")).or_insert(0) += 1;
            }
        }
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(ending, _)| ending).unwrap_or_default()
    }

    fn found(&self) -> Vec<String> {
        let list = self.text("glob").unwrap_or_default();
        let is_note = |line: &str| line.starts_with('(') || line.starts_with("no file matches");
        list.lines().filter(|line| !is_note(line)).map(str::to_owned).collect()
    }

    /// A README at the top of the tree, else the first file found.
    fn file_to_view(&self) -> Option<String> {
        let tree = self.text("ls").unwrap_or_default();
        let top = tree
            .lines()
            .filter_map(|line| line.strip_prefix("  "))
            .find(|name| name.to_lowercase().starts_with("readme") && !name.ends_with(['/', '@', ')']));
        top.map(str::to_owned).or_else(|| self.found().into_iter().next())
    }

    fn report(&self) -> String {
        let (dirs, others): (Vec<_>, Vec<_>) = self.names().into_iter().partition(|name| name.ends_with('/'));
        let mut report = format!(
            "I am a scripted stand-in: I cannot judge what this is for, and I measured no file. What the tools \
             showed: directories: {}, other entries: {}{}. ",
            dirs.len(),
            others.len(),
            self.cut("ls")
        );
        let found = self.found().len();
        report += &format!("Files like *{}: {found}{}. ", self.commonest_ending(), self.cut("glob"));
        if let Some(matches) = self.text("grep") {
            let summary = matches.lines().next().unwrap_or_default();
            report += &format!("{MARKS} in them: {summary}{}. ", self.cut("grep"));
        }
        match (self.file_to_view(), self.text("view")) {
            (Some(path), Some(text)) => report += &first_words(&path, &text),
            (Some(path), None) => report += &format!("{path} could not be viewed."),
            (None, _) => report += "There was no file to view.",
        }
        report
    }

    /// A remark if a tool failed or left something out. Tools put their own notes in parentheses.
    fn cut(&self, tool: &str) -> &'static str {
        let Some(text) = self.text(tool) else { return " (the tool failed)" };
        let is_note = |line: &str| line.starts_with('(') && !line.starts_with("(nothing");
        if text.lines().any(is_note) { " (cut, there is more)" } else { "" }
    }
}

fn first_words(path: &str, text: &str) -> String {
    let mut lines = text.lines().filter_map(|line| line.split_once('\t')).map(|(_, line)| line.trim());
    match lines.find(|line| !line.is_empty()) {
        Some(line) => format!("{path} begins with: {line}"),
        None => format!("{path} has no text at its beginning."),
    }
}

fn call(number: usize, words: &str, tool: &str, arguments: &Value) -> Vec<Delta> {
    let id = format!("scripted-{number}");
    let mut deltas = spoken(words);
    deltas.push(Delta::tool_call(0, id, tool));
    deltas.push(Delta::arguments(0, arguments.to_string()));
    deltas.push(Delta::Finish(Box::new(FinishReason::ToolCalls.into())));
    deltas
}

fn answer(text: &str) -> Vec<Delta> {
    let mut deltas = spoken(text);
    deltas.push(Delta::Finish(Box::new(FinishReason::Stop.into())));
    deltas
}

fn spoken(text: &str) -> Vec<Delta> {
    text.split_inclusive(' ').map(|word| Delta::Text(word.into())).collect()
}
