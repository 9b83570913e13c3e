//! The test of a message for content that services accept.

use super::{Message, Part};

/// True if a message has content that a service would accept: text, reasoning, media, calls or results.
#[must_use]
pub fn has_content(message: &Message) -> bool {
    message.parts().iter().any(|part| match part {
        Part::Text(text) | Part::Refusal(text) => !text.is_empty(),
        _ => true,
    })
}
