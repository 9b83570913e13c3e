//! Simulations on paused time: results of the library's parts together, compared with values that can be computed by
//! hand.
//!
//! `cargo run --release -p entourage-examples --example simulate` prints six tables. Everything that runs is the real
//! runtime; only the models and time are simulated: an hour takes milliseconds, and the figures are the same each
//! time. It exits with an error if a stated bound does not hold, so it is a check as well as a demonstration. Names of
//! tables, such as `-- S1 S3`, leave the others out.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its terminal")]

mod kit;
mod model;
mod s1;
mod s2;
mod s3;
mod s4;
mod s5;
mod s6;
mod stats;

use std::process::ExitCode;

use entourage::{Error, ErrorKind, Result};
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

type Simulation = fn(&mut Checks) -> Result<()>;

fn simulate() -> Result<Checks> {
    let all: [(&str, Simulation); 6] = [
        ("S1", s1::run),
        ("S2", s2::run),
        ("S3", s3::run),
        ("S4", s4::run),
        ("S5", s5::run),
        ("S6", s6::run),
    ];
    let wanted: Vec<_> = std::env::args().skip(1).collect();
    if let Some(unknown) = wanted.iter().find(|name| !all.iter().any(|(known, _)| known == name)) {
        let text = format!("there is no simulation `{unknown}`; name some of S1 to S6");
        return Err(Error::new(ErrorKind::InvalidInput, text));
    }
    let mut checks = Checks::default();
    for (_, run) in all.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|it| it == name)) {
        run(&mut checks)?;
    }
    Ok(checks)
}
