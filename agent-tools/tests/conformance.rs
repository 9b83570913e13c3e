//! Every tool of the library through the suite for tools.

#![cfg(all(
    feature = "fs",
    feature = "lsp",
    feature = "mcp",
    feature = "shell",
    feature = "skills",
    feature = "web",
    unix
))]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    reason = "helpers of tests fail by panicking too"
)]

#[path = "mcp/fake.rs"]
mod fake;
#[path = "lsp/fake.rs"]
mod language;
#[path = "common/manners.rs"]
mod manners;

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener},
    path::Path,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use entourage_core::tool::{Access, Tool, ToolError, ToolInput, ToolSpec, Tools, Toolset};
use entourage_macros::tool;
use entourage_runners::{
    AgentTool, Memory, ReactAgent, TodoTool, ToolsetExt, agentic_fetch, external,
    from_fn::{from_fn, typed},
    question,
};
use entourage_runtime::Runtime;
use entourage_testkit::{
    ScriptedProvider,
    tool::{Conformance, conformance},
};
use entourage_tools::{
    fs::Workspace,
    lsp::LanguageServers,
    mcp::Mcp,
    shell::Shell,
    skills::Skills,
    web::{SearchResult, SearchService, Web},
};
use serde_json::json;

type Shared = Vec<Arc<dyn Tool>>;

/// The types that are tools, by the files that they are in, and the tools that the suites below make of them.
const TYPES: [(&str, &[&str]); 18] = [
    ("agent-runners/src/agent_tool.rs", &["agent"]),
    ("agent-runners/src/deferred/tools.rs", &["find_tools", "use_tool"]),
    ("agent-runners/src/external.rs", &["outside", "question"]),
    ("agent-runners/src/fetch_tool.rs", &["agentic_fetch"]),
    ("agent-runners/src/from_fn.rs", &["echo", "count"]),
    ("agent-runners/src/memory.rs", &["recall", "remember"]),
    ("agent-runners/src/todo_tool.rs", &["todos"]),
    ("agent-tools/src/fs/tool.rs", &["edit", "glob", "grep", "ls", "multiedit", "undo", "view", "write"]),
    (
        "agent-tools/src/lsp/tool.rs",
        &["lsp_definition", "lsp_diagnostics", "lsp_references", "lsp_rename", "lsp_restart", "lsp_symbols"],
    ),
    ("agent-tools/src/mcp/tool.rs", &["mcp_fake_echo", "mcp_fake_wait"]),
    ("agent-tools/src/shell/bash.rs", &["bash"]),
    ("agent-tools/src/shell/job.rs", &["job_kill", "job_output"]),
    ("agent-tools/src/skills/tool.rs", &["skill"]),
    ("agent-tools/src/web/download.rs", &["download"]),
    ("agent-tools/src/web/fetch.rs", &["fetch"]),
    ("agent-tools/src/web/read.rs", &["web_fetch"]),
    ("agent-tools/src/web/search/mod.rs", &["web_search"]),
    ("", &["repeat"]),
];

/// Files with types that pass calls on to a tool, that take an agent's answer in place of work, or that no model is
/// shown.
const OTHERS: [&str; 7] = [
    "agent-runners/src/autonomy/complete.rs",
    "agent-runners/src/combined.rs",
    "agent-runners/src/layered.rs",
    "agent-runners/src/planner/reply.rs",
    "agent-runners/src/research/cache.rs",
    "agent-runners/src/team/mail/tool.rs",
    "agent-runners/src/typed/rule.rs",
];

fn files(directory: &Path) -> Shared {
    let workspace = Workspace::open(directory).unwrap();
    workspace.read_tools().into_iter().chain(workspace.write_tools()).collect()
}

/// The file tools with a history outside of the watched tree, which the directory for temporary files keeps.
fn files_with_history(histories: &Path) -> impl Fn(&Path) -> Shared + Send + Sync + 'static {
    let (histories, made) = (histories.to_owned(), AtomicUsize::new(0));
    move |directory| {
        let history = histories.join(made.fetch_add(1, Ordering::Relaxed).to_string());
        Workspace::open(directory).unwrap().with_history(history).unwrap().write_tools()
    }
}

fn shell(directory: &Path) -> Shared {
    Shell::open(directory).unwrap().tools()
}

