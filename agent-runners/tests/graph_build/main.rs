//! Graphs before they run: refusals, typed nodes, plans, signatures and pictures.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may panic, in its helpers too"
)]

mod common;
mod pictures;
mod plans;
mod property;
mod refused;
mod reports;
mod settings;
mod signatures;
mod typed;
