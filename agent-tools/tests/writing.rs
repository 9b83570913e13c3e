//! Tools that change files: what they refuse, what they keep, and that nothing outside the workspace changes.

#![cfg(all(feature = "fs", unix))]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests fail by panicking too"
)]

mod common;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use entourage_core::{
    Result,
    message::ToolResult,
    permission::{ApprovalRequest, Approver, Decision},
    tool::Tool,
};
use entourage_runners::ReactAgent;
use entourage_runtime::{Runtime, permission::Policy};
use entourage_testkit::ScriptedProvider;
use entourage_tools::fs::Workspace;
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

const WRITERS: [&str; 3] = ["write", "edit", "multiedit"];

struct Tree {
    _keep: TempDir,
    base: PathBuf,
    root: PathBuf,
    workspace: Workspace,
}

impl Tree {
    fn new(files: &[(&str, &str)]) -> Self {
        let keep = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(keep.path()).unwrap();
        let root = base.join("root");
        for dir in ["root/src", "root-evil", "outside"] {
            fs::create_dir_all(base.join(dir)).unwrap();
        }
        fs::write(base.join("outside/a.rs"), "outside\n").unwrap();
        fs::write(base.join("root-evil/a.rs"), "evil\n").unwrap();
        for (path, text) in files {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
        }
        let workspace = Workspace::open(&root).unwrap();
        Self { _keep: keep, base, root, workspace }
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.workspace.read_tools().into_iter().chain(self.workspace.write_tools()).collect()
    }

    async fn all(&self, calls: Vec<(&str, Value)>) -> Vec<ToolResult> {
        common::call_all(&allowed(), self.tools(), calls).await
    }

    /// The text of the last result, after the others were made in the same session.
    async fn last(&self, calls: Vec<(&str, Value)>) -> std::result::Result<String, String> {
        let result = self.all(calls).await.pop().unwrap();
        if result.is_error { Err(result.to_text()) } else { Ok(result.to_text()) }
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap()
    }
}

fn allowed() -> Runtime {
    Runtime::builder().policy(Policy::new().allow("*")).build()
}

fn view(path: &str) -> (&'static str, Value) {
    ("view", json!({ "path": path }))
}

fn edit(path: &str, old: &str, new: &str) -> (&'static str, Value) {
    ("edit", json!({ "path": path, "old": old, "new": new }))
}

fn write(path: &str, content: &str) -> (&'static str, Value) {
    ("write", json!({ "path": path, "content": content }))
}

/// A call of `tool` that creates a file, or would replace one.
fn creating(tool: &'static str, path: &str) -> (&'static str, Value) {
    match tool {
        "write" => write(path, "made\n"),
        "edit" => edit(path, "", "made\n"),
        _ => ("multiedit", json!({ "path": path, "edits": [{ "old": "", "new": "made\n" }] })),
    }
}

/// A call of `tool` that changes `outside` or `evil` where it finds it.
fn changing(tool: &'static str, path: &str) -> (&'static str, Value) {
    match tool {
        "write" => write(path, "changed\n"),
        "edit" => edit(path, "outside", "changed"),
        _ => ("multiedit", json!({ "path": path, "edits": [{ "old": "outside", "new": "changed" }] })),
    }
}

/// Each file below a directory with its content; links by their target.
fn snapshot(dir: &Path) -> BTreeMap<PathBuf, String> {
    let (mut found, mut left) = (BTreeMap::new(), vec![dir.to_owned()]);
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()) {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            if kind.is_dir() {
                left.push(path.clone());
                found.insert(path, "directory".to_owned());
            } else if kind.is_symlink() {
                found.insert(path.clone(), format!("{:?}", fs::read_link(path).unwrap()));
            } else {
                found.insert(path.clone(), String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned());
            }
        }
    }
    found
}

fn outside(tree: &Tree) -> BTreeMap<PathBuf, String> {
    let mut found = snapshot(&tree.base);
    found.retain(|path, _| !path.starts_with(&tree.root));
    found
}