/// The directory as a skill, with the files in it.
fn skills(directory: &Path) -> Shared {
    let name = directory.file_name().unwrap().to_str().unwrap();
    let text = format!("---\nname: {name}\ndescription: Text files.\n---\nRead them.\n");
    std::fs::write(directory.join("SKILL.md"), text).unwrap();
    let read = Skills::read([directory.parent().unwrap()]);
    let read = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(read)).unwrap();
    assert_eq!((read.iter().count(), read.problems().len()), (1, 0), "{read:?}");
    vec![read.relative_to(directory).tool()]
}

fn web(directory: &Path) -> Shared {
    let web = Web::new().unwrap().opening([Ipv4Addr::LOCALHOST.into()]).unwrap();
    let workspace = Workspace::open(directory).unwrap();
    let service: Arc<dyn SearchService> = Arc::new(Pages);
    vec![web.fetch(), web.web_fetch(&workspace), web.download(&workspace), web.web_search([service])]
}

/// The tools of a language server of this manner, which leaves its notes in `notes`.
fn language_servers(notes: &Path, manner: &'static str) -> impl Fn(&Path) -> Shared + Send + Sync + 'static {
    let notes = notes.to_owned();
    move |directory| {
        let server = language::server("fake", manner, &notes).for_extensions(["txt", "rs"]);
        let servers = LanguageServers::builder(&Workspace::open(directory).unwrap()).server(server);
        servers.build().unwrap().tools()
    }
}

/// The tools over the notes of a project, which no test reads.
fn memory(_: &Path) -> Shared {
    static NOTES: LazyLock<Runtime> = LazyLock::new(Runtime::in_memory);
    Memory::new(&NOTES.session()).tools()
}

/// The suites of the tools that ask language servers.
fn suites_of_language_servers(notes: &Path) -> Vec<Conformance> {
    let place = json!({"path": "a.txt", "line": 2, "symbol": "second"});
    let rename = |files: &[&str]| json!({"path": "a.txt", "line": 2, "symbol": "second", "new_name": "third", "files": files});
    let suite = |name: &str| conformance(name, language_servers(notes, "plain")).with_fuzzed_calls(30);
    let hanging = |name: &str| conformance(name, language_servers(notes, "hangs")).with_fuzzed_calls(0);
    vec![
        suite("lsp_definition").call(place.clone()),
        suite("lsp_references").call(place.clone()),
        hanging("lsp_references").long_call(place),
        suite("lsp_symbols").call(json!({"path": "src/lib.rs"})),
        suite("lsp_diagnostics").call(json!({"path": "a.txt"})).call(json!({})),
        suite("lsp_rename").call(rename(&[])).after("lsp_rename", rename(&[])).call(rename(&["a.txt"])),
        suite("lsp_restart").after("lsp_symbols", json!({"path": "a.txt"})).call(json!({})),
    ]
}

/// A service that finds pages for each query but one, at which it is silent.
#[derive(Debug)]
struct Pages;

#[async_trait::async_trait]
impl SearchService for Pages {
    fn name(&self) -> &str {
        "pages"
    }

    fn host(&self) -> &str {
        "pages.example"
    }

    async fn search(&self, query: &str, count: usize) -> Result<Vec<SearchResult>, entourage_core::Error> {
        if query == "silent" {
            std::future::pending::<()>().await;
        }
        let found = |number| SearchResult {
            title: query.to_owned(),
            url: format!("https://pages.example/{number}"),
            snippet: query.repeat(50),
        };
        Ok((0..count).map(found).collect())
    }
}

/// The address of a page with so many bytes beside its text.
fn page(bytes: usize) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // The head of a small request arrives in one piece.
            let _ = stream.read(&mut [0; 4_096]);
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<h1>One</h1>";
            let _ = stream.write_all(format!("{head}{}", "x".repeat(bytes)).as_bytes());
        }
    });
    url
}

/// The address of a server that accepts connections and says nothing.
fn silent() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || listener.incoming().flatten().collect::<Vec<_>>());
    url
}

