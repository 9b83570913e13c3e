//! Research in sessions: what runs at once, how each task may end, and what is told of it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may panic, in its helpers too"
)]

#[path = "../graph_run/at_event.rs"]
mod at_event;
mod bounds;
mod cache;
mod fetch;
mod memory;
mod planner;
mod plans;
mod worker;
