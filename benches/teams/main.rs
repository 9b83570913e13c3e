//! The costs of a team: an item of its plan beside the graph's node that it runs as, messages as there are more of
//! them, a thousand teams at once beside the same model calls joined by hand, and a planner's plan beside its graph
//! alone.
//!
//! `cargo bench -p entourage-benches --bench teams`; `-- --test` runs each part small; `-- item`, `mailbox`,
//! `crowd` or `plan` runs that part. Samples of what is compared are taken in turns, so that a slow moment of the
//! machine hits all.

#![allow(
    clippy::cast_precision_loss,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints, and stops at the first thing that is not as it should be"
)]

mod crowd;
mod item;
mod mailbox;
mod plan;
mod stand_in;

use std::time::Instant;

use entourage_benches::{Parts, line};
use tokio::runtime::Runtime as Tokio;

/// Returns the seconds that the work takes, in a task as in a server.
fn seconds(tokio: &Tokio, work: impl Future<Output = ()> + Send + 'static) -> f64 {
    let timed = async move {
        let start = Instant::now();
        work.await;
        start.elapsed().as_secs_f64()
    };
    tokio.block_on(tokio.spawn(timed)).unwrap()
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn main() {
    let parts = Parts::of_arguments();
    let quick = parts.quick;
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut results = Vec::new();
    if parts.want("item") {
        results.push(line("us team_item", item::measure(&tokio, quick), 30.0));
    }
    if parts.want("mailbox") {
        results.push(line("growth mailbox", mailbox::measure(&tokio, quick), 1.3));
    }
    if parts.want("crowd") {
        results.push(line("ratio teams1000", crowd::measure(quick), 1.2));
    }
    if parts.want("plan") {
        results.push(line("ratio plan", plan::measure(&tokio, quick), 2.0));
    }
    println!("{}", results.join("\n"));
}
