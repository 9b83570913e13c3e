//! Renames: shown first, then made in all files or in none, by the rules of the file tools.

use std::{
    os::unix::fs::PermissionsExt,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use entourage_core::{
    message::ToolResult,
    permission::{ApprovalRequest, Approver, Decision},
    run::{Outcome, Status},
};
use entourage_runtime::{
    Runtime,
    permission::{Policy, Preset},
};
use serde_json::{Value, json};

use crate::{Bench, common};

fn arguments(files: Option<Value>) -> Value {
    let mut arguments = json!({"path": "a.fk", "line": 1, "symbol": "one", "new_name": "zwei"});
    if let Some(files) = files {
        arguments["files"] = files;
    }
    arguments
}

fn bench(manner: &str) -> Bench {
    let bench = Bench::new(manner);
    bench.file("a.fk", "fn one\r\nuse one; é😀 one\r\n");
    bench.file("b.fk", "\u{feff}call one\n");
    bench.file("c.fk", "nothing\n");
    bench
}

const OLD: [&str; 2] = ["fn one\r\nuse one; é😀 one\r\n", "\u{feff}call one\n"];
const NEW: [&str; 2] = ["fn zwei\r\nuse zwei; é😀 zwei\r\n", "\u{feff}call zwei\n"];

fn now(bench: &Bench) -> [String; 2] {
    [bench.read("a.fk"), bench.read("b.fk")]
}

#[tokio::test]
async fn ce02_a_rename_is_shown_made_and_undone() {
    for manner in ["plain", "utf8", "versions"] {
        let bench = bench(manner);
        let results = bench
            .call_all(vec![
                ("lsp_rename", arguments(None)),
                ("lsp_rename", arguments(Some(json!(["a.fk", "b.fk"])))),
                ("lsp_diagnostics", json!({"path": "b.fk"})),
            ])
            .await;
        let texts: Vec<_> = results.iter().map(ToolResult::to_text).collect();
        assert!(
            texts[0].contains("changes 4 places in 2 files")
                && texts[0].contains("\"files\": [\"a.fk\",\"b.fk\"]")
        );
        assert!(
            texts[0].contains("-use one; é😀 one") && texts[0].contains("+use zwei; é😀 zwei"),
            "{}",
            texts[0]
        );
        assert!(texts[1].starts_with("renamed `one` to `zwei` in 4 places: `a.fk`, `b.fk`"), "{}", texts[1]);
        assert!(texts[1].contains("Diagnostics: none in `a.fk`."), "{}", texts[1]);
        assert_eq!(now(&bench), NEW, "{manner}");
        // The server was told of both.
        assert!(
            bench.notes("shown").iter().any(|line| line.starts_with("b.fk 1 call zwei")),
            "{:?}",
            bench.notes("shown")
        );
    }
    let bench = bench("plain");
    let both = Some(json!(["./a.fk", "b.fk", "c.fk"]));
    let results = bench
        .call_all(vec![
            ("lsp_rename", arguments(None)),
            ("lsp_rename", arguments(both)),
            ("undo", json!({"path": "a.fk"})),
            ("undo", json!({"path": "b.fk"})),
        ])
        .await;
    assert!(results.iter().all(|result| !result.is_error), "{results:?}");
    assert_eq!(now(&bench), OLD);
}

#[tokio::test]
async fn ce02_a_rename_changes_the_named_files_alone() {
    let bench = bench("plain");
    let seen = ("lsp_rename", arguments(None));
    let results = bench
        .call_all(vec![
            seen,
            ("lsp_rename", arguments(Some(json!(["a.fk"])))),
            ("lsp_rename", arguments(Some(json!([])))),
            ("lsp_rename", arguments(Some(json!(["../b.fk", "a.fk"])))),
        ])
        .await;
    for result in [&results[1], &results[3]] {
        let text = result.to_text();
        assert!(result.is_error && text.contains("these are: [\"a.fk\",\"b.fk\"]"), "{text}");
    }
    assert!(results[2].to_text().contains("nothing is changed yet"));
    assert_eq!(now(&bench), OLD);
}

#[tokio::test]
async fn cx05_a_rename_changes_no_file_that_changed_since_it_was_shown() {
    let bench = bench("plain");
    let runtime = bench.builder().build();
    let session = runtime.session();
    let both = || Some(json!(["a.fk", "b.fk"]));
    // Not seen at all.
    let result =
        common::call_in(&session, bench.tools(), vec![("lsp_rename", arguments(both()))]).await.remove(0);
    assert!(
        result.is_error && result.to_text().contains("was not viewed in this session"),
        "{}",
        result.to_text()
    );
    common::call_in(&session, bench.tools(), vec![("lsp_rename", arguments(None))]).await;
    bench.file("b.fk", "call one, theirs\n");
    let result =
        common::call_in(&session, bench.tools(), vec![("lsp_rename", arguments(both()))]).await.remove(0);
    assert!(result.is_error && result.to_text().contains("`b.fk` has changed since"), "{}", result.to_text());
    assert_eq!(now(&bench), [OLD[0], "call one, theirs\n"]);
}

#[tokio::test]
async fn ce02_a_rename_that_fails_in_one_file_changes_none() {
    let bench = bench("plain");
    std::fs::create_dir(bench.root.join("sub")).unwrap();
    // The server knows it once it is open.
    bench.file("sub/z.fk", "one\n");
    bench.call("view", json!({"path": "sub/z.fk"})).await;
    let files = Some(json!(["a.fk", "b.fk", "sub/z.fk"]));
    let results = bench.call_all(vec![("lsp_rename", arguments(None))]).await;
    assert!(results[0].to_text().contains("5 places in 3 files"), "{}", results[0].to_text());
    let is_root = is_allowed_all();
    std::fs::set_permissions(bench.root.join("sub"), std::fs::Permissions::from_mode(0o555)).unwrap();
    let calls = vec![("lsp_rename", arguments(None)), ("lsp_rename", arguments(files))];
    let result = bench.call_all(calls).await.remove(1);
    std::fs::set_permissions(bench.root.join("sub"), std::fs::Permissions::from_mode(0o755)).unwrap();
    if is_root {
        // Nothing is forbidden to it.
        assert_eq!(now(&bench), NEW);
        return;
    }
    let text = result.to_text();
    assert!(result.is_error && text.contains("nothing was changed, since"), "{text}");
    assert_eq!(now(&bench), OLD);
}

/// True where permissions of files do not hold.
fn is_allowed_all() -> bool {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o555)).unwrap();
    std::fs::write(dir.path().join("x"), "").is_ok()
}

