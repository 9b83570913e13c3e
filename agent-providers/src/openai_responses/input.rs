//! Encodes messages as this wire's items: the bytes of each message, made once and kept in the message.

use entourage_core::{
    message::{Content, Message, Part, Reasoning, Role, Signature, ToolCall, ToolResult},
    provider::Request,
};
use serde_json::{Map, Value, json};

use super::{NAME, media::Shows};
use crate::body::put;

/// Settings that the encoding of a message depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Variant {
    pub(super) shows: Shows,
    /// True if the service keeps its replies, so that their reasoning can be named by its id.
    pub(super) stored: bool,
}

impl Variant {
    pub(super) fn of(request: &Request) -> Self {
        let extra = request.params.extra.as_ref();
        let stored = extra.and_then(|extra| extra.get("store")) == Some(&Value::Bool(true));
        Self { shows: Shows::of(&request.profile), stored }
    }

    /// The key under which messages keep their bytes.
    fn key(self) -> &'static str {
        match (self.stored, self.shows.images, self.shows.documents) {
            (false, true, true) => NAME,
            (false, true, false) => "openai-responses, no documents",
            (false, false, true) => "openai-responses, no images",
            (false, false, false) => "openai-responses, no files",
            (true, true, true) => "openai-responses, stored",
            (true, true, false) => "openai-responses, stored, no documents",
            (true, false, true) => "openai-responses, stored, no images",
            (true, false, false) => "openai-responses, stored, no files",
        }
    }

    /// The items for one message, joined by commas; empty if the wire can express nothing of it.
    pub(super) fn items(self, message: &Message) -> std::borrow::Cow<'_, [u8]> {
        message.encoded(self.key(), |message| {
            let mut items = List::default();
            match message.role() {
                Role::System => items.text("system", &message.text()),
                Role::User => items.user(message, self.shows),
                Role::Assistant => items.assistant(message, self.stored),
                Role::Tool => message.tool_results().for_each(|result| items.result(result, self.shows)),
            }
            items.0
        })
    }
}

#[derive(Default)]
struct List(Vec<u8>);

impl List {
    fn push(&mut self, item: &Value) {
        if !self.0.is_empty() {
            self.0.push(b',');
        }
        put(&mut self.0, item);
    }

    fn text(&mut self, role: &str, text: &str) {
        if !text.is_empty() {
            self.push(&json!({"role": role, "content": text}));
        }
    }

    fn user(&mut self, message: &Message, shows: Shows) {
        let note = |text: &str| json!({"type": "input_text", "text": text});
        let parts = message.parts().iter().filter_map(|part| match part {
            Part::Text(text) if text.is_empty() => None,
            Part::Text(text) => Some(note(text)),
            Part::Media(media) => Some(shows.part(media).unwrap_or_else(|left_out| note(&left_out))),
            _ => None,
        });
        let parts: Vec<_> = parts.collect();
        match (message.parts(), parts.is_empty()) {
            (_, true) => {}
            ([Part::Text(text)], _) => self.text("user", text),
            _ => self.push(&json!({"role": "user", "content": parts})),
        }
    }

    /// Adds a message of the model. Ids are left out, except those of reasoning and of the service's own blocks: an
    /// item with an id is checked against the service's memory of its reply, and refused if part of that is missing.
    fn assistant(&mut self, message: &Message, stored: bool) {
        let mut kept: Option<&Map<String, Value>> = None;
        for part in message.parts() {
            let word = |kind: &str, name: &str| {
                kept.filter(|kept| kept.get("type").is_some_and(|own| own == kind))
                    .and_then(|kept| kept.get(name))
            };
            match part {
                Part::Text(text) => self.said("output_text", "text", text, word("message", "phase")),
                Part::Refusal(text) => self.said("refusal", "refusal", text, word("message", "phase")),
                Part::ToolCall(call) => self.call(call, word("function_call", "namespace")),
                Part::Opaque(block) if block.wire == NAME => self.push(&block.data),
                Part::Reasoning(reasoning) => {
                    kept = self.reasoning(reasoning, stored);
                    continue;
                }
                _ => {}
            }
            kept = None;
        }
    }

    fn said(&mut self, kind: &str, name: &str, text: &str, phase: Option<&Value>) {
        if text.is_empty() {
            return;
        }
        let content = json!([{"type": kind, name: text}]);
        let mut item = json!({"type": "message", "role": "assistant", "content": content});
        if let (Some(phase), Some(fields)) = (phase, item.as_object_mut()) {
            fields.insert("phase".to_owned(), phase.clone());
        }
        self.push(&item);
    }

    fn call(&mut self, call: &ToolCall, namespace: Option<&Value>) {
        let mut item = json!({
            "type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments.as_str(),
        });
        if let (Some(namespace), Some(fields)) = (namespace, item.as_object_mut()) {
            fields.insert("namespace".to_owned(), namespace.clone());
        }
        self.push(&item);
    }

    /// Sends reasoning of this wire again, or returns the words that its signature keeps for the next part.
    fn reasoning<'a>(&mut self, reasoning: &'a Reasoning, stored: bool) -> Option<&'a Map<String, Value>> {
        let signature = reasoning.signature.as_deref().filter(|signature| signature.wire == NAME)?;
        let block = signature.item.as_ref().and_then(Value::as_object);
        if let Some(block) = block.filter(|block| block.get("type").is_some_and(|kind| kind != "reasoning")) {
            return Some(block);
        }
        if let Some(item) = sent_again(signature, block, stored) {
            self.push(&Value::Object(item));
        }
        None
    }

    fn result(&mut self, result: &ToolResult, shows: Shows) {
        let plain = result.content.iter().all(|content| matches!(content, Content::Text(_)));
        let output = if plain {
            Value::String(result.to_text())
        } else {
            let note = |text: &str| json!({"type": "input_text", "text": text});
            let parts = result.content.iter().map(|content| match content {
                Content::Text(text) => note(text),
                Content::Media(media) => shows.part(media).unwrap_or_else(|left_out| note(&left_out)),
                other => note(&other.as_text()),
            });
            Value::Array(parts.collect())
        };
        self.push(&json!({"type": "function_call_output", "call_id": result.call, "output": output}));
    }
}

/// The reasoning item as it came, with its encrypted content back in place. Without encrypted content or open text
/// only its id is left, which is useful only if replies are stored.
fn sent_again(
    signature: &Signature,
    block: Option<&Map<String, Value>>,
    stored: bool,
) -> Option<Map<String, Value>> {
    let mut item = block.cloned().unwrap_or_default();
    // Null values and mere reports are refused in a request.
    item.retain(|key, value| !value.is_null() && key != "status");
    let open = item.get("content").and_then(Value::as_array).is_some_and(|content| !content.is_empty());
    if signature.data.is_empty() && !open && !(stored && item.contains_key("id")) {
        return None;
    }
    item.insert("type".to_owned(), json!("reasoning"));
    item.entry("summary").or_insert_with(|| json!([]));
    if !signature.data.is_empty() {
        item.insert("encrypted_content".to_owned(), json!(signature.data));
    }
    Some(item)
}
