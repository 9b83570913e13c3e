//! Promises of the PostgreSQL store alone: many and broken connections, the schemas that it accepts, plain SQL.
//!
//! `DATABASE_URL` names a real server; without one each test prints that it was skipped. Each test has a schema of its
//! own, which is dropped at its end.

#![cfg(feature = "postgres")]
#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::unwrap_used)]

#[path = "postgres/broken.rs"]
mod broken;
#[path = "postgres/faults.rs"]
mod faults;
#[path = "postgres/proxy.rs"]
mod proxy;
#[path = "postgres/schemas.rs"]
mod schemas;
#[path = "postgres/sharing.rs"]
mod sharing;
#[path = "postgres/tables.rs"]
mod tables;

use std::{env, sync::Arc, thread};

use entourage_core::{
    RunId, SessionId, Timestamp,
    session::{
        Batch, Columns, ReadRange, Row, SessionFilter, SessionHead, SessionRecord, SessionStore, SharedStore,
    },
};
use entourage_store::{PostgresBuilder, PostgresStore};
use entourage_testkit::store::{Capabilities, Fixture, conformance};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// A schema for one test, dropped with it.
#[derive(Debug)]
struct Place {
    url: String,
    schema: String,
}

impl Place {
    /// Returns a new place. Prints that the test is skipped and returns `None` if no server is named.
    fn find(test: &str) -> Option<Self> {
        let Ok(url) = env::var("DATABASE_URL") else {
            tell(format_args!("SKIPPED: {test} needs a PostgreSQL server; name it in DATABASE_URL"));
            return None;
        };
        Some(Self { url, schema: format!("t_{:032x}", RunId::generate().as_u128()) })
    }

    fn builder(&self) -> PostgresBuilder {
        PostgresStore::builder(&self.url).schema(&self.schema)
    }

    async fn open(&self) -> PostgresStore {
        self.builder().build().await.unwrap()
    }

    /// Connects to the database past the store, in this test's schema once it exists.
    async fn plain(&self) -> PgConnection {
        let mut connection = PgConnection::connect(&self.url).await.unwrap();
        run(&mut connection, &format!("SET search_path = {}", self.schema)).await;
        connection
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let (url, sql) = (self.url.clone(), format!("DROP SCHEMA IF EXISTS {} CASCADE", self.schema));
        // Its own runtime, as this one may be unwinding.
        let dropped = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { run(&mut PgConnection::connect(&url).await.unwrap(), &sql).await });
        });
        assert!(dropped.join().is_ok() || thread::panicking(), "the schema {} was left behind", self.schema);
    }
}

/// Finds the place of a test or returns from it.
macro_rules! place {
    ($test:literal) => {
        match crate::Place::find($test) {
            Some(place) => place,
            None => return,
        }
    };
}
use place;

async fn run(connection: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .execute(connection)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
}

async fn number(connection: &mut PgConnection, sql: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(connection).await.unwrap()
}

fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

/// Returns a batch of `count` events after `expected`, by `writer`.
fn batch(writer: u64, expected: u64, count: u64) -> Batch {
    let rows = (expected + 1..=expected + count)
        .map(|seq| {
            let columns = Columns::new(seq, Timestamp::from_micros(1), "warning", RunId::generate(), "root");
            Row::stored(columns, format!("{{\"text\":\"by {writer}\"}}"))
        })
        .collect();
    let mut head = SessionHead::default();
    head.seq = expected + count;
    Batch::new(writer, rows, head)
}

fn root(id: &SessionId) -> SessionRecord {
    SessionRecord::root(id.clone(), Timestamp::from_micros(1))
}

fn below(id: &SessionId, parent: &SessionId) -> SessionRecord {
    SessionRecord::child(id.clone(), parent.clone(), "child", Timestamp::from_micros(1))
}

/// Creates a session of `count` events.
async fn create(store: &PostgresStore, name: &str, count: u64) -> SessionId {
    let id = id(name);
    store.append(&id, 0, batch(1, 0, count).creating(root(&id))).await.unwrap();
    id
}

async fn create_below(store: &PostgresStore, name: &str, parent: &SessionId) -> SessionId {
    let id = id(name);
    store.append(&id, 0, batch(1, 0, 1).creating(below(&id, parent))).await.unwrap();
    id
}

async fn count(store: &PostgresStore, id: &SessionId) -> usize {
    store.read(id, ReadRange::all()).await.unwrap().len()
}

async fn ids(store: &PostgresStore, filter: &SessionFilter) -> Vec<String> {
    store.query(filter).await.unwrap().iter().map(|info| info.record.id.to_string()).collect()
}

/// On one connection the operations wait for each other, so one that kept it would block all others.
#[tokio::test]
async fn one_connection_on_one_thread_passes_the_suite() {
    let _ = place!("one_connection_on_one_thread_passes_the_suite");
    let make = async || {
        let place = Arc::new(Place::find("conformance").unwrap());
        let open = |place: Arc<Place>| async move {
            Ok(Arc::new(place.builder().connections(1).build().await?) as SharedStore)
        };
        let store = open(Arc::clone(&place)).await.unwrap();
        let again = Arc::clone(&place);
        Fixture::from(store).reopening(move || open(Arc::clone(&again))).keeping(place)
    };
    let report = conformance("postgres with one connection", Capabilities::all(), make).await;
    println!("{report:#}");
    report.assert();
}

/// Prints a line past the harness, which captures the output of tests.
fn tell(line: impl std::fmt::Display) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
