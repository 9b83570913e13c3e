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

mod answers;
mod args;
mod demo;
mod desk;
mod servers;

use std::{env, error::Error, fs, io, path::Path, process::ExitCode, sync::Arc};

use entourage::{
    RunId, builtin,
    event::{Event, ToolFinished},
    fs::FileSnapshots,
    permission::GrantFile,
    prelude::*,
    provider::Delta,
    providers::env as models,
    run::Pause,
    sandbox::Sandbox,
    tool::question,
};

use args::{Args, Task};
use desk::{Desk, Terminal, complain};

const BAD_ARGUMENTS: u8 = 2;
const CANCELLED: u8 = 130;

#[tokio::main]
async fn main() -> ExitCode {
    let terminal = Arc::new(Terminal::new());
    if env::args().any(|word| word == "--help") {
        terminal.say(&format!("{}\n{}", args::USAGE, args::HELP));
        return ExitCode::SUCCESS;
    }
    let args = match Args::parse(env::args().skip(1)) {
        Ok(args) => args,
        Err(problem) => {
            complain(&format!("{problem}\n{}", args::USAGE));
            return BAD_ARGUMENTS.into();
        }
    };
    match work(&args, &terminal).await {
        Ok(code) => code,
        Err(error) => {
            complain(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

async fn work(args: &Args, terminal: &Arc<Terminal>) -> Result<ExitCode, Box<dyn Error>> {
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
        .approver(Desk::new(Arc::clone(terminal)))
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
    let run = match (&args.task, session.unfinished().await?) {
        (Task::Rewind, _) => return Ok(ExitCode::SUCCESS),
        (_, Some(_)) => {
            answers::give(&session, terminal).await?;
            session.resume(&agent)
        }
        (Task::Given(task), None) => session.start(&agent, task.as_str()),
        (Task::Demo, None) => session.start(&agent, demo::TASK),
        (Task::Continue, None) => session.start(&agent, "Please go on."),
    };
    let id = run.id();
    let mut outcome = follow(run, terminal).await;
    while let Ok(Outcome { status: Status::Paused(Pause::Call(_)), .. }) = &outcome
        && answers::give(&session, terminal).await?
    {
        outcome = follow(session.resume(&agent), terminal).await;
    }
    shell.close().await;
    servers.shut_down().await;
    let outcome = outcome?;
    terminal.say(&outcome.status.to_string());
    if demo.is_none() {
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
        Ok(sandbox) => {
            let toolchains = ["CARGO_HOME", "RUSTUP_HOME"].into_iter().zip([".cargo", ".rustup"]);
            let folders = toolchains.filter_map(|(variable, name)| {
                env::var_os(variable).map(Into::into).or_else(|| Some(env::home_dir()?.join(name)))
            });
            let sandbox = folders.filter(|path| path.is_dir()).fold(sandbox, Sandbox::reading);
            Ok(shell.with_sandbox(sandbox))
        }
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

/// Shows the run until it has ended. The first Ctrl-C cancels it, and a second one ends the program at once.
async fn follow(mut run: RunHandle, terminal: &Terminal) -> Result<Outcome> {
    let mut interrupts = 0;
    loop {
        tokio::select! {
            event = run.next() => match event {
                Some(event) => show(&event.event, terminal),
                None => return run.outcome().await,
            },
            pressed = tokio::signal::ctrl_c() => {
                interrupts += 1;
                if pressed.is_err() || interrupts > 1 {
                    std::process::exit(CANCELLED.into());
                }
                run.cancel();
                terminal.say("cancelling; Ctrl-C again leaves at once");
            }
        }
    }
}

fn show(event: &Event, terminal: &Terminal) {
    match event {
        Event::Delta(Delta::Text(text)) => terminal.text(text),
        Event::ToolFinished(call) => tool(call, terminal),
        Event::WarningRaised(warning) => terminal.say(&format!("warning: {}", warning.text)),
        _ => {}
    }
}

fn tool(call: &ToolFinished, terminal: &Terminal) {
    let result = &call.result;
    let text = result.to_text();
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let code = call.metadata.as_ref().and_then(|it| it.get("exit_code")?.as_i64()).filter(|code| *code != 0);
    let sign = match (result.is_error, code) {
        (true, _) => "failed".to_owned(),
        (false, Some(code)) => format!("exit code {code}"),
        (false, None) => "done".to_owned(),
    };
    terminal.say(&format!("{} {sign}: {first}", result.name));
    if let Some(diff) = call.metadata.as_ref().and_then(|it| it.get("diff")?.as_str()) {
        terminal.diff(diff);
    }
}
