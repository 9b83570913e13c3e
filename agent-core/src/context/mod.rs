//! The model's view of a conversation: repair of foreign histories, files that a model cannot take, compaction,
//! prompts, and the fill level of the context. Pure.

mod compact;
mod media;
mod prompt;
mod repair;
pub(crate) mod title;

pub use compact::{Compaction, CompactionCause};
pub(crate) use compact::{
    Frame, Gauge, Plan, Room, cleared, fitted, instruction, plan, summary_message, summary_plan,
};
pub use media::{shown_to, without_media};
pub use prompt::{ContextFile, GitFacts, Instructions, PromptFacts};
#[cfg(feature = "templates")]
pub use prompt::{PromptTemplate, Templates};
pub use repair::repair;

pub use crate::{
    message::{content::has_content, estimate::estimate_tokens},
    session::context_usage::ContextUsage,
};
