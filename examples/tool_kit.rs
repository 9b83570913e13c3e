//! A tool with all that a tool may have: a footprint for rules, a preview for the person who is asked, the program's
//! state, progress, and a file as its result by reference; and the suite that shows that it keeps its word.

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use std::{fs, io::Write, path::PathBuf};

use async_trait::async_trait;
use entourage::{
    event::Event,
    message::{Media, MediaSource},
    permission::Policy,
    prelude::*,
    testkit::{ScriptedProvider, tool::conformance},
    tool::{Footprint, ToolContext, ToolInput, ToolOutput, ToolSpec, schema_of},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// The program's state: a runtime gives it to each tool that asks for its type.
struct Site {
    url: &'static str,
}

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// The line to add, without line ends.
    #[schemars(length(max = 200))]
    line: String,
}

/// Adds lines to `notes.md` in one directory.
#[derive(Debug)]
struct Note {
    spec: ToolSpec,
    dir: PathBuf,
}

impl Note {
    fn new(dir: impl Into<PathBuf>) -> Self {
        let spec = ToolSpec::new("note", "Adds one line to the notes.", schema_of::<Arguments>());
        Self { spec: spec.with_access(Access::WRITE).naming_subjects(), dir: dir.into() }
    }
}

#[async_trait]
impl Tool for Note {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Rules see the path: `deny note:notes.md` would hold.
    fn footprint(&self, _: &Value) -> Footprint {
        Footprint::new(Access::WRITE).writing("notes.md")
    }

    /// Stands in the question to the person, who sees what will be written before anything is.
    async fn preview(&self, input: ToolInput, _: &ToolContext<'_>) -> Option<String> {
        let Arguments { line } = input.parse().ok()?;
        Some(format!("--- notes.md\n+++ notes.md\n+{line}"))
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let Arguments { line } = input.parse()?;
        if line.trim().is_empty() || line.contains(['\n', '\r', '\0']) || line.chars().nth(200).is_some() {
            return Err(ToolError::tell("a note is one line of 1 to 200 characters"));
        }
        cx.progress("writing the note");
        let mut file = fs::OpenOptions::new().append(true).create(true).open(self.dir.join("notes.md"))?;
        file.write_all(format!("{line}\n").as_bytes())?;
        // The model's service fetches the file, if it can; the bytes are in no message.
        let url = format!("{}/notes.md", cx.deps::<Site>()?.url);
        Ok(ToolOutput::text("noted").with_media(Media::new("text/markdown", MediaSource::Url(url))))
    }
}

/// Shows the question, and says yes.
#[derive(Debug)]
struct Person;

#[async_trait]
impl Approver for Person {
    async fn decide(&self, question: &ApprovalRequest) -> Result<Decision> {
        println!(
            "may `{}` do this?\n{}",
            question.tool,
            question.preview.as_deref().unwrap_or("(no preview)")
        );
        Ok(Decision::Allow)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    println!("(a scripted model makes the calls; no model is needed for this)");
    let dir = tempfile::tempdir()?;
    let provider = ScriptedProvider::new().call("note", json!({ "line": "Buy lamps." })).text("Noted.");
    let agent = ReactAgent::builder("secretary", provider.model()).tool(Note::new(dir.path())).build()?;
    let site = Site { url: "https://files.example.com" };
    let runtime = Runtime::builder().policy(Policy::new()).approver(Person).dep(site).build();
    let mut run = runtime.session().start(&agent, "Remember the lamps");
    while let Some(event) = run.next().await {
        if let Event::Progress(_) | Event::ToolFinished(_) = event.event {
            println!("{event}");
        }
    }
    println!("{}", run.outcome().await?.text);

    let report = conformance("note", |dir| (Note::new(dir),))
        .in_runtime(|builder| builder.dep(Site { url: "https://files.example.com" }))
        .call(json!({ "line": "Buy lamps." }))
        .run()
        .await;
    report.assert();
    println!("the tool passes the suite");
    Ok(())
}
