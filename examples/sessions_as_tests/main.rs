//! Sessions of production as tests: four of them run again with another model and another prompt, and a table says what
//! changed. Calls that the originals made are answered from their records; the others are marked, so that nobody is
//! paid twice. No key is needed; with a model in the environment, that one is tried.
//!
//! ```text
//! cargo run -p entourage-examples --example sessions_as_tests
//! cargo run -p entourage-examples --example sessions_as_tests -- --db team.db --session ID --out tests/x.jsonl
//! cargo run -p entourage-examples --example sessions_as_tests -- --sample team.db
//! ```
//!
//! The second line makes a test of a session: `--db` is an SQLite file, a folder of `JsonStore` or an address of
//! PostgreSQL, `ID` the beginning of a session's id, and each `--hide TEXT` takes a text out of what is written. The
//! third line makes a database to try that with.

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

mod shop;

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use entourage::{prelude::*, session::SharedStore, testkit::rerun::Transcript};

const SESSIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/sessions_as_tests/sessions");
const USAGE: &str = "give nothing, or --sample FILE, or --db FILE --session ID --out FILE, with --hide TEXT as often \
    as you like";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut options = Options::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| wrong(&name))?;
        match name.as_str() {
            "--sample" => options.sample = Some(value),
            "--db" => options.db = Some(value),
            "--session" => options.session = Some(value),
            "--out" => options.out = Some(value),
            "--hide" => options.hide.push(value),
            _ => return Err(wrong(&name)),
        }
    }
    match options {
        Options { db: Some(db), session: Some(session), out: Some(out), hide, sample: None } => {
            export(&db, &session, Path::new(&out), &hide).await
        }
        Options { sample: Some(file), db: None, session: None, out: None, hide } if hide.is_empty() => {
            sample(&file).await
        }
        Options { sample: None, db: None, session: None, out: None, hide } if hide.is_empty() => {
            table().await
        }
        _ => Err(wrong("")),
    }
}

#[derive(Default)]
struct Options {
    sample: Option<String>,
    db: Option<String>,
    session: Option<String>,
    out: Option<String>,
    hide: Vec<String>,
}

fn wrong(argument: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, USAGE).with("argument", argument)
}

/// Reruns the sessions of this folder.
async fn table() -> Result<()> {
    let mut scripted = None;
    let model = Model::from_env().unwrap_or_else(|error| {
        println!(
            "{}\nA scripted model stands in: its words are canned, the rerun is real.\n",
            error.message()
        );
        let (provider, model) = shop::smaller();
        scripted = Some(provider);
        model
    });
    let refunds = Arc::default();
    let report = shop::rerun(Transcript::load_all(SESSIONS)?, model, &refunds).await?;
    println!("{report}");
    println!("\n{} refunds were paid", refunds.load(Ordering::Relaxed));
    drop(scripted); // kept until its model is done
    Ok(())
}

/// Writes a session of a store into a file that tests load.
async fn export(db: &str, session: &str, out: &Path, hide: &[String]) -> Result<()> {
    let store = open(db).await?;
    let transcript = Transcript::read(&store, session).await?;
    let transcript = transcript.hiding(hide, "hidden")?;
    let lines = transcript.to_jsonl()?;
    if let Some(folder) = out.parent() {
        fs::create_dir_all(folder).map_err(|error| file_error(out, error))?;
    }
    // A test that exists is not replaced.
    let written = File::create_new(out).and_then(|mut file| file.write_all(lines.as_bytes()));
    written.map_err(|error| file_error(out, error))?;
    println!(
        "{}: prompts {}, calls of tools {}. Prompts, answers, arguments and results are in it word for word.\n\
         Read it before you share it: what users, tools and models wrote there may be secret. `--hide TEXT` takes a \
         text out.",
        out.display(),
        transcript.runs.len(),
        transcript.calls.len()
    );
    Ok(())
}

async fn open(db: &str) -> Result<SharedStore> {
    if db.starts_with("postgres:") || db.starts_with("postgresql:") {
        return Ok(Arc::new(PostgresStore::connect(db).await?));
    }
    let path = Path::new(db);
    if path.is_dir() {
        return Ok(Arc::new(JsonStore::open(path).await?));
    }
    if !path.is_file() {
        return Err(Error::new(ErrorKind::NotFound, "there is no such database").with("db", db));
    }
    Ok(Arc::new(SqliteStore::open(path).await?))
}

/// Makes a database with the sessions of this folder, as production would have it.
async fn sample(file: &str) -> Result<()> {
    let store: SharedStore = Arc::new(SqliteStore::open(file).await?);
    let paid = shop::production(&store).await?;
    println!("{file}: {paid} refund was paid in its sessions:");
    for info in store.query(&SessionFilter::roots()).await? {
        println!("  {}: {}", info.record.id.as_str(), info.head.title);
    }
    Ok(())
}

fn file_error(path: &Path, error: std::io::Error) -> Error {
    let text = "the session could not be written; name a file that does not exist yet";
    Error::new(ErrorKind::Store, text).with("file", path.display().to_string()).caused_by(error)
}
