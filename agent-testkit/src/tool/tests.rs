//! The suite finds what it looks for, each in a tool with that one flaw.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind,
    message::{Media, MediaSource},
    tool::{Access, Footprint, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec},
};
use serde_json::{Value, json};

use super::conformance;
use crate::FakeTool;

/// The flaw of a tool that writes a text to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    BadName,
    NoDescription,
    ForeignSchema,
    OtherFootprint,
    FootprintWrites,
    Panics,
    FootprintPanics,
    Fatal,
    FollowsPaths,
    NamesNothing,
    SaysItReads,
    ShowsOthers,
    PreviewWrites,
    LongText,
    LongMetadata,
    LargeFile,
    SilentError,
    WritesInHalves,
    Refuses,
    IgnoresCancel,
}

struct Note {
    flaw: Flaw,
    spec: ToolSpec,
    directory: PathBuf,
    asked: AtomicUsize,
}

impl Note {
    fn new(flaw: Flaw, directory: PathBuf) -> Self {
        let text = if flaw == Flaw::ForeignSchema { json!({"not": {}}) } else { json!({"type": "string"}) };
        let schema = json!({
            "type": "object",
            "properties": {"name": {"type": "string"}, "text": text},
            "required": ["name"],
        });
        let name = if flaw == Flaw::BadName { "take note" } else { "note" };
        let description = if flaw == Flaw::NoDescription { " " } else { "Notes a text in a file." };
        let access = if flaw == Flaw::SaysItReads { Access::READ } else { Access::WRITE };
        let spec = ToolSpec::new(name, description, schema).with_access(access).naming_subjects();
        Self { flaw, spec, directory, asked: AtomicUsize::new(0) }
    }

    /// The file of a call. Only its plain name counts, unless the tool is careless.
    fn file(&self, arguments: &Value) -> Option<String> {
        let name = arguments.get("name")?.as_str()?;
        let plain: String = name.chars().filter(|c| c.is_ascii_alphanumeric()).take(40).collect();
        if self.flaw == Flaw::FollowsPaths && name.contains('/') && name.len() < 200 && !name.contains('\0') {
            return Some(name.to_owned());
        }
        (!plain.is_empty()).then(|| format!("note-{plain}"))
    }
}

#[async_trait]
impl Tool for Note {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn footprint(&self, arguments: &Value) -> Footprint {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        match self.flaw {
            Flaw::FootprintWrites => std::fs::write(self.directory.join("asked"), "").unwrap(),
            Flaw::FootprintPanics if arguments.get("text").is_none() => panic!("on purpose"),
            _ => {}
        }
        let footprint = Footprint::new(self.spec.access());
        match self.file(arguments) {
            _ if self.flaw == Flaw::NamesNothing => footprint,
            _ if self.flaw == Flaw::OtherFootprint => footprint.writing(asked.to_string()),
            Some(file) => footprint.writing(file),
            None => footprint,
        }
    }

    async fn preview(&self, _: ToolInput, _: &ToolContext<'_>) -> Option<String> {
        if self.flaw == Flaw::PreviewWrites {
            std::fs::write(self.directory.join("preview"), "").unwrap();
        }
        Some("a note".to_owned())
    }

    async fn call(&self, input: ToolInput, _: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let text = input.arguments["text"].as_str().unwrap_or_default();
        let Some(file) = self.file(&input.arguments) else {
            let text = if self.flaw == Flaw::SilentError { "" } else { "give the note a name" };
            return Err(ToolError::tell(text));
        };
        let output = ToolOutput::text("noted");
        match self.flaw {
            Flaw::Panics if text.is_empty() => panic!("on purpose"),
            Flaw::Fatal if text.is_empty() => {
                return Err(ToolError::Fatal(Error::new(ErrorKind::InvalidInput, "no text")));
            }
            Flaw::Refuses => return Err(ToolError::tell("not today")),
            Flaw::LongText => return Ok(ToolOutput::text("a".repeat(300 << 10))),
            Flaw::LongMetadata => return Ok(output.with_metadata(json!("a".repeat(2 << 20)))),
            Flaw::LargeFile => {
                let source = MediaSource::Url("a".repeat(33 << 20));
                return Ok(output.with_media(Media::new("image/png", source)));
            }
            Flaw::ShowsOthers => {
                return Ok(ToolOutput::text(std::fs::read_to_string(self.directory.join("a.txt")).unwrap()));
            }
            Flaw::WritesInHalves => {
                std::fs::write(self.directory.join(&file), "").unwrap();
                tokio::task::yield_now().await;
            }
            Flaw::IgnoresCancel => {
                struct Slow;
                impl Drop for Slow {
                    fn drop(&mut self) {
                        std::thread::sleep(Duration::from_millis(1_100));
                    }
                }
                let slow = Slow;
                tokio::task::yield_now().await;
                #[allow(clippy::mem_forget, reason = "only a call that is dropped early is slow to end")]
                std::mem::forget(slow);
            }
            _ => {}
        }
        std::fs::write(self.directory.join(&file), text).map_err(ToolError::from)?;
        Ok(output)
    }
}

