//! Language servers beside file tools, against servers of this machine.

#![cfg(all(feature = "lsp", unix))]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    reason = "helpers of tests fail by panicking too"
)]

#[path = "../common/mod.rs"]
mod common;
mod fake;
mod hostile;
#[path = "../common/manners.rs"]
mod manners;
mod real;
mod rename;
mod trouble;

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use entourage_core::{message::ToolResult, tool::Tool};
use entourage_runtime::{AllowAll, Runtime, RuntimeBuilder, Session, permission::Policy};
use entourage_tools::{
    fs::Workspace,
    lsp::{LanguageServer, LanguageServerState, LanguageServers},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use manners::eventually;

/// A workspace with a server, and the notes that it leaves.
struct Bench {
    _keep: (TempDir, TempDir, TempDir),
    root: PathBuf,
    notes: PathBuf,
    workspace: Workspace,
    servers: LanguageServers,
    session: OnceLock<Session>,
}

impl Bench {
    /// With a fake server of this manner.
    fn new(manner: &str) -> Self {
        Self::with(|notes| vec![fake::server("fake", manner, notes)])
    }

    fn with(servers: impl FnOnce(&std::path::Path) -> Vec<LanguageServer>) -> Self {
        let keep = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = fs::canonicalize(keep.0.path()).unwrap();
        let notes = keep.1.path().to_owned();
        let workspace = Workspace::open(&root).unwrap().with_history(keep.2.path()).unwrap();
        let builder = LanguageServers::builder(&workspace).wait_after_view(Duration::from_secs(60));
        let builder = builder.wait_after_change(Duration::from_secs(60));
        let servers = servers(&notes).into_iter().fold(builder, |builder, server| builder.server(server));
        let servers = servers.build().unwrap();
        Self { _keep: keep, root, notes, workspace, servers, session: OnceLock::new() }
    }

    /// The same with such waits.
    fn waiting(mut self, server: LanguageServer, time: Duration) -> Self {
        let builder = LanguageServers::builder(&self.workspace).server(server);
        self.servers = builder.wait_after_change(time).wait_after_view(time).build().unwrap();
        self
    }

    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        [self.workspace.read_tools(), self.workspace.write_tools(), self.servers.tools()].concat()
    }

    fn builder(&self) -> RuntimeBuilder {
        Runtime::builder().tool_layer(self.servers.clone()).policy(Policy::allow_all()).approver(AllowAll)
    }

    async fn call_all(&self, calls: Vec<(&str, Value)>) -> Vec<ToolResult> {
        let session = self.session.get_or_init(|| self.builder().build().session());
        common::call_in(session, self.tools(), calls).await
    }

    async fn call(&self, tool: &str, arguments: Value) -> String {
        let result = self.call_all(vec![(tool, arguments)]).await.remove(0);
        if result.is_error { format!("error: {}", result.to_text()) } else { result.to_text() }
    }

    async fn write(&self, path: &str, content: &str) -> String {
        self.call("write", json!({"path": path, "content": content})).await
    }

    fn file(&self, path: &str, content: &str) {
        fs::write(self.root.join(path), content).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap()
    }

    fn notes(&self, name: &str) -> Vec<String> {
        fake::notes(&self.notes, name)
    }

    fn state(&self) -> LanguageServerState {
        self.servers.servers().remove(0).1
    }
}

