//! Attacks by hostile paths and trees on each tool that touches files, through a whole run.

#![cfg(all(feature = "fs", unix))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests fail by panicking too")]

mod common;

use std::{
    fs,
    os::unix::fs::symlink,
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use entourage_core::message::ToolResult;
use entourage_runtime::Runtime;
use entourage_runtime::permission::Policy;
use entourage_tools::fs::Workspace;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A text in the content and the names of everything outside, and nowhere inside.
const MARKER: &str = "MARKER-7f3a";
const TOOLS: [&str; 4] = ["view", "ls", "glob", "grep"];

struct Tree {
    _keep: TempDir,
    base: PathBuf,
    root: PathBuf,
    workspace: Workspace,
}

impl Tree {
    fn new() -> Self {
        let keep = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(keep.path()).unwrap();
        let root = base.join("root");
        for dir in ["root/src", "root-evil", "outside"] {
            fs::create_dir_all(base.join(dir)).unwrap();
        }
        fs::write(root.join("src/a.rs"), "harmless\n").unwrap();
        for dir in ["root-evil", "outside"] {
            for name in ["a.rs".to_owned(), format!("{MARKER}.rs")] {
                fs::write(base.join(dir).join(name), format!("{MARKER}\n")).unwrap();
            }
        }
        fs::write(base.join(format!("{MARKER}.txt")), MARKER).unwrap();
        let workspace = Workspace::open(&root).unwrap();
        Self { _keep: keep, base, root, workspace }
    }

    async fn call(&self, tool: &str, path: &str) -> ToolResult {
        let calls = vec![(tool, arguments(tool, path))];
        common::call_all(&Runtime::in_memory(), self.workspace.read_tools(), calls).await.remove(0)
    }
}

fn arguments(tool: &str, path: &str) -> Value {
    match tool {
        "glob" => json!({ "pattern": "**", "path": path }),
        // It matches both the marker and the harmless text, and does not spell the marker.
        "grep" => json!({ "pattern": "MARKER|harmless", "path": path }),
        _ => json!({ "path": path }),
    }
}

fn assert_refused(result: &ToolResult, what: &str, path: &str) {
    let text = result.to_text();
    assert!(result.is_error, "{} {path:?}: {text}", result.name);
    assert!(text.contains(what), "{} {path:?}: {text}", result.name);
}

#[tokio::test]
async fn attack_24_paths_out_of_the_workspace_are_refused() {
    attack_24(&["view"]).await;
}

async fn attack_24(tools: &[&str]) {
    let tree = Tree::new();
    let root = tree.root.display();
    let base = tree.base.display();
    let outside = [
        "..".to_owned(),
        "../x.txt".to_owned(),
        "../outside/a.rs".to_owned(),
        "src/../../outside".to_owned(),
        "../root-evil".to_owned(),
        "../root/src".to_owned(),
        "/".to_owned(),
        "/etc/passwd".to_owned(),
        "//etc//passwd".to_owned(),
        format!("{base}/outside"),
        format!("{base}/root-evil/a.rs"),
        format!("{root}-evil/a.rs"),
        format!("{root}/../root-evil/a.rs"),
        format!("/{root}//..//outside"),
        "src//..//..//outside/a.rs".to_owned(),
    ];
    for tool in tools {
        for path in &outside {
            assert_refused(&tree.call(tool, path).await, "outside the workspace", path);
        }
        for path in ["%2e%2e/outside/a.rs", "..%2foutside", "..\\outside\\a.rs", "\u{ff0e}\u{ff0e}/outside"] {
            assert_refused(&tree.call(tool, path).await, "there is nothing at", path);
        }
        for path in ["", "src\0", "/etc/passwd\0.rs", &"a".repeat(10_000)] {
            assert_refused(&tree.call(tool, path).await, "names nothing in the workspace", path);
        }
        assert_refused(&tree.call(tool, &"a".repeat(1_000)).await, "cannot be read", "a…");
        for path in
            ["src", "src/", "./src", "src//.", &format!("{root}/src"), &format!("{root}-evil/../root/src")]
        {
            let path = if *tool == "view" { format!("{path}/a.rs") } else { path.to_owned() };
            let result = tree.call(tool, &path).await;
            assert!(!result.is_error, "{tool} {path}: {}", result.to_text());
        }
    }
}

#[tokio::test]
async fn attack_25_links_out_of_the_workspace_are_refused() {
    attack_25(&["view"]).await;
}

async fn attack_25(tools: &[&str]) {
    let tree = Tree::new();
    let root = &tree.root;
    symlink("../outside/a.rs", root.join("file")).unwrap();
    symlink(tree.base.join("outside/a.rs"), root.join("full")).unwrap();
    symlink("../outside", root.join("dir")).unwrap();
    symlink("dir", root.join("twice")).unwrap();
    symlink("../nowhere", root.join("dangling")).unwrap();
    symlink("round", root.join("round")).unwrap();
    symlink("/proc/self/root", root.join("magic")).unwrap();
    symlink("src", root.join("inner")).unwrap();
    symlink("a.rs", root.join("src/same.rs")).unwrap();
    for tool in tools {
        for path in [
            "file",
            "full",
            "dir",
            "dir/a.rs",
            "twice/a.rs",
            "dangling",
            "magic/etc/passwd",
            "src/../dir/a.rs",
        ] {
            assert_refused(&tree.call(tool, path).await, "outside the workspace", path);
        }
        let path = "round";
        let result = tree.call(tool, path).await;
        assert!(result.is_error, "{tool}: {}", result.to_text());
        let inner = tree.call(tool, if *tool == "view" { "inner/same.rs" } else { "inner" }).await;
        assert!(!inner.is_error, "{tool}: {}", inner.to_text());
        if *tool != "view" {
            let whole = tree.call(tool, ".").await;
            assert!(!whole.is_error && !whole.to_text().contains(MARKER), "{tool}: {}", whole.to_text());
        }
    }
}

/// Links that swap a directory and a file to the outside and back, again and again, while they are read.
#[tokio::test]
async fn attack_25_links_swapped_between_check_and_open_give_nothing_away() {
    let tree = Tree::new();
    let root = tree.root.clone();
    fs::create_dir(root.join("d")).unwrap();
    fs::write(root.join("d/a.rs"), "harmless\n").unwrap();
    fs::write(root.join("f"), "harmless\n").unwrap();
    symlink("../outside", root.join("d.link")).unwrap();
    symlink("../outside/a.rs", root.join("f.link")).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let swaps = Arc::new(AtomicU64::new(0));
    let swapper = std::thread::spawn({
        let (stop, swaps, root) = (Arc::clone(&stop), Arc::clone(&swaps), root);
        move || {
            let name = |name: &str| root.join(name);
            while !stop.load(Ordering::Relaxed) {
                for it in ["d", "f"] {
                    for (from, to) in
                        [(it.to_owned(), format!("{it}.was")), (format!("{it}.link"), it.to_owned())]
                    {
                        fs::rename(name(&from), name(&to)).unwrap();
                    }
                    for (from, to) in
                        [(it.to_owned(), format!("{it}.link")), (format!("{it}.was"), it.to_owned())]
                    {
                        fs::rename(name(&from), name(&to)).unwrap();
                    }
                }
                swaps.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let mut calls = Vec::new();
    for _ in 0..150 {
        for tool in TOOLS {
            calls.extend(["d/a.rs", "d", "f", "."].map(|path| (tool, arguments(tool, path))));
        }
    }
    let results = common::call_all(&Runtime::in_memory(), tree.workspace.read_tools(), calls).await;
    stop.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    assert!(swaps.load(Ordering::Relaxed) > 0);
    assert_eq!(results.len(), 150 * 16);
    for result in &results {
        assert!(!result.to_text().contains(MARKER), "{}: {}", result.name, result.to_text());
    }
    assert!(results.iter().any(|result| result.to_text().contains("harmless")), "nothing was read at all");
}

#[tokio::test]
async fn attack_47_one_path_policy_for_each_tool() {
    let tree = Tree::new();
    let names: Vec<_> =
        tree.workspace.read_tools().iter().map(|tool| tool.spec().name().to_owned()).collect();
    assert_eq!(names, TOOLS, "a tool that is not tested here");
    attack_24(&TOOLS).await;
    attack_25(&TOOLS).await;
}

#[tokio::test]
async fn attack_47_patterns_do_not_lead_out_either() {
    let tree = Tree::new();
    symlink("../outside", tree.root.join("dir")).unwrap();
    let base = tree.base.display();
    let absolute = format!("{base}/outside/*");
    for pattern in ["../**", "src/../../outside/*", "{..,src}/../*", "dir/*", &absolute, "/etc/*"] {
        let calls = vec![
            ("glob", json!({ "pattern": pattern })),
            ("grep", json!({ "pattern": "MARKER|harmless", "include": pattern })),
        ];
        for result in common::call_all(&Runtime::in_memory(), tree.workspace.read_tools(), calls).await {
            let text = result.to_text();
            assert!(!text.contains(MARKER) && !text.contains("a.rs"), "{pattern}: {text}");
        }
    }
}

#[tokio::test]
async fn special_files_are_refused_and_nothing_waits_for_them() {
    let tree = Tree::new();
    assert!(Command::new("mkfifo").arg(tree.root.join("pipe")).status().unwrap().success());
    assert!(Command::new("mkfifo").arg(tree.root.join(".gitignore")).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(tree.root.join("socket")).unwrap();
    for tool in TOOLS {
        for path in ["pipe", "socket", ".gitignore"] {
            let result = tree.call(tool, path).await;
            assert!(result.is_error, "{tool} {path}: {}", result.to_text());
        }
    }
    for tool in ["ls", "glob", "grep"] {
        let result = tree.call(tool, ".").await;
        assert!(!result.is_error && result.to_text().contains("a.rs"), "{tool}: {}", result.to_text());
    }
}

#[tokio::test]
async fn a_rule_about_a_file_cannot_be_evaded_by_spelling_or_by_a_link() {
    let tree = Tree::new();
    fs::write(tree.root.join("key"), "a key").unwrap();
    symlink("key", tree.root.join("other")).unwrap();
    let full = format!("{}/key", tree.root.display());
    for path in ["key", "./key", "src/../key", "src//..//key", &full, "other"] {
        let runtime = Runtime::builder().policy(Policy::new().deny("view:key")).build();
        let calls = vec![("view", json!({ "path": path }))];
        let results = common::call_all(&runtime, tree.workspace.read_tools(), calls).await;
        let text = results[0].to_text();
        assert!(results[0].is_error && !text.contains("a key"), "{path}: {text}");
    }
}

/// There is no tool of a server or for arbitrary programs beside the shell (43): a new one would show up in this list.
#[test]
fn attack_23_the_tools_are_exactly_these() {
    let sources = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut left, mut tools, mut operations, mut makers) =
        (vec![sources], Vec::new(), Vec::new(), Vec::new());
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let source = fs::read_to_string(path).unwrap();
        // Unit tests stand at the end, and have tools of their own.
        for line in source.lines().map(str::trim).take_while(|line| *line != "mod tests {") {
            let words: Vec<&str> = line.split_whitespace().collect();
            let subject = if let [.., name, "{"] = words[..] { Some(name) } else { None };
            if line.starts_with("impl") && words.contains(&"Tool") && words.contains(&"for") {
                tools.extend(subject.map(str::to_owned));
            }
            if line.starts_with("impl Operation for") {
                operations.extend(subject.map(str::to_owned));
            }
            if line.starts_with("pub fn") && line.contains("dyn Tool") {
                let name = line.trim_start_matches("pub fn ").split('(').next().unwrap();
                makers.push(name.to_owned());
            }
            assert!(!line.starts_with("#[tool"), "a function as a tool: {line}");
        }
    }
    operations.sort();
    makers.sort();
    tools.sort();
    assert_eq!(
        tools,
        [
            "Bash",
            "Download",
            "Fetch",
            "FileTool<O>",
            "JobKill",
            "JobOutput",
            "LspTool",
            "RemoteTool",
            "SkillTool",
            "WebFetch",
            "WebSearch"
        ]
    );
    assert_eq!(operations, ["Edit", "Find", "Grep", "Ls", "MultiEdit", "Undo", "View", "Write"]);
    let expected = "bash download edit fetch glob glob grep grep job_kill job_output ls ls multiedit read_tools tool tools \
                    tools undo view view web_fetch web_search write write_tools";
    assert_eq!(makers.join(" "), expected);
}

#[tokio::test]
async fn attack_27_an_argument_that_looks_like_an_option_is_a_name() {
    // No tool runs a program. A model's input is only a path or a pattern, whatever it begins with.
    let tree = Tree::new();
    fs::write(tree.root.join("--output=x"), "harmless\n").unwrap();
    let calls = vec![
        ("view", json!({ "path": "--output=x" })),
        ("grep", json!({ "pattern": "harmless", "path": "--output=x" })),
        ("grep", json!({ "pattern": "--upload-pack=touch x" })),
        ("glob", json!({ "pattern": "--output=*" })),
        ("ls", json!({ "path": "--help" })),
    ];
    let results = common::call_all(&Runtime::in_memory(), tree.workspace.read_tools(), calls).await;
    let texts: Vec<_> = results.iter().map(ToolResult::to_text).collect();
    assert!(texts[0].contains("harmless") && texts[1].contains("harmless"), "{texts:?}");
    assert_eq!((texts[2].as_str(), texts[3].as_str()), ("no line matches", "--output=x"));
    assert!(results[4].is_error && !tree.root.join("x").exists(), "{texts:?}");
}
