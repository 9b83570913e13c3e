//! BuildOS: a planner with executors that only read, over a database of events and bookings. They talk, a failed step
//! is planned anew, and the planner alone changes something and answers. Without a model, stand-ins work: their words
//! are canned, the database is real.

use std::{error::Error, path::PathBuf};

use clap::Parser;
use entourage::{
    SessionId,
    planner::{Planner, PlannerProgress, StepMessage, VIEWS},
    prelude::*,
    providers::env,
    terminal::Terminal,
    testkit::Playbook,
};
use sqlx::{SqlitePool, sqlite::SqliteConnectOptions};

/// The five relations of the planner in SQL.
const RELATIONS: &str = include_str!("buildos.relations.sql");

/// A planner with executors, over a sample of events and bookings.
#[derive(Parser)]
struct Args {
    /// The request.
    #[arg(
        default_value = "First find the events with too many bookings, then move those that do not fit, and tell me."
    )]
    task: String,
    /// The model of the planner: `vendor:model`, or `http://host:8000/v1#model`; without one stand-ins answer.
    #[arg(long, env = "ENTOURAGE_MODEL")]
    model: Option<String>,
    /// The cheaper model of the executors, in the same form.
    #[arg(long)]
    executor: Option<String>,
    /// The file of sessions; the sample of each lies beside it.
    #[arg(long, default_value_os_t = std::env::temp_dir().join("buildos.db"))]
    db: PathBuf,
    /// The session to go on with.
    #[arg(long, value_parser = |id: &str| SessionId::new(id))]
    resume: Option<SessionId>,
}

/// Answers with the rows as text, a line each.
async fn lines(cx: &ToolContext<'_>, sql: &'static str, value: &str) -> Result<String, ToolError> {
    let database = cx.deps::<SqlitePool>()?;
    let rows = sqlx::query_scalar::<_, String>(sql).bind(value).fetch_all(&*database).await;
    Ok(rows.map_err(|error| ToolError::tell(error.to_string()))?.join("\n"))
}

#[tool(access = "read")]
/// List the events of a hall, with their seats and those that are booked.
async fn events_in(
    /// The hall, or `%` for all.
    hall: String,
    cx: &ToolContext<'_>,
) -> Result<String, ToolError> {
    let sql = "SELECT printf('%d: %s, %s, %s, %d seats, %d booked', e.id, title, hall, day, e.seats, total(b.seats))
               FROM events AS e LEFT JOIN bookings AS b ON b.event = e.id WHERE hall LIKE ? GROUP BY e.id";
    lines(cx, sql, &hall).await
}

#[tool(access = "read")]
/// List the bookings for an event.
async fn bookings_for(
    /// The number of the event.
    event: i64,
    cx: &ToolContext<'_>,
) -> Result<String, ToolError> {
    let sql = "SELECT printf('%s: %d seats', guest, seats) FROM bookings WHERE event = CAST(? AS INTEGER)";
    match lines(cx, sql, &event.to_string()).await? {
        none if none.is_empty() => {
            Err(ToolError::tell("there is no booking for that event; list the events first"))
        }
        found => Ok(found),
    }
}

#[tool(access = "write", repeat = "idempotent")]
/// Move an event to another hall.
async fn move_event(
    /// The number of the event.
    event: i64,
    /// The hall that it goes to.
    hall: String,
    /// The seats of that hall.
    seats: i64,
    cx: &ToolContext<'_>,
) -> Result<String, ToolError> {
    let update =
        sqlx::query("UPDATE events SET hall = ?, seats = ? WHERE id = ?").bind(&hall).bind(seats).bind(event);
    let done = update
        .execute(&*cx.deps::<SqlitePool>()?)
        .await
        .map_err(|error| ToolError::tell(error.to_string()))?;
    Ok(format!("{} event moved to {hall}", done.rows_affected()))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let terminal = Terminal::new();
    let scripts = Playbook::parse(include_str!("buildos.json"))?;
    let model = |own: &Option<String>, role| match own.as_ref().or(args.model.as_ref()) {
        Some(name) => env::model(name),
        None => scripts.model(role),
    };

    let planner = Planner::builder("buildos", model(&None, "planner")?)
        .executor(model(&args.executor, "executor")?)
        .instructions("You keep the calendar of a venue.")
        .location("The venue has a great hall (400 seats), a small hall (60) and a foyer (40).")
        .tools((events_in, bookings_for, move_event))
        .max_replans(2)
        .build()?;
    let store = SqliteStore::open(&args.db).await?;
    store.install_views(VIEWS.set, VIEWS.version, VIEWS.sqlite).await?;
    let policy = Policy::new().allow("move_event"); // the planner's own: executors never get there
    let runtime = Runtime::builder().store(store).policy(policy).approver(terminal.clone()).build();
    let session = match &args.resume {
        Some(id) => runtime.open(id).await?,
        None => runtime.session(),
    };
    // Each session has a sample of its own: others may be at work, or go on with theirs later.
    let sample = args.db.with_extension(format!("{}.db", session.id()));
    let is_new = !sample.exists();
    let options = SqliteConnectOptions::new().filename(sample).create_if_missing(true);
    let database = SqlitePool::connect_with(options).await?;
    if is_new {
        sqlx::raw_sql(include_str!("buildos.sql")).execute(&database).await?;
    }
    let session = session.with_dep(database);
    terminal.say(&format!("session {}", session.id()));
    let outcome = terminal.run_with(&session, &planner, args.task.as_str(), |event| {
        let record = &event.event;
        if record.record::<PlannerProgress>()?.is_some() || record.record::<StepMessage>()?.is_some() {
            terminal.say(&event.to_string());
        }
        Ok(())
    });
    terminal.say(&outcome.await?.to_string());
    let records = SqlitePool::connect(&format!("sqlite://{}?mode=ro", args.db.display())).await?;
    for row in
        sqlx::query_scalar::<_, String>(RELATIONS).bind(session.id().as_str()).fetch_all(&records).await?
    {
        terminal.say(&row);
    }
    Ok(())
}
