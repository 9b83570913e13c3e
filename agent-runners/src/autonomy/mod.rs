//! The levels of autonomy: how much is checked before a task counts as complete, from the agent's own word to a second
//! agent. A task that was not clearly accepted never counts as complete.

mod ask;
pub(crate) mod check;
mod claim;
mod complete;
mod confirm;
pub(crate) mod criteria;
mod digest;
pub(crate) mod discriminator;
mod ending;
pub(crate) mod judge;
mod ladder;
mod levels;
mod machine;
mod modes;
mod player;
mod progress;
mod rounds;
mod verdict;

pub(crate) use complete::{TASK_COMPLETE, answered};
pub(crate) use discriminator::Discriminator;
pub use ending::StopKind;
pub use ladder::{Autonomy, AutonomyBuilder};
pub use levels::AutonomyLevel;
pub(crate) use machine::{Fate, fate};
pub use modes::{ConfigChoice, ConfigKind, ConfigOption, ModeState};
pub(crate) use player::Player;
pub use progress::CheckedTask;
pub(crate) use rounds::{EXECUTOR, ITERATIONS, Rounds};
pub(crate) use verdict::verdict_form;
pub use verdict::{Evidence, Phase, Verdict};
