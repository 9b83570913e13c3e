//! Research: a question becomes tasks, which agents that only look work on side by side.
//!
//! `plan` makes the tasks and `report` the answer, both pure. `run` drives: it spawns, waits and records, and
//! decides nothing else. It must not touch files or the web: the tools are the program's.

mod builder;
mod cache;
mod kind;
mod plan;
mod progress;
mod report;
mod run;
mod tiers;

pub use builder::{Research, ResearchBuilder};
pub use kind::Researcher;
pub use plan::ResearchTask;
pub use progress::ResearchProgress;
pub use tiers::{Complexity, TaskTiers};

use entourage_core::context::Instructions;

/// Returns the built-in prompts of this room: the planner's, and one for each kind of researcher.
pub(crate) fn prompts() -> impl Iterator<Item = Instructions> {
    std::iter::once(plan::instructions()).chain(Researcher::ALL.map(Researcher::instructions))
}
