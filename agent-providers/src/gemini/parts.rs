//! Turns parts of a reply into deltas, so that signatures come back at the part that they were on.
//!
//! The core has signatures on reasoning only, and one without text signs the next part. So a signature goes before its
//! part; a signature on a thought, or on an empty text, says so in its block, because that part has no delta of its
//! own.

use std::collections::VecDeque;

use entourage_core::{
    Error, ErrorKind, Result,
    message::{Opaque, Signature},
    provider::Delta,
};
use serde_json::{Map, Value, json};

use super::{
    MADE_ID, WIRE,
    wire::{FunctionCall, Part},
};

/// More calls than this in one reply is an attack, not a plan; the core keeps far fewer.
const MAX_CALLS: u32 = 10_000;

/// Most bytes of blocks that only the service understands (images, audio, code) that one reply may bring.
const MAX_OPAQUE: usize = 64 << 20;

type Out = VecDeque<Result<Delta>>;

#[derive(Debug, Default)]
pub(super) struct Parts {
    calls: u32,
    said: bool,
    opaque: usize,
    /// True if the last delta was signed text, which must not be joined with unsigned text.
    after_signed_text: bool,
}

impl Parts {
    pub(super) fn calls(&self) -> u32 {
        self.calls
    }

    pub(super) fn has_content(&self) -> bool {
        self.said
    }

    /// Takes in one part.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] for more than 64 MiB of blocks that are kept unread, and beyond 10,000 calls.
    pub(super) fn push(&mut self, part: Part<'_>, out: &mut Out) -> Result<()> {
        let signature = part.signature.filled();
        let text = part.text.filled();
        let after_signed_text = std::mem::take(&mut self.after_signed_text);
        let mut emit = |delta| out.push_back(Ok(delta));
        let sign = |item: Option<Value>| {
            let mut signed = Signature::new(WIRE, signature.as_deref()?);
            signed.item = item;
            Some(Delta::signature(signed))
        };
        match (part.call.0, text) {
            (Some(call), _) => {
                if self.calls >= MAX_CALLS {
                    return Err(too_large("the model asked for more than 10,000 tool calls at once"));
                }
                sign(None).map(&mut emit);
                self.call(&call, &mut emit);
            }
            (None, Some(text)) if part.thought.is_true() => {
                self.said = true;
                emit(Delta::Reasoning(text.into()));
                sign(Some(json!({"thought": true}))).map(&mut emit);
            }
            (None, Some(text)) => {
                self.said = true;
                if signature.is_some() {
                    sign(None).map(&mut emit);
                    self.after_signed_text = true;
                } else if after_signed_text {
                    emit(Delta::signature(Signature::new(WIRE, "")));
                }
                emit(Delta::Text(text.into()));
            }
            (None, None) if !part.rest.is_empty() => {
                sign(None).map(&mut emit);
                emit(self.opaque(part.rest, part.thought.is_true())?);
            }
            (None, None) => {
                self.after_signed_text = after_signed_text && signature.is_none();
                sign(Some(if part.thought.is_true() {
                    json!({"thought": true})
                } else {
                    json!({"text": ""})
                }))
                .map(&mut emit);
            }
        }
        Ok(())
    }

    fn call(&mut self, call: &FunctionCall<'_>, emit: &mut impl FnMut(Delta)) {
        let index = self.calls;
        self.calls = index.saturating_add(1);
        let id = match call.id.as_str() {
            "" => format!("{MADE_ID}{index}"),
            id => id.to_owned(),
        };
        emit(Delta::tool_call(index, id, call.name.as_str()));
        if let Some(arguments) = call.args.get() {
            emit(Delta::arguments(index, arguments));
        }
    }

    fn opaque(&mut self, mut fields: Map<String, Value>, thought: bool) -> Result<Delta> {
        self.said = true;
        if thought {
            fields.insert("thought".to_owned(), Value::Bool(true));
        }
        self.opaque = fields.values().map(size).fold(self.opaque, usize::saturating_add);
        if self.opaque > MAX_OPAQUE {
            return Err(too_large("the reply brings more than 64 MiB of files and code"));
        }
        Ok(Delta::Opaque(Box::new(Opaque::new(WIRE, Value::Object(fields)))))
    }
}

fn too_large(text: &'static str) -> Error {
    Error::new(ErrorKind::TooLarge, text).during("model.stream")
}

/// Approximate size of a value in bytes. Its depth is bounded by the parser.
fn size(value: &Value) -> usize {
    let own = 16_usize;
    match value {
        Value::String(text) => own.saturating_add(text.len()),
        Value::Array(items) => items.iter().map(size).fold(own, usize::saturating_add),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| name.len().saturating_add(size(value)))
            .fold(own, usize::saturating_add),
        _ => own,
    }
}
