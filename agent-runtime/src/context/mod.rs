//! The model's view of a conversation: repair of foreign histories, compaction, titles, and prompt templates. Pure.

mod compact;
mod media;
mod repair;
pub(crate) mod title;

#[cfg(feature = "templates")]
pub use crate::prompt::{PromptTemplate, Templates};
pub(crate) use compact::{Frame, Plan, Room, fitted, instruction, plan, summary_message, summary_plan};
pub use media::{shown_to, without_media};
pub use repair::repair;
