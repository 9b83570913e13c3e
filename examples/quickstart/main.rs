//! An agent explores a directory, read-only, and answers a question about it:
//!
//! ```text
//! cargo run --example quickstart -- [--dir DIR] [--sessions DIR] [--model vendor:model] [--resume ID] ["question"]
//! ```
//!
//! Its output is shown and stored as it happens: Ctrl-C cancels the run, and however it ended, `--resume` continues
//! the session. `--model scripted` needs no model at all.

mod args;
mod screen;
mod scripted;

use std::{
    env,
    error::Error,
    io,
    process::{self, ExitCode},
    time::{Duration, Instant},
};

use entourage::{prelude::*, providers::env as models};

use args::{Args, USAGE};
use screen::Screen;

const INSTRUCTIONS: &str = "You explore a directory with the tools ls, glob, grep and view. Look before you answer, \
    call several tools at once where you can, and answer briefly, naming the files that you rely on.";

const FAILED: u8 = 1;
const BAD_ARGUMENTS: u8 = 2;
const CANCELLED: u8 = 130;
const TICK: Duration = Duration::from_millis(120);

#[tokio::main]
async fn main() -> ExitCode {
    let parsed = Args::parse(env::args_os().skip(1)).and_then(|args| Ok((args.workspace()?, args)));
    let (workspace, args) = match parsed {
        Ok(parsed) => parsed,
        Err(problem) => return complain(&format!("{problem}; {USAGE}"), BAD_ARGUMENTS),
    };
    match explore(&workspace, &args).await {
        Ok(code) => code.into(),
        // The reader of the output has left, as `head` does.
        Err(error) if broken_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => complain(&error.to_string(), FAILED),
    }
}

async fn explore(workspace: &Workspace, args: &Args) -> Result<u8, Box<dyn Error>> {
    let mut screen = Screen::new();
    if args.help {
        screen.line(USAGE)?;
        return Ok(0);
    }
    let (model, origin) = choose_model(args.model.as_deref(), &mut screen)?;
    let agent = ReactAgent::builder("scout", model)
        .instructions(INSTRUCTIONS)
        .tools(workspace.read_tools())
        .scope(Scope::read_only())
        .limits(limits(&origin))
        .build()?;

    let store = JsonStore::open(args.sessions()).await?;
    let runtime = Runtime::builder().store(store.clone()).build();
    let session = match &args.resume {
        Some(id) => runtime.open(id).await?,
        None => runtime.session(),
    };
    screen.line(&format!("model    {origin}"))?;
    screen.line(&format!("dir      {} (read-only)", workspace.root().display()))?;
    screen.line(&format!("session  {} in {}", session.id(), store.path_of(session.id()).display()))?;
    // Printed first: a run that is killed cannot print it later.
    let resume = format!("resume   {}", args.again(session.id()));
    screen.line(&format!("{resume}\n"))?;

    let started = Instant::now();
    let run = start(&session, &agent, args, &mut screen).await?;
    let outcome = follow(run, &mut screen).await?;
    if let Ok(outcome) = &outcome {
        conclude(outcome, started.elapsed(), &mut screen)?;
    }
    screen.line(&resume)?;
    Ok(match outcome?.status {
        Status::Completed => 0,
        Status::Cancelled => CANCELLED,
        _ => FAILED,
    })
}

/// Chooses the requested model, else one that is found, else the scripted one. Returns it with a line about it.
fn choose_model(asked_for: Option<&str>, screen: &mut Screen) -> Result<(Model, String), Box<dyn Error>> {
    let stand_in =
        || (scripted::model(), "scripted: it explores for real, and its words are canned".to_owned());
    match asked_for {
        Some("scripted") => Ok(stand_in()),
        Some(text) => Ok((models::model(text)?, text.to_owned())),
        None => match models::from_env() {
            Ok(found) => Ok((found.model.clone(), found.to_string())),
            // An explicit setting must not be ignored silently.
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            Err(error) => {
                screen.line(&format!("{}\nA scripted model stands in.\n", error.message()))?;
                Ok(stand_in())
            }
        },
    }
}

/// Limits for the model's address. Servers on this machine often have a window of a few thousand tokens: there a
/// tool's result must be short.
fn limits(origin: &str) -> Limits {
    let near = ["127.0.0.1", "localhost", "[::1]"].iter().any(|host| origin.contains(host));
    let mut limits = Limits::default();
    limits.tool_output = if near { 2 << 10 } else { 64 << 10 };
    limits
}

/// Resumes an unfinished run, else asks the question.
async fn start(
    session: &Session,
    agent: &ReactAgent,
    args: &Args,
    screen: &mut Screen,
) -> Result<RunHandle, Box<dyn Error>> {
    if session.unfinished().await?.is_none() {
        return Ok(session.start(agent, args.question()));
    }
    screen.line("The session has an unfinished run, which goes on now.")?;
    if args.has_question() {
        screen.line("The new question was not asked; ask it when this run is done.")?;
    }
    for message in &session.history().await? {
        screen.note_calls(message);
    }
    Ok(session.resume(agent))
}

/// Shows the run until it has ended. The first Ctrl-C cancels it, the second ends the program at once.
async fn follow(mut run: RunHandle, screen: &mut Screen) -> Result<Result<Outcome>, Box<dyn Error>> {
    let mut interrupt = Box::pin(tokio::signal::ctrl_c());
    let mut ticks = tokio::time::interval(TICK);
    let mut cancelled = false;
    loop {
        tokio::select! {
            event = run.next() => match event {
                Some(event) => screen.show(&event)?,
                None => return Ok(run.outcome().await),
            },
            signal = &mut interrupt => {
                signal?;
                if cancelled {
                    process::exit(CANCELLED.into());
                }
                cancelled = true;
                interrupt = Box::pin(tokio::signal::ctrl_c());
                run.cancel();
                screen.line("cancelling; Ctrl-C again leaves at once")?;
            }
            _ = ticks.tick() => screen.tick()?,
        }
    }
}

/// Prints how the run ended and what it took.
fn conclude(outcome: &Outcome, time: Duration, screen: &mut Screen) -> io::Result<()> {
    // A run that is resumed after its last reply has nothing left to stream.
    if outcome.is_completed() && !screen.has_answer {
        screen.text(&outcome.text)?;
    }
    let cost = outcome.cost.map_or_else(|| "unknown".to_owned(), |cost| cost.to_string());
    screen.line("")?;
    screen.line(&format!(
        "run      {}; {:.1} s, model calls: {}",
        outcome.status,
        time.as_secs_f64(),
        outcome.steps
    ))?;
    screen.line(&format!("tokens   {}; cost {cost}", outcome.usage))
}

fn complain(problem: &str, code: u8) -> ExitCode {
    use io::Write;
    // If this fails, nobody is left to tell.
    writeln!(io::stderr(), "quickstart: {problem}").ok();
    code.into()
}

fn broken_pipe(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
