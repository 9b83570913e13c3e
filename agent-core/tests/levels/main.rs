//! Autonomy levels, modes and how turns end, through the public API: rows CW01, CW02, CW11, CW12, CW13 and R14.

#![cfg(feature = "testkit")]
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::large_futures,
    clippy::needless_pass_by_value
)]

#[path = "../it/common.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use all of it")]
mod common;
mod endings;
mod hard;
mod ladder;
mod modes;
mod options;
mod roles;
mod switch;
