//! File tools beside the libraries that they use, and the judge of calls.

use std::{
    fs::{self, File},
    hint::black_box,
    io::{BufWriter, Read, Write},
    path::Path,
    sync::Arc,
    time::Instant,
};

use entourage::{
    event::Event,
    permission::{Policy, Ruling},
    prelude::*,
    testkit::{ScriptedProvider, run_tool},
    tool::{Footprint, ToolSpec},
};
use entourage_benches::median;
use grep_regex::RegexMatcherBuilder;
use grep_searcher::{BinaryDetection, SearcherBuilder, sinks::UTF8};
use ignore::WalkBuilder;
use serde_json::json;
use tokio::runtime::Runtime as Tokio;

const LINE: &str = "the quick brown fox jumps over the lazy dog, again and again and again\n";

fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn call(tokio: &Tokio, tool: &Arc<dyn Tool>, arguments: serde_json::Value) -> String {
    let result = tokio.block_on(run_tool(Arc::clone(tool), arguments)).unwrap();
    assert!(!result.is_error, "{}", result.to_text());
    result.to_text()
}

/// A tree of `files` small files, 100 in a directory.
fn tree(root: &Path, files: usize) {
    for file in 0..files {
        let dir = root.join(format!("d{}", file / 100));
        if file % 100 == 0 {
            fs::create_dir(&dir).unwrap();
        }
        let found = if file % 1_000 == 7 { "needle" } else { "" };
        fs::write(dir.join(format!("f{file}.txt")), format!("{}{found}\n{LINE}", LINE.repeat(3))).unwrap();
    }
}

/// The same search by the ripgrep libraries, one thread, with the settings of the tool.
fn plain_grep(root: &Path, pattern: &str) -> usize {
    let matcher = RegexMatcherBuilder::new().line_terminator(Some(b'\n')).build(pattern).unwrap();
    let mut searcher =
        SearcherBuilder::new().binary_detection(BinaryDetection::quit(0)).line_number(true).build();
    let mut found = 0;
    for entry in WalkBuilder::new(root).git_global(false).git_exclude(false).require_git(false).build() {
        let entry = entry.unwrap();
        if entry.file_type().is_some_and(|kind| kind.is_file()) {
            // The tool shows the newest files first.
            black_box(entry.metadata().unwrap().modified().unwrap());
            let file = File::open(entry.path()).unwrap();
            searcher
                .search_file(
                    &matcher,
                    &file,
                    UTF8(|_, _| {
                        found += 1;
                        Ok(true)
                    }),
                )
                .unwrap();
        }
    }
    found
}

pub(crate) fn grep(tokio: &Tokio, quick: bool) -> f64 {
    let root = tempfile::tempdir().unwrap();
    let files = if quick { 2_000 } else { 100_000 };
    tree(root.path(), files);
    let tool = Workspace::open(root.path()).unwrap().grep();
    let ratios = (0..if quick { 1 } else { 5 }).map(|_| {
        let ours = seconds(|| {
            let text = call(tokio, &tool, json!({ "pattern": "need+le" }));
            assert!(!text.contains("stopped"), "{text}");
            assert_eq!(text.matches("needle").count(), (files / 1_000).min(100));
        });
        let floor = seconds(|| assert_eq!(plain_grep(root.path(), "need+le"), files / 1_000));
        ours / floor
    });
    median(ratios.collect())
}

/// The costs of `view` in a large file.
pub(crate) struct Viewed {
    /// Milliseconds for 200 lines in the first 10 MB, and MiB that they take on the heap at most.
    pub(crate) millis: f64,
    pub(crate) mib: f64,
    /// The time for the last lines, beside that for counting all lines by hand.
    pub(crate) end: f64,
}

