//! Encodes one message as content blocks of this wire, joined by commas, which the message keeps.
//!
//! `encode` puts roles, turns and cache marks around the blocks, so that these bytes never change. A blank text is
//! left out everywhere: the service refuses it.

use std::borrow::Cow;

use entourage_core::message::{Content, Media, Message, Opaque, Part, Reasoning, Role, ToolCall, ToolResult};
use serde_json::{Value, json};

use super::{
    NAME,
    media::{self, Sight},
};
use crate::{
    body::put,
    media::{describe, not_shown, origin},
};

/// The blocks of `message`; empty if the wire can express nothing of it.
pub(super) fn blocks(message: &Message, sight: Sight) -> Vec<u8> {
    let mut out = Blocks::default();
    match message.role() {
        Role::System => {
            let text = system_text(message);
            if !text.trim().is_empty() {
                out.text(&format!("<system>\n{text}\n</system>"));
            }
        }
        Role::User => user(&mut out, message, sight),
        Role::Assistant => assistant(&mut out, message),
        Role::Tool => results(&mut out, message, sight),
    }
    out.0
}

/// All text of a system message.
pub(super) fn system_text(message: &Message) -> String {
    let texts = message.parts().iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// The text of a block that cites its sources. It repeats the text before it.
fn cited(part: &Part) -> Option<&str> {
    match part {
        Part::Opaque(opaque) if opaque.wire == NAME && opaque.data.get("type")? == "text" => {
            opaque.data.get("text")?.as_str()
        }
        _ => None,
    }
}

#[derive(Debug, Default)]
struct Blocks(Vec<u8>);

impl Blocks {
    fn begin(&mut self) -> &mut Vec<u8> {
        if !self.0.is_empty() {
            self.0.push(b',');
        }
        &mut self.0
    }

    fn value(&mut self, block: &Value) {
        put(self.begin(), block);
    }

    fn text(&mut self, text: &str) {
        if !text.trim().is_empty() {
            let out = self.begin();
            out.extend_from_slice(b"{\"type\":\"text\",\"text\":");
            put(out, text);
            out.push(b'}');
        }
    }
}

fn user(out: &mut Blocks, message: &Message, sight: Sight) {
    for part in message.parts() {
        match part {
            Part::Text(text) => out.text(text),
            Part::Media(file) => match media::block(file, sight) {
                Ok(block) => out.value(&block),
                Err(note) => out.text(&note),
            },
            Part::Opaque(opaque) if opaque.wire == NAME => out.value(&opaque.data),
            _ => {}
        }
    }
}

fn assistant(out: &mut Blocks, message: &Message) {
    let parts = message.parts();
    // The service refuses a turn that ends with thinking.
    let end = parts.iter().rposition(|part| !matches!(part, Part::Reasoning(_))).map_or(0, |last| last + 1);
    let mut caller = None;
    for (n, part) in parts.iter().enumerate().take(end) {
        match part {
            Part::Text(text) => {
                let again = parts.get(n + 1).and_then(cited).unwrap_or_default();
                out.text(text.strip_suffix(again).unwrap_or(text));
            }
            Part::Refusal(text) => out.text(text),
            Part::Reasoning(reasoning) => thinking(out, reasoning, &mut caller),
            Part::ToolCall(call) => tool_use(out, call, caller.take()),
            Part::Opaque(opaque) if opaque.wire == NAME => {
                let before = n.checked_sub(1).and_then(|before| parts.get(before));
                replay(out, part, opaque, before);
            }
            Part::Media(file) => out.text(&not_shown(file)),
            _ => {}
        }
    }
}

/// Adds thinking that this wire signed: the service refuses thinking without its own signature.
fn thinking<'a>(out: &mut Blocks, reasoning: &'a Reasoning, caller: &mut Option<&'a Value>) {
    let Some(signature) = reasoning.signature.as_deref().filter(|signature| signature.wire == NAME) else {
        return;
    };
    match &signature.item {
        None => {
            out.value(&json!({"type": "thinking", "thinking": reasoning.text, "signature": signature.data}));
        }
        Some(item) if item.get("type").is_some_and(|kind| kind == "redacted_thinking") => {
            out.value(&json!({"type": "redacted_thinking", "data": signature.data}));
        }
        Some(item) => *caller = item.get("caller"),
    }
}

fn tool_use(out: &mut Blocks, call: &ToolCall, caller: Option<&Value>) {
    let out = out.begin();
    out.extend_from_slice(b"{\"type\":\"tool_use\",\"id\":");
    put(out, &id(&call.id));
    out.extend_from_slice(b",\"name\":");
    put(out, &call.name);
    out.extend_from_slice(b",\"input\":");
    out.extend_from_slice(call.arguments.as_str().as_bytes());
    if let Some(caller) = caller {
        out.extend_from_slice(b",\"caller\":");
        put(out, caller);
    }
    out.push(b'}');
}

/// Replays an opaque part. A cited text is sent only after the text that it is part of, which may have been edited
/// since.
fn replay(out: &mut Blocks, part: &Part, opaque: &Opaque, before: Option<&Part>) {
    let stands = match cited(part) {
        None => true,
        Some(text) => {
            !text.trim().is_empty() && matches!(before, Some(Part::Text(said)) if said.ends_with(text))
        }
    };
    if stands {
        out.value(&opaque.data);
    }
}

/// Adds results, which come first in a turn. Files are shown in them, except for a failed call: its result may hold
/// text only, so its files follow after all results.
fn results(out: &mut Blocks, message: &Message, sight: Sight) {
    let mut after: Vec<Value> = Vec::new();
    for result in message.tool_results() {
        let block = out.begin();
        block.extend_from_slice(b"{\"type\":\"tool_result\",\"tool_use_id\":");
        put(block, &id(&result.call));
        let content = content(result, sight, &mut after);
        if content != "" {
            block.extend_from_slice(b",\"content\":");
            put(block, &content);
        }
        if result.is_error {
            block.extend_from_slice(b",\"is_error\":true");
        }
        block.push(b'}');
    }
    for block in &after {
        out.value(block);
    }
}

fn content(result: &ToolResult, sight: Sight, after: &mut Vec<Value>) -> Value {
    let media = |content: &Content| matches!(content, Content::Media(_));
    if !result.content.iter().any(media) {
        return Value::String(result.to_text());
    }
    let text = |text: &str| json!({"type": "text", "text": text});
    let mut later = |file: &Media, block: Value| {
        let from = format!("{}:", origin(file, result));
        after.extend([text(&from), block]);
        text(&format!("[{}: see below]", describe(file)))
    };
    let pieces = result.content.iter().filter_map(|piece| match piece {
        Content::Text(said) => (!said.trim().is_empty()).then(|| text(said)),
        Content::Media(file) => Some(match media::block(file, sight) {
            Ok(block) if result.is_error => later(file, block),
            Ok(block) => block,
            Err(note) => text(&note),
        }),
        other => Some(text(&other.as_text())),
    });
    Value::Array(pieces.collect())
}

/// The id in this wire's alphabet. Ids of other services may contain characters that it refuses; a changed id gets a
/// hash of the old one, so that two ids stay different.
fn id(id: &str) -> Cow<'_, str> {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !id.is_empty() && id.chars().all(fine) {
        return Cow::Borrowed(id);
    }
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let kept: String = id.chars().take(40).map(|c| if fine(c) { c } else { '_' }).collect();
    Cow::Owned(format!("{kept}_{hash:016x}"))
}
