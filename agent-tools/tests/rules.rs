//! Places that the rules of a run cover are not shown by any tool, by whichever path or link they are reached.

#![cfg(all(feature = "fs", unix))]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests fail by panicking too"
)]

mod common;

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
};

use entourage_core::{
    message::ToolResult,
    tool::{Access, Footprint, Tool},
};
use entourage_runtime::AllowAll;
use entourage_runtime::Runtime;
use entourage_runtime::permission::{Policy, Ruling};
use entourage_tools::fs::Workspace;
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

fn arguments(tool: &str, path: &str) -> Value {
    match tool {
        "glob" => json!({ "pattern": "**", "path": path }),
        "grep" => json!({ "pattern": "CONTENT", "path": path }),
        _ => json!({ "path": path }),
    }
}

struct Tree {
    _keep: TempDir,
    root: PathBuf,
    ws: Workspace,
}

impl Tree {
    fn new() -> Self {
        let keep = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(keep.path()).unwrap();
        let ws = Workspace::open(&root).unwrap();
        Self { _keep: keep, root, ws }
    }

    fn file(&self, path: &str) {
        let at = self.root.join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, format!("CONTENT of {path}\n")).unwrap();
    }

    fn link(&self, path: &str, to: &str) {
        let depth = Path::new(path).components().count() - 1;
        symlink(format!("{}{to}", "../".repeat(depth)), self.root.join(path)).unwrap();
    }

    /// The path with its links resolved.
    fn real(&self, path: &str) -> Option<String> {
        let real = fs::canonicalize(self.root.join(path)).ok()?;
        let real = real.strip_prefix(&self.root).ok()?.to_str()?;
        Some(if real.is_empty() { ".".to_owned() } else { real.to_owned() })
    }

    async fn call(&self, policy: Policy, calls: Vec<(&str, Value)>) -> Vec<ToolResult> {
        let runtime = Runtime::builder().policy(policy).approver(AllowAll).build();
        common::call_all(&runtime, self.ws.read_tools(), calls).await
    }
}

/// The paths that a result names, or whose content it shows.
fn shown(tool: &str, path: &str, result: &ToolResult) -> BTreeSet<String> {
    let text = result.to_text();
    if result.is_error {
        let offered = text.split_once("did you mean ").map_or("", |(_, names)| names);
        return offered.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    }
    let below = |name: &str| if path == "." { name.to_owned() } else { format!("{path}/{name}") };
    let lines = text.lines().filter(|line| !line.starts_with('('));
    match tool {
        "view" => [path.to_owned()].into(),
        "glob" => lines.filter(|line| !line.starts_with("no file")).map(str::to_owned).collect(),
        "grep" => {
            let named = lines.skip(1).filter(|line| !line.is_empty() && !line.starts_with(' '));
            named.map(str::to_owned).collect()
        }
        _ => {
            let mut above: Vec<String> = Vec::new();
            let mut shown = BTreeSet::new();
            for line in lines.skip(1) {
                let depth = (line.len() - line.trim_start().len()) / 2;
                above.truncate(depth - 1);
                above.push(line.trim().trim_end_matches(['/', '@']).to_owned());
                shown.insert(below(&above.join("/")));
            }
            shown
        }
    }
}

#[derive(Debug, Clone)]
struct Plan {
    /// Index of its parent among the directories before it.
    dirs: Vec<usize>,
    files: Vec<usize>,
    /// Directory of the link, and the place it leads to.
    links: Vec<(usize, usize)>,
    /// Effect, tool, form of the subject, and the place it is about.
    rules: Vec<(u8, usize, u8, usize)>,
}

fn plans() -> impl Strategy<Value = Plan> {
    (
        prop::collection::vec(any::<usize>(), 1..4),
        prop::collection::vec(any::<usize>(), 1..6),
        prop::collection::vec((any::<usize>(), any::<usize>()), 0..4),
        prop::collection::vec((0_u8..5, 0_usize..6, 0_u8..4, any::<usize>()), 1..4),
    )
        .prop_map(|(dirs, files, links, rules)| Plan { dirs, files, links, rules })
}

