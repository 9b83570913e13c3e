//! Results of the tools, row by row, without a run around them.

use std::{
    fs::{self, File},
    path::Path,
    time::{Duration, SystemTime},
};

use entourage_core::{
    ErrorKind, SessionId,
    message::Content,
    tool::{Access, Tool, ToolError, ToolOutput},
};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    Workspace, glob::Find, grep::Grep, ls::Ls, sight::Sight, stop::Stop, tool::Operation, view::View,
};

fn session() -> SessionId {
    SessionId::new("reader").unwrap()
}

struct Tree {
    dir: TempDir,
    ws: Workspace,
}

impl Tree {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ws = Workspace::open(dir.path()).unwrap();
        let tree = Self { dir, ws };
        files.iter().for_each(|(path, text)| tree.write(path, text));
        tree
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn aged(&self, path: &str, seconds: u64) {
        let file = File::options().write(true).open(self.dir.path().join(path)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000 - seconds)).unwrap();
    }

    fn output<O: Operation>(&self, arguments: Value, time: Duration) -> Result<ToolOutput, ToolError> {
        O::run(
            &Sight::whole(&self.ws, &session()),
            serde_json::from_value(arguments).unwrap(),
            &Stop::after(time),
        )
    }

    fn run<O: Operation>(&self, arguments: Value) -> Result<String, String> {
        match self.output::<O>(arguments, Duration::from_secs(60)) {
            Ok(output) => Ok(output.content[0].as_text()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn ok<O: Operation>(&self, arguments: Value) -> String {
        self.run::<O>(arguments).unwrap()
    }

    fn err<O: Operation>(&self, arguments: Value) -> String {
        self.run::<O>(arguments).unwrap_err()
    }
}

fn numbered(lines: usize) -> String {
    (1..=lines).map(|n| format!("line {n}\n")).collect()
}

#[test]
fn schemas_and_descriptions_hold_only_words_for_a_model() {
    for tool in [super::view(), super::ls(), super::glob(), super::grep()] {
        entourage_testkit::assert_plain_words(tool.spec());
        let schema = tool.spec().schema();
        let properties = schema["properties"].as_object().unwrap();
        assert!(properties.values().all(|it| it["description"].is_string()), "{schema}");
        assert_eq!(schema.get("description"), None, "words about a type say nothing about a call");
    }
}

#[test]
fn opening_names_the_path_and_the_fix() {
    let dir = tempfile::tempdir().unwrap();
    let missing = Workspace::open(dir.path().join("gone")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(missing.message().contains("/gone") && missing.message().contains("create it"), "{missing}");
    fs::write(dir.path().join("file"), "").unwrap();
    let file = Workspace::open(dir.path().join("file")).unwrap_err();
    assert_eq!(file.kind(), ErrorKind::InvalidInput);
    assert!(file.message().contains("/file` is no directory"), "{file}");
}

#[test]
fn specs_are_read_only_and_speak_to_the_model() {
    let tree = Tree::new(&[("src/a.rs", "")]);
    for tool in
        tree.ws.read_tools().into_iter().chain([super::view(), super::ls(), super::glob(), super::grep()])
    {
        let spec = tool.spec();
        assert_eq!(spec.access(), Access::READ);
        assert!(spec.timeout().is_some() && !spec.description().is_empty());
        for (name, property) in spec.schema()["properties"].as_object().unwrap() {
            assert!(property["description"].is_string(), "{} {name}: {property}", spec.name());
        }
    }
    let required = |tool: &dyn Tool| tool.spec().schema()["required"].clone();
    assert_eq!(required(&tree.ws.view()), json!(["path"]));
    assert_eq!(required(&tree.ws.grep()), json!(["pattern"]));
    assert_eq!(required(&tree.ws.ls()), Value::Null);
}

#[test]
fn footprints_name_the_place_however_it_is_spelled() {
    let tree = Tree::new(&[("src/a.rs", "")]);
    let reads = |tool: &dyn Tool, arguments: Value| tool.footprint(&arguments).reads;
    for path in ["src/a.rs", "./src//a.rs", "x/../src/a.rs"] {
        assert_eq!(reads(&tree.ws.view(), json!({ "path": path })), ["src/a.rs"]);
    }
    let full = tree.ws.root().join("src");
    assert_eq!(reads(&tree.ws.grep(), json!({ "pattern": "x", "path": full })), ["src"]);
    assert_eq!(reads(&tree.ws.ls(), json!({})), ["."]);
    assert_eq!(reads(&tree.ws.view(), json!({ "path": "../x" })), ["../x"]);
    assert_eq!(reads(&tree.ws.view(), json!({ "path": "src/none/x.rs" })), ["src/none/x.rs"]);
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("src", tree.dir.path().join("link")).unwrap();
        assert_eq!(reads(&tree.ws.view(), json!({ "path": "link/a.rs" })), ["link/a.rs", "src/a.rs"]);
        assert_eq!(
            reads(&tree.ws.view(), json!({ "path": "link/none.rs" })),
            ["link/none.rs", "src/none.rs"]
        );
    }
    assert!(!tree.ws.view().footprint(&json!({})).is_exclusive());
}

#[test]
fn cx09_shows_numbered_lines_and_says_when_there_are_more() {
    let tree = Tree::new(&[("a.txt", &numbered(450)), ("end.txt", "one\ntwo")]);
    let shown = tree.ok::<View>(json!({ "path": "a.txt" }));
    assert_eq!(shown.lines().count(), 201);
    assert!(shown.starts_with("     1\tline 1\n     2\tline 2\n"), "{shown}");
    assert!(shown.ends_with("   200\tline 200\n(more lines follow; go on with offset 200)"), "{shown}");
    let next = tree.ok::<View>(json!({ "path": "a.txt", "offset": 200 }));
    assert!(next.starts_with("   201\tline 201\n"), "{next}");
    let last = tree.ok::<View>(json!({ "path": "a.txt", "offset": 448, "limit": 2 }));
    assert_eq!(last, "   449\tline 449\n   450\tline 450");
    assert_eq!(tree.ok::<View>(json!({ "path": "end.txt" })), "     1\tone\n     2\ttwo");
    assert!(tree.err::<View>(json!({ "path": "a.txt", "offset": 450 })).contains("450 lines"));
    assert!(tree.err::<View>(json!({ "path": "a.txt", "limit": 0 })).contains("`limit` is 0"));
    let output =
        tree.output::<View>(json!({ "path": "a.txt", "offset": 10, "limit": 5 }), Duration::MAX).unwrap();
    assert_eq!(output.metadata, Some(json!({ "path": "a.txt", "first_line": 11, "lines": 5 })));
}

#[test]
fn cx09_lines_are_cut_on_a_character_and_sections_bounded() {
    let tree = Tree::new(&[
        ("exact.txt", &format!("{}\r\nx", "a".repeat(2_000))),
        ("long.txt", &format!("a{}\nnext", "é".repeat(1_500))),
        ("big.txt", &format!("{}\n", "x".repeat(1_999)).repeat(103)),
        ("many.txt", &"\n".repeat(300_000)),
    ]);
    let exact = tree.ok::<View>(json!({ "path": "exact.txt" }));
    assert_eq!(exact, format!("     1\t{}\n     2\tx", "a".repeat(2_000)));
    let long = tree.ok::<View>(json!({ "path": "long.txt" }));
    let expected = format!("     1\ta{}…\n     2\tnext\n(1 line was cut at 2,000 bytes)", "é".repeat(999));
    assert_eq!(long, expected);
    let big = tree.err::<View>(json!({ "path": "big.txt" }));
    assert!(big.contains("larger than 200 KiB") && big.contains("`offset` and `limit`"), "{big}");
    assert!(tree.run::<View>(json!({ "path": "big.txt", "limit": 102 })).is_ok());
    assert!(
        tree.err::<View>(json!({ "path": "many.txt", "limit": 300_000 })).contains("larger than 200 KiB")
    );
}

#[test]
fn cx09_missing_files_empty_files_and_directories() {
    let tree = Tree::new(&[
        ("src/main.rs", ""),
        ("src/mains.rs", ""),
        ("src/Main.rst", ""),
        ("src/mai.rs", ""),
        ("src/unlike.toml", ""),
    ]);
    let missing = tree.err::<View>(json!({ "path": "src/mian.rs" }));
    assert_eq!(missing, "there is nothing at `src/mian.rs`; did you mean `src/mai.rs` or `src/main.rs`?");
    let many = tree.err::<View>(json!({ "path": "src/main" }));
    assert!(many.ends_with("did you mean `src/main.rs` or `src/Main.rst` or `src/mains.rs`?"), "{many}");
    assert_eq!(tree.err::<View>(json!({ "path": "no/where.rs" })), "there is nothing at `no/where.rs`");
    assert!(tree.err::<View>(json!({ "path": "src/main.rs/x" })).contains("there is nothing at"));
    assert_eq!(tree.ok::<View>(json!({ "path": "src/main.rs" })), "`src/main.rs` is empty");
    assert!(tree.err::<View>(json!({ "path": "src" })).contains("list it with `ls`"));
}

#[test]
fn cx09_binary_files_and_images_by_content() {
    let tree = Tree::new(&[]);
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
    tree.write("picture.txt", png);
    tree.write("large.png", [&png[..], &vec![0; 5 << 20]].concat());
    tree.write("old.bmp", b"BM\x3a\0\0\0\0\0");
    tree.write("a.out", b"\x7fELF\x02\x01\0");
    tree.write("latin.txt", b"ok\ncaf\xe9\n");
    tree.write("late.txt", [numbered(2_000).as_bytes(), b"caf\xe9\n"].concat());
    let output = tree.output::<View>(json!({ "path": "picture.txt" }), Duration::MAX).unwrap();
    let [Content::Text(note), Content::Media(media)] = output.content.as_slice() else {
        panic!("{output:?}")
    };
    assert!(note.contains("image/png, 16 bytes"), "{note}");
    assert_eq!(media.mime, "image/png");
    assert_eq!(json!(media.source), json!({ "base64": "iVBORw0KGgoAAAANSUhEUg==" }));
    for (path, what) in [
        ("large.png", "at most 5 MiB"),
        ("old.bmp", "image/bmp"),
        ("a.out", "application/x-executable, 7 bytes"),
        ("latin.txt", "no UTF-8 text"),
    ] {
        let error = tree.err::<View>(json!({ "path": path }));
        assert!(error.contains(what), "{error}");
    }
    assert!(tree.run::<View>(json!({ "path": "late.txt" })).is_ok());
    let late = tree.err::<View>(json!({ "path": "late.txt", "offset": 1_990 }));
    assert!(late.contains("from line 2001 on"), "{late}");
}

#[test]
fn cx10_grep_newest_file_first_and_lines_of_a_file_together() {
    let tree = Tree::new(&[
        ("old.rs", "fn a\nno\nfn b\n"),
        ("b/new.rs", "fn c\n"),
        ("a/new.rs", "fn d\n"),
        ("x.txt", "fn e\n"),
    ]);
    for (path, age) in [("old.rs", 50), ("b/new.rs", 10), ("a/new.rs", 10), ("x.txt", 30)] {
        tree.aged(path, age);
    }
    let all = tree.ok::<Grep>(json!({ "pattern": "^fn [a-z]$" }));
    assert_eq!(
        all,
        "5 lines match in 4 files\n\na/new.rs\n     1\tfn d\n\nb/new.rs\n     1\tfn c\n\nx.txt\n     1\tfn e\n\n\
         old.rs\n     1\tfn a\n     3\tfn b"
    );
    let some = tree.ok::<Grep>(json!({ "pattern": "fn", "include": "*.rs", "path": "b" }));
    assert_eq!(some, "1 line matches in 1 file\n\nb/new.rs\n     1\tfn c");
    let one = tree.ok::<Grep>(json!({ "pattern": "fn", "path": "x.txt" }));
    assert_eq!(one, "1 line matches in 1 file\n\nx.txt\n     1\tfn e");
    assert_eq!(tree.ok::<Grep>(json!({ "pattern": "zzz" })), "no line matches");
}

#[test]
fn cx10_grep_literal_text_and_bad_patterns() {
    let tree = Tree::new(&[("a.txt", "a.b(c\naxb\n")]);
    let literal = tree.ok::<Grep>(json!({ "pattern": "a.b(", "literal_text": true }));
    assert_eq!(literal, "1 line matches in 1 file\n\na.txt\n     1\ta.b(c");
    for (pattern, what) in [
        ("a.b(", "unclosed group"),
        ("", "empty"),
        ("a\\nb", "\\n"),
        ("(a{1000}){1000}", "cannot be used"),
        (&"(".repeat(2_000), "cannot be used"),
        (&"a".repeat(5_000), "4,096"),
    ] {
        let error = tree.err::<Grep>(json!({ "pattern": pattern }));
        assert!(error.contains(what), "{error}");
    }
    let slow = tree.ok::<Grep>(json!({ "pattern": "(a*)*(a*)*(a*)*c$" }));
    assert!(slow.contains("a.b(c"), "{slow}");
    assert!(tree.err::<Grep>(json!({ "pattern": "a", "include": "[" })).contains("cannot be read"));
    assert!(tree.err::<Grep>(json!({ "pattern": "a", "path": "no" })).contains("there is nothing at"));
}

#[test]
fn cx10_grep_stops_at_100_lines_and_500_columns() {
    let tree = Tree::new(&[("new.txt", &"x\n".repeat(60)), ("old.txt", &"x\n".repeat(60))]);
    tree.aged("old.txt", 9);
    tree.aged("new.txt", 1);
    let cut = tree.ok::<Grep>(json!({ "pattern": "x" }));
    assert!(cut.starts_with("100 lines match in 2 files\n\nnew.txt\n"), "{cut}");
    assert!(
        cut.ends_with(
            "    40\tx\n\n(cut at 100 lines, there are more; narrow `pattern`, `path` or `include`)"
        ),
        "{cut}"
    );
    tree.write("old.txt", "x\n".repeat(40));
    assert!(!tree.ok::<Grep>(json!({ "pattern": "x" })).contains("cut at"), "100 and no more is not cut");
    tree.write("wide.txt", format!("w{}\n{}w\n", "é".repeat(600), "y".repeat(499)));
    let wide = tree.ok::<Grep>(json!({ "pattern": "w", "path": "wide.txt" }));
    let expected = format!("     1\tw{}…\n     2\t{}w", "é".repeat(499), "y".repeat(499));
    assert!(wide.ends_with(&expected), "{wide}");
}

#[test]
fn cx10_grep_leaves_out_hidden_ignored_and_binary_files() {
    let tree = Tree::new(&[
        (".gitignore", "target/\n*.log\n!keep.log\n"),
        (".hidden", "needle"),
        ("target/a.rs", "needle"),
        ("a.log", "needle"),
        ("keep.log", "needle"),
        ("sub/.ignore", "secret.txt\n"),
        ("sub/secret.txt", "needle"),
        ("bin", "needle\n\0"),
        ("latin.txt", ""),
    ]);
    tree.write("latin.txt", b"caf\xe9 needle\n");
    tree.aged("latin.txt", 5);
    tree.aged("keep.log", 1);
    let found = tree.ok::<Grep>(json!({ "pattern": "needle" }));
    assert_eq!(
        found,
        "2 lines match in 2 files\n\nkeep.log\n     1\tneedle\n\nlatin.txt\n     1\tcaf\u{fffd} needle"
    );
    let asked = tree.ok::<Grep>(json!({ "pattern": "needle", "path": "target" }));
    assert!(asked.contains("target/a.rs"), "what is named is searched: {asked}");
    assert!(tree.ok::<Grep>(json!({ "pattern": "needle", "path": "sub" })).contains("no line matches"));
    assert!(tree.ok::<Grep>(json!({ "pattern": "needle", "path": "bin" })).contains("binary"));
}

#[test]
fn cx10_time_limits_are_stated() {
    let tree = Tree::new(&[("a.txt", "x")]);
    let late = |result: Result<ToolOutput, ToolError>| match result {
        Ok(output) => output.content[0].as_text(),
        Err(error) => error.to_string(),
    };
    let zero = Duration::ZERO;
    for text in [
        late(tree.output::<Grep>(json!({ "pattern": "x" }), zero)),
        late(tree.output::<Grep>(json!({ "pattern": "x", "path": "a.txt" }), zero)),
        late(tree.output::<Find>(json!({ "pattern": "*" }), zero)),
        late(tree.output::<Ls>(json!({}), zero)),
        late(tree.output::<View>(json!({ "path": "a.txt" }), zero)),
    ] {
        assert!(text.contains("stopped after 0 s"), "{text}");
    }
    assert_eq!((Grep::TIME, Find::TIME), (Duration::from_secs(5), Duration::from_secs(30)));
}

#[test]
fn cx10_glob_shortest_paths_first() {
    let tree = Tree::new(&[
        ("src/deep/er/a.rs", ""),
        ("src/b.rs", ""),
        ("src/a.rs", ""),
        ("lib.rs", ""),
        ("src/c.txt", ""),
        (".hidden.rs", ""),
        (".git/x.rs", ""),
        (".gitignore", "out\n"),
        ("out/x.rs", ""),
    ]);
    assert_eq!(tree.ok::<Find>(json!({ "pattern": "*.rs" })), "lib.rs\nsrc/a.rs\nsrc/b.rs\nsrc/deep/er/a.rs");
    assert_eq!(tree.ok::<Find>(json!({ "pattern": "src/*.{rs,txt}" })), "src/a.rs\nsrc/b.rs\nsrc/c.txt");
    assert_eq!(tree.ok::<Find>(json!({ "pattern": "/*.rs" })), "lib.rs");
    assert_eq!(tree.ok::<Find>(json!({ "pattern": "**/a.rs", "path": "src/deep" })), "src/deep/er/a.rs");
    let full = format!("{}/src/*.txt", tree.ws.root().display());
    assert_eq!(tree.ok::<Find>(json!({ "pattern": full })), "src/c.txt");
    assert!(tree.ok::<Find>(json!({ "pattern": "*.py" })).starts_with("no file matches"));
    assert!(tree.err::<Find>(json!({ "pattern": "[a" })).contains("cannot be read"));
    assert!(tree.err::<Find>(json!({ "pattern": " " })).contains("empty"));
    assert!(tree.err::<Find>(json!({ "pattern": "*", "path": "lib.rs" })).contains("no directory"));
}

#[test]
fn cx10_glob_states_what_was_cut() {
    let tree = Tree::new(&[]);
    (0..120).for_each(|n| tree.write(&format!("d{n:03}/f"), ""));
    tree.write("top", "");
    let found = tree.ok::<Find>(json!({ "pattern": "**" }));
    let lines: Vec<_> = found.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[1], lines[99]), (101, "top", "d000/f", "d098/f"));
    assert_eq!(lines[100], "(cut at 100 of 121 files that match; narrow the pattern or give `path`)");
}