#[tokio::test]
async fn cx05_a_file_is_changed_only_as_the_session_saw_it() {
    let tree = Tree::new(&[("a", "one\n")]);
    for call in [edit("a", "one", "two"), write("a", "two\n")] {
        let error = tree.last(vec![call]).await.unwrap_err();
        assert!(error.contains("was not viewed"), "{error}");
    }
    assert_eq!(tree.text("a"), "one\n");
    tree.last(vec![view("a"), edit("a", "one", "two"), edit("a", "two", "three")]).await.unwrap();
    assert_eq!(tree.text("a"), "three\n", "what a session wrote it has seen");
    let error = tree.last(vec![view("a"), write("a", "three\n")]).await.unwrap_err();
    assert!(error.contains("this content already"), "{error}");
    let created = tree.last(vec![write("new/b", "x\n"), write("new/b", "y\n")]).await.unwrap();
    assert_eq!((tree.text("new/b").as_str(), created.contains("changed")), ("y\n", true), "{created}");
    let error = tree.last(vec![view("src")]).await.unwrap_err();
    assert!(error.contains("directory"), "{error}");
    for call in WRITERS.map(|tool| creating(tool, "src")) {
        let error = tree.last(vec![call]).await.unwrap_err();
        assert!(error.contains("directory"), "{error}");
    }
}

/// An approver that changes the file while it is asked.
#[derive(Debug)]
struct Meddling(PathBuf, &'static str);

#[async_trait]
impl Approver for Meddling {
    async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
        fs::write(&self.0, self.1).unwrap();
        Ok(Decision::Allow)
    }
}

#[tokio::test]
async fn cx05_a_change_while_approval_is_asked_for_is_noticed() {
    for (meanwhile, fine) in [("1ne\n", false), ("one\n", true)] {
        let tree = Tree::new(&[("a", "one\n")]);
        let runtime = Runtime::builder().approver(Meddling(tree.root.join("a"), meanwhile)).build();
        let calls = vec![view("a"), edit("a", "ne", "wo")];
        let result = common::call_all(&runtime, tree.tools(), calls).await.pop().unwrap();
        assert_eq!(result.is_error, !fine, "{}", result.to_text());
        assert_eq!(result.to_text().contains("changed since"), !fine, "{}", result.to_text());
        assert_eq!(tree.text("a"), if fine { "owo\n" } else { meanwhile });
    }
}

#[tokio::test]
async fn cx05_of_two_sessions_the_second_is_told_that_the_file_has_changed() {
    let tree = Tree::new(&[("a", "one\n")]);
    let runtime = allowed();
    let [first, second] = [runtime.session(), runtime.session()];
    let step = |session, calls| common::call_in(session, tree.tools(), calls);
    step(&first, vec![view("a")]).await;
    step(&second, vec![view("a")]).await;
    assert!(!step(&first, vec![edit("a", "one", "two")]).await[0].is_error);
    let stale = step(&second, vec![edit("a", "one", "three")]).await.remove(0);
    assert!(stale.is_error && stale.to_text().contains("changed since"), "{}", stale.to_text());
    assert_eq!(tree.text("a"), "two\n");
    let again = step(&second, vec![view("a"), edit("a", "two", "three")]).await;
    assert!(!again[1].is_error, "{}", again[1].to_text());
    assert_eq!(tree.text("a"), "three\n");
}