pub(crate) fn view(tokio: &Tokio, quick: bool) -> Viewed {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("large.txt");
    let lines = (if quick { 20 << 20 } else { 1 << 30 }) / LINE.len();
    let mut out = BufWriter::with_capacity(1 << 20, File::create(&path).unwrap());
    for _ in 0..lines {
        out.write_all(LINE.as_bytes()).unwrap();
    }
    out.into_inner().unwrap().sync_all().unwrap();
    let tool = Workspace::open(root.path()).unwrap().view();
    let show = |from: usize| {
        let text = call(tokio, &tool, json!({ "path": "large.txt", "offset": from, "limit": 200 }));
        assert!(text.matches("lazy dog").count() >= 199, "{text}");
    };
    let start = (10 << 20) / LINE.len() - 200;
    let millis = median((0..11).map(|_| seconds(|| show(start)) * 1_000.0).collect());
    let mib = counting_alloc::count(|| show(start)).peak as f64 / f64::from(1 << 20);
    let ratios = (0..if quick { 1 } else { 5 }).map(|_| {
        let ours = seconds(|| show(lines - 200));
        let floor = seconds(|| {
            let (mut file, mut block, mut count) = (File::open(&path).unwrap(), vec![0; 64 << 10], 0);
            loop {
                let read = file.read(&mut block).unwrap();
                if read == 0 {
                    break;
                }
                count += memchr::memchr_iter(b'\n', &block[..read]).count();
            }
            assert_eq!(black_box(count), lines);
        });
        ours / floor
    });
    let end = median(ratios.collect());
    Viewed { millis, mib, end }
}

/// Milliseconds in which the same content is written beside a file, reaches the disk, and takes the place of the file.
fn replaced(root: &Path, text: &str) -> f64 {
    let (beside, place) = (root.join("beside"), root.join("place"));
    let millis = seconds(|| {
        let mut file = File::create_new(&beside).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.sync_data().unwrap();
        fs::rename(&beside, &place).unwrap();
    });
    millis * 1_000.0
}

/// Milliseconds for one edit of a file of 1 MB, and those that the disk takes for it.
pub(crate) fn edit(tokio: &Tokio, quick: bool) -> (f64, f64) {
    let root = tempfile::tempdir().unwrap();
    let text = format!("{}one\n{}", LINE.repeat(7_000), LINE.repeat(7_000));
    fs::write(root.path().join("a.txt"), &text).unwrap();
    let workspace = Workspace::open(root.path()).unwrap();
    let edits = if quick { 2 } else { 100 };
    let mut provider = ScriptedProvider::new().call("view", json!({ "path": "a.txt" }));
    for edit in 0..edits {
        let (old, new) = if edit % 2 == 0 { ("one\n", "two\n") } else { ("two\n", "one\n") };
        provider = provider.call("edit", json!({ "path": "a.txt", "old": old, "new": new }));
    }
    let provider = provider.text("Done.");
    let mut limits = Limits::default();
    limits.steps = 1_000;
    let agent = ReactAgent::builder("editor", provider.model())
        .tools([workspace.view(), workspace.edit()])
        .limits(limits)
        .build()
        .unwrap();
    let runtime = Runtime::builder().policy(Policy::allow_all()).build();
    let (mut times, mut disk, session) = (Vec::new(), Vec::new(), runtime.session());
    let outcome = tokio.block_on(async {
        let mut run = session.start(&agent, "Edit.");
        while let Some(event) = run.next().await {
            if let Event::ToolFinished(call) = &event.event {
                assert!(!call.result.is_error, "{}", call.result.to_text());
                if &*call.result.name == "edit" {
                    times.push(call.micros as f64 / 1_000.0);
                    // In turns, so that a slow moment of the disk hits both.
                    disk.push(replaced(root.path(), &text));
                }
            }
        }
        run.outcome().await.unwrap()
    });
    assert!(outcome.is_completed() && times.len() == edits, "{outcome:?}");
    (median(times), median(disk))
}

/// Microseconds for the judgement of a call by 1,000 rules.
pub(crate) fn judge(quick: bool) -> f64 {
    let rules = (0..1_000).fold(Policy::new(), |policy, at| match at % 4 {
        0 => policy.allow(&format!("write:src/part{at}/*")),
        1 => policy.deny(&format!("write:*/secret{at}.key")),
        2 => policy.ask(&format!("bash:program{at} *")),
        _ => policy.allow(&format!("*:docs/{at}/*")),
    });
    let spec = ToolSpec::new("write", "", json!({})).with_access(Access::WRITE).naming_subjects();
    let footprint = Footprint::new(Access::WRITE).writing("src/part996/lexer.rs");
    let times = if quick { 10 } else { 20_000 };
    let total = seconds(|| {
        for _ in 0..times {
            assert!(matches!(black_box(rules.judge(black_box(&spec), &footprint)), Ruling::Allow(_)));
        }
    });
    total * 1e6 / f64::from(times)
}
