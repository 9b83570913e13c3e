//! The stores against the core's suite. Each test prints the suite's line.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::sync::Arc;

use entourage_core::{
    session::MemoryStore,
    testkit::store::{Capabilities, Report, conformance},
};

fn show(report: &Report) {
    println!("{report:#}");
    report.assert();
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_passes_the_suite() {
    let capabilities = Capabilities::all().without_reopen();
    show(&conformance("memory", capabilities, async || Arc::new(MemoryStore::new())).await);
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use super::*;
    use entourage_core::{session::SharedStore, testkit::store::Fixture};
    use entourage_store::SqliteStore;

    async fn fixture() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sessions.db");
        let store = SqliteStore::open(&path).await.unwrap();
        let reopen = move || {
            let path = path.clone();
            async move { Ok(Arc::new(SqliteStore::open(path).await?) as SharedStore) }
        };
        Fixture::from(Arc::new(store)).reopening(reopen).keeping(directory)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn sqlite_passes_the_suite() {
        show(&conformance("sqlite", Capabilities::all(), fixture).await);
    }

    #[tokio::test]
    async fn sqlite_passes_the_suite_on_one_thread() {
        show(&conformance("sqlite on one thread", Capabilities::all(), fixture).await);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn sqlite_in_memory_passes_the_suite() {
        let capabilities = Capabilities::all().without_reopen();
        let make = async || Arc::new(SqliteStore::in_memory().await.unwrap());
        show(&conformance("sqlite in memory", capabilities, make).await);
    }
}
