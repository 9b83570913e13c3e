//! Runs the core's suite and its model of two writers on each store. Each test prints a line for its store.
//!
//! `DATABASE_URL` names a PostgreSQL server; without one its tests print that they were skipped.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::unwrap_used)]

#[path = "conformance/places.rs"]
mod places;
#[path = "conformance/serial.rs"]
mod serial;

use entourage_testkit::{
    ConformanceReport,
    store::{Capabilities, conformance},
};

use crate::places::Place;

fn show(report: &ConformanceReport) {
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

/// Prints a line past the harness, which captures the output of tests.
fn tell(line: impl std::fmt::Display) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
