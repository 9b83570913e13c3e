//! What the model sees: repair of histories that came from elsewhere, files that it cannot take, and how full its
//! context is. Pure.

mod estimate;
mod media;
mod repair;

pub(crate) use estimate::is_counted;
pub use estimate::{ContextUsage, estimate_tokens};
pub use media::{shown_to, without_media};
pub use repair::repair;

use crate::message::{Message, Part};

/// Whether a message says anything that a service would accept: text, reasoning, media, calls or results.
#[must_use]
pub fn has_content(message: &Message) -> bool {
    message.parts().iter().any(|part| match part {
        Part::Text(text) | Part::Refusal(text) => !text.is_empty(),
        _ => true,
    })
}
