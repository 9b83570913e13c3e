//! Autonomy levels, their options, modes, roles and stop kinds, through the public API.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::large_futures,
    clippy::needless_pass_by_value
)]

#[path = "../../../agent-runtime/tests/it/common.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use all of it")]
mod common;
mod endings;
mod hard;
mod ladder;
mod modes;
mod options;
mod roles;
mod switch;