#[test]
fn cx10_ls_shows_a_tree() {
    let tree = Tree::new(&[
        ("src/a/x.rs", ""),
        ("src/b.rs", ""),
        ("Cargo.toml", ""),
        (".gitignore", "target\n"),
        ("target/debug/x", ""),
        (".git/HEAD", ""),
    ]);
    assert_eq!(tree.ok::<Ls>(json!({})), "./\n  Cargo.toml\n  src/\n    a/\n      x.rs\n    b.rs");
    assert_eq!(tree.ok::<Ls>(json!({ "depth": 1 })), "./\n  Cargo.toml\n  src/");
    assert_eq!(tree.ok::<Ls>(json!({ "path": "src/a" })), "src/a/\n  x.rs");
    let hidden = tree.ok::<Ls>(json!({ "hidden": true, "depth": 2 }));
    assert_eq!(hidden, "./\n  .git/\n  .gitignore\n  Cargo.toml\n  src/\n    a/\n    b.rs");
    assert!(tree.err::<Ls>(json!({ "path": "Cargo.toml" })).contains("`view`"));
    assert!(tree.err::<Ls>(json!({ "depth": 0 })).contains("`depth` is 0"));
}

#[test]
fn cx10_ls_takes_shallow_entries_first_and_states_what_was_cut() {
    let tree = Tree::new(&[("z.txt", ""), ("b/x", "")]);
    (0..1_100).for_each(|n| tree.write(&format!("a/{n:04}"), ""));
    let shown = tree.ok::<Ls>(json!({}));
    let lines: Vec<_> = shown.lines().collect();
    assert_eq!(lines.len(), 1 + 1_000 + 1);
    assert_eq!((lines[2], lines[998], lines[999], lines[1_000]), ("    0000", "    0996", "  b/", "  z.txt"));
    assert!(lines[1_001].starts_with("(cut at 1,000 entries, there are more"), "{}", lines[1_001]);
    (1_000..1_100).for_each(|n| fs::remove_file(tree.dir.path().join(format!("a/{n:04}"))).unwrap());
    assert!(tree.ok::<Ls>(json!({ "path": "a" })).ends_with("\n  0999"), "1,000 and no more is not cut");
}

