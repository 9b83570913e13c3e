//! The model's view of a conversation: repair of foreign histories, files that a model cannot take, compaction,
//! prompts, and the fill level of the context. Pure.

mod compaction;
mod prompt;

pub use compaction::{Clearing, Compaction};
pub use prompt::{ContextFile, GitFacts, Instructions, PromptFacts};

pub use crate::{
    event::compaction::CompactionCause, message::estimate::estimate_tokens,
    session::context_usage::ContextUsage,
};
