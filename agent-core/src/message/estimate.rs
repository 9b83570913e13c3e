//! Token estimates, for conversations that no service has counted. Pure. Knows no tokenizer and no service: totals and
//! costs are never computed from these figures.

use super::{Content, Media, Message, Part, ToolResult};
use crate::base::bound::value;

/// Estimated tokens of a message: (bytes + 3) / 4 of each text, tool name, input and result.
///
/// Files count as their short description, since their cost differs from service to service. Signatures and encrypted
/// reasoning count nothing. The cost is one step per part, whatever its length.
///
/// ```
/// use entourage_core::{context::estimate_tokens, message::Message};
///
/// assert_eq!(estimate_tokens(&Message::user("12345")), 2);
/// ```
#[must_use]
pub fn estimate_tokens(message: &Message) -> u64 {
    message.parts().iter().map(part).fold(0, u64::saturating_add)
}

fn part(part: &Part) -> u64 {
    match part {
        Part::Text(text) | Part::Refusal(text) => tokens(text.len()),
        Part::Reasoning(reasoning) => tokens(reasoning.text.len()),
        Part::Media(file) => media(file),
        Part::ToolCall(call) => tokens(call.name.len()).saturating_add(tokens(call.arguments.as_str().len())),
        Part::ToolResult(answer) => result(answer),
        Part::Opaque(block) => tokens(value(&block.data)),
    }
}

fn result(result: &ToolResult) -> u64 {
    let pieces = result.content.iter().map(|piece| match piece {
        Content::Text(text) => tokens(text.len()),
        Content::Media(file) => media(file),
    });
    pieces.fold(tokens(result.name.len()), u64::saturating_add)
}

/// Tokens of the short description, such as `[image/png cat.png]`.
fn media(media: &Media) -> u64 {
    let name = media.name.as_ref().map_or(0, |name| name.len().saturating_add(1));
    tokens(media.mime.len().saturating_add(name).saturating_add(2))
}

fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::message::{Arguments, MediaSource, Opaque, Reasoning, Role, Signature, ToolCall};

    #[test]
    fn cc03_each_kind_of_part_has_its_estimate() {
        let call =
            ToolCall::new("an id that counts nothing", "look", Arguments::parse("{\"a\": 12}").unwrap());
        let mut file = Media::new("image/png", MediaSource::Base64("A".repeat(4_000)));
        file.name = Some("cat.png".into());
        let content = vec![Content::Text("x".repeat(9)), Content::Media(file.clone())];
        for (part, tokens) in [
            (Part::Text(String::new()), 0),
            (Part::Text("1".into()), 1),
            (Part::Text("1234".into()), 1),
            (Part::Text("ééé".into()), 2),
            (Part::Refusal("12345".into()), 2),
            (Part::Reasoning(Reasoning::new("12345678", Some(Signature::new("w", "s".repeat(400))))), 2),
            (Part::Media(file), 5),
            (Part::ToolResult(ToolResult::new(&call, content, false).into()), 1 + 3 + 5),
            (Part::ToolCall(call), 1 + 3),
            (Part::Opaque(Opaque::new("w", json!({"n": [1]}))), 3),
        ] {
            let message = Message::new(Role::User, vec![part.clone(), Part::Text("1234".into())]);
            assert_eq!(estimate_tokens(&message), tokens + 1, "{part:?}");
        }
    }
}
