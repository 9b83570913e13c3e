//! The stores against the core's suite, and against its model of two writers. Each test prints a line for its store.
//!
//! A PostgreSQL server is found by `DATABASE_URL`; without one its tests say that they were skipped.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::unwrap_used)]

#[path = "conformance/places.rs"]
mod places;
#[path = "conformance/serial.rs"]
mod serial;

use entourage_core::testkit::store::{Capabilities, Report, conformance};

use crate::places::Place;

fn show(report: &Report) {
    tell(format_args!("{report:#}"));
    report.assert();
}

async fn check(name: &str, capabilities: Capabilities, open: impl AsyncFn() -> Place) {
    show(&conformance(name, capabilities, async || open().await.fixture()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_passes_the_suite() {
    check("memory", Capabilities::all().without_reopen(), Place::memory).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn sqlite_passes_the_suite() {
    check("sqlite", Capabilities::all(), Place::sqlite).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn sqlite_passes_the_suite_on_one_thread() {
    check("sqlite on one thread", Capabilities::all(), Place::sqlite).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread")]
async fn sqlite_in_memory_passes_the_suite() {
    check("sqlite in memory", Capabilities::all().without_reopen(), Place::sqlite_in_memory).await;
}

#[cfg(feature = "json")]
#[tokio::test(flavor = "multi_thread")]
async fn json_passes_the_suite() {
    check("json", Capabilities::all(), Place::json).await;
}

#[cfg(feature = "hybrid")]
#[tokio::test(flavor = "multi_thread")]
async fn hybrid_passes_the_suite() {
    check("hybrid", Capabilities::all(), Place::hybrid).await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn postgres_passes_the_suite() {
    let Some(url) = places::database_url("conformance postgres") else { return };
    check("postgres", Capabilities::all(), async || Place::postgres(&url).await).await;
}

/// A line that is seen although the harness keeps what tests print.
fn tell(line: impl std::fmt::Display) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
