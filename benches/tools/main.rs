//! The costs of tools: files beside the libraries that read them, the judge of calls, and a command started in a
//! sandbox beside the same command started without one.
//!
//! `cargo bench -p entourage-benches --bench tools` shows criterion's figures, then the differences with their targets.
//! `RATIOS_ONLY=1` leaves criterion out; `-- --test` runs each part small; `-- edit judge` runs these parts alone, of
//! `sandbox`, `view`, `grep`, `edit` and `judge`. Bubblewrap is measured where it works.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints, and stops at the first thing that is not as it should be"
)]

mod files;

use std::{
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use criterion::Criterion;
use entourage::sandbox::{Backend, Sandbox};
use entourage_benches::{Parts, line, median};
use tokio::{process::Command, runtime::Runtime as Tokio};

#[global_allocator]
static ALLOCATOR: counting_alloc::Counting = counting_alloc::Counting;

/// A program that ends at once, so that its start is all there is.
const PROGRAM: &str = "/bin/true";

/// The most milliseconds over a bare start.
const TARGETS: [(Backend, &str, f64); 2] =
    [(Backend::Landlock, "ms sandbox", 1.0), (Backend::Bubblewrap, "ms sandbox_bubblewrap", 30.0)];

fn settings(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

async fn bare() -> Duration {
    let start = Instant::now();
    let status = settings(&mut Command::new(PROGRAM)).spawn().unwrap().wait().await.unwrap();
    assert!(status.success());
    start.elapsed()
}

async fn confined(sandbox: &Sandbox) -> Duration {
    let start = Instant::now();
    let (mut child, enforced) = sandbox.spawn(PROGRAM, settings).await.unwrap();
    assert!(child.wait().await.unwrap().success());
    assert!(enforced.restore().await.unwrap().is_empty());
    start.elapsed()
}

/// The median over pairs taken in turns, so that a slow moment of the machine hits both sides.
async fn difference(sandbox: &Sandbox, pairs: usize) -> f64 {
    let mut differences = Vec::with_capacity(pairs);
    for _ in 0..pairs {
        let (floor, ours) = (bare().await, confined(sandbox).await);
        differences.push((ours.as_secs_f64() - floor.as_secs_f64()) * 1_000.0);
    }
    median(differences)
}

fn show(tokio: &Tokio, sandboxes: &[(&str, Sandbox)]) {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
        .sample_size(20);
    let sum = |times: u64, one: &dyn Fn() -> Duration| (0..times).map(|_| one()).sum::<Duration>();
    criterion.bench_function("start of a command, bare", |bencher| {
        bencher.iter_custom(|times| sum(times, &|| tokio.block_on(bare())));
    });
    for (name, sandbox) in sandboxes {
        criterion.bench_function(&format!("start of a command, {name}"), |bencher| {
            bencher.iter_custom(|times| sum(times, &|| tokio.block_on(confined(sandbox))));
        });
    }
}

/// The first start, which resolves the settings, or why there is none.
async fn begin(root: &Path, backend: Backend) -> entourage::Result<Sandbox> {
    let sandbox = Sandbox::workspace_write(root)?.backend(backend);
    let (mut child, enforced) = sandbox.spawn(PROGRAM, settings).await?;
    assert!(child.wait().await.unwrap().success());
    enforced.restore().await?;
    Ok(sandbox)
}

/// The lines of the sandboxes, which criterion shows too.
fn sandboxes(tokio: &Tokio, quick: bool) -> Vec<String> {
    let root = tempfile::tempdir().unwrap();
    let (mut sandboxes, mut lines) = (Vec::new(), Vec::new());
    for (backend, name, target) in TARGETS {
        match tokio.block_on(begin(root.path(), backend)) {
            Err(error) => println!("SKIPPED: {name}: {error}"),
            Ok(sandbox) => {
                let value = tokio.block_on(difference(&sandbox, if quick { 3 } else { 301 }));
                lines.push(line(name, value, target));
                sandboxes.push((name, sandbox));
            }
        }
    }
    if !quick && std::env::var_os("RATIOS_ONLY").is_none() {
        show(tokio, &sandboxes);
    }
    lines
}

fn view(tokio: &Tokio, quick: bool) -> Vec<String> {
    let view = files::view(tokio, quick);
    vec![
        line("ms view", view.millis, 20.0),
        line("mib view", view.mib, 4.0),
        line("ratio view_end", view.end, 1.2),
    ]
}

/// The edit, and what of it the disk takes: no target, since each machine has its own.
fn edit(tokio: &Tokio, quick: bool) -> Vec<String> {
    let (millis, disk) = files::edit(tokio, quick);
    vec![line("ms edit", millis, 5.0), format!("ms edit_disk {disk:.2}")]
}

fn main() {
    let parts = Parts::of_arguments();
    let quick = parts.quick;
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let all: [(&str, &dyn Fn() -> Vec<String>); 5] = [
        ("sandbox", &|| sandboxes(&tokio, quick)),
        ("view", &|| view(&tokio, quick)),
        ("grep", &|| vec![line("ratio grep", files::grep(&tokio, quick), 1.3)]),
        ("edit", &|| edit(&tokio, quick)),
        ("judge", &|| vec![line("us judge", files::judge(quick), 20.0)]),
    ];
    let wanted = all.iter().filter(|(name, _)| parts.want(name));
    let lines: Vec<String> = wanted.flat_map(|(_, run)| run()).collect();
    println!("{}", lines.join("\n"));
}