const TOOLS: [&str; 4] = ["view", "ls", "glob", "grep"];

impl Plan {
    /// Makes the tree; returns it with all of its paths and the rules.
    fn make(&self) -> (Tree, Vec<String>, Policy) {
        let tree = Tree::new();
        let mut dirs = vec![String::new()];
        for (n, parent) in self.dirs.iter().enumerate() {
            dirs.push(format!("{}d{n}/", dirs[parent % dirs.len()]));
            fs::create_dir(tree.root.join(dirs.last().unwrap())).unwrap();
        }
        let mut paths: Vec<String> =
            dirs[1..].iter().map(|dir| dir.trim_end_matches('/').to_owned()).collect();
        for (n, dir) in self.files.iter().enumerate() {
            paths.push(format!("{}f{n}.txt", dirs[dir % dirs.len()]));
            tree.file(paths.last().unwrap());
        }
        for (n, (dir, to)) in self.links.iter().enumerate() {
            let (path, to) = (format!("{}l{n}", dirs[dir % dirs.len()]), paths[to % paths.len()].clone());
            tree.link(&path, &to);
            paths.push(path);
        }
        let mut policy = Policy::allow_all();
        for (effect, tool, form, about) in &self.rules {
            let path = &paths[about % paths.len()];
            let name = path.rsplit('/').next().unwrap();
            let tool = TOOLS.get(*tool).copied().unwrap_or("*");
            let pattern = match form {
                0 => format!("{tool}:{path}"),
                1 => format!("{tool}:{path}*"),
                2 => format!("{tool}:{path}/*"),
                _ => format!("{tool}:*{name}*"),
            };
            policy = match effect {
                0 => policy.allow(&pattern),
                1 => policy.ask(&pattern),
                _ => policy.deny(&pattern),
            };
        }
        // Include paths through links.
        let mut all = paths.clone();
        for path in &paths {
            if fs::symlink_metadata(tree.root.join(path)).unwrap().is_symlink() {
                let entries = fs::read_dir(tree.root.join(path)).into_iter().flatten();
                all.extend(
                    entries.map(|entry| format!("{path}/{}", entry.unwrap().file_name().to_str().unwrap())),
                );
                all.push(format!("{path}/f0.tx"));
            }
            all.push(format!("{path}x"));
        }
        all.push(".".to_owned());
        (tree, all, policy)
    }
}

/// The verdict of the rules for each form of a path: as it is named, and with links resolved.
fn verdicts(tree: &Tree, policy: &Policy, tool: &dyn Tool, path: &str) -> Vec<Ruling> {
    let ways: BTreeSet<String> = [Some(path.to_owned()), tree.real(path)].into_iter().flatten().collect();
    let read = |way: &String| policy.judge(tool.spec(), &Footprint::new(Access::READ).reading(way.as_str()));
    ways.iter().map(read).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_a_rule_denies_is_ever_shown(plan in plans()) {
        let (tree, paths, policy) = plan.make();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
        let mut calls: Vec<(&str, &str)> = Vec::new();
        for tool in TOOLS {
            calls.extend(paths.iter().map(|path| (tool, path.as_str())));
        }
        let given = calls.iter().map(|(tool, path)| (*tool, arguments(tool, path))).collect();
        let results = runtime.block_on(tree.call(policy.clone(), given));
        let tools: Vec<Arc<dyn Tool>> = tree.ws.read_tools();
        for ((name, path), result) in calls.into_iter().zip(&results) {
            let tool = tools.iter().find(|tool| tool.spec().name() == name).unwrap();
            let asked: Vec<Ruling> = tool
                .footprint(&arguments(name, path))
                .subjects()
                .map(|it| policy.judge(tool.spec(), &Footprint::new(Access::READ).reading(it)))
                .filter(|verdict| matches!(verdict, Ruling::Ask(_)))
                .collect();
            for seen in shown(name, path, result) {
                for verdict in verdicts(&tree, &policy, &**tool, &seen) {
                    let fine = match &verdict {
                        Ruling::Allow(_) => true,
                        Ruling::Ask(_) => asked.contains(&verdict),
                        _ => false,
                    };
                    prop_assert!(fine, "{name} {path}: {seen} is shown although {verdict:?}\n{}", result.to_text());
                }
            }
        }
    }
}

