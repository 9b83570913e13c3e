//! The stores that the crash tests kill processes on, by name.

use std::{env, path::Path, sync::Arc};

use entourage::{
    prelude::SqliteStore,
    session::SharedStore,
    store::{Durability, JsonStore, PostgresStore},
    testkit::crash::{Medium, Place},
};

/// Variable with the address of a PostgreSQL server.
pub(crate) const SERVER: &str = "DATABASE_URL";
/// The schemas on that server for these tests alone, emptied when they begin.
const SCHEMA: &str = "entourage_crash_tests";
const SCHEMA_OF_HANDS: &str = "entourage_crash_hands";

pub(crate) fn sqlite() -> Medium {
    Medium::new("sqlite", || {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sessions.db");
        let open = move || {
            let path = path.clone();
            async move { Ok(Arc::new(open_sqlite(&path).await?)) }
        };
        Place::closed_by(open, |store: Arc<SqliteStore>| async move { store.close().await })
            .keeping(directory)
    })
}

pub(crate) fn json() -> Medium {
    Medium::new("json", || {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sessions");
        let open = move || {
            let path = path.clone();
            async move { Ok(Arc::new(open_json(&path).await?)) }
        };
        Place::new(open).keeping(directory)
    })
}

/// Opens a database that survives the death of a process, not of the power supply.
async fn open_sqlite(path: &Path) -> entourage::Result<SqliteStore> {
    SqliteStore::builder(path).durability(Durability::ProcessDeath).build().await
}

async fn open_json(path: &Path) -> entourage::Result<JsonStore> {
    JsonStore::builder(path).durability(Durability::ProcessDeath).build().await
}

/// The store of this name, in `directory` or on the server.
pub(crate) async fn open(name: &str, directory: &Path) -> entourage::Result<SharedStore> {
    Ok(match name {
        "sqlite" => Arc::new(open_sqlite(&directory.join("sessions.db")).await?),
        "json" => Arc::new(open_json(&directory.join("sessions")).await?),
        "postgres" | "postgres-hands" => {
            let url = env::var(SERVER).unwrap();
            // Tests run beside each other.
            let schema = if name == "postgres" { SCHEMA } else { SCHEMA_OF_HANDS };
            Arc::new(PostgresStore::builder(url).schema(schema).connections(4).build().await?)
        }
        other => panic!("no such store: {other}"),
    })
}
