//! The costs of what reaches beyond the own files, beside the library that each part uses: a call of an MCP server's
//! tool over stdio beside rmcp's own client, 100 slow servers until their tools are there beside the same processes
//! until each has said one line, and a page of 1 MB as Markdown beside htmd.
//!
//! `cargo bench -p entourage-benches --bench reach`; `-- --test` runs each part small, `-- mcp_call` that part.
//! Each figure is the median of pairs taken in turns.

#![allow(
    clippy::cast_precision_loss,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints, and stops at the first thing that is not as it should be"
)]

use std::{
    hint::black_box,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    process::Stdio,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use entourage::{
    fs::Workspace,
    mcp::{Mcp, McpServer},
    permission::Policy,
    prelude::*,
    testkit::run_tool,
    tool::{Access, Tools, Toolset, typed},
    web::Web,
};
use entourage_benches::{Parts, line, median};
use entourage_core::{
    agent::Agent,
    run::{Outcome, RunContext, Task},
};
use htmd::HtmlToMarkdown;
use rmcp::{
    RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, ListToolsResult,
        PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig, Tool,
    },
    service::{ClientLifecycleMode, ClientServiceExt, RequestContext},
    transport::async_rw::AsyncRwTransport,
};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::Command,
    runtime::Runtime as Tokio,
};

/// Milliseconds until a slow server says anything.
const SLOW: &str = "500";
/// Set for the process that is the server: to the milliseconds until it says anything.
const SERVES: &str = "ENTOURAGE_BENCH_SERVES";
/// The first line to a server.
const GREETING: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bare","version":"1"}}}
"#;

/// A server with one tool that gives its text back.
struct Echo;

