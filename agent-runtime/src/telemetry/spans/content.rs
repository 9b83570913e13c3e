//! Messages in the form of OpenTelemetry's conventions, within bounds.

use entourage_core::message::{Content, Message, Part, Role};
use serde_json::{Value, json};

/// Most text of one attribute, in bytes.
const ROOM: usize = 16 * 1024;

/// Bytes left for further text.
struct Room(usize);

impl Room {
    fn text(&mut self, text: &str) -> String {
        let cut: String = upto(text, self.0).into();
        self.0 = self.0.saturating_sub(text.len());
        if cut.len() < text.len() { cut + "…" } else { cut }
    }
}

/// The longest prefix of `text` with at most `bytes` bytes, in whole characters.
fn upto(text: &str, bytes: usize) -> &str {
    if text.len() <= bytes {
        return text;
    }
    let end = text.char_indices().map(|(at, _)| at).take_while(|at| *at <= bytes).last().unwrap_or(0);
    text.get(..end).unwrap_or_default()
}

/// A single text, cut to the bound.
pub(super) fn cut(text: &str) -> String {
    Room(ROOM).text(text)
}

/// Messages in order, as JSON. The rest is left out when the room is used up.
pub(super) fn messages<'a>(messages: impl IntoIterator<Item = &'a Message>) -> String {
    let mut room = Room(ROOM);
    let mut shown = Vec::new();
    for message in messages {
        if room.0 == 0 {
            break;
        }
        shown.push(one(message, &mut room));
    }
    Value::Array(shown).to_string()
}

/// The reply of a model as JSON, with its finish reason.
pub(super) fn output(message: &Message, reason: &str) -> String {
    let mut shown = one(message, &mut Room(ROOM));
    if let Some(fields) = shown.as_object_mut() {
        fields.insert("finish_reason".to_owned(), reason.into());
    }
    Value::Array(vec![shown]).to_string()
}

fn one(message: &Message, room: &mut Room) -> Value {
    let role = match message.role() {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let mut parts = Vec::new();
    for part in message.parts() {
        if room.0 == 0 {
            break;
        }
        parts.push(shown(part, room));
    }
    json!({"role": role, "parts": parts})
}

fn shown(part: &Part, room: &mut Room) -> Value {
    match part {
        Part::Text(text) | Part::Refusal(text) => json!({"type": "text", "content": room.text(text)}),
        Part::Reasoning(reasoning) => json!({"type": "reasoning", "content": room.text(&reasoning.text)}),
        Part::Media(media) => json!({"type": "media", "mime_type": media.mime}),
        Part::ToolCall(call) => json!({
            "type": "tool_call",
            "id": &*call.id,
            "name": room.text(&call.name),
            "arguments": room.text(call.arguments.as_str()),
        }),
        Part::ToolResult(result) => {
            let text: Vec<_> = result.content.iter().map(Content::as_text).collect();
            json!({"type": "tool_call_response", "id": &*result.call, "response": room.text(&text.join("\n"))})
        }
        // Only the service understands it.
        Part::Opaque(opaque) => json!({"type": "opaque", "wire": opaque.wire}),
        _ => json!({"type": "other"}),
    }
}
