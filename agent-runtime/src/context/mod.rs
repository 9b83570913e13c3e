//! The model's view of a conversation: repair of foreign histories, compaction, titles, and prompt templates. Pure.

mod compact;
mod media;
mod repair;
pub(crate) mod title;

#[cfg(feature = "templates")]
pub use crate::prompt::{PromptTemplate, Templates};
pub(crate) use compact::{
    Frame, Plan, Room, fitted, instruction, plan, summary_message, summary_plan, summary_prompt,
};
pub use media::{shown_to, without_media};
pub use repair::repair;

use entourage_core::context::Instructions;

/// Returns the prompts of this crate, each with its text and its id: those of titles and of summaries.
#[must_use]
pub fn built_in_prompts() -> [Instructions; 2] {
    [title::built_in(), summary_prompt()]
}