#[tokio::test]
async fn cx06_what_an_edit_does() {
    let tree = Tree::new(&[("a", "x = 1\ny = 1\n"), ("crlf", "\u{feff}a\r\nb\r\n"), ("bytes", "")]);
    fs::write(tree.root.join("bytes"), b"caf\xe9").unwrap();
    for (call, want) in [
        (edit("a", "", "x"), "exists"),
        (edit("none", "x", "y"), "there is nothing at `none`"),
        (edit("a", "z", "y"), "not in the file"),
        (edit("a", "1", "2"), "2 places, at lines 1, 2"),
        (edit("a", "x", "x"), "equal"),
    ] {
        let error = tree.last(vec![view("a"), call]).await.unwrap_err();
        assert!(error.contains(want), "{error}");
    }
    assert_eq!(tree.text("a"), "x = 1\ny = 1\n");
    let result = tree.all(vec![view("a"), edit("a", "y = 1\n", "")]).await.pop().unwrap();
    assert_eq!(tree.text("a"), "x = 1\n");
    let shown = result.to_text();
    assert!(shown.contains("0 lines added, 1 removed"), "{shown}");
    let all = ("edit", json!({ "path": "b/c", "old": "", "new": "1 1 1" }));
    let more = ("edit", json!({ "path": "b/c", "old": "1", "new": "2", "replace_all": true }));
    tree.last(vec![all, more]).await.unwrap();
    assert_eq!(tree.text("b/c"), "2 2 2");
    tree.last(vec![view("crlf"), edit("crlf", "a\nb\n", "a\nc\nd\n")]).await.unwrap();
    assert_eq!(tree.text("crlf"), "\u{feff}a\r\nc\r\nd\r\n");
    tree.last(vec![view("crlf"), write("crlf", "e\nf\n")]).await.unwrap();
    assert_eq!(tree.text("crlf"), "\u{feff}e\r\nf\r\n");
    let error = tree.last(vec![view("bytes"), edit("bytes", "caf", "x")]).await.unwrap_err();
    assert!(error.contains("not viewed"), "{error}");
}

#[tokio::test]
async fn cx08_an_edit_that_fails_is_left_out_and_named() {
    let tree = Tree::new(&[("a", "one\ntwo\nthree\n")]);
    let calls = |edits: Value| vec![view("a"), ("multiedit", json!({ "path": "a", "edits": edits }))];
    let told = tree
        .last(calls(json!([
            { "old": "one", "new": "1" }, { "old": "none", "new": "x" }, { "old": "1\ntwo", "new": "12" },
        ])))
        .await
        .unwrap();
    assert_eq!(tree.text("a"), "12\nthree\n");
    assert!(told.contains("edit 2 was left out") && !told.contains("edit 1 "), "{told}");
    for edits in
        [json!([{ "old": "x", "new": "y" }]), json!([{ "old": "x", "new": "y" }, { "old": "", "new": "y" }])]
    {
        let error = tree.last(calls(edits)).await.unwrap_err();
        assert!(error.contains("no edit could be made"), "{error}");
    }
    let back = json!([{ "old": "12", "new": "x" }, { "old": "x", "new": "12" }]);
    let error = tree.last(calls(back)).await.unwrap_err();
    assert!(error.contains("as it was"), "{error}");
    let error = tree.last(calls(json!([]))).await.unwrap_err();
    assert!(error.contains("edits"), "{error}");
    assert_eq!(tree.text("a"), "12\nthree\n");
    let made = json!({ "path": "b", "edits": [{ "old": "", "new": "a b" }, { "old": "b", "new": "c" }] });
    tree.last(vec![("multiedit", made)]).await.unwrap();
    assert_eq!(tree.text("b"), "a c");
}

#[tokio::test]
async fn a_file_is_replaced_with_its_mode_and_nothing_is_left_beside_it() {
    let tree = Tree::new(&[("run.sh", "echo one\n")]);
    let path = tree.root.join("run.sh");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6751)).unwrap();
    fs::hard_link(&path, tree.root.join("same")).unwrap();
    let held = fs::File::open(&path).unwrap();
    tree.last(vec![view("run.sh"), edit("run.sh", "one", "two")]).await.unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o751, "and runs as nobody else");
    assert_eq!(std::io::read_to_string(held).unwrap(), "echo one\n", "a reader has the old file, whole");
    assert_eq!((tree.text("run.sh").as_str(), tree.text("same").as_str()), ("echo two\n", "echo one\n"));
    tree.last(vec![write("made", "x")]).await.unwrap();
    let names: Vec<_> = fs::read_dir(&tree.root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    let error = tree.last(vec![write(&"n".repeat(300), "x")]).await.unwrap_err();
    assert!(error.contains("cannot be changed"), "{error}");
    assert_eq!(fs::read_dir(&tree.root).unwrap().count(), 4);
}

