//! crow: the ladder of autonomy. At each level somebody else may call a task complete: the agent itself, a question,
//! a judge, a verifier, and at last a discriminator alone. Without a model, stand-ins count lines: their words are
//! canned, their tools real.

use std::{error::Error, io::Cursor, path::PathBuf};

use clap::Parser;
use entourage::{
    SessionId, event::PhaseFinished, prelude::*, providers::env, run::Pause, terminal::Terminal,
    testkit::Playbook,
};

/// An agent at a level of autonomy: react, prompted, judge, verified or dual.
///
/// Ctrl-C stops it; what you write then reaches it as feedback.
#[derive(Parser)]
struct Args {
    /// The task.
    #[arg(default_value = "How many lines has Cargo.toml?")]
    task: String,
    /// The level, by its name.
    #[arg(long, default_value = "dual")]
    level: AutonomyLevel,
    /// The directory to work in.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// `vendor:model`, or `http://host:8000/v1#model`; without one stand-ins answer.
    #[arg(long, env = "ENTOURAGE_MODEL")]
    model: Option<String>,
    /// The model of judge, verifier and discriminator, in the same form.
    #[arg(long)]
    checker: Option<String>,
    /// The file of sessions.
    #[arg(long, default_value_os_t = std::env::temp_dir().join("crow.db"))]
    db: PathBuf,
    /// The session to go on with.
    #[arg(long, value_parser = |id: &str| SessionId::new(id))]
    resume: Option<SessionId>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let scripts = Playbook::parse(include_str!("crow.json"))?;
    let model = |own: Option<&String>, role| match own.or(args.model.as_ref()) {
        Some(name) => env::model(name),
        None => scripts.model(role),
    };
    let terminal = match args.model {
        Some(_) => Terminal::new(),
        // The person of the stand-ins: what they say after the cancel.
        None => Terminal::over(Cursor::new("Count the lines, do not guess.\n"), std::io::stdout()),
    };

    let files = Workspace::open(&args.dir)?;
    let executor = ReactAgent::builder("executor", model(None, "executor")?)
        .instructions("You do what is asked, with the tools that you have.")
        .tools(files.read_tools())
        .tools(files.write_tools())
        .todos()
        .build()?;
    let checker = |name: &str| {
        ReactAgent::builder(name, model(args.checker.as_ref(), "checker")?)
            .tools(files.read_tools())
            .todos()
            .build()
    };
    let ladder = Autonomy::builder("crow", executor)
        .judge(model(args.checker.as_ref(), "judge")?)
        .verifier(checker("verifier")?)
        .discriminator(checker("discriminator")?)
        .iterations(10)
        .build()?;
    let agent = ladder.at(args.level)?;

    let runtime = Runtime::builder()
        .store(SqliteStore::open(&args.db).await?)
        .policy(Policy::new())
        .approver(terminal.clone())
        .build();
    let session = match &args.resume {
        Some(id) => runtime.open(id).await?,
        None => runtime.session(),
    };
    terminal.say(&format!("L{} {}, session {}", args.level.number(), args.level, session.id()));

    let mut run = match session.unfinished().await? {
        Some(_) => session.resume(&agent),
        None => session.start(&agent, args.task.as_str()),
    };
    // The person of the stand-ins presses Ctrl-C in the first round.
    let mut presses = args.model.is_none() && args.resume.is_none() && args.level == AutonomyLevel::Dual;
    let outcome = loop {
        let cancel = run.cancellation();
        let outcome = terminal.follow(run, |event| {
            if let Some(end) = event.event.record::<PhaseFinished>()? {
                end.verdict.iter().for_each(|it| terminal.say(&format!("round {}: {it}", end.iteration)));
            }
            if matches!(event.event, Event::ModelFinished(_)) && std::mem::take(&mut presses) {
                terminal.say("(Ctrl-C)");
                cancel.cancel();
            }
            Ok(())
        });
        let outcome = outcome.await?;
        if !matches!(outcome.status, Status::Paused(Pause::Asked)) {
            break outcome;
        }
        // A cancel is no end: the next prompt is feedback for the executor, in the same round.
        match terminal.ask("what should it do otherwise? ").await {
            Some(feedback) => run = session.start(&agent, feedback),
            None => break outcome,
        }
    };
    terminal.say(&format!("{}: {}", outcome.status, outcome.text));
    session
        .state()
        .await?
        .todos()
        .iter()
        .for_each(|todo| terminal.say(&format!("{:?}: {}", todo.status, todo.content)));
    traces(&args.db, session.id(), &terminal).await
}

/// Prints each model call of the session and of those below it, from plain SQL.
async fn traces(
    db: &std::path::Path,
    session: &SessionId,
    terminal: &Terminal,
) -> Result<(), Box<dyn Error>> {
    let database = sqlx::SqlitePool::connect(&format!("sqlite://{}?mode=ro", db.display())).await?;
    let sql =
        "SELECT printf('%s step %d: %s, %s tokens in, %s out, %d ms', agent, step, coalesce(finish, error),
                             coalesce(input_tokens, '?'), coalesce(output_tokens, '?'), micros / 1000)
               FROM model_calls WHERE session = ?1 OR session GLOB ?1 || '$$*' ORDER BY started_at, seq";
    for line in sqlx::query_scalar::<_, String>(sql).bind(session.as_str()).fetch_all(&database).await? {
        terminal.say(&line);
    }
    Ok(())
}
