//! Sessions in a database of each engine, in which the stores themselves installed the views of runners.

use entourage_core::session::SharedStore;
use entourage_runners::SqlViews;
use entourage_store::SqliteStore;
use serde_json::{Map, Value};
use sqlx::{AssertSqlSafe, Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use tempfile::TempDir;

use crate::{
    engines::{find, normal},
    seed,
};

/// Bodies of events that no runner writes.
const ODD: [&str; 12] = [
    "no json",
    "[]",
    "{}",
    r#"{"value":"text"}"#,
    r#"{"value":[1,"a"]}"#,
    r#"{"value":{"plan_created":{"round":"x","steps":"y"},"node":1,"change":"z","items":7,"messages":"m"}}"#,
    r#"{"value":{"plan_created":{"round":1,"steps":[1,"a",null,[],{"number":"q"},{"number":1}]},"items":[1,"a",null,[]]}}"#,
    r#"{"value":{"plan_created":{"round":99999999999999999999,"steps":{}},"node":"1","attempt":99999999999999999999}}"#,
    r#"{"value":{"analyzed":[],"plan_ended":"x","user_asked":{"questions":7},"node":"1","end":"odd","messages":[1,[]]}}"#,
    r#"{"value":{"kind":{},"turn":1e400,"text":[],"usage":"x","node":"1","end":{"failed":"x","skipped":[]},"change":{"add":1}}}"#,
    r#"{"value":{"kind":"question","turn":"x","usage":{"input":-1,"output":1e300},"micros":1e300,"change":{"add":{"node":[]}}}}"#,
    r#"{"result":{"name":7},"above":"x","prompt":7,"value":{"child":7,"agent":{},"node":{},"change":{"a":1,"b":2}}}"#,
];

pub(crate) struct Both {
    pub(crate) lite: SqliteConnection,
    #[cfg(feature = "postgres")]
    postgres: Option<postgres::Server>,
    _directory: TempDir,
}

impl Both {
    /// Keeps the sessions that `make` leaves in memory, and installs these views.
    pub(crate) async fn of(make: fn() -> SharedStore, views: SqlViews, test: &str) -> Self {
        let sessions = tokio::task::spawn_blocking(make).await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("team.db");
        let store = SqliteStore::open(&path).await.unwrap();
        seed::copy(&sessions, &store).await;
        assert_eq!(store.install_views(views.set, views.version, views.sqlite).await.unwrap(), views.version);
        store.close().await;
        let lite =
            SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(&path)).await.unwrap();
        #[cfg(feature = "postgres")]
        let postgres = postgres::Server::with(&sessions, views, test).await;
        #[cfg(not(feature = "postgres"))]
        let _ = test;
        Self {
            lite,
            #[cfg(feature = "postgres")]
            postgres,
            _directory: directory,
        }
    }

    /// Executes statements on each engine.
    pub(crate) async fn run(&mut self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut self.lite).await.unwrap();
        #[cfg(feature = "postgres")]
        if let Some(server) = &mut self.postgres {
            sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut server.db).await.unwrap();
        }
    }

    /// Puts events of each of these kinds beside the others, whose bodies no runner writes, and reads all views.
    pub(crate) async fn survives(&mut self, kinds: &[&str], views: SqlViews) {
        for session in ["odd", "odd$$plan"] {
            self.run(&format!(
                "INSERT INTO sessions (id, parent, role, created, seq, status, agent, title, messages, updated, checkpoint) \
                 VALUES ('{session}', NULL, 'user', 1, 99, 'idle', '', '', 0, 1, 0)"
            ))
            .await;
            let mut seq = 0;
            for (kind, body) in kinds.iter().flat_map(|kind| ODD.iter().map(move |body| (kind, body))) {
                seq += 1;
                self.run(&format!(
                    "INSERT INTO events (session, seq, at, kind, run, agent, writer, body) \
                     VALUES ('{session}', {seq}, 1, '{kind}', 'r', 'odd', 1, '{body}')"
                ))
                .await;
            }
        }
        for (name, _) in views.sqlite {
            let sql = format!("SELECT * FROM {name}");
            assert!(!find(&mut self.lite, &sql).await.as_array().unwrap().is_empty(), "{name}");
            #[cfg(feature = "postgres")]
            if let Some(server) = &mut self.postgres {
                let found = crate::engines::postgres::find(&mut server.db, &sql).await;
                assert!(!found.as_array().unwrap().is_empty(), "{name}");
            }
        }
    }

    /// Expects these rows of a query, on each engine.
    pub(crate) async fn expect(&mut self, sql: &str, expected: &Value) {
        let expected = normal(expected.clone());
        assert_eq!(normal(find(&mut self.lite, sql).await), expected, "{sql}");
        #[cfg(feature = "postgres")]
        if let Some(server) = &mut self.postgres {
            let found = crate::engines::postgres::find(&mut server.db, sql).await;
            assert_eq!(normal(found), expected, "PostgreSQL: {sql}");
        }
    }

    /// Expects of each query, which has a title, the rows that the JSON object `expected` has by it.
    pub(crate) async fn expect_each(&mut self, queries: &[(&str, &str)], expected: &str) {
        let expected: Map<String, Value> = serde_json::from_str(expected).unwrap();
        let titles: Vec<_> = queries.iter().map(|(title, _)| *title).collect();
        let known: Vec<_> = expected.keys().map(String::as_str).collect();
        assert!(known.iter().all(|title| titles.contains(title)), "{titles:#?}: {known:#?}");
        for (title, sql) in queries {
            let rows = expected.get(*title).unwrap_or_else(|| panic!("{title}: no expected rows"));
            self.expect(sql, rows).await;
        }
    }
}

