//! What the model sees: repair of histories that came from elsewhere. Pure.

mod repair;

pub use repair::{repair, without_media};

use crate::message::{Message, Part};

/// Whether a message says anything that a service would accept: text, reasoning, media, calls or results.
#[must_use]
pub fn has_content(message: &Message) -> bool {
    message.parts().iter().any(|part| match part {
        Part::Text(text) | Part::Refusal(text) => !text.is_empty(),
        _ => true,
    })
}