/// The suites of the tools, in no order.
fn suites(histories: &Path) -> Vec<Conformance> {
    let job = json!({"command": "sleep 30", "run_in_background": true});
    let view = json!({"path": "a.txt"});
    let second = json!([{"old": "The second line.", "new": "Another line."}]);
    vec![
        conformance("ls", files).call(json!({})).call(json!({"path": "src", "depth": 3})),
        conformance("glob", files).call(json!({"pattern": "**/*.rs"})),
        conformance("grep", files).call(json!({"pattern": "second"})).call(json!({"pattern": "MARK"})),
        conformance("view", files)
            .call(json!({"path": "a.txt"}))
            .call(json!({"path": "big.txt", "offset": 10, "limit": 100}))
            .call(json!({"path": "link"})),
        conformance("write", files).call(json!({"path": "new/new.txt", "content": "One.\n"})),
        conformance("write", files_with_history(histories))
            .call(json!({"path": "n.txt", "content": "One.\n"})),
        conformance("edit", files)
            .after("view", view.clone())
            .call(json!({"path": "a.txt", "old": "The second line.", "new": "Another line."}))
            .call(json!({"path": "n.txt", "old": "", "new": "One.\n"})),
        conformance("multiedit", files).after("view", view).call(json!({"path": "a.txt", "edits": second})),
        conformance("undo", files_with_history(histories))
            .after("write", json!({"path": "n.txt", "content": "One.\n"}))
            .call(json!({"path": "n.txt"})),
        conformance("bash", shell)
            .call(json!({"command": "cat a.txt src/lib.rs", "description": "Look."}))
            .call(json!({"command": "echo one > made.txt", "working_dir": "src"}))
            .long_call(json!({"command": "sleep 30"}))
            .with_fuzzed_calls(100),
        conformance("job_output", shell)
            .after("bash", json!({"command": "echo one; sleep 30", "run_in_background": true}))
            .long_call(json!({"id": "001", "wait": true}))
            .with_fuzzed_calls(0),
        conformance("job_output", shell).with_fuzzed_calls(60),
        conformance("job_kill", shell).after("bash", job).call(json!({"id": "001"})).with_fuzzed_calls(0),
        conformance("job_kill", shell).with_fuzzed_calls(60),
        conformance("skill", skills)
            .call(json!({"name": "inside"}))
            .call(json!({"name": "inside", "file": "src/deep/note.md"}))
            .call(json!({"name": "inside", "file": "big.txt"})),
        conformance("fetch", web)
            .call(json!({ "url": page(0) }))
            .call(json!({ "url": page(0), "format": "text", "timeout": 5 }))
            .long_call(json!({ "url": silent() })),
        conformance("web_fetch", web)
            .call(json!({ "url": page(0) }))
            .call(json!({ "url": page(60_000) }))
            .long_call(json!({ "url": silent() })),
        conformance("download", web)
            .call(json!({ "url": page(60_000), "path": "new/page.html" }))
            .long_call(json!({ "url": silent(), "path": "new.html" })),
        conformance("web_search", web)
            .call(json!({ "query": "rust", "results": 3 }))
            .long_call(json!({ "query": "silent" }))
            .with_fuzzed_calls(8),
        conformance("remember", memory).call(json!({"note": "Tests need a database."})).with_fuzzed_calls(60),
        conformance("recall", memory).call(json!({"query": "database"})).with_fuzzed_calls(60),
        conformance("todos", |_| (TodoTool::new(),))
            .call(json!({"todos": [{"content": "Look", "status": "pending", "active_form": "Looking"}]})),
        conformance("agentic_fetch", |_| (reader(),))
            .call(json!({"prompt": "Which version?"}))
            .with_fuzzed_calls(60),
        conformance("agent", |_| (agent(),)).call(json!({"prompt": "Where?"})).with_fuzzed_calls(60),
        conformance("question", |_| (question(),))
            .call(json!({"questions": [{"text": "May I?", "kind": "yes_no", "options": []}]})),
    ]
}

fn reader() -> impl Tool {
    let answers = ScriptedProvider::by_history().text("It is 1.91.");
    agentic_fetch(answers.model(), || Ok(((), Vec::new())))
}

fn agent() -> AgentTool {
    let answers = ScriptedProvider::by_history().text("In src/lib.rs.");
    AgentTool::new(ReactAgent::builder("scout", answers.model()).build().unwrap())
}

/// The suites of tools of a server, of which these are some. Without any, to name the suites alone.
fn suites_of_servers(tools: Shared) -> Vec<Conformance> {
    let kept = tools.clone();
    vec![
        conformance("mcp_fake_echo", move |_| kept.clone())
            .call(json!({"text": "One."}))
            .with_fuzzed_calls(60),
        conformance("mcp_fake_wait", move |_| tools.clone()).long_call(json!({})).with_fuzzed_calls(0),
    ]
}