/// Returns the queries of a page that both engines take, each with the line that introduces it.
pub(crate) fn questions(page: &'static str) -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    let mut before = "";
    for part in page.split("\n```") {
        if let Some(sql) = part.strip_prefix("sql\n") {
            found.push((before.trim_end().trim_end_matches(':').lines().last().unwrap_or_default(), sql));
        }
        before = part;
    }
    found
}

#[cfg(feature = "postgres")]
pub(crate) mod postgres {
    use std::thread;

    use entourage_core::session::SharedStore;
    use entourage_runners::SqlViews;
    use entourage_store::PostgresStore;
    use sqlx::{AssertSqlSafe, Connection, PgConnection};

    use crate::{engines, seed};

    /// A schema of one test, dropped with it.
    pub(crate) struct Place {
        pub(crate) url: String,
        pub(crate) schema: String,
    }

    impl Place {
        /// `None` without a server.
        pub(crate) fn find(test: &str) -> Option<Self> {
            let (url, schema) = engines::postgres::place(test)?;
            Some(Self { url, schema })
        }

        pub(crate) async fn store(&self) -> PostgresStore {
            PostgresStore::builder(&self.url).schema(&self.schema).build().await.unwrap()
        }

        /// Connects past the store.
        pub(crate) async fn plain(&self) -> PgConnection {
            let mut db = PgConnection::connect(&self.url).await.unwrap();
            let sql = format!("SET search_path = {}", self.schema);
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut db).await.unwrap();
            db
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let (url, sql) = (self.url.clone(), format!("DROP SCHEMA IF EXISTS {} CASCADE", self.schema));
            // Its own runtime, as this one may be unwinding.
            let dropped = thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let mut db = PgConnection::connect(&url).await.unwrap();
                    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut db).await.unwrap();
                });
            });
            assert!(
                dropped.join().is_ok() || thread::panicking(),
                "the schema {} was left behind",
                self.schema
            );
        }
    }

    pub(super) struct Server {
        pub(super) db: PgConnection,
        _place: Place,
    }

    impl Server {
        pub(super) async fn with(sessions: &SharedStore, views: SqlViews, test: &str) -> Option<Self> {
            let place = Place::find(test)?;
            let store = place.store().await;
            seed::copy(sessions, &store).await;
            store.install_views(views.set, views.version, views.postgres).await.unwrap();
            store.close().await;
            Some(Self { db: place.plain().await, _place: place })
        }
    }
}
