//! The costs of what reaches beyond the own files, beside the library that each part uses: a call of an MCP server's
//! tool over stdio beside rmcp's own client, and a page of 1 MB as Markdown beside htmd.
//!
//! `cargo bench -p entourage-benches --bench reach`; `-- --test` runs each part small. Each figure is the median of
//! pairs taken in turns.

#![allow(
    clippy::cast_precision_loss,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints, and stops at the first thing that is not as it should be"
)]

use std::{
    hint::black_box,
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::Instant,
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
use entourage_benches::median;
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
use tokio::{process::Command, runtime::Runtime as Tokio};

/// Set for the process that is the server.
const SERVES: &str = "ENTOURAGE_BENCH_SERVES";

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
    let mcp = Mcp::start([McpServer::command("echo", &program, [""; 0]).with_env(SERVES, "1")]).unwrap();
    mcp.ready().await;
    let mut child = Command::new(&program)
        .env(SERVES, "1")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let pipes = AsyncRwTransport::new(child.stdout.take().unwrap(), child.stdin.take().unwrap());
    // The same version of the protocol: from 2026-07-28 on each request says who asks.
    let lifecycle = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] };
    let plain = ().serve_with_lifecycle(pipes, lifecycle).await.unwrap();
    let echo = typed("local", "Echo.", Access::READ, |Text { text }: Text| async move { Ok(text) });
    let local = Tools::new([Arc::new(echo) as Arc<dyn entourage_core::tool::Tool>]).unwrap();
    let runtime = Runtime::builder().policy(Policy::allow_all()).build();
    let (mut ratios, mut each) = (Vec::new(), Vec::new());
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
        each.push((floor / calls as f64 * 1e6, *agent.took.lock().unwrap() / calls as f64 * 1e6));
    }
    let (floors, locals) = each.into_iter().unzip();
    println!(
        "a call by rmcp alone takes {:.0} us, one of a local tool in a run {:.0} us",
        median(floors),
        median(locals)
    );
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

fn line(name: &str, value: f64, target: f64) {
    let missed = if value > target { " MISSED" } else { "" };
    println!("{name} {value:.2} (target {target:.1}){missed}");
}

fn main() {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    if std::env::var_os(SERVES).is_some() {
        return tokio.block_on(serve());
    }
    let quick = std::env::args().any(|argument| argument == "--test");
    let (pairs, calls, bytes) = if quick { (1, 10, 10_000) } else { (31, 1_000, 1_000_000) };
    line("ratio mcp_call", tokio.block_on(mcp_call(pairs, calls)), 1.3);
    line("ratio html", html(&tokio, pairs, bytes), 1.2);
}