fn secrets() -> Tree {
    let tree = Tree::new();
    for path in ["a.txt", "src/b.txt", "secrets/key.txt", "secrets/deep/old.txt"] {
        tree.file(path);
    }
    tree.link("src/way", "secrets");
    tree.link("src/one", "secrets/key.txt");
    tree.link("src/good", "a.txt");
    tree
}

#[tokio::test]
async fn a_tree_is_shown_without_what_is_denied_below_its_start() {
    let tree = secrets();
    let policy = Policy::allow_all().deny("*:secrets/*");
    let calls = vec![
        ("grep", arguments("grep", ".")),
        ("glob", arguments("glob", ".")),
        ("ls", arguments("ls", ".")),
        ("view", arguments("view", "src/one")),
        ("ls", arguments("ls", "src/way")),
        ("view", arguments("view", "src/way/kye.txt")),
    ];
    let results = tree.call(policy, calls).await;
    let texts: Vec<_> = results.iter().map(|result| result.to_text()).collect();
    assert!(texts[0].starts_with("2 lines match in 2 files"), "{}", texts[0]);
    assert_eq!(texts[1], "a.txt\nsrc/good\nsrc/b.txt");
    assert_eq!(texts[2], "./\n  a.txt\n  secrets/\n  src/\n    b.txt\n    good@\n    way@");
    assert!(results[3].is_error && texts[3].contains("refused by the rule"), "{}", texts[3]);
    assert_eq!(texts[4], "src/way/\n(nothing that is neither hidden nor ignored)");
    assert!(results[5].is_error && !texts[5].contains("key.txt"), "{}", texts[5]);
    assert!(
        texts.iter().all(|text| !text.contains("left out")),
        "what is denied is not spoken of: {texts:?}"
    );
}

#[tokio::test]
async fn what_is_asked_about_below_a_start_is_left_out_and_said_so() {
    let tree = secrets();
    let policy = || Policy::allow_all().ask("*:secrets/*");
    for (tool, note) in [("grep", "1 file or directory was"), ("ls", "2 files"), ("glob", "2 files")] {
        let result = &tree.call(policy(), vec![(tool, arguments(tool, "secrets"))]).await[0];
        let text = result.to_text();
        assert!(!result.is_error && !text.contains("key.txt") && !text.contains("old.txt"), "{tool}: {text}");
        assert!(text.contains("left out, since leave must be asked for first"), "{tool}: {text}");
        assert!(text.contains(note) || tool == "grep", "{tool}: {text}");
    }
    // Approval of the call covers every place that the same rule covers.
    let calls = vec![("grep", arguments("grep", "secrets/deep")), ("view", arguments("view", "src/one"))];
    for result in tree.call(policy(), calls).await {
        assert!(!result.is_error && result.to_text().contains("CONTENT of secrets"), "{}", result.to_text());
        assert!(!result.to_text().contains("left out"), "{}", result.to_text());
    }
    let whole = Policy::allow_all().ask("grep");
    let text = tree.call(whole, vec![("grep", arguments("grep", "."))]).await[0].to_text();
    assert!(
        text.starts_with("4 lines match"),
        "a question about the tool is one about all that it does: {text}"
    );
}

#[tokio::test]
async fn attack_24_names_that_differ_in_a_control_character_alone_are_two_subjects() {
    let tree = Tree::new();
    tree.file("a\nb");
    tree.file("a\tb");
    let view = tree.ws.view();
    for name in ["a\nb", "a\tb"] {
        assert_eq!(view.footprint(&json!({ "path": name })).reads, [name]);
    }
    let calls = vec![("view", json!({"path": "a\tb"})), ("grep", json!({"pattern": "CONTENT"}))];
    let results = tree.call(Policy::new().deny("*:a\nb"), calls).await;
    assert!(results[0].to_text().contains("CONTENT of a\tb"), "{results:?}");
    // The lists of names replace what would forge another line.
    assert!(results[1].to_text().contains("1 line matches in 1 file"), "{results:?}");
}