#[tokio::test]
async fn ce02_the_result_of_a_change_ends_with_diagnostics() {
    let bench = Bench::new("plain");
    bench.file("b.fk", "");
    let lines: String = (1..=12).map(|n| format!("WARN {n}\n")).collect();
    let content = format!("{lines}é😀 ERROR\nHINT\nBREAKS b.fk\n");
    let result = bench.write("a.fk", &content).await;
    let text = "created `a.fk` with 15 lines\n\
        Diagnostics of `a.fk`:\n\
        - error 13:4 found ERROR on line 13 (fake ERROR)\n\
        - warning 1:1 found WARN on line 1 (fake WARN)\n";
    assert!(result.starts_with(text), "{result}");
    assert!(result.contains("- warning 9:1 found WARN on line 9 (fake WARN)\n(3 more)\n"), "{result}");
    let end = "\n\nDiagnostics of other files:\n- error `b.fk` 1 found ERROR on line 1 (fake ERROR)\n\n\
        Diagnostics: 1 error, 12 warnings in `a.fk`; 1 error, 0 warnings in 1 other file.";
    assert!(result.ends_with(end), "{result}");
    assert_eq!(bench.notes("opened"), ["a.fk fk"]);
    eventually("it is told of the disk", || bench.notes("watched") == ["a.fk 1"]).await;
    assert_eq!(bench.notes("saved"), ["a.fk"]);

    let results = bench
        .call_all(vec![
            ("view", json!({"path": "a.fk"})),
            ("edit", json!({"path": "a.fk", "old": "é😀 ERROR\n", "new": "fine\n"})),
            ("view", json!({"path": "b.fk"})),
            ("write", json!({"path": "c.fk", "content": "fine"})),
            ("view", json!({"path": "c.fk"})),
        ])
        .await;
    let texts: Vec<_> = results.iter().map(ToolResult::to_text).collect();
    assert!(texts[0].contains("(fake ERROR)") && texts[0].ends_with("in 1 other file."), "{}", texts[0]);
    assert!(texts[1].contains("Diagnostics: 0 errors, 12 warnings in `a.fk`"), "{}", texts[1]);
    // The server takes back what it said of this file, since nothing is wrong in it.
    assert!(texts[2].starts_with("`b.fk` is empty\nDiagnostics of other files:"), "{}", texts[2]);
    assert!(texts[2].contains("- warning `a.fk` 1 found WARN"), "{}", texts[2]);
    assert!(
        texts[3].contains("Diagnostics: none in `c.fk`; 0 errors, 12 warnings in 1 other file."),
        "{}",
        texts[3]
    );
    assert_eq!(bench.state(), LanguageServerState::Running);
    assert_eq!(bench.notes("started").len(), 1);
}

#[tokio::test]
async fn ce02_without_a_server_results_are_plain() {
    let bench = Bench::new("plain");
    assert_eq!(bench.write("a.txt", "ERROR").await, "created `a.txt` with 1 line");
    assert_eq!(bench.write("fk", "ERROR").await, "created `fk` with 1 line");
    assert_eq!(bench.state(), LanguageServerState::Idle);
    assert_eq!(bench.notes("started").len(), 0);
    let missing = LanguageServer::command("fake", "/no/such/program", [""; 0]).for_extensions(["fk"]);
    let bench = Bench::with(|_| vec![missing]);
    assert_eq!(bench.write("a.fk", "ERROR").await, "created `a.fk` with 1 line");
    assert!(bench.state().to_string().contains("failed: `/no/such/program` cannot be started"));
    for manner in ["dies", "refuses", "odd_units"] {
        let bench = Bench::new(manner);
        assert_eq!(bench.write("a.fk", "ERROR").await, "created `a.fk` with 1 line", "{manner}");
    }
    let bench = Bench::with(|_| Vec::new());
    assert!(bench.servers.tools().is_empty());
    assert_eq!(bench.write("a.fk", "ERROR").await, "created `a.fk` with 1 line");
    // A call that failed is no change.
    let bench = Bench::new("plain");
    assert!(
        bench
            .call("edit", json!({"path": "x.fk", "old": "a", "new": "b"}))
            .await
            .starts_with("error: there is nothing")
    );
    assert_eq!(bench.notes("started").len(), 0);
}

#[tokio::test]
async fn ce02_a_view_without_diagnostics_is_plain() {
    let bench = Bench::new("plain");
    bench.file("a.fk", "fine\n");
    assert_eq!(bench.call("view", json!({"path": "a.fk"})).await, "     1\tfine");
    assert_eq!(bench.notes("shown"), ["a.fk 1 fine\\n"]);
    assert!(bench.notes("saved").is_empty() && bench.notes("watched").is_empty());
}

