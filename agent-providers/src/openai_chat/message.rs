//! Encodes one message as this wire's messages.

use entourage_core::{
    message::{Message, Part, Role},
    provider::PromptCache,
};
use serde_json::{Value, json};

use super::{media::Sight, reasoning};
use crate::{
    body::put,
    media::{origin, result_text},
};

/// The key under which a message keeps its bytes, one for each way to encode it.
pub(super) fn key(replays_reasoning: bool, sight: Sight) -> &'static str {
    match (replays_reasoning, sight.images, sight.documents) {
        (true, true, true) => "openai-chat",
        (true, true, false) => "openai-chat without documents",
        (true, false, true) => "openai-chat without images",
        (true, false, false) => "openai-chat without files",
        (false, true, true) => "openai-chat without reasoning",
        (false, true, false) => "openai-chat without reasoning and documents",
        (false, false, true) => "openai-chat without reasoning and images",
        (false, false, false) => "openai-chat without reasoning and files",
    }
}

/// The wire's messages for one of ours, joined by commas; empty if the wire can express nothing of it.
pub(super) fn encode(message: &Message, replays_reasoning: bool, sight: Sight) -> Vec<u8> {
    let mut out = Vec::new();
    match message.role() {
        Role::System => put_text(&mut out, "system", &texts(message)),
        Role::User => user(&mut out, message, sight),
        Role::Assistant => assistant(&mut out, message, replays_reasoning),
        Role::Tool => results(&mut out, message, sight),
    }
    out
}

pub(super) fn put_text(out: &mut Vec<u8>, role: &str, text: &str) {
    if !text.is_empty() {
        out.extend_from_slice(b"{\"role\":");
        put(out, role);
        out.extend_from_slice(b",\"content\":");
        put(out, text);
        out.push(b'}');
    }
}

/// Adds a cache mark to the content of the single message in `json`, which becomes a list of parts.
pub(super) fn mark(json: &mut Vec<u8>, cache: PromptCache) {
    let Ok(Value::Object(mut message)) = serde_json::from_slice(json) else { return };
    let mark = match cache {
        PromptCache::Long => json!({"type": "ephemeral", "ttl": "1h"}),
        _ => json!({"type": "ephemeral"}),
    };
    let mut parts = match message.remove("content") {
        Some(Value::String(text)) => vec![json!({"type": "text", "text": text})],
        Some(Value::Array(parts)) => parts,
        _ => return,
    };
    if let Some(Value::Object(last)) = parts.last_mut() {
        last.insert("cache_control".to_owned(), mark);
    }
    let role = message.get("role").and_then(Value::as_str).unwrap_or_default().to_owned();
    json.clear();
    json.extend_from_slice(b"{\"role\":");
    put(json, &role);
    json.extend_from_slice(b",\"content\":");
    put(json, &parts);
    json.push(b'}');
}

fn texts(message: &Message) -> String {
    let texts = message.parts().iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn user(out: &mut Vec<u8>, message: &Message, sight: Sight) {
    if !message.parts().iter().any(|part| matches!(part, Part::Media(_))) {
        return put_text(out, "user", &texts(message));
    }
    let parts = message.parts().iter().filter_map(|part| match part {
        Part::Text(text) if text.is_empty() => None,
        Part::Text(text) => Some(json!({"type": "text", "text": text})),
        Part::Media(media) => {
            Some(sight.part(media).unwrap_or_else(|note| json!({"type": "text", "text": note})))
        }
        _ => None,
    });
    put(out, &json!({"role": "user", "content": parts.collect::<Vec<_>>()}));
}

fn assistant(out: &mut Vec<u8>, message: &Message, replays_reasoning: bool) {
    let mut said = String::new();
    for part in message.parts() {
        if let Part::Text(text) | Part::Refusal(text) = part {
            said.push_str(text);
        }
    }
    let thought = if replays_reasoning { reasoning::thinking(message) } else { String::new() };
    let mut fields = Vec::new();
    if replays_reasoning {
        reasoning::put_fields(&mut fields, message);
    }
    let calls = message.tool_calls().next().is_some();
    // Services do not accept a message of reasoning alone.
    if said.is_empty() && !calls {
        return;
    }
    out.extend_from_slice(b"{\"role\":\"assistant\",\"content\":");
    if thought.is_empty() {
        put(out, &(!said.is_empty()).then_some(&said));
    } else {
        let thinking = json!({"type": "thinking", "thinking": [{"type": "text", "text": thought}]});
        let text = (!said.is_empty()).then(|| json!({"type": "text", "text": said}));
        put(out, &[Some(thinking), text].into_iter().flatten().collect::<Vec<_>>());
    }
    out.extend_from_slice(&fields);
    if calls {
        out.extend_from_slice(b",\"tool_calls\":[");
        put_calls(out, message);
        out.push(b']');
    }
    out.push(b'}');
}

fn put_calls(out: &mut Vec<u8>, message: &Message) {
    for (n, call) in message.tool_calls().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"id\":");
        put(out, &call.id);
        out.extend_from_slice(b",\"type\":\"function\",\"function\":{\"name\":");
        put(out, &call.name);
        out.extend_from_slice(b",\"arguments\":");
        put(out, call.arguments.as_str());
        out.extend_from_slice(b"}}");
    }
}

/// Encodes tool results. A tool message holds only text here, so media in a result follow in a user message. That
/// comes after all results of the step, because services require those together.
fn results(out: &mut Vec<u8>, message: &Message, sight: Sight) {
    let mut shown: Vec<Value> = Vec::new();
    for result in message.tool_results() {
        if !out.is_empty() {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"role\":\"tool\",\"tool_call_id\":");
        put(out, &result.call);
        out.extend_from_slice(b",\"content\":");
        let text = result_text(result, |file| {
            let part = sight.part(file)?;
            let from = format!("{}:", origin(file, result));
            shown.extend([json!({"type": "text", "text": from}), part]);
            Ok(())
        });
        put(out, &text);
        out.push(b'}');
    }
    if !shown.is_empty() {
        out.push(b',');
        put(out, &json!({"role": "user", "content": shown}));
    }
}