#[test]
fn ignore_files_nearest_rule_wins_and_repositories_end_them() {
    let tree = Tree::new(&[
        (".gitignore", "*.gen\n/only-top\n"),
        (".ignore", "!wanted.gen\n"),
        ("a.gen", ""),
        ("wanted.gen", ""),
        ("only-top", ""),
        ("sub/only-top", ""),
        ("sub/.gitignore", "!b.gen\n[\n"),
        ("sub/b.gen", ""),
        ("sub/c.gen", ""),
        ("repo/.git/HEAD", ""),
        ("repo/own.gen", ""),
    ]);
    let found = tree.ok::<Find>(json!({ "pattern": "**" }));
    assert_eq!(found, "sub/b.gen\nwanted.gen\nrepo/own.gen\nsub/only-top");
}

#[cfg(unix)]
#[test]
fn names_that_are_no_text_are_shown_and_do_no_harm() {
    use std::os::unix::ffi::OsStrExt;
    let tree = Tree::new(&[]);
    for name in [&b"caf\xe9.rs"[..], b"two\nlines.rs"] {
        fs::write(tree.dir.path().join(std::ffi::OsStr::from_bytes(name)), "needle\n").unwrap();
    }
    assert_eq!(tree.ok::<Find>(json!({ "pattern": "*.rs" })), "caf\u{fffd}.rs\ntwo\u{fffd}lines.rs");
    assert_eq!(tree.ok::<Ls>(json!({})), "./\n  caf\u{fffd}.rs\n  two\u{fffd}lines.rs");
    assert_eq!(tree.ok::<Grep>(json!({ "pattern": "needle" })).lines().count(), 7);
    assert!(tree.err::<View>(json!({ "path": "caf.rs" })).contains("did you mean `caf\u{fffd}.rs`"));
}

