//! Encodes one message as this wire's contents, which the message keeps.
//!
//! It must not look at other messages, or the kept bytes would not fit the next request.

use entourage_core::{
    message::{Media, Message, Part, Reasoning, Role, Signature, ToolCall},
    provider::Request,
};
use serde_json::{Value, json};

use super::{MADE_ID, WIRE, media, params, profile::Name};
use crate::{
    body::put,
    media::{origin, result_text},
};

/// The stand-in that the service accepts for a signature it never gave: base64 of `skip_thought_signature_validator`.
const NO_SIGNATURE: &str = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=";

/// Settings that the encoding of a message depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mode {
    /// True to show images.
    pub(super) vision: bool,
    /// True to show PDF documents.
    pub(super) documents: bool,
    /// True if the model refuses calls without a signature: calls of other services get a stand-in.
    pub(super) signed_calls: bool,
}

impl Mode {
    pub(super) fn of(request: &Request) -> Self {
        Self {
            vision: request.profile.vision != Some(false),
            documents: request.profile.documents != Some(false),
            signed_calls: Name::read(&request.model).is_recent(),
        }
    }

    /// The key under which messages keep their bytes in this mode.
    pub(super) fn key(self) -> &'static str {
        match (self.signed_calls, self.vision, self.documents) {
            (false, true, true) => WIRE,
            (false, false, true) => "gemini-blind",
            (false, true, false) => "gemini-bookless",
            (false, false, false) => "gemini-textual",
            (true, true, true) => "gemini-signed",
            (true, false, true) => "gemini-signed-blind",
            (true, true, false) => "gemini-signed-bookless",
            (true, false, false) => "gemini-signed-textual",
        }
    }
}

/// The contents for one message, joined by commas; empty if the wire can express nothing of it.
pub(super) fn encode_message(message: &Message, mode: Mode) -> Vec<u8> {
    match message.role() {
        // The wire has system text before the contents only; later on it becomes user text.
        Role::System | Role::User => user(message, mode),
        Role::Assistant => model(message, mode),
        Role::Tool => results(message, mode),
    }
}

/// A content, written into bytes.
struct Parts {
    out: Vec<u8>,
    empty: usize,
}

impl Parts {
    fn new(role: &str) -> Self {
        let out = format!("{{\"role\":\"{role}\",\"parts\":[").into_bytes();
        Self { empty: out.len(), out }
    }

    /// Adds a part. `fields` writes the inside of an object; a signature becomes a field beside them.
    fn add(&mut self, fields: impl FnOnce(&mut Vec<u8>), signature: Option<&str>) {
        if self.out.len() > self.empty {
            self.out.push(b',');
        }
        self.out.push(b'{');
        fields(&mut self.out);
        if let Some(signature) = signature {
            self.out.extend_from_slice(b",\"thoughtSignature\":");
            put(&mut self.out, signature);
        }
        self.out.push(b'}');
    }

    fn text(&mut self, text: &str, signature: Option<&str>) {
        let fields = |out: &mut Vec<u8>| {
            out.extend_from_slice(b"\"text\":");
            put(out, text);
        };
        self.add(fields, signature);
    }

    fn object(&mut self, value: &Value, signature: Option<&str>) {
        let mut bytes = Vec::new();
        put(&mut bytes, value);
        let inside = bytes.strip_prefix(b"{").and_then(|bytes| bytes.strip_suffix(b"}"));
        if let Some(inside) = inside.filter(|inside| !inside.is_empty()) {
            self.add(|out| out.extend_from_slice(inside), signature);
        }
    }

    fn media(&mut self, file: &Media, mode: Mode) {
        match media::part(file, mode) {
            Ok(part) => self.object(&part, None),
            Err(note) => self.text(&note, None),
        }
    }

    fn finish(mut self) -> Vec<u8> {
        if self.out.len() == self.empty {
            return Vec::new();
        }
        self.out.extend_from_slice(b"]}");
        self.out
    }
}

fn user(message: &Message, mode: Mode) -> Vec<u8> {
    let mut parts = Parts::new("user");
    for part in message.parts() {
        match part {
            Part::Text(text) if !text.is_empty() => parts.text(text, None),
            Part::Media(file) => parts.media(file, mode),
            _ => {}
        }
    }
    parts.finish()
}

