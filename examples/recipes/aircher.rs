//! Aircher: a lead that only looks has five agents research in parallel, each in a place of its own that is gone with
//! its run; it presents a plan, and carries it out once the person approves. The same question again is answered from
//! the cache. Without a model, stand-ins work: their words are canned, what they find is real.

use std::{
    fs,
    io::Cursor,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Parser;
use entourage::{
    SessionId,
    agent::per_run,
    fs::TemporaryWorkspace,
    permission::Preset,
    prelude::*,
    providers::env,
    research::{Research, ResearchProgress, Researcher},
    telemetry::Telemetry,
    terminal::Terminal,
    testkit::Playbook,
};

/// A lead with research agents side by side, in plan mode.
#[derive(Parser)]
struct Args {
    /// The task.
    #[arg(default_value = "Write down how this repository is built, checked and tested.")]
    task: String,
    /// The directory to look at, and to change once a plan is approved.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// The model of the lead: `vendor:model`, or `http://host:8000/v1#model`; without one stand-ins answer.
    #[arg(long, env = "ENTOURAGE_MODEL")]
    model: Option<String>,
    /// The cheaper model of the research agents, in the same form.
    #[arg(long)]
    small_model: Option<String>,
    /// The file of sessions; the places of research agents and the notes of stand-ins lie beside it.
    #[arg(long, default_value_os_t = std::env::temp_dir().join("aircher.db"))]
    db: PathBuf,
    /// The session to go on with.
    #[arg(long, value_parser = |id: &str| SessionId::new(id))]
    resume: Option<SessionId>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let scripts = Playbook::parse(include_str!("aircher.json"))?;
    let model = |own: &Option<String>, role| match own.as_ref().or(args.model.as_ref()) {
        Some(name) => env::model(name),
        None => scripts.model(role),
    };
    let small = model(&args.small_model, "researcher")?;
    // Stand-ins write beside the file of sessions, and their person approves each plan.
    let notes = args.db.with_extension("notes");
    let (terminal, writes) = match args.model {
        Some(_) => (Terminal::new(), args.dir.clone()),
        None => (Terminal::over(Cursor::new("y\ny\n"), std::io::stdout()), notes),
    };
    fs::create_dir_all(&writes)?;

    // Each research agent works on a copy of the documents and manifests, which is removed when its run ends.
    let places = args.db.with_extension("places");
    TemporaryWorkspace::sweep(&places)?;
    let researcher = |kind: Researcher| {
        let (small, places, dir) = (small.clone(), places.clone(), args.dir.clone());
        per_run(kind.name(), move || {
            let place = TemporaryWorkspace::create(&places)?;
            copy(&dir, place.path(), 2)
                .map_err(|error| Error::new(ErrorKind::Io, "no copy was made").caused_by(error))?;
            let agent = ReactAgent::builder(kind.name(), small.clone()).instructions(kind.instructions());
            let agent = agent.tools(place.workspace().read_tools()).build()?;
            Ok((place, agent))
        })
    };
    let runtime = Runtime::builder()
        .store(SqliteStore::open(&args.db).await?)
        .policy(Preset::Edit.policy())
        .auto_approve_readers()
        .approver(terminal.clone())
        .build();
    let cache = runtime.session_with_id(SessionId::new("aircher-cache")?);
    let research =
        Research::builder("research", small.clone()).planner(model(&None, "planner")?).cache(&cache);
    let research = Researcher::ALL
        .into_iter()
        .fold(research, |research, kind| research.agent(kind, researcher(kind)))
        .build()?;

    let workspace = Workspace::open(&writes)?.with_history(args.db.with_extension("versions"))?;
    let lead = ReactAgent::builder("lead", model(&None, "lead")?)
        .instructions("You plan before you change anything, and have others look things up.")
        .tools(workspace.read_tools())
        .tools(workspace.write_tools())
        .tool(AgentTool::read_only(research))
        .build()?
        .plan_first()?;

    let telemetry = Telemetry::new(Arc::clone(runtime.store()));
    let session = match &args.resume {
        Some(id) => runtime.open(id).await?,
        None => runtime.session(),
    };
    // Asked twice: the second time, the research is answered from the cache.
    let mut sessions = vec![session];
    sessions.extend(args.resume.is_none().then(|| runtime.session()));
    for session in sessions {
        terminal.say(&format!("session {}", session.id()));
        let outcome = terminal.run_with(&session, &lead, args.task.as_str(), |event| {
            if let Some(now) = event.event.record::<ResearchProgress>()? {
                terminal.say(&format!(
                    "[{} of {} done, {} at work] {}",
                    now.done, now.total, now.active, now.task.prompt
                ));
            }
            Ok(())
        });
        terminal.say(&outcome.await?.to_string());
        let stats = telemetry.session_stats(session.id().as_str()).await?;
        terminal.say(&format!("the lead: {}; below it: {}", stats.own, stats.descendants));
    }
    Ok(())
}

/// Copies documents and manifests, some levels deep.
fn copy(from: &Path, to: &Path, levels: usize) -> std::io::Result<()> {
    for entry in fs::read_dir(from)? {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
        let Some(name) = path.file_name().filter(|name| !name.to_string_lossy().starts_with('.')) else {
            continue;
        };
        if kind.is_dir() && levels > 0 && name != "target" {
            fs::create_dir_all(to.join(name))?;
            copy(&path, &to.join(name), levels - 1)?;
        } else if kind.is_file() && path.extension().is_some_and(|kind| kind == "md" || kind == "toml") {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}