#[tokio::test]
async fn ce02_changes_that_a_rename_does_not_make_are_refused_whole() {
    for (manner, part) in [
        ("outside", "`/etc/hosts`, which is outside of the workspace"),
        ("creates", "would create a file as well"),
        ("twice", "do not fit its text"),
        ("stale", "answered for an older text"),
        // It counts the byte order mark as a character, so a place is within a word.
        ("marks", "do not fit its text"),
        // One of its answers for a file is for another text.
        ("torn", "two versions of one file"),
        ("adds \u{202e}", "has characters that nobody sees"),
        // It ends a line in some languages, and is not in what an approver sees.
        ("adds // \revil", "has characters that nobody sees"),
        ("adds // \u{2028}evil", "has characters that nobody sees"),
        ("adds \u{1b}[2K", "has characters that nobody sees"),
    ] {
        let bench = bench(manner);
        let both = Some(json!(["a.fk", "b.fk"]));
        let calls = vec![("lsp_rename", arguments(None)), ("lsp_rename", arguments(both))];
        for result in bench.call_all(calls).await {
            assert!(result.is_error && result.to_text().contains(part), "{manner}: {}", result.to_text());
        }
        assert_eq!(now(&bench), OLD, "{manner}");
    }
    let bench = bench("plain");
    for name in ["", "a\nb", "a\u{202e}b", "a\u{2028}b", &"x".repeat(300)] {
        let mut arguments = arguments(None);
        arguments["new_name"] = name.into();
        assert!(bench.call("lsp_rename", arguments).await.contains("`new_name` has to be a name"));
    }
}

