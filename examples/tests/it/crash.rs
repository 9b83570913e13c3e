//! Work that is killed anywhere continues where it was, on every store: nothing completed runs again, nothing is lost.
//!
//! First the testkit's suite, which kills tasks at every point. Then real processes: this binary starts itself again
//! as a worker (`crash/worker.rs`), which is ended with SIGKILL at seeded moments (`crash/killer.rs`).

mod hands;
mod killer;
mod media;
mod worker;

use std::path::Path;

use entourage::testkit::{
    crash::{self, Medium, Scenario},
    scenarios,
};

/// Name of the variable that asks for the long series; `.ci/full` sets it.
const FULL: &str = "ENTOURAGE_FULL";

/// Started by the other tests only.
#[test]
#[ignore = "the process that the other tests kill; they start it themselves"]
fn worker_process() {
    if let Some(directory) = std::env::var_os(worker::DIRECTORY) {
        worker::work(Path::new(&directory));
    }
}

/// `all` where the long series is asked for, else `few`.
fn wanted(all: usize, few: usize) -> usize {
    if std::env::var_os(FULL).is_some() { all } else { few }
}

/// Kills at each fourth point; in the long series at every one.
fn survives_in_memory(scenario: &Scenario) {
    let report = crash::sample(scenario, &Medium::memory(), wanted(1, 4));
    tell(&report);
    report.assert();
}

/// Kills at each `sampled`th point, since files are slow; in the long series at all that are counted.
fn survives_on_files(medium: &Medium, sampled: usize) {
    let sampled = wanted(1, sampled);
    for scenario in scenarios::all() {
        let every = sampled
            * match scenario.name() {
                "approval" | "compaction" | "title" | "queue" => 4,
                "dual" | "graph-approval" | "sub-agents" => 12,
                "login-graph" => 24,
                _ => 1,
            };
        let report = crash::sample(&scenario, medium, every);
        tell(&report);
        report.assert();
    }
}

#[test]
fn attack_11_killed_in_memory() {
    scenarios::all().iter().for_each(survives_in_memory);
}

#[test]
fn attack_11_killed_at_sampled_points_on_sqlite() {
    survives_on_files(&media::sqlite(), 36);
}

#[test]
fn attack_11_killed_at_sampled_points_on_json() {
    survives_on_files(&media::json(), 18);
}

#[test]
fn attack_11_processes_killed_on_sqlite() {
    killer::chain("all", "sqlite", wanted(220, 60), 0x5eed_0001);
}

#[test]
fn attack_11_processes_killed_on_json() {
    killer::chain("all", "json", wanted(220, 60), 0x5eed_0002);
}

#[test]
fn attack_11_hands_killed_on_sqlite() {
    killer::chain("hands", "sqlite", wanted(60, 30), 0x5eed_0004);
}

#[test]
fn attack_11_hands_killed_on_postgres() {
    if has_server() {
        killer::chain("hands", "postgres-hands", wanted(60, 30), 0x5eed_0005);
    }
}

/// False, and said so, without a PostgreSQL server.
fn has_server() -> bool {
    let found = std::env::var_os(media::SERVER).is_some();
    if !found {
        tell(format_args!(
            "SKIPPED: processes killed on PostgreSQL need a server; name it in {}",
            media::SERVER
        ));
    }
    found
}

#[test]
fn attack_11_processes_killed_on_postgres() {
    if !has_server() {
        return;
    }
    killer::chain("all", "postgres", wanted(220, 60), 0x5eed_0003);
}

/// Prints a line although the harness captures the output of tests.
fn tell(line: impl std::fmt::Display) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