const MARKER: &str = "MARKER-7f3a";

/// A root beside a secret, with links of every kind in it.
fn beside_a_secret() -> (TempDir, Workspace) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::create_dir(dir.path().join("root-evil")).unwrap();
    for path in ["secret", "root-evil/secret"] {
        fs::write(dir.path().join(path), MARKER).unwrap();
    }
    fs::write(root.join("a/secret"), "harmless").unwrap();
    #[cfg(unix)]
    for (to, link) in [("..", "up"), ("../secret", "s"), ("a", "in"), ("../../..", "a/b/far"), ("/", "top")] {
        std::os::unix::fs::symlink(to, root.join(link)).unwrap();
    }
    let workspace = Workspace::open(&root).unwrap();
    (dir, workspace)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn attack_24_no_path_reads_outside_the_root(
        pieces in prop::collection::vec(
            prop_oneof![
                Just("..".to_owned()), Just(".".to_owned()), Just("/".to_owned()), Just("//".to_owned()),
                Just("a".to_owned()), Just("up".to_owned()), Just("in".to_owned()), Just("s".to_owned()),
                Just("far".to_owned()), Just("b".to_owned()), Just("top".to_owned()), Just("secret".to_owned()),
                Just("root".to_owned()), Just("root-evil".to_owned()), Just("%2e%2e".to_owned()), Just("BASE".to_owned()),
                "\\PC{0,4}", any::<char>().prop_map(String::from),
            ],
            0..8,
        ),
        slashes in any::<bool>(),
    ) {
        thread_local!(static TREE: (TempDir, Workspace) = beside_a_secret());
        TREE.with(|(dir, ws)| {
            let base = fs::canonicalize(dir.path()).unwrap();
            let path = pieces.join(if slashes { "/" } else { "" }).replace("BASE", &base.to_string_lossy());
            let stop = Stop::after(Duration::from_secs(60));
            let session = session();
            let sight = &Sight::whole(ws, &session);
            let results = [
                View::run(sight, serde_json::from_value(json!({ "path": path })).unwrap(), &stop),
                Ls::run(sight, serde_json::from_value(json!({ "path": path })).unwrap(), &stop),
                Find::run(sight, serde_json::from_value(json!({ "pattern": "**", "path": path })).unwrap(), &stop),
                Find::run(sight, serde_json::from_value(json!({ "pattern": path })).unwrap(), &stop),
                Grep::run(sight, serde_json::from_value(json!({ "pattern": "MARKER", "path": path })).unwrap(), &stop),
            ];
            ws.view().footprint(&json!({ "path": path }));
            for output in results.into_iter().flatten() {
                for content in output.content {
                    let text = content.as_text();
                    prop_assert!(!text.contains(MARKER) && !text.contains("root-evil"), "{path:?}: {text}");
                }
            }
            Ok(())
        })?;
    }
}

#[test]
fn a_workspace_is_known_by_the_link_that_leads_to_it() {
    let tree = Tree::new(&[("root/a.txt", "x")]);
    #[cfg(unix)]
    {
        let link = tree.dir.path().join("link");
        std::os::unix::fs::symlink("root", &link).unwrap();
        let ws = Workspace::open(&link).unwrap();
        for path in [link.join("a.txt"), ws.root().join("a.txt"), Path::new("a.txt").to_owned()] {
            let arguments = serde_json::from_value(json!({ "path": path })).unwrap();
            assert!(
                View::run(&Sight::whole(&ws, &session()), arguments, &Stop::after(Duration::MAX)).is_ok(),
                "{path:?}"
            );
        }
    }
    assert!(tree.ws.root().is_absolute());
}
