//! The agent loop through the public API: what SPEC.md's rows and ATTACKS.md's lines ask of the core.
//!
//! No test sleeps for a race: order comes from gates, time from tokio's paused clock, crashes from a store that
//! stands still at a chosen append.

#![cfg(feature = "testkit")]
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::large_futures,
    clippy::needless_pass_by_value
)]

mod approvals;
mod basics;
mod cancel;
mod captain;
mod common;
mod crash;
mod display;
mod effects;
mod events;
mod failures;
mod history;
mod misbehaviour;
mod prepare;
mod records;
mod replay;
mod scheduling;
mod scope;
mod tool_calls;
