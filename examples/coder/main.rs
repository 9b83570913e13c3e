//! A coding agent on the terminal. It reads and changes the files of one directory and runs commands there:
//!
//! ```text
//! cargo run -p entourage-examples --example coder -- [--dir DIR] [--mode read|plan|ask|edit|full]
//!     [--model vendor:model] [--state DIR] [--lsp] [--resume ID [--rewind RUN]] ["task"]
//! ```
//!
//! Without a task it shows itself: a scripted model mends a small crate whose test fails, for real. Sessions, versions
//! of changed files and lasting grants are kept in the state directory, outside of what the agent may touch. `--rewind`
//! takes a prompt back: the conversation, and all that it changed in the directory, commands included. With `--lsp` the
//! language servers on the PATH check what it changes.

mod args;
mod demo;
mod servers;

use std::{env, error::Error, fs, io, path::Path, process::ExitCode};

use entourage::{
    RunId, builtin, fs::FileSnapshots, permission::GrantFile, prelude::*, providers::env as models,
    sandbox::Sandbox, terminal::Terminal, tool::question,
};

use args::{Args, Task};

const BAD_ARGUMENTS: u8 = 2;
const CANCELLED: u8 = 130;

#[tokio::main]
async fn main() -> ExitCode {
    let terminal = Terminal::new();
    if env::args().any(|word| word == "--help") {
        terminal.say(&format!("{}\n{}", args::USAGE, args::HELP));
        return ExitCode::SUCCESS;
    }
    let args = match Args::parse(env::args().skip(1)) {
        Ok(args) => args,
        Err(problem) => {
            terminal.complain(&format!("{problem}\n{}", args::USAGE));
            return BAD_ARGUMENTS.into();
        }
    };
    match work(&args, &terminal).await {
        Ok(code) => code,
        Err(error) => {
            terminal.complain(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

async fn work(args: &Args, terminal: &Terminal) -> Result<ExitCode, Box<dyn Error>> {
    let demo = match &args.task {
        Task::Demo => Some(demo::Crate::new()?),
        Task::Given(_) | Task::Continue | Task::Rewind => None,
    };
    let dir = demo.as_ref().map_or(args.dir.as_path(), demo::Crate::path);
    let model = match &demo {
        Some(_) => demo::model(args.mode.plans),
        None => args.model.as_deref().map_or_else(|| Ok(models::from_env()?.model.clone()), models::model)?,
    };

    // One folder of state for each directory: the paths in grants and versions are relative to it.
    let state = demo.as_ref().map_or(args.state.as_path(), demo::Crate::state);
    let state = state.join(name_of(&fs::canonicalize(dir)?));
    fs::create_dir_all(&state)?;
    let workspace = Workspace::open(dir)?.with_history(state.join("versions"))?;
    let shell = shell(dir, terminal)?.listing_changes(&workspace);
    let servers = servers::found(&workspace, args.lsp, terminal)?;
    let searcher = builtin::task(model.clone()).tools(workspace.read_tools()).build()?;
    let agent = builtin::coder(model)
        .tools(workspace.read_tools())
        .tools(workspace.write_tools())
        .tools(shell.tools())
        .tools(servers.tools())
        .tools((question(), AgentTool::new(&searcher)))
        .scope(args.mode.preset.scope())
        .build()?;
    let agent = if args.mode.plans { agent.plan_first()? } else { agent };

    let theirs = match fs::read_to_string(dir.join(".entourage/permissions.toml")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Policy::new(),
        text => Policy::from_toml(&text?)?,
    };
    let own = if demo.is_some() {
        args.mode.preset.policy().allow("bash:cargo test*")
    } else {
        args.mode.preset.policy()
    };
    let runtime = Runtime::builder()
        .store(JsonStore::open(state.join("sessions")).await?)
        .policy(own.restricted_by(theirs.named("project")))
        .grants(GrantFile::open(state.join("grants.toml"))?)
        .snapshots(FileSnapshots::open(&workspace, state.join("versions"))?)
        .tool_layer(servers.clone())
        .approver(terminal.clone())
        .build();
    let session = match &args.resume {
        Some(id) => runtime.open(id).await?,
        None => runtime.session(),
    };
    terminal.say(&format!("{} in mode {}, session {}", dir.display(), args.mode, session.id()));

    let session = match args.rewind {
        Some(run) => back(&session, run, terminal).await?,
        None => session,
    };
    let prompt = match &args.task {
        Task::Rewind => return Ok(ExitCode::SUCCESS),
        Task::Given(task) => task.as_str(),
        Task::Demo => demo::TASK,
        Task::Continue => "Please go on.",
    };
    let mut id = None;
    let outcome = terminal.run_with(&session, &agent, prompt, |event| {
        id.get_or_insert(event.origin.run);
        Ok(())
    });
    let outcome = outcome.await;
    shell.close().await;
    servers.shut_down().await;
    let outcome = outcome?;
    terminal.say(&outcome.status.to_string());
    if let (None, Some(id)) = (&demo, id) {
        terminal.say(&format!(
            "go on with --resume {0}, or take this back with --resume {0} --rewind {id}",
            session.id()
        ));
    }
    if let Some(demo) = demo {
        terminal.say(if demo.is_green() { "the crate's tests pass" } else { "the crate's tests FAIL" });
        return Ok(if demo.is_green() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    Ok(match outcome.status {
        Status::Completed => ExitCode::SUCCESS,
        Status::Cancelled => CANCELLED.into(),
        _ => ExitCode::FAILURE,
    })
}

/// Commands run in a sandbox where the system has one: they change the directory alone, and reach no network.
fn shell(dir: &Path, terminal: &Terminal) -> Result<Shell> {
    let shell = Shell::open(dir)?;
    match Sandbox::workspace_write(dir) {
        Ok(sandbox) => Ok(shell.with_sandbox(sandbox.reading_rust())),
        Err(error) => {
            terminal.say(&format!("commands are not confined: {error}"));
            Ok(shell)
        }
    }
}

/// Goes back to before the prompt of a run, in a new session, and shows what that changed in the directory.
async fn back(session: &Session, run: RunId, terminal: &Terminal) -> Result<Session> {
    let rewound = session.rewind(run).await?;
    for path in &rewound.restored.written {
        terminal.say(&format!("restored {path}"));
    }
    for path in &rewound.restored.removed {
        terminal.say(&format!("removed {path}"));
    }
    terminal.say(&format!("back before run {run}: go on with --resume {}", rewound.session.id()));
    Ok(rewound.session)
}

/// A folder name for a directory: its path, without separators, in characters that every program takes in a path.
fn name_of(dir: &Path) -> String {
    dir.display().to_string().replace(std::path::MAIN_SEPARATOR, "+")
}