#[tokio::test]
async fn attack_24_and_47_no_path_leads_out() {
    let tree = Tree::new(&[]);
    let (root, base) = (tree.root.display(), tree.base.display());
    let before = outside(&tree);
    for path in [
        "..",
        "../x.txt",
        "../outside/a.rs",
        "src/../../outside/a.rs",
        "../root-evil/a.rs",
        "/etc/entourage-was-here",
        "//etc//entourage-was-here",
        &format!("{base}/outside/a.rs"),
        &format!("{root}-evil/a.rs"),
        &format!("{root}/../root-evil/a.rs"),
        &format!("/{root}//..//outside/new"),
    ] {
        for tool in WRITERS {
            for call in [creating(tool, path), changing(tool, path)] {
                let error = tree.last(vec![call]).await.unwrap_err();
                assert!(error.contains("outside the workspace"), "{tool} {path}: {error}");
            }
        }
    }
    assert!(!Path::new("/etc/entourage-was-here").exists());
    assert_eq!(outside(&tree), before);
    for path in ["", "a\0b", &"a/".repeat(3_000)] {
        for tool in WRITERS {
            let error = tree.last(vec![creating(tool, path)]).await.unwrap_err();
            assert!(error.contains("names nothing in the workspace"), "{tool} {path}: {error}");
        }
    }
    // Names that only look like a way out.
    for path in ["%2e%2e/a", "..%2foutside", "..a/b", "..\\outside"] {
        tree.last(vec![write(path, "inside")]).await.unwrap();
        assert_eq!(tree.text(path), "inside");
    }
}

#[tokio::test]
async fn attack_25_and_47_links_are_not_followed_out() {
    let tree = Tree::new(&[("src/a.rs", "outside\n")]);
    let root = &tree.root;
    for (to, name) in [
        ("../outside/a.rs", "file"),
        ("../outside", "dir"),
        ("dir", "twice"),
        ("../outside/none", "dangling"),
        ("round", "round"),
        ("/proc/self/root/tmp", "magic"),
        ("src", "inner"),
        ("src/a.rs", "same"),
        ("src/none", "missing"),
    ] {
        symlink(to, root.join(name)).unwrap();
    }
    symlink(tree.base.join("outside/a.rs"), root.join("full")).unwrap();
    let before = outside(&tree);
    let paths =
        ["file", "full", "dir/a.rs", "dir/new", "twice/a.rs", "dangling", "round", "magic/x", "missing"];
    for path in paths {
        for tool in WRITERS {
            for call in [creating(tool, path), changing(tool, path)] {
                tree.last(vec![view(path), call]).await.unwrap_err();
            }
        }
    }
    assert_eq!(outside(&tree), before);
    assert!(fs::symlink_metadata(root.join("dangling")).unwrap().is_symlink());
    // Links within the workspace lead to the file, which stays one file.
    tree.last(vec![view("same"), edit("inner/a.rs", "outside", "two")]).await.unwrap();
    assert_eq!(tree.text("src/a.rs"), "two\n");
    tree.last(vec![view("src/a.rs"), edit("same", "two", "three")]).await.unwrap();
    assert_eq!(tree.text("src/a.rs"), "three\n");
    assert!(fs::symlink_metadata(root.join("same")).unwrap().is_symlink());
}