/// Encodes a message of the model. Thoughts are left out, as the service requires; their signatures are sent back in
/// place.
fn model(message: &Message, mode: Mode) -> Vec<u8> {
    let mut parts = Parts::new("model");
    // The signature of the part that follows.
    let mut waiting: Option<&str> = None;
    let mut called = false;
    for part in message.parts() {
        match part {
            Part::Reasoning(reasoning) => {
                let Some(signature) = reasoning.signature.as_deref().filter(|one| one.wire == WIRE) else {
                    continue;
                };
                if let Some(before) = waiting.take() {
                    parts.text("", Some(before));
                }
                waiting = own_part(&mut parts, reasoning, signature);
            }
            Part::Text(text) | Part::Refusal(text) if !text.is_empty() => parts.text(text, waiting.take()),
            Part::Media(file) => parts.media(file, mode),
            Part::ToolCall(call) => {
                let stand_in = (mode.signed_calls && !called).then_some(NO_SIGNATURE);
                called = true;
                parts.add(|out| put_call(out, call), waiting.take().or(stand_in));
            }
            Part::Opaque(opaque) if opaque.wire == WIRE => parts.object(&opaque.data, waiting.take()),
            _ => {}
        }
    }
    if let Some(signature) = waiting {
        parts.text("", Some(signature));
    }
    parts.finish()
}

/// Adds the part that a signature belonged to, if that is not the next one; else returns the signature for the next
/// part.
fn own_part<'a>(parts: &mut Parts, reasoning: &Reasoning, signature: &'a Signature) -> Option<&'a str> {
    let data = Some(signature.data.as_str()).filter(|data| !data.is_empty());
    match &signature.item {
        None => return data,
        Some(item) if item.get("thought") == Some(&Value::Bool(true)) => {
            let fields = |out: &mut Vec<u8>| {
                out.extend_from_slice(b"\"text\":");
                put(out, &reasoning.text);
                out.extend_from_slice(b",\"thought\":true");
            };
            parts.add(fields, data);
        }
        Some(_) => parts.text("", data),
    }
    None
}

/// Writes the id of a call. Ids that we made up mean nothing to the service.
fn put_id(out: &mut Vec<u8>, id: &str) {
    if !id.is_empty() && !id.starts_with(MADE_ID) {
        out.extend_from_slice(b"\"id\":");
        put(out, id);
        out.push(b',');
    }
}

fn put_call(out: &mut Vec<u8>, call: &ToolCall) {
    out.extend_from_slice(b"\"functionCall\":{");
    put_id(out, &call.id);
    out.extend_from_slice(b"\"name\":");
    put(out, &call.name);
    out.extend_from_slice(b",\"args\":");
    out.extend_from_slice(call.arguments.as_str().as_bytes());
    out.push(b'}');
}

/// Encodes tool results. The newest models take files in a result, the others do not; all take them in the user
/// content that follows. It follows after all results of the step, because the service requires those together.
fn results(message: &Message, mode: Mode) -> Vec<u8> {
    let mut answers = Parts::new("user");
    let mut shown = Parts::new("user");
    for result in message.tool_results() {
        let text = result_text(result, |file| {
            let part = media::part(file, mode)?;
            shown.text(&format!("{}:", origin(file, result)), None);
            shown.object(&part, None);
            Ok(())
        });
        let kind = if result.is_error { "error" } else { "output" };
        let fields = |out: &mut Vec<u8>| {
            out.extend_from_slice(b"\"functionResponse\":{");
            put_id(out, &result.call);
            out.extend_from_slice(b"\"name\":");
            put(out, &result.name);
            out.extend_from_slice(b",\"response\":{");
            put(out, kind);
            out.push(b':');
            put(out, &text);
            out.extend_from_slice(b"}}");
        };
        answers.add(fields, None);
    }
    let mut out = answers.finish();
    let shown = shown.finish();
    if !shown.is_empty() {
        out.push(b',');
        out.extend_from_slice(&shown);
    }
    out
}

/// The system texts before the conversation: the instructions, then the leading system messages.
pub(super) fn system(request: &Request) -> Option<Value> {
    let leading = request.messages.iter().take_while(|message| message.role() == Role::System);
    let texts = leading.flat_map(|message| message.parts()).filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        _ => None,
    });
    let instructions = params::instructions(request);
    let parts: Vec<_> = std::iter::once(&*instructions)
        .chain(texts)
        .filter(|text| !text.is_empty())
        .map(|text| json!({"text": text}))
        .collect();
    (!parts.is_empty()).then(|| json!({"parts": parts}))
}
