//! Two agents on one task through the public API: sessions, rounds, verdicts, cancels, resumes and models of roles.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::large_futures,
    clippy::needless_pass_by_value
)]

mod anywhere;
mod budget;
mod cancel;
#[allow(dead_code)]
#[path = "../../../agent-runtime/tests/it/common.rs"]
mod common;
mod flip;
mod gate;
mod guarded;
mod hard;
mod others;
mod pair;
mod person;
mod resume;
mod rounds;
mod sessions;
mod taken;
