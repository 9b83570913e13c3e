//! Simulations on paused time: results of the library's parts together, compared with values that can be computed by
//! hand.
//!
//! `cargo run --release -p entourage-examples --example simulate` prints four tables. Everything that runs is the real
//! runtime; only the models and time are simulated: an hour takes milliseconds, and the figures are the same each
//! time. It exits with an error if a stated bound does not hold, so it is a check as well as a demonstration.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its terminal")]

mod kit;
mod model;
mod s1;
mod s2;
mod s3;
mod s4;
mod stats;

use std::process::ExitCode;

use entourage::Result;
use kit::Checks;

fn main() -> ExitCode {
    match simulate() {
        Ok(checks) if checks.broken().is_empty() => {
            println!("All {} bounds hold.", checks.held());
            ExitCode::SUCCESS
        }
        Ok(checks) => {
            for broken in checks.broken() {
                eprintln!("does not hold: {broken}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("a simulation failed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn simulate() -> Result<Checks> {
    let mut checks = Checks::default();
    s1::run(&mut checks)?;
    s2::run(&mut checks)?;
    s3::run(&mut checks)?;
    s4::run(&mut checks)?;
    Ok(checks)
}
