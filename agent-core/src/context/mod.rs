//! The model's view of a conversation: repair of foreign histories, files that a model cannot take, compaction,
//! prompts, and the fill level of the context. Pure.

mod compact;
mod prompt;
mod repair;
pub(crate) mod title;

pub use compact::Compaction;
pub(crate) use compact::{Frame, Plan, Room, fitted, instruction, plan, summary_message, summary_plan};
pub use prompt::{ContextFile, GitFacts, Instructions, PromptFacts};
#[cfg(feature = "templates")]
pub use prompt::{PromptTemplate, Templates};
pub use repair::repair;

pub use crate::{
    event::cause::CompactionCause,
    message::{content::has_content, estimate::estimate_tokens},
    provider::media::{shown_to, without_media},
    session::context_usage::ContextUsage,
};