#[tokio::test]
async fn ce02_numbers_are_in_the_metadata() {
    let bench = Bench::new("plain");
    let result = bench.write("a.fk", "ERROR\nINFO\n").await;
    assert!(result.contains("1 error, 0 warnings, 1 information in `a.fk`."), "{result}");
    let session = bench.builder().build().session();
    common::call_in(&session, bench.tools(), vec![("write", json!({"path": "b.fk", "content": "WARN\n"}))])
        .await;
    let events = session.events(0, usize::MAX).await.unwrap();
    let metadata = events.iter().find_map(|event| match &event.event {
        entourage_core::event::Event::ToolFinished(call) => call.metadata.clone(),
        _ => None,
    });
    let numbers = json!({"file": {"errors": 0, "warnings": 1, "others": 0}, "project": {"errors": 1, "warnings": 0, "others": 1}});
    assert_eq!(metadata.unwrap()["diagnostics"], numbers);
}

#[tokio::test]
async fn ce02_places_are_right_in_either_encoding() {
    for manner in ["plain", "utf8"] {
        let bench = Bench::new(manner);
        bench.file("a.fk", "\u{feff}é😀 one ERROR\r\n😀 one two\r\n");
        let result = bench.call("view", json!({"path": "a.fk"})).await;
        assert!(result.contains("- error 1:8 found ERROR"), "{manner}: {result}");
        let result = bench.call("lsp_references", json!({"path": "a.fk", "line": 2, "symbol": "one"})).await;
        let expected = "2 references of `one`:\na.fk:1:4: é😀 one ERROR\na.fk:2:3: 😀 one two";
        assert_eq!(result, expected, "{manner}");
        assert_eq!(bench.notes("greeted"), [r#"["utf-8","utf-16","utf-32"]"#]);
    }
}

#[tokio::test]
async fn ce02_servers_that_are_asked_for_diagnostics_are_asked() {
    let bench = Bench::new("pulls");
    let result = bench.write("a.fk", "ERROR\n").await;
    assert!(result.contains("- error 1:1 found ERROR on line 1"), "{result}");
    assert!(result.contains("- error `related.fk` 1 found ERROR on line 1"), "{result}");
    let result = bench.call_all(vec![
        ("view", json!({"path": "a.fk"})),
        ("write", json!({"path": "a.fk", "content": "fine\n"})),
    ]);
    let result = result.await.remove(1).to_text();
    assert!(result.contains("Diagnostics: none in `a.fk`; 1 error"), "{result}");
}

#[tokio::test]
async fn ce02_only_diagnostics_of_the_new_text_count() {
    for manner in ["late", "works"] {
        let bench = Bench::new(manner);
        let (result, ()) = tokio::join!(bench.write("a.fk", "WARN\n"), async {
            eventually("the file is shown", || bench.notes("shown").len() == 1).await;
            fs::write(bench.notes.join("go"), "go").unwrap();
        });
        assert!(
            result.contains("0 errors, 1 warning in `a.fk`.") && !result.contains("of old"),
            "{manner}: {result}"
        );
    }
    let bench = Bench::new("no_version");
    assert!(bench.write("a.fk", "WARN\n").await.contains("0 errors, 1 warning in `a.fk`."));
    let bench = Bench::new("old_version");
    let server = fake::server("fake", "old_version", &bench.notes);
    let bench = bench.waiting(server, Duration::from_millis(50));
    let result = bench.write("a.fk", "WARN\n").await;
    assert!(!result.contains("of old") && !result.contains("Diagnostics of"), "{result}");
}

#[tokio::test]
async fn ce02_what_others_changed_is_told_anew() {
    let bench = Bench::new("plain");
    bench.write("a.fk", "ERROR\n").await;
    bench.file("a.fk", "fine now\n");
    let result = bench.write("b.fk", "fine\n").await;
    assert!(result.ends_with("Diagnostics: none in `b.fk`."), "{result}");
    fs::remove_file(bench.root.join("a.fk")).unwrap();
    bench.write("b.fk", "x\n").await;
    let result = bench.call("lsp_diagnostics", json!({})).await;
    assert_eq!(result, "Diagnostics: none.");
    assert_eq!(
        (bench.notes("closed"), bench.notes("watched")[2].as_str()),
        (vec!["a.fk".to_owned()], "a.fk 3")
    );
    // A removal by `undo` is one too.
    let made =
        vec![("write", json!({"path": "c.fk", "content": "ERROR\n"})), ("undo", json!({"path": "c.fk"}))];
    let results = bench.call_all(made).await;
    assert!(results[0].to_text().contains("1 error"), "{}", results[0].to_text());
    assert_eq!(results[1].to_text(), "undid the last change of `c.fk`; it is gone, as it was before");
    eventually("the server is told", || bench.notes("closed") == ["a.fk", "c.fk"]).await;
}

#[tokio::test]
async fn ce02_a_server_has_few_files_open() {
    let bench = Bench::new("plain");
    bench.write("f0.fk", "fine").await;
    // Waits for what the server says are over at once.
    tokio::time::pause();
    let calls = (1..70).map(|n| ("write", json!({"path": format!("f{n}.fk"), "content": "fine"})));
    bench.call_all(calls.collect()).await;
    tokio::time::resume();
    eventually("all were open", || bench.notes("opened").len() == 70).await;
    assert_eq!(bench.notes("closed"), ["f0.fk", "f1.fk", "f2.fk", "f3.fk", "f4.fk", "f5.fk"]);
    bench.file("large.fk", &"x".repeat(5 << 20));
    bench.file("binary.fk", "x");
    fs::write(bench.root.join("binary.fk"), [0xff, 0xfe]).unwrap();
    for path in ["large.fk", "binary.fk"] {
        bench.call("view", json!({"path": path, "limit": 1})).await;
    }
    assert_eq!(bench.notes("opened").len(), 70, "what is no text of at most 4 MiB is not told");
}

#[tokio::test]
async fn ce02_tools_answer_questions_about_code() {
    let bench = Bench::new("plain");
    bench.file("a.fk", "fn one\nfn two\nuse one\n");
    bench.file("b.fk", "call one  ");
    let place = json!({"path": "a.fk", "line": 3, "symbol": "one"});
    let found = "a.fk:1:4: fn one\na.fk:3:5: use one\nb.fk:1:6: call one";
    assert_eq!(bench.call("lsp_references", place.clone()).await, format!("3 references of `one`:\n{found}"));
    assert_eq!(bench.call("lsp_definition", place).await, format!("3 definitions of `one`:\n{found}"));
    let symbols = "2 symbols in `a.fk`:\nfunction one (line 1)\n  variable inner (line 1)\nfunction two (line 2)\n  \
        variable inner (line 2)";
    assert_eq!(
        bench.call("lsp_symbols", json!({"path": "a.fk"})).await.replace("4 symbols", "2 symbols"),
        symbols
    );
    let result = bench.call("lsp_symbols", json!({"query": "tw"})).await;
    assert_eq!(result, "1 symbol with `tw`:\na.fk:2: function two in m");
    for (tool, arguments, part) in [
        ("lsp_references", json!({"path": "a.fk", "line": 9, "symbol": "one"}), "`a.fk` has no line 9"),
        ("lsp_references", json!({"path": "a.fk", "line": 0, "symbol": "one"}), "`a.fk` has no line 0"),
        (
            "lsp_references",
            json!({"path": "a.fk", "line": 2, "symbol": "one"}),
            "`one` is not in line 2 of `a.fk`",
        ),
        ("lsp_references", json!({"path": "a.fk", "line": 2, "symbol": ""}), "`` is not in line 2"),
        ("lsp_references", json!({"path": "a.txt", "line": 2, "symbol": ""}), "there is nothing at `a.txt`"),
        ("lsp_references", json!({"path": "../a.fk", "line": 2, "symbol": ""}), "outside the workspace"),
        ("lsp_symbols", json!({"path": "a.fk", "query": "x"}), "give either `path`"),
        ("lsp_symbols", json!({}), "give either `path`"),
        ("lsp_symbols", json!({"path": "."}), "is a directory"),
        ("lsp_diagnostics", json!({"path": "none.txt"}), "there is nothing at"),
        ("lsp_restart", json!({"server": "x"}), "there are `fake` (running)"),
    ] {
        let result = bench.call(tool, arguments).await;
        assert!(result.starts_with("error: ") && result.contains(part), "{part}: {result}");
    }
    bench.file("a.txt", "one");
    let result = bench.call("lsp_definition", json!({"path": "a.txt", "line": 1, "symbol": "one"})).await;
    assert!(result.contains("there is no language server for `a.txt`; there are `fake`"), "{result}");
    assert_eq!(bench.call("lsp_restart", json!({})).await, "the language server `fake` runs again");
    assert_eq!((bench.notes("started").len(), bench.notes("shut_down").len()), (2, 1));
    let result = bench.call("lsp_diagnostics", json!({"path": "b.fk"})).await;
    assert_eq!(result, "Diagnostics: none in `b.fk`.");
}

#[tokio::test]
async fn ce02_places_that_rules_hide_are_not_shown() {
    let bench = Bench::new("outside");
    bench.file("a.fk", "use one\n");
    bench.file("secret.fk", "fn one SECRET\n");
    bench.file("asked.fk", "fn one ASKED\n");
    let policy = Policy::allow_all().deny("*:secret.fk").ask("lsp_references:asked.fk").deny("write:/etc/**");
    let runtime = bench.builder().policy(policy).build();
    let place = json!({"path": "a.fk", "line": 1, "symbol": "one"});
    let calls = vec![
        ("lsp_references", place),
        ("lsp_symbols", json!({"query": "one"})),
        ("write", json!({"path": "b.fk", "content": "BREAKS secret.fk BREAKS a.fk"})),
        ("lsp_diagnostics", json!({})),
    ];
    let results = common::call_all(&runtime, bench.tools(), calls).await;
    let texts: Vec<_> = results.iter().map(ToolResult::to_text).collect();
    let expected = "2 references of `one`:\n/etc/hosts:1 (outside of the workspace)\na.fk:1:5: use one\n\
        (1 place was left out, since leave must be asked for first: view such a file)";
    assert_eq!(texts[0], expected);
    assert!(texts.iter().all(|text| !text.contains("secret")), "{texts:?}");
    assert!(texts[2].ends_with("1 error, 0 warnings in 1 other file."), "{}", texts[2]);
    assert!(texts[3].contains("in 1 file."), "{}", texts[3]);
}

#[tokio::test]
async fn ce02_requests_of_a_server_are_answered() {
    let bench = Bench::new("asks");
    bench.write("a.fk", "fine\n").await;
    eventually("all are answered", || bench.notes("answers").len() == 7).await;
    let answers: Vec<Value> =
        bench.notes("answers").iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |id: &str| answers.iter().find(|answer| answer["id"] == id).unwrap();
    assert_eq!(of("configuration")["result"], json!(["strict", null]));
    assert_eq!(of("edit")["result"]["applied"], json!(false));
    assert!(of("folders")["result"][0]["uri"].as_str().unwrap().starts_with("file:///"));
    assert_eq!(of("unknown")["error"]["code"], json!(-32_601));
    for id in ["register", "progress", "message"] {
        assert_eq!(of(id).get("result"), Some(&Value::Null), "{id}");
    }
}

#[tokio::test]
async fn ce02_a_file_may_have_several_servers() {
    let bench = Bench::with(|notes| {
        vec![
            fake::server("first", "dies", notes),
            fake::server("second", "plain", notes),
            fake::server("third", "pulls", notes),
        ]
    });
    let result = bench.write("a.fk", "ERROR\n").await;
    assert!(result.contains("Diagnostics: 2 errors, 0 warnings in `a.fk`"), "{result}");
    let result = bench.call("lsp_references", json!({"path": "a.fk", "line": 1, "symbol": "ERROR"})).await;
    assert_eq!(result, "1 reference of `ERROR`:\na.fk:1:1: ERROR");
}