impl ServerHandler for Echo {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
        let tool = json!({"name": "echo", "inputSchema": schema, "annotations": {"readOnlyHint": true}});
        let tool: Tool = serde_json::from_value(tool).unwrap();
        Ok(ListToolsResult::with_all_items(vec![tool]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let text = request.arguments.unwrap_or_default()["text"].as_str().unwrap_or_default().to_owned();
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

async fn serve() {
    Echo.serve(rmcp::transport::stdio()).await.unwrap().waiting().await.unwrap();
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Text {
    text: String,
}

/// Calls the tool so often in one run, and notes the time that they took.
#[derive(Clone)]
struct Calls {
    tools: Tools,
    tool: &'static str,
    calls: usize,
    took: Arc<Mutex<f64>>,
}

#[async_trait]
impl Agent for Calls {
    fn name(&self) -> &str {
        "calls"
    }

    async fn run(&self, _: Task, cx: &RunContext) -> Result<Outcome> {
        let start = Instant::now();
        for _ in 0..self.calls {
            let result = cx.call_tool(&self.tools, self.tool, &json!({"text": "hello"})).await?;
            assert!(!black_box(result).is_error);
        }
        *self.took.lock().unwrap() = start.elapsed().as_secs_f64();
        Ok(Outcome::completed("done"))
    }
}

/// The ratio of a call in a run to rmcp's own.
async fn mcp_call(pairs: usize, calls: usize) -> f64 {
    let program = std::env::current_exe().unwrap();
    let mcp = Mcp::start([McpServer::command("echo", &program, [""; 0]).with_env(SERVES, "0")]).unwrap();
    mcp.ready().await;
    let mut child = Command::new(&program)
        .env(SERVES, "0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let pipes = AsyncRwTransport::new(child.stdout.take().unwrap(), child.stdin.take().unwrap());
    // The same version of the protocol: from 2026-07-28 on each request says who asks.
    let lifecycle = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] };
    let plain = ().serve_with_lifecycle(pipes, lifecycle).await.unwrap();
    let echo = typed("local", "Echo.", Access::READ, |Text { text }: Text| async move { Ok(text) });
    let local = Tools::new([Arc::new(echo) as Arc<dyn entourage_core::tool::Tool>]).unwrap();
    // The part of the ratio that any tool in a run has, whose code is cold after a server has run.
    let peer = plain.peer().clone();
    let by_hand = typed("by_hand", "Echo.", Access::READ, move |Text { text }: Text| {
        let peer = peer.clone();
        async move {
            let arguments = json!({ "text": text }).as_object().unwrap().clone();
            let result = peer.call_tool(CallToolRequestParams::new("echo").with_arguments(arguments)).await;
            Ok(result.unwrap().content[0].as_text().unwrap().text.clone())
        }
    });
    let by_hand = Tools::new([Arc::new(by_hand) as Arc<dyn entourage_core::tool::Tool>]).unwrap();
    let runtime = Runtime::builder().policy(Policy::allow_all()).build();
    let (mut ratios, mut each, mut within) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..pairs {
        let start = Instant::now();
        for _ in 0..calls {
            let arguments = json!({"text": "hello"}).as_object().unwrap().clone();
            let params = CallToolRequestParams::new("echo").with_arguments(arguments);
            black_box(plain.call_tool(params).await.unwrap());
        }
        let floor = start.elapsed().as_secs_f64();
        let agent = Calls { tools: mcp.tools(), tool: "mcp_echo_echo", calls, took: Arc::default() };
        runtime.session().start(&agent, "go").outcome().await.unwrap();
        ratios.push(*agent.took.lock().unwrap() / floor);
        let agent = Calls { tools: local.clone(), tool: "local", calls, took: Arc::default() };
        runtime.session().start(&agent, "go").outcome().await.unwrap();
        let local = *agent.took.lock().unwrap() / calls as f64;
        each.push((floor / calls as f64 * 1e6, local * 1e6));
        let agent = Calls { tools: by_hand.clone(), tool: "by_hand", calls, took: Arc::default() };
        runtime.session().start(&agent, "go").outcome().await.unwrap();
        within.push(*agent.took.lock().unwrap() / floor);
    }
    let (floors, locals) = each.into_iter().unzip();
    println!(
        "a call by rmcp alone takes {:.0} us, one of a local tool in a run {:.0} us",
        median(floors),
        median(locals)
    );
    println!("a local tool in a run that calls by rmcp: {:.2} of rmcp alone", median(within));
    median(ratios)
}

/// The time until so many processes have been started, and each has answered one line.
async fn bare(servers: usize) -> f64 {
    let program = std::env::current_exe().unwrap();
    let start = Instant::now();
    let answers: Vec<_> = (0..servers)
        .map(|_| {
            let mut child = Command::new(&program)
                .env(SERVES, SLOW)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .unwrap();
            tokio::spawn(async move {
                child.stdin.as_mut().unwrap().write_all(GREETING).await.unwrap();
                let mut line = String::new();
                BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).await.unwrap();
                assert!(line.contains("protocolVersion"));
                child
            })
        })
        .collect();
    let mut children = Vec::new();
    for answer in answers {
        children.push(answer.await.unwrap());
    }
    let took = start.elapsed().as_secs_f64();
    for mut child in children {
        child.kill().await.unwrap();
    }
    took
}

/// The ratio of the time until all tools of so many servers are there to that of the bare processes.
async fn mcp_ready(pairs: usize, servers: usize) -> f64 {
    let program = std::env::current_exe().unwrap();
    let (mut ratios, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..pairs {
        let floor = bare(servers).await;
        let start = Instant::now();
        let mcp = Mcp::start((0..servers).map(|number| {
            McpServer::command(format!("s{number}"), &program, [""; 0]).with_env(SERVES, SLOW)
        }));
        let mcp = mcp.unwrap();
        mcp.ready().await;
        ratios.push(start.elapsed().as_secs_f64() / floor);
        floors.push(floor * 1e3);
        assert_eq!(mcp.tools().iter().count(), servers);
        mcp.shut_down().await;
    }
    println!("{servers} processes that wait {SLOW} ms have answered after {:.0} ms", median(floors));
    median(ratios)
}

/// An article of about so many bytes.
fn article(bytes: usize) -> String {
    let part = "<h2>Of <em>rivers</em> and roads</h2><p>A river is <a href=\"/r\">longer</a> than a road, and \
        <strong>older</strong>; most roads follow one.</p><ul><li>one</li><li>two <code>x = 1</code></li></ul>\
        <table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>";
    let body = part.repeat(bytes / part.len());
    format!("<!doctype html><html><head><title>Roads</title></head><body>{body}</body></html>")
}

/// The ratio of `web_fetch` of a page to reading it from a socket with htmd's conversion.
fn html(tokio: &Tokio, pairs: usize, bytes: usize) -> f64 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let url = format!("http://{address}/");
    let page = article(bytes);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4_096]);
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nConnection: close\r\n";
            let _ = write!(stream, "{head}Content-Length: {}\r\n\r\n{page}", page.len());
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let web = Web::new().unwrap().opening([Ipv4Addr::LOCALHOST.into()]).unwrap();
    let tool = web.web_fetch(&Workspace::open(dir.path()).unwrap());
    let mut ratios = Vec::new();
    for pair in 0..pairs {
        let start = Instant::now();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (_, text) = reply.split_once("\r\n\r\n").unwrap();
        // The tool leaves these out as well, and writes a large page to a file.
        let skipped =
            vec!["script", "style", "nav", "header", "footer", "aside", "noscript", "iframe", "svg"];
        let markdown = HtmlToMarkdown::builder().skip_tags(skipped).build().convert(text).unwrap();
        std::fs::write(dir.path().join(format!("plain-{pair}.md")), markdown).unwrap();
        let floor = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let result = tokio.block_on(run_tool(Arc::clone(&tool), json!({ "url": url }))).unwrap();
        assert!(!result.is_error, "{}", result.to_text());
        ratios.push(start.elapsed().as_secs_f64() / floor);
    }
    median(ratios)
}

fn main() {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    if let Ok(wait) = std::env::var(SERVES) {
        std::thread::sleep(Duration::from_millis(wait.parse().unwrap()));
        return tokio.block_on(serve());
    }
    let parts = Parts::of_arguments();
    let quick = parts.quick;
    let (pairs, calls, bytes) = if quick { (1, 10, 10_000) } else { (31, 1_000, 1_000_000) };
    let (starts, servers) = if quick { (1, 3) } else { (5, 100) };
    if parts.want("mcp_call") {
        println!("{}", line("ratio mcp_call", tokio.block_on(mcp_call(pairs, calls)), 1.3));
    }
    if parts.want("mcp_ready") {
        println!("{}", line("ratio mcp_ready", tokio.block_on(mcp_ready(starts, servers)), 1.2));
    }
    if parts.want("html") {
        println!("{}", line("ratio html", html(&tokio, pairs, bytes), 1.2));
    }
}