#[tokio::test]
async fn ce02_a_rename_is_judged_by_the_files_that_it_writes() {
    let bench = bench("plain");
    let both = || Some(json!(["a.fk", "b.fk"]));
    let calls = || vec![("lsp_rename", arguments(None)), ("lsp_rename", arguments(both()))];
    // A file that may not be read.
    let runtime = bench.builder().policy(Policy::allow_all().deny("lsp_rename:b.fk")).build();
    let result = common::call_all(&runtime, bench.tools(), vec![calls().remove(0)]).await.remove(0);
    assert!(result.is_error && result.to_text().contains("may not read"), "{}", result.to_text());
    assert!(!result.to_text().contains("b.fk"));
    // One that it would read, and may not write: the call is judged by both.
    let runtime = bench.builder().policy(Policy::allow_all().deny("lsp_rename:b.fk")).build();
    let agent = Calls(calls());
    let outcome = agent.outcome(&runtime, &bench).await;
    assert!(!outcome.text.contains("renamed"), "{outcome}");
    assert_eq!(now(&bench), OLD);
    // Looking needs no approval, changing does, and the approver is shown the difference.
    let shown = Asked::default();
    let runtime = bench.builder().policy(Preset::Ask.policy()).approver(shown.clone()).build();
    let results = common::call_all(&runtime, bench.tools(), calls()).await;
    assert!(results.iter().all(|result| !result.is_error), "{results:?}");
    assert_eq!(now(&bench), NEW);
    let asked = shown.0.lock().unwrap();
    assert_eq!(asked.len(), 1);
    let preview = asked[0].preview.as_deref().unwrap();
    assert!(preview.contains("+fn zwei") && preview.contains("+\u{feff}call zwei"), "{preview}");
    assert_eq!(asked[0].footprint.writes, ["a.fk", "b.fk"]);
}

/// Calls of an agent of which one may end its run.
struct Calls(Vec<(&'static str, Value)>);

impl Calls {
    async fn outcome(&self, runtime: &Runtime, bench: &Bench) -> Outcome {
        let provider = entourage_testkit::ScriptedProvider::by_history();
        let provider =
            self.0.iter().fold(provider, |provider, call| provider.calls([call.clone()])).text("Done.");
        let agent = entourage_runners::ReactAgent::builder("a", provider.model());
        let agent = bench.tools().into_iter().fold(agent, |agent, tool| agent.tool(tool)).build().unwrap();
        let outcome = runtime.session().start(&agent, "Go").outcome().await.unwrap();
        assert!(!matches!(outcome.status, Status::Paused(_)), "{outcome}");
        outcome
    }
}

/// An approver that allows all, and keeps what it was shown.
#[derive(Debug, Clone, Default)]
struct Asked(Arc<Mutex<Vec<ApprovalRequest>>>);

#[async_trait]
impl Approver for Asked {
    async fn decide(&self, request: &ApprovalRequest) -> entourage_core::Result<Decision> {
        self.0.lock().unwrap().push(request.clone());
        Ok(Decision::Allow)
    }
}

#[tokio::test]
async fn ce02_two_names_of_one_file_are_told_and_neither_is_changed() {
    let bench = bench("plain");
    std::fs::hard_link(bench.root.join("b.fk"), bench.root.join("hard.fk")).unwrap();
    for files in [None, Some(json!(["a.fk", "b.fk", "hard.fk"]))] {
        let told = bench.call("lsp_rename", arguments(files)).await;
        let part = "nothing was changed, since `b.fk` and `hard.fk` are two names of one file (hard links)";
        assert!(told.contains(part), "{told}");
        assert_eq!((now(&bench), bench.read("hard.fk").as_str()), (OLD.map(str::to_owned), OLD[1]));
    }
}
