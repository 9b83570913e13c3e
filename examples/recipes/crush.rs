//! Crush: a coding agent on the terminal, with files, a sandboxed shell, the web, MCP servers, a language server and
//! agents below it. Without a model, stand-ins mend a crate whose test fails: canned words, and real tools.

use std::{error::Error, path::PathBuf, sync::Arc};

use clap::Parser;
use entourage::{
    SessionId, Timestamp, Titles, builtin,
    fs::{FileSnapshots, TemporaryWorkspace},
    lsp::{LanguageServer, LanguageServers},
    mcp::{Mcp, McpServer},
    permission::{GrantFile, Preset},
    prelude::*,
    project::{ProjectFacts, ProjectOptions},
    providers::env,
    sandbox::Sandbox,
    telemetry::Telemetry,
    terminal::Terminal,
    testkit::Playbook,
    tool::{Toolset, agentic_fetch, question},
    web::Web,
};

/// A coding agent with agents below it.
#[derive(Parser)]
struct Args {
    /// The work to do.
    #[arg(default_value = "The test of this crate fails. Find out why, and mend it.")]
    task: String,
    /// The directory to work in; stand-ins have a crate beside the file of sessions.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// `vendor:model`, or `http://host:8000/v1#model`; without one stand-ins answer.
    #[arg(long, env = "ENTOURAGE_MODEL")]
    model: Option<String>,
    /// A smaller model for agents below and titles.
    #[arg(long)]
    small_model: Option<String>,
    /// The file of sessions; versions of files and lasting grants lie beside it.
    #[arg(long, default_value_os_t = std::env::temp_dir().join("crush.db"))]
    db: PathBuf,
    /// The session to go on with.
    #[arg(long, value_parser = |id: &str| SessionId::new(id))]
    resume: Option<SessionId>,
    /// A file of MCP servers, such as `.mcp.json`: it names programs that will run.
    #[arg(long)]
    mcp: Option<PathBuf>,
    /// A language server for Rust, such as `rust-analyzer`.
    #[arg(long)]
    lsp: Option<String>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let terminal = Terminal::new();
    let scripts = Playbook::parse(include_str!("crush.json"))?;
    let model = |name: &Option<String>, role| match name.as_ref().or(args.model.as_ref()) {
        Some(name) => env::model(name),
        None => scripts.model(role),
    };
    let small = model(&args.small_model, "small")?;
    let (dir, policy) = match args.model {
        Some(_) => (args.dir.clone(), Preset::Ask.policy()),
        None => (broken_crate(&args)?, Preset::Edit.policy().allow("bash:cargo test*")),
    };
    let state = args.db.with_extension("state");
    std::fs::create_dir_all(&state)?;

    // The hands. All files go through one workspace; commands reach no network.
    let workspace = Workspace::open(&dir)?.with_history(state.join("versions"))?;
    let sandbox = Sandbox::workspace_write(&dir)?.reading_rust();
    let shell = Shell::open(&dir)?.listing_changes(&workspace).with_sandbox(sandbox);
    let mut servers = LanguageServers::builder(&workspace);
    if let Some(program) = &args.lsp {
        servers = servers.server(LanguageServer::command("rust", program, [""; 0]).for_extensions(["rs"]));
    }
    let servers = servers.build()?;
    let mcp = match &args.mcp {
        Some(file) => Mcp::start(McpServer::read_file(file).await?)?,
        None => Mcp::start([])?,
    };
    mcp.ready().await;
    let web = Web::new()?;
    let (pages, searches) = (state.join("pages"), web.search_services()?);
    TemporaryWorkspace::sweep(&pages)?;
    let reads = agentic_fetch(small.clone(), {
        let web = web.clone();
        move || {
            let place = TemporaryWorkspace::create(&pages)?;
            let files = place.workspace();
            let tools = [vec![web.web_fetch(files), web.web_search(searches.clone())], files.read_tools()];
            Ok((place, tools.concat()))
        }
    });

    // The agents.
    let searcher = builtin::task(small.clone()).tools(workspace.read_tools()).build()?;
    let facts = ProjectFacts::gather(&dir, ProjectOptions::new(Timestamp::now())).await?;
    let facts = format!("{facts}\n{}", mcp.instructions());
    let coder = builtin::coder(model(&None, "coder")?)
        .instructions_with(move |_| Ok(facts.clone())) // AGENTS.md, git, the date
        .tools(workspace.read_tools())
        .tools(workspace.write_tools())
        .tools(shell.tools())
        .tools(servers.tools())
        .tools(mcp.tools())
        .tools([web.fetch(), web.download(&workspace)])
        .tools((question(), reads, AgentTool::new(&searcher)))
        .todos()
        .build()?;

    let runtime = Runtime::builder()
        .store(SqliteStore::open(&args.db).await?)
        .policy(policy)
        .grants(GrantFile::open(state.join("grants.toml"))?)
        .snapshots(FileSnapshots::open(&workspace, state.join("versions"))?)
        .titles(Titles::new(small))
        .tool_layer(servers.clone())
        .approver(terminal.clone())
        .build();
    let session = match &args.resume {
        Some(id) => runtime.open(id).await?,
        None => runtime.session(),
    };
    terminal.say(&format!("{}, session {}", dir.display(), session.id()));
    let outcome = terminal.run(&session, &coder, args.task.as_str()).await?;
    shell.close().await;
    servers.shut_down().await;
    mcp.shut_down().await;

    let state = session.state().await?;
    state.todos().iter().for_each(|todo| terminal.say(&format!("{:?}: {}", todo.status, todo.content)));
    let stats = Telemetry::new(Arc::clone(runtime.store())).session_stats(session.id().as_str()).await?;
    terminal.say(&format!("{}: {}; below it: {}", session.head().await?.title, outcome, stats.descendants));
    Ok(())
}

/// Makes the crate of the stand-ins, or finds that of the session that goes on.
fn broken_crate(args: &Args) -> std::io::Result<PathBuf> {
    let dir = args.db.with_extension("crate");
    if args.resume.is_none() {
        std::fs::create_dir_all(dir.join("src"))?;
        let write = |name: &str, text: &str| std::fs::write(dir.join(name), text);
        write("Cargo.toml", "[package]\nname = \"sum\"\nedition = \"2024\"\n\n[workspace]\n")?;
        write("AGENTS.md", "Run the tests with `cargo test --offline`.\n")?;
        write("src/lib.rs", include_str!("crush.broken"))?;
    }
    Ok(dir)
}
