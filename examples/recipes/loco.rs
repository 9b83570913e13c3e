//! Loco: a lead and four members of different sizes work on items that depend on each other, with a live list; the
//! person steps in while they work. Without a model, stand-ins look at this repository: their words are canned, what
//! they find is real.

use std::{path::PathBuf, sync::Arc};

use clap::Parser;
use entourage::{
    SessionId,
    graph::{GraphControl, SkipAs},
    prelude::*,
    provider::Size,
    providers::env,
    team::{Member, Performance, TaskType, Team, TeamReport},
    terminal::Terminal,
    testkit::Playbook,
};

/// A team of models of different sizes.
///
/// While it works, write `skip ITEM`, `retry ITEM` or `give ITEM MEMBER`.
#[derive(Parser)]
struct Args {
    /// The question.
    #[arg(default_value = "What is in this repository, and how is it tested?")]
    task: String,
    /// The directory to look at.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// The model of the lead, and of the members without one of their own: `vendor:model`, or
    /// `http://host:8000/v1#model`; without one stand-ins answer.
    #[arg(long, env = "ENTOURAGE_MODEL")]
    model: Option<String>,
    /// The model of a member, such as `scout=ollama:qwen3`; may be given several times.
    #[arg(long = "of", value_name = "MEMBER=MODEL")]
    of: Vec<String>,
    /// The directory of sessions: active ones as files, ended ones in an archive.
    #[arg(long, default_value_os_t = std::env::temp_dir().join("loco"))]
    db: PathBuf,
    /// The session to go on with.
    #[arg(long, value_parser = |id: &str| SessionId::new(id))]
    resume: Option<SessionId>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let terminal = Terminal::new();
    let scripts = Playbook::parse(include_str!("loco.json"))?;
    let model = |role: &str| {
        let own = args.of.iter().filter_map(|of| of.split_once('=')).find(|(member, _)| *member == role);
        match own.map(|(_, name)| name).or(args.model.as_deref()) {
            Some(name) => env::model(name),
            None => scripts.model(role),
        }
    };
    std::fs::create_dir_all(&args.db)?;
    let store = Arc::new(HybridStore::open(args.db.join("active"), args.db.join("archive.db")).await?);
    let runtime = Runtime::builder().shared_store(store.clone()).approver(terminal.clone()).build();
    let learned = learn(&runtime).await?;

    let files = Workspace::open(&args.dir)?.read_tools();
    let member = |name: &str, about: &str| -> Result<Member> {
        Ok(Member::new(
            ReactAgent::builder(name, model(name)?).description(about).tools(files.clone()).build()?,
        ))
    };
    let team = Team::builder("loco", model("lead")?)
        .member(member("scout", "Finds places in files.")?.size(Size::Xs).replicas(3))
        .member(member("clerk", "Counts and lists.")?.size(Size::S))
        .member(member("analyst", "Finds out what is hard to find.")?.size(Size::M))
        .member(member("writer", "Writes reports.")?.size(Size::L).specialist_in([TaskType::Edit]))
        .performance(&learned)
        .mailbox()
        .build()?;

    let session = match &args.resume {
        Some(id) => runtime.open(id).await?,
        None => runtime.session(),
    };
    terminal.say(&format!("session {}", session.id()));
    let run = match session.unfinished().await? {
        Some(_) => session.resume(&team),
        None => session.start(&team, args.task.as_str()),
    };
    let control = team.control(&run);
    let mut list = TeamReport::default();
    let watched = terminal.follow(run, |event| {
        if list.update(event)? {
            terminal.say(&format!("\n{list}"));
        }
        Ok(())
    });
    let mut canned = ["give tests analyst", "skip changelog"].into_iter().filter(|_| args.model.is_none());
    let outcome = tokio::select! {
        outcome = watched => outcome?,
        () = async { loop {
            let line = match canned.next() {
                Some(line) => line.to_owned(),
                None => match terminal.line().await {
                    Some(line) => line,
                    None => std::future::pending().await,
                },
            };
            terminal.say(&match step_in(&control, &line).await {
                Ok(()) => format!("stepped in: {line}"),
                Err(error) => format!("{line}: {}", error.message()),
            });
        } } => unreachable!("nobody stops writing"),
    };
    terminal.say(&format!("{}; failed: {:?}", outcome.status, outcome.failed));
    if outcome.is_completed() {
        store.archive(session.id()).await?;
    }
    let learned = learn(&runtime).await?;
    for name in ["scout", "clerk", "analyst", "writer"] {
        let rates = [TaskType::Summarize, TaskType::Analyze, TaskType::Edit]
            .map(|kind| format!("{kind} {:.2}", learned.rate_of_success(name, kind)));
        terminal.say(&format!("{name}: {}", rates.join(", ")));
    }
    Ok(())
}

async fn step_in(control: &GraphControl, line: &str) -> Result<()> {
    match line.split_whitespace().collect::<Vec<_>>().as_slice() {
        ["skip", item] => control.skip(item, SkipAs::Satisfied).await,
        ["retry", item] => control.retry(item).await,
        ["give", item, member] => control.reassign(item, member).await,
        _ => {
            Err(Error::new(ErrorKind::InvalidInput, "write `skip ITEM`, `retry ITEM` or `give ITEM MEMBER`"))
        }
    }
}

/// What earlier runs of this directory of sessions taught of the members.
async fn learn(runtime: &Runtime) -> Result<Performance> {
    let mut performance = Performance::new();
    for info in runtime.sessions(&SessionFilter::roots().page(0, 20)).await? {
        let events = runtime.open(&info.record.id).await?.events(0, 100_000).await?;
        performance.learn_from(&TeamReport::from_events(&events)?);
    }
    Ok(performance)
}
