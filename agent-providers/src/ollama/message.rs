//! Encodes one message as this wire's messages, which the message keeps.
//!
//! It must not look at other messages, or the kept bytes would not fit the next request.

use entourage_core::message::{Media, Message, Part, Role, ToolCall};

use super::{MADE_ID, WIRE};
use crate::{
    body::put,
    media::{Source, left_out, not_shown, origin, result_text, source},
};

/// The key under which messages keep their bytes.
pub(super) fn key(vision: bool) -> &'static str {
    if vision { WIRE } else { "ollama-blind" }
}

/// The wire's messages for one of ours, joined by commas; empty if the wire can express nothing of it.
pub(super) fn encode_message(message: &Message, vision: bool) -> Vec<u8> {
    let mut out = Vec::new();
    match message.role() {
        Role::System => put_message(&mut out, "system", &texts(message), &[]),
        Role::User => user(&mut out, message, vision),
        Role::Assistant => assistant(&mut out, message),
        Role::Tool => results(&mut out, message, vision),
    }
    out
}

/// A message, unless it would be empty.
pub(super) fn put_message(out: &mut Vec<u8>, role: &str, text: &str, images: &[&str]) {
    if text.is_empty() && images.is_empty() {
        return;
    }
    open(out, role, text);
    if !images.is_empty() {
        out.extend_from_slice(b",\"images\":");
        put(out, images);
    }
    out.push(b'}');
}

fn open(out: &mut Vec<u8>, role: &str, text: &str) {
    if !out.is_empty() {
        out.push(b',');
    }
    out.extend_from_slice(b"{\"role\":");
    put(out, role);
    out.extend_from_slice(b",\"content\":");
    put(out, text);
}

fn texts(message: &Message) -> String {
    let texts = message.parts().iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// The base64 text of an image that can be shown, or the note that replaces the file: the wire has images only, and
/// does not fetch them.
pub(super) fn image(file: &Media, vision: bool) -> Result<&str, String> {
    if !file.mime.to_ascii_lowercase().starts_with("image/") {
        return Err(not_shown(file));
    }
    if !vision {
        return Err(left_out(file, "this model does not see images"));
    }
    match source(file)? {
        Source::Inline(data) => Ok(data),
        Source::Url(_) => Err(left_out(file, "this service does not fetch files from an address")),
    }
}

fn user(out: &mut Vec<u8>, message: &Message, vision: bool) {
    let mut texts: Vec<String> = Vec::new();
    let mut images = Vec::new();
    for part in message.parts() {
        match part {
            Part::Text(text) if !text.is_empty() => texts.push(text.clone()),
            Part::Media(file) => match image(file, vision) {
                Ok(data) => images.push(data),
                Err(note) => texts.push(note),
            },
            _ => {}
        }
    }
    put_message(out, "user", &texts.join("\n"), &images);
}

/// Encodes a message of the model. Plain-text reasoning is sent back: models need it between their calls, and the
/// server drops it where a model's template does not use it.
fn assistant(out: &mut Vec<u8>, message: &Message) {
    let (mut said, mut thought) = (String::new(), String::new());
    for part in message.parts() {
        match part {
            Part::Text(text) | Part::Refusal(text) => said.push_str(text),
            Part::Reasoning(reasoning) if reasoning.signature.is_none() => thought.push_str(&reasoning.text),
            _ => {}
        }
    }
    let calls: Vec<_> = message.tool_calls().collect();
    if said.is_empty() && calls.is_empty() {
        return;
    }
    open(out, "assistant", &said);
    if !thought.is_empty() {
        out.extend_from_slice(b",\"thinking\":");
        put(out, &thought);
    }
    if !calls.is_empty() {
        out.extend_from_slice(b",\"tool_calls\":[");
        for (n, call) in calls.into_iter().enumerate() {
            if n > 0 {
                out.push(b',');
            }
            put_call(out, call);
        }
        out.push(b']');
    }
    out.push(b'}');
}

fn put_call(out: &mut Vec<u8>, call: &ToolCall) {
    out.push(b'{');
    if let Some(id) = own_id(&call.id) {
        out.extend_from_slice(b"\"id\":");
        put(out, id);
        out.push(b',');
    }
    out.extend_from_slice(b"\"function\":{\"name\":");
    put(out, &call.name);
    out.extend_from_slice(b",\"arguments\":");
    out.extend_from_slice(call.arguments.as_str().as_bytes());
    out.extend_from_slice(b"}}");
}

/// The id of a call, if the server gave it. Ids that we made up mean nothing to it.
fn own_id(id: &str) -> Option<&str> {
    Some(id).filter(|id| !id.is_empty() && !id.starts_with(MADE_ID))
}

/// Encodes tool results. Models look at images of the user, so media in a result follow in a user message, after all
/// results of the step.
fn results(out: &mut Vec<u8>, message: &Message, vision: bool) {
    let (mut origins, mut images) = (Vec::new(), Vec::new());
    for result in message.tool_results() {
        let text = result_text(result, |file| {
            images.push(image(file, vision)?);
            origins.push(origin(file, result));
            Ok(())
        });
        open(out, "tool", &text);
        out.extend_from_slice(b",\"tool_name\":");
        put(out, &result.name);
        if let Some(id) = own_id(&result.call) {
            out.extend_from_slice(b",\"tool_call_id\":");
            put(out, id);
        }
        out.push(b'}');
    }
    put_message(out, "user", &origins.join("\n"), &images);
}