#[tokio::test]
async fn every_case_fails_for_the_tool_that_breaks_it() {
    for (flaw, case) in [
        (Flaw::BadName, "the_declarations_are_sound"),
        (Flaw::NoDescription, "the_declarations_are_sound"),
        (Flaw::ForeignSchema, "every_service_takes_the_schema"),
        (Flaw::OtherFootprint, "declarations_and_footprints_are_stable"),
        (Flaw::FootprintWrites, "declarations_and_footprints_are_stable"),
        (Flaw::Panics, "no_arguments_cause_a_panic"),
        (Flaw::FootprintPanics, "no_arguments_cause_a_panic"),
        (Flaw::Fatal, "no_arguments_end_the_run"),
        (Flaw::FollowsPaths, "nothing_outside_is_changed"),
        (Flaw::NamesNothing, "the_footprint_covers_what_is_touched"),
        (Flaw::SaysItReads, "the_footprint_covers_what_is_touched"),
        (Flaw::ShowsOthers, "the_footprint_covers_what_is_touched"),
        (Flaw::PreviewWrites, "a_preview_changes_nothing"),
        (Flaw::LongText, "results_are_bounded"),
        (Flaw::LongMetadata, "results_are_bounded"),
        (Flaw::LargeFile, "results_are_bounded"),
        (Flaw::SilentError, "errors_say_something"),
        (Flaw::WritesInHalves, "a_dropped_call_leaves_nothing_half_done"),
        (Flaw::Refuses, "the_given_calls_succeed"),
        (Flaw::IgnoresCancel, "a_cancel_ends_the_call_within_a_second"),
    ] {
        let name = if flaw == Flaw::BadName { "take note" } else { "note" };
        let calls = if flaw == Flaw::LargeFile { 0 } else { 30 };
        let report = conformance(name, move |directory| (Note::new(flaw, directory.to_owned()),))
            .call(json!({"name": "one", "text": "A text."}))
            .with_fuzzed_calls(calls)
            .run()
            .await;
        let failed = report.failed();
        assert!(failed.iter().any(|(name, _)| name == case), "{flaw:?}: {report:#}");
        // A text for each finding that leads to it.
        assert!(failed.iter().all(|(_, text)| text.len() > 15 && text.len() < 3_000), "{report:#}");
    }
}

#[tokio::test]
async fn a_tool_without_a_flaw_passes_and_the_same_seed_gives_the_same_report() {
    let report = |seed| {
        conformance("note", |directory| (Note::new(Flaw::None, directory.to_owned()),))
            .call(json!({"name": "one", "text": "A text."}))
            .with_seed(seed)
            .run()
    };
    let first = report(7).await;
    first.assert();
    assert_eq!(first, report(7).await);
    assert!(first.to_string().contains("note (seed 7)"), "{first}");
}

#[tokio::test]
async fn a_tool_that_never_ends_is_cancelled() {
    let hanging = || FakeTool::new("wait").hanging();
    let report =
        conformance("wait", move |_| (hanging(),)).long_call(json!({})).with_fuzzed_calls(0).run().await;
    report.assert();
}

#[tokio::test]
async fn calls_before_it_and_values_of_the_program_reach_the_tool() {
    struct Asks(ToolSpec, Arc<FakeTool>);
    #[async_trait]
    impl Tool for Asks {
        fn spec(&self) -> &ToolSpec {
            &self.0
        }
        async fn call(&self, _: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
            match self.1.finished() {
                0 => Err(ToolError::tell("the other tool was not called")),
                _ => Ok(ToolOutput::text(cx.deps::<u32>()?.to_string())),
            }
        }
    }
    let make = |_: &std::path::Path| {
        let other = FakeTool::new("other");
        let spec = ToolSpec::new("asks", "Asks.", json!({"type": "object"})).with_access(Access::NONE);
        (Asks(spec, Arc::new(other.clone())), other)
    };
    let ready = conformance("asks", make).call(json!({})).after("other", json!({}));
    ready.in_runtime(|runtime| runtime.dep(7_u32)).run().await.assert();
    let report = conformance("asks", make).call(json!({})).with_fuzzed_calls(5).run().await;
    assert!(format!("{report:#}").contains("was not called"), "{report:#}");
}
