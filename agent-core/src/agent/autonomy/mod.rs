//! How far an agent's own word goes: the levels of autonomy, and what is checked before a task counts as done.

mod verdict;

pub use verdict::{Evidence, Phase, Verdict};