/// A deferred tool, with the two by which it is found and called.
fn many() -> Shared {
    let echo = |input: ToolInput| async move { Ok(input.arguments["text"].to_string()) };
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    let spec = ToolSpec::new("words", "Counts words.", schema).with_access(Access::NONE);
    let tools = Tools::new([Arc::new(from_fn(spec, echo)) as Arc<dyn Tool>]).unwrap().deferred().tools();
    tools.iter().cloned().collect()
}

/// The suites of tools that are made of a program's code.
fn suites_of_made_tools() -> Vec<Conformance> {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Text {
        /// The text.
        text: String,
    }

    /// Repeats a text.
    #[tool(access = "none", crate = "entourage_core")]
    async fn repeat(text: String, times: Option<u8>) -> Result<String, ToolError> {
        Ok(text.chars().take(100).collect::<String>().repeat(times.unwrap_or(2).into()))
    }

    let spec = |name: &str| {
        let schema =
            json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
        ToolSpec::new(name, "Takes a text.", schema).with_access(Access::NONE)
    };
    let text = || json!({"text": "héllo"});
    let echo = |input: ToolInput| async move { Ok(input.arguments["text"].to_string()) };
    vec![
        conformance("echo", move |_| (from_fn(spec("echo"), echo),)).call(text()),
        conformance("count", |_| {
            (typed("count", "Counts.", Access::NONE, |Text { text }: Text| async move { Ok(text.len()) }),)
        })
        .call(text()),
        conformance("find_tools", move |_| many())
            .call(json!({"query": "count words"}))
            .with_fuzzed_calls(60),
        // It stands for calls of others, and runs none itself.
        conformance("use_tool", move |_| many()).with_fuzzed_calls(0),
        conformance("outside", move |_| (external(spec("outside")),)).call(text()),
        conformance("repeat", |_| (repeat,)).call(text()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn issue_14_every_shipped_tool_passes_the_suite() {
    // A panic on a thread for blocking work is an error result by the time that the suite sees it.
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        before(info);
    }));
    let histories = tempfile::tempdir().unwrap();
    let mcp = Mcp::start([fake::server("fake", "plain", histories.path())]).unwrap();
    mcp.ready().await;
    let of_servers = suites_of_servers(mcp.tools().iter().cloned().collect());
    let mut failed = Vec::new();
    let of_languages = suites_of_language_servers(histories.path());
    let all = suites(histories.path()).into_iter().chain(suites_of_made_tools());
    for suite in all.chain(of_servers).chain(of_languages) {
        let report = suite.run().await;
        println!("{report:#}");
        if !report.failed().is_empty() {
            failed.push(format!("{report:#}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "a tool panicked on a thread of its own");
}

#[test]
fn issue_14_no_shipped_tool_is_missing_from_the_suite() {
    let directory = tempfile::tempdir().unwrap();
    let made = suites_of_made_tools().into_iter().chain(suites_of_servers(Vec::new()));
    let made = made.chain(suites_of_language_servers(directory.path()));
    let tested: BTreeSet<String> =
        suites(directory.path()).into_iter().chain(made).map(|suite| suite.name().to_owned()).collect();
    let listed: BTreeSet<String> =
        TYPES.iter().flat_map(|(_, names)| *names).map(|name| (*name).to_owned()).collect();
    assert_eq!(tested, listed);

    let workspace = Workspace::open(directory.path()).unwrap();
    let with_history = workspace.clone().with_history(directory.path().join("history")).unwrap();
    let families = [
        workspace.read_tools(),
        with_history.write_tools(),
        Shell::open(".").unwrap().tools(),
        web(directory.path()),
        language_servers(directory.path(), "plain")(directory.path()),
    ];
    for tool in families.iter().flatten() {
        assert!(listed.contains(tool.spec().name()), "no suite for {}", tool.spec().name());
    }
    // A new type that is a tool is in a file that has no line above.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found: BTreeSet<String> = BTreeSet::from([String::new()]);
    let mut open = vec![root.join("agent-runners/src"), root.join("agent-tools/src")];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if std::fs::read_to_string(&path).unwrap().lines().any(is_tool) {
            found.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
        }
    }
    found.retain(|file| !OTHERS.contains(&file.as_str()));
    assert_eq!(found, TYPES.iter().map(|(file, _)| (*file).to_owned()).collect());
}

fn is_tool(line: &str) -> bool {
    line.starts_with("impl") && line.contains(" Tool for ")
}
