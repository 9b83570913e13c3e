//! Cascades: a task goes to a cheap agent first, and to a dearer one where its answer is refused.
//!
//! `progress` decides what comes next from the records, and `fate` what the end of an attempt means: both pure. `run`
//! performs it and records it, and `verify` asks whether an answer will do.

mod builder;
mod fate;
mod progress;
mod records;
mod run;
mod verify;

pub use builder::{Cascade, CascadeBuilder};
pub use records::{CascadeStarted, CascadeStep};
