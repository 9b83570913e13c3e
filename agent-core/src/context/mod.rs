//! The model's view of a conversation: repair of foreign histories, files that a model cannot take, compaction,
//! prompts, and the fill level of the context. Pure.

mod compact;
mod estimate;
mod media;
mod prompt;
mod repair;
pub(crate) mod title;

pub use compact::{Compaction, CompactionCause};
pub(crate) use compact::{
    Frame, Gauge, Plan, Room, cleared, fitted, instruction, plan, summary_message, summary_plan,
};
pub(crate) use estimate::is_counted;
pub use estimate::{ContextUsage, estimate_tokens};
pub use media::{shown_to, without_media};
pub use prompt::{ContextFile, GitFacts, Instructions, PromptFacts};
#[cfg(feature = "templates")]
pub use prompt::{PromptTemplate, Templates};
pub use repair::repair;

use crate::message::{Message, Part};

/// True if a message has content that a service would accept: text, reasoning, media, calls or results.
#[must_use]
pub fn has_content(message: &Message) -> bool {
    message.parts().iter().any(|part| match part {
        Part::Text(text) | Part::Refusal(text) => !text.is_empty(),
        _ => true,
    })
}
