//! The costs of stored sessions: appending beside bare sqlx, opening long ones, reading a million events, many
//! writers, and transactions per step.
//!
//! `cargo bench -p entourage-benches --bench sessions` shows criterion's figures, then the ratios with their targets.
//! `RATIOS_ONLY=1` leaves criterion out; `-- --test` runs each part small; `-- append`, `resume`, `million`, `crowd`,
//! `step` or `journal` runs that part without criterion. A server named in `DATABASE_URL` is part of the crowd. Files
//! are written below `TMPDIR` (two gigabytes); the speed of that disk is measured too.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints, and stops at the first thing that is not as it should be"
)]

mod append;
mod crowd;
mod floor;
mod material;
mod million;
mod resume;
mod step;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use criterion::Criterion;
use entourage::store::{Durability, SqliteStore};
use entourage_benches::{Parts, median};
use entourage_core::SessionId;
use million::Medium;
use tokio::runtime::Runtime as Tokio;

#[global_allocator]
static ALLOCATOR: counting_alloc::Counting = counting_alloc::Counting;

const MIB: f64 = (1 << 20) as f64;

fn runtime() -> Tokio {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

async fn sqlite(path: &Path, durability: Durability) -> SqliteStore {
    SqliteStore::builder(path).durability(durability).build().await.unwrap()
}

/// The median over pairs of samples taken in turns, so that a slow moment of the machine hits both sides.
fn ratio(floor: &[f64], ours: &[f64]) -> f64 {
    median(ours.iter().zip(floor).map(|(ours, floor)| ours / floor).collect())
}

/// The peak memory of this process, in bytes.
fn high_water_mark() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
    kib.map_or(0, |kib: u64| kib * 1_024)
}

/// The lines to print last.
#[derive(Default)]
struct Results(Vec<String>);

impl Results {
    fn add(&mut self, name: &str, value: f64, target: Option<f64>) {
        self.0.push(match target {
            Some(target) if value > target => format!("{name} {value:.2} (target {target:.1}) MISSED"),
            Some(target) => format!("{name} {value:.2} (target {target:.1})"),
            None => format!("{name} {value:.2} (no target)"),
        });
    }
}

fn show(tokio: &Tokio, directory: &Path) {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
        .sample_size(20);
    let seconds = |seconds: f64| Duration::from_secs_f64(seconds);
    let mut sides = tokio.block_on(append::Sides::open(directory, Durability::PowerLoss));
    criterion.bench_function("append of 3 events, bare sqlx", |bencher| {
        bencher.iter_custom(|times| seconds(tokio.block_on(sides.floor(times as usize))));
    });
    criterion.bench_function("append of 3 events, entourage", |bencher| {
        bencher.iter_custom(|times| seconds(tokio.block_on(sides.ours(times as usize))));
    });
    for events in [1_000, 100_000] {
        let long = tokio.block_on(resume::Long::make(directory, events));
        let open = |times: u64| {
            let start = Instant::now();
            (0..times).for_each(|_| drop(tokio.block_on(long.open())));
            start.elapsed()
        };
        criterion.bench_function(&format!("resume of {events} events"), |bencher| bencher.iter_custom(open));
    }
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|argument| argument == "read") {
        return million::be_reader(&arguments[1..]);
    }
    let parts = Parts::of_arguments();
    let quick = parts.quick;
    let (tokio, mut results) = (runtime(), Results::default());
    let directory = || tempfile::tempdir().unwrap();
    if !quick && parts.are_all() && std::env::var_os("RATIOS_ONLY").is_none() {
        show(&tokio, directory().path());
    }
    if parts.want("append") {
        tokio.block_on(append::measure(&mut results, directory().path(), quick));
    }
    if parts.want("resume") {
        resume::measure(&mut results, &tokio, directory().path(), quick);
    }
    if parts.want("million") {
        for medium in [Medium::Sqlite, Medium::Json] {
            million::measure(&mut results, directory().path(), medium, quick);
        }
    }
    if parts.want("crowd") {
        tokio.block_on(crowd::measure(directory().path(), quick));
    }
    if parts.want("step") {
        tokio.block_on(step::count(&mut results, directory().path()));
    }
    if parts.want("journal") {
        tokio.block_on(step::journal(directory().path(), quick));
    }
    println!("{}", results.0.join("\n"));
}
