//! The crates together, through the facade: stores under agents, real processes, services that misbehave.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "tests fail by panicking, in their helpers too"
)]

mod agent_files;
mod bad_input;
#[cfg(unix)]
mod crash;
mod dropped;
mod given;
mod http;
mod kept;
mod person;
mod pictures;
#[cfg(unix)]
mod race;
#[cfg(unix)]
mod recipes;
mod schedule_stg;
mod sessions_as_tests;