/// Links that swap a directory and a file to the outside and back, again and again, while files are changed.
#[tokio::test]
async fn attack_25_links_swapped_between_check_and_write_change_nothing_outside() {
    let tree = Tree::new(&[("d/a.rs", "inside\n"), ("f", "inside\n")]);
    let root = tree.root.clone();
    symlink("../outside", root.join("d.link")).unwrap();
    symlink("../outside/a.rs", root.join("f.link")).unwrap();
    let before = outside(&tree);
    let (stop, swaps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let swapper = std::thread::spawn({
        let (stop, swaps) = (Arc::clone(&stop), Arc::clone(&swaps));
        move || {
            let name = |name: &str| root.join(name);
            while !stop.load(Ordering::Relaxed) {
                for it in ["d", "f"] {
                    let [link, was] = ["link", "was"].map(|end| name(&format!("{it}.{end}")));
                    // A file that was written while the link was there is another one.
                    if fs::rename(name(it), &was).is_err() {
                        continue;
                    }
                    let _ = fs::rename(&link, name(it));
                    let _ = fs::rename(name(it), &link);
                    let _ = fs::rename(&was, name(it));
                }
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let mut calls = Vec::new();
    for n in 0..60 {
        for path in ["d/a.rs", "f"] {
            calls.extend([view(path), write(path, &format!("inside {n}\n")), edit(path, "inside", "in")]);
            calls.push(view(path));
            calls.push(write(path, "inside\n"));
        }
        calls.push(write(&format!("d/new{n}"), "new\n"));
    }
    let results = tree.all(calls).await;
    stop.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    assert!(swaps.load(Ordering::Relaxed) > 0);
    assert!(
        results.iter().any(|result| &*result.name == "write" && !result.is_error),
        "nothing was written at all"
    );
    assert_eq!(outside(&tree), before);
    for result in &results {
        assert!(!result.to_text().contains("\toutside"), "{}: {}", result.name, result.to_text());
    }
}

#[tokio::test]
async fn attack_22_and_28_what_git_runs_is_not_written() {
    let tree = Tree::new(&[(".git/config", "[core]\n")]);
    symlink(".git", tree.root.join("plain")).unwrap();
    for path in
        [".git/hooks/pre-commit", ".git/config", ".GIT/x", "sub/.git/hooks/x", "plain/hooks/x", ".git"]
    {
        for tool in WRITERS {
            let error = tree.last(vec![view(".git/config"), creating(tool, path)]).await.unwrap_err();
            assert!(error.contains(".git") || error.contains("do not change"), "{tool} {path}: {error}");
        }
    }
    assert_eq!(tree.text(".git/config"), "[core]\n");
    assert!(!tree.root.join(".git/hooks").exists() && !tree.root.join("sub").exists());
    tree.last(vec![write(".gitignore", "target\n")]).await.unwrap();
}

#[tokio::test]
async fn a_rule_about_a_file_holds_for_each_spelling_and_link() {
    let tree = Tree::new(&[("key", "one\n"), ("open", "one\n")]);
    symlink("key", tree.root.join("other")).unwrap();
    let full = format!("{}/key", tree.root.display());
    let runtime = Runtime::builder().policy(Policy::new().allow("*").deny("*:key")).build();
    for tool in WRITERS {
        for path in ["key", "./key", "src/../key", "src//..//key", &full, "other"] {
            let results = common::call_all(&runtime, tree.tools(), vec![changing(tool, path)]).await;
            assert!(results[0].is_error, "{tool} {path}: {}", results[0].to_text());
        }
    }
    assert_eq!(tree.text("key"), "one\n");
}

#[tokio::test]
async fn cp04_the_diff_and_the_digests_are_kept_for_programs() {
    let tree = Tree::new(&[("a", "one\ntwo\n")]);
    let runtime = allowed();
    let session = runtime.session();
    common::call_in(&session, tree.tools(), vec![view("a"), edit("a", "two", "2")]).await;
    let events = session.events(0, 100).await.unwrap();
    let metadata = events.iter().rev().find_map(|event| match &event.event {
        entourage_core::event::Event::ToolFinished(finished) => finished.metadata.clone(),
        _ => None,
    });
    let metadata = metadata.expect("the change has metadata");
    assert_eq!(metadata["diff"], "--- a\n+++ a\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n");
    assert_eq!(
        (&metadata["added"], &metadata["removed"], &metadata["created"]),
        (&json!(1), &json!(1), &json!(false))
    );
    assert_ne!(metadata["before"], metadata["after"]);
}

#[tokio::test]
async fn cd04_changes_are_undone_one_after_another_also_after_a_restart() {
    let tree = Tree::new(&[("a", "one\r\n")]);
    let kept = tree.base.join("kept");
    let runtime = allowed();
    let session = runtime.session();
    let open = || Workspace::open(&tree.root).unwrap().with_history(&kept).unwrap();
    let call = async |session: &entourage_runtime::Session, calls: Vec<(&str, Value)>| {
        let ws = open();
        let tools = ws.read_tools().into_iter().chain(ws.write_tools()).collect();
        common::call_in(session, tools, calls).await
    };
    let undo = |path: &str| ("undo", json!({ "path": path }));
    let made = call(
        &session,
        vec![
            view("a"),
            edit("a", "one", "two"),
            edit("a", "two", "three"),
            write("b/new", "x"),
            write("b/new", "y"),
        ],
    )
    .await;
    assert!(made.iter().all(|result| !result.is_error), "{made:?}");
    // What was seen before a restart is known after it, unless it has changed.
    fs::write(tree.root.join("c"), "one").unwrap();
    call(&session, vec![view("c")]).await;
    assert!(!call(&session, vec![edit("c", "one", "two")]).await[0].is_error);
    fs::write(tree.root.join("c"), "mine").unwrap();
    let stale = call(&session, vec![edit("c", "mine", "yours")]).await;
    assert!(stale[0].to_text().contains("changed since"), "{stale:?}");
    assert!(
        call(&runtime.session(), vec![edit("c", "mine", "yours")]).await[0].to_text().contains("not viewed")
    );
    // Another session has changed nothing.
    let other = call(&runtime.session(), vec![undo("a")]).await;
    assert!(other[0].is_error && other[0].to_text().contains("has made no change"), "{other:?}");
    let back = call(&session, vec![undo("a"), undo("b/new")]).await;
    assert!(back.iter().all(|result| !result.is_error), "{back:?}");
    assert_eq!((tree.text("a").as_str(), tree.text("b/new").as_str()), ("two\r\n", "x"));
    let back = call(&session, vec![undo("a"), undo("b/new"), undo("a")]).await;
    assert_eq!(
        back.iter().map(|result| result.is_error).collect::<Vec<_>>(),
        [false, false, true],
        "{back:?}"
    );
    assert_eq!(tree.text("a"), "one\r\n");
    assert!(!tree.root.join("b/new").exists());
    // What somebody else changed since is not touched.
    call(&session, vec![view("a"), edit("a", "one", "two")]).await;
    fs::write(tree.root.join("a"), "mine").unwrap();
    let back = call(&session, vec![undo("a")]).await;
    assert!(back[0].is_error && back[0].to_text().contains("has changed since"), "{back:?}");
    assert_eq!(tree.text("a"), "mine");
    // Where no versions are kept there is no such tool.
    assert!(!tree.tools().iter().any(|tool| tool.spec().name() == "undo"));
}

#[tokio::test]
async fn cd04_a_history_that_cannot_be_written_lets_nothing_change() {
    let tree = Tree::new(&[("a", "one")]);
    let kept = tree.base.join("kept");
    let ws = Workspace::open(&tree.root).unwrap().with_history(&kept).unwrap();
    fs::remove_dir_all(&kept).unwrap();
    let tools = ws.read_tools().into_iter().chain(ws.write_tools()).collect();
    let results = common::call_all(&allowed(), tools, vec![view("a"), edit("a", "one", "two")]).await;
    assert!(results[1].is_error && results[1].to_text().contains("nothing was changed"), "{results:?}");
    assert_eq!(tree.text("a"), "one");
    let error = Workspace::open(&tree.root).unwrap().with_history(tree.root.join("a")).unwrap_err();
    assert!(error.message().contains("cannot be opened"), "{error}");
}

/// A small file system of its own, unmounted at the end.
struct Mounted(TempDir);

impl Mounted {
    fn new() -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(place.path()).status();
        if !mounted.is_ok_and(|status| status.success()) {
            println!("SKIPPED: no file system can be mounted to be filled");
            return None;
        }
        Some(Self(place))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A file that is still open keeps it until then.
        let done = Command::new("umount").arg("-l").arg(self.0.path()).status();
        assert!(done.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

#[tokio::test]
async fn cd04_a_change_that_the_disk_does_not_take_leaves_all_as_it_was() {
    let Some(mounted) = Mounted::new() else { return };
    let root = fs::canonicalize(mounted.0.path()).unwrap().join("root");
    let versions = root.with_file_name("versions");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("a"), "one\n").unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let names = || {
        let mut names: Vec<_> = fs::read_dir(&root).unwrap().map(|it| it.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let large = "x".repeat(100_000);
    let changes = [
        edit("a", "one", &large),
        write("new", &large),
        write("made/below/new", &large),
        ("multiedit", json!({ "path": "a", "edits": [{ "old": "one", "new": large }] })),
    ];
    let remount = |how: &str| {
        let done = Command::new("mount").args(["-o", how]).arg(mounted.0.path()).status().unwrap();
        assert!(done.success());
    };
    for kept in [None, Some(versions.as_path()), Some(elsewhere.path())] {
        let ws = Workspace::open(&root).unwrap();
        let ws = kept.map_or_else(|| ws.clone(), |kept| ws.clone().with_history(kept).unwrap());
        let tools: Vec<_> = ws.read_tools().into_iter().chain(ws.write_tools()).collect();
        for full in [true, false] {
            let filled = mounted.0.path().join("filled");
            if full {
                let mut file = fs::File::create(&filled).unwrap();
                while std::io::Write::write_all(&mut file, &[0; 4_096]).is_ok() {}
            } else {
                remount("remount,ro");
            }
            for change in changes.clone() {
                let shown = format!("{} {kept:?} {full}", change.1["path"]);
                let session = allowed().session();
                let results = common::call_in(&session, tools.clone(), vec![view("a"), change]).await;
                assert!(results[1].is_error, "{shown} {}", results[1].to_text());
                assert_eq!(fs::read_to_string(root.join("a")).unwrap(), "one\n", "{shown}");
                let left = names();
                assert!(left == ["a"] || left == ["a", "made"], "{shown} {left:?}");
            }
            if full {
                fs::remove_file(&filled).unwrap();
            } else {
                remount("remount,rw");
            }
            let _ = fs::remove_dir_all(root.join("made"));
        }
        // Afterwards all goes on.
        let session = allowed().session();
        let calls = vec![view("a"), edit("a", "one", "two")];
        let results = common::call_in(&session, tools.clone(), calls).await;
        assert!(!results[1].is_error, "{kept:?} {}", results[1].to_text());
        fs::write(root.join("a"), "one\n").unwrap();
    }
}

/// An approver that leads a link elsewhere, and then allows the call.
#[derive(Debug)]
struct Relinking(PathBuf);

#[async_trait]
impl Approver for Relinking {
    async fn decide(&self, request: &ApprovalRequest) -> Result<Decision> {
        assert_eq!(request.footprint.writes, ["link", "open"]);
        Ok(Decision::Allow)
    }
}

/// A layer that leads a link elsewhere once the call was judged and begins to run.
#[async_trait]
impl entourage_core::tool::ToolLayer for Relinking {
    async fn around(
        &self,
        next: entourage_core::tool::NextCall<'_>,
    ) -> std::result::Result<entourage_core::tool::ToolOutput, entourage_core::tool::ToolError> {
        if next.spec().name() != "view" {
            fs::remove_file(self.0.join("link")).unwrap();
            symlink("key", self.0.join("link")).unwrap();
        }
        next.run().await
    }
}

#[tokio::test]
async fn attack_25_a_link_that_leads_elsewhere_after_the_approval_is_not_followed() {
    for policy in [Policy::new(), Policy::new().ask("write:*").ask("edit:*"), Policy::new().deny("*:key")] {
        let tree = Tree::new(&[("open", "one\n"), ("key", "one\n")]);
        symlink("open", tree.root.join("link")).unwrap();
        let runtime = Runtime::builder()
            .policy(policy)
            .approver(Relinking(tree.root.clone()))
            .tool_layer(Relinking(tree.root.clone()))
            .build();
        let calls = vec![view("key"), view("open"), edit("link", "one", "two")];
        let results = common::call_all(&runtime, tree.tools(), calls).await;
        let last = results.last().unwrap();
        assert!(last.is_error && last.to_text().contains("led somewhere else"), "{}", last.to_text());
        assert_eq!((tree.text("open").as_str(), tree.text("key").as_str()), ("one\n", "one\n"));
    }
}

#[tokio::test]
async fn attack_46_edits_that_would_fill_the_memory_are_refused() {
    let tree = Tree::new(&[("a", "a")]);
    let edits = vec![json!({ "old": "a", "new": "aa", "replace_all": true }); 24];
    let told = tree.last(vec![view("a"), ("multiedit", json!({ "path": "a", "edits": edits }))]).await;
    let told = told.unwrap_or_else(|error| error);
    assert!(told.contains("too large"), "{}", told.len());
    assert!(fs::metadata(tree.root.join("a")).unwrap().len() <= 16 << 20);
    let error = tree.last(vec![write("b", &"x".repeat((16 << 20) + 1))]).await.unwrap_err();
    assert!(error.contains("16 MiB"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Whatever a model gives, nothing outside changes and nothing panics.
    #[test]
    fn attack_24_fuzzed_arguments_change_nothing_outside(
        pieces in proptest::collection::vec(
            prop_oneof![
                Just("..".to_owned()), Just("outside".to_owned()), Just("a.rs".to_owned()), Just("dir".to_owned()),
                Just("root".to_owned()), Just("BASE".to_owned()), Just(".".to_owned()), "\\PC{0,3}",
            ],
            0..6,
        ),
        old in "[a-z\n\t ]{0,6}",
        new in "\\PC{0,8}",
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let tree = Tree::new(&[("a.rs", "outside\n")]);
            symlink("../outside", tree.root.join("dir")).unwrap();
            let before = outside(&tree);
            let path = pieces.join("/").replace("BASE", &tree.base.to_string_lossy());
            let several = json!({ "path": path, "edits": [{ "old": old, "new": new }, { "old": new, "new": old }] });
            let calls = vec![
                view(&path), edit(&path, &old, &new), write(&path, &new), ("multiedit", several), edit(&path, "", &new),
            ];
            tree.all(calls).await;
            prop_assert_eq!(outside(&tree), before);
            Ok(())
        })?;
    }
}

/// Refuses everything, and keeps the questions.
#[derive(Debug, Clone, Default)]
struct Shown(Arc<Mutex<Vec<ApprovalRequest>>>);

#[async_trait]
impl Approver for Shown {
    async fn decide(&self, request: &ApprovalRequest) -> Result<Decision> {
        self.0.lock().unwrap().push(request.clone());
        Ok(Decision::refuse("not now"))
    }
}

#[tokio::test]
async fn issue_14_whoever_is_asked_about_a_change_sees_its_diff_and_nothing_is_changed_by_it() {
    let tree = Tree::new(&[("a.rs", "one\ntwo\n"), ("unseen.rs", "x\n")]);
    let provider = ScriptedProvider::new()
        .call("view", json!({"path": "a.rs"}))
        .calls([
            ("edit", json!({"path": "a.rs", "old": "two", "new": "three"})),
            ("write", json!({"path": "new/b.rs", "content": "fn b() {}\n"})),
            (
                "multiedit",
                json!({"path": "a.rs", "edits": [{"old": "one", "new": "1"}, {"old": "?", "new": ""}]}),
            ),
            ("edit", json!({"path": "unseen.rs", "old": "x", "new": "y"})),
        ])
        .call("write", json!({"path": "a.rs", "content": "all\n"}))
        .text("Done.");
    let agent = ReactAgent::builder("coder", provider.model()).tools(tree.tools()).build().unwrap();
    let shown = Shown::default();
    let runtime = Runtime::builder().approver(shown.clone()).build();
    runtime.session().start(&agent, "Go").outcome().await.unwrap();

    let previews: Vec<_> = shown.0.lock().unwrap().iter().map(|it| it.preview.clone().unwrap()).collect();
    let expected = [
        "--- a.rs\n+++ a.rs\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n",
        "--- new/b.rs\n+++ new/b.rs\n@@ -0,0 +1 @@\n+fn b() {}\n",
        "--- a.rs\n+++ a.rs\n@@ -1,2 +1,2 @@\n-one\n+1\n two\n\nedit 2 was left out: ",
        "the call would fail: ",
        "--- a.rs\n+++ a.rs\n@@ -1,2 +1 @@\n-one\n-two\n+all\n",
    ];
    assert_eq!(previews.len(), expected.len());
    for (preview, expected) in previews.iter().zip(expected) {
        assert!(preview.starts_with(expected), "{preview}");
    }
    assert_eq!(tree.text("a.rs"), "one\ntwo\n");
    assert!(!tree.root.join("new").exists());
}
