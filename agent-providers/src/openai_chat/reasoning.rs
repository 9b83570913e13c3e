//! Reasoning as services of this wire show it, and send it back.
//!
//! Some give plain text in a field of their own choice, some a list of details with signatures or sealed content. The
//! form is noted in the signature that ends each piece of reasoning, so that it is sent back under its original name,
//! and to no other wire.

use std::collections::VecDeque;

use entourage_core::{
    Result,
    message::{Message, Part, Signature},
    provider::Delta,
};
use serde_json::{Map, Value, json};

use super::encode::WIRE;
use crate::{body::put, json::Raw};

/// Key of the note that names the field of plain reasoning.
const FIELD: &str = "field";

/// Keys of a detail with readable reasoning, and with content that only the service can read.
const SHOWN: [&str; 2] = ["text", "summary"];
const SEALED: [&str; 2] = ["signature", "data"];

/// Most bytes of such reasoning that are kept of one detail; the rest is left out.
const MAX_SHOWN: usize = 8 << 20;

/// Reasoning that has begun and not ended.
#[derive(Debug, Default)]
pub(super) struct Open {
    field: Option<&'static str>,
    /// The detail that is being streamed, without its content.
    detail: Option<Map<String, Value>>,
    /// Readable content of its pieces outside the known fields: no reader sees it, but it is sent back with the seal.
    shown: [String; 2],
}

impl Open {
    /// Records text of reasoning in `field`.
    pub(super) fn text(&mut self, field: &'static str) {
        self.field.get_or_insert(field);
    }

    /// Takes in a detail, or a piece of one.
    pub(super) fn detail(&mut self, detail: &Raw<'_>, out: &mut VecDeque<Result<Delta>>) {
        let Some(Value::Object(mut detail)) = detail.value() else { return };
        let shown = SHOWN.map(|key| detail.remove(key));
        let sealed = SEALED.map(|key| detail.remove(key));
        let sealed = sealed.into_iter().flatten().find_map(|value| match value {
            Value::String(text) => Some(text).filter(|text| !text.is_empty()),
            _ => None,
        });
        if self.detail.as_ref().is_some_and(|open| !same(open, &detail)) {
            self.close(out);
        }
        if self.field.is_none() {
            for (kept, text) in self.shown.iter_mut().zip(&shown) {
                let text = text.as_ref().and_then(Value::as_str).unwrap_or_default();
                if kept.len().saturating_add(text.len()) <= MAX_SHOWN {
                    kept.push_str(text);
                }
            }
        }
        match sealed {
            Some(sealed) => {
                put_shown(&mut detail, std::mem::take(self).shown);
                out.push_back(Ok(signed(sealed, Value::Object(detail))));
            }
            None => {
                self.detail.get_or_insert(detail);
            }
        }
    }

    /// Ends the reasoning so far with its note, because other content begins or the reply ends.
    pub(super) fn close(&mut self, out: &mut VecDeque<Result<Delta>>) {
        let Self { field, detail, shown } = std::mem::take(self);
        let item = match (detail, field) {
            // A detail without content.
            (Some(_), None) if shown.iter().all(String::is_empty) => return,
            (Some(mut detail), _) => {
                put_shown(&mut detail, shown);
                Value::Object(detail)
            }
            (None, Some(field)) => json!({ FIELD: field }),
            (None, None) => return,
        };
        out.push_back(Ok(signed(String::new(), item)));
    }
}

fn put_shown(detail: &mut Map<String, Value>, shown: [String; 2]) {
    for (key, text) in SHOWN.into_iter().zip(shown).filter(|(_, text)| !text.is_empty()) {
        detail.insert(key.to_owned(), text.into());
    }
}

fn signed(data: String, item: Value) -> Delta {
    Delta::signature(Signature::new(WIRE, data).with_item(item))
}

/// True if two pieces belong to one detail. A later piece may leave out keys of an earlier one.
fn same(one: &Map<String, Value>, two: &Map<String, Value>) -> bool {
    ["index", "type", "id"].iter().all(|key| match (one.get(*key), two.get(*key)) {
        (Some(one), Some(two)) => one == two || one.is_null() || two.is_null(),
        _ => true,
    })
}

/// Appends the fields in which the reasoning of `message` is sent back: each begins with a comma. Reasoning of another
/// wire is left out.
pub(super) fn put_fields(out: &mut Vec<u8>, message: &Message) {
    let mut details: Vec<Value> = Vec::new();
    let mut plain: Vec<(String, String)> = Vec::new();
    for part in message.parts() {
        let Part::Reasoning(reasoning) = part else { continue };
        let Some(signature) = reasoning.signature.as_deref().filter(|it| it.wire == WIRE) else { continue };
        let Some(Value::Object(item)) = &signature.item else { continue };
        match item.get(FIELD).and_then(Value::as_str) {
            Some(field) if field == THINKING => {}
            Some(field) => match plain.iter_mut().find(|(known, _)| known == field) {
                Some((_, text)) => text.push_str(&reasoning.text),
                None => plain.push((field.to_owned(), reasoning.text.clone())),
            },
            None => details.push(whole(item, &reasoning.text, &signature.data)),
        }
    }
    for (field, text) in &plain {
        out.push(b',');
        put(out, field);
        out.push(b':');
        put(out, text);
    }
    if !details.is_empty() {
        out.extend_from_slice(b",\"reasoning_details\":");
        put(out, &details);
    }
}

/// Name of thinking that is a piece of the content.
pub(super) const THINKING: &str = "content";

/// The thinking of `message` that is sent back as a piece of the content.
pub(super) fn thinking(message: &Message) -> String {
    let texts = message.parts().iter().filter_map(|part| match part {
        Part::Reasoning(reasoning) => {
            let signature = reasoning.signature.as_deref().filter(|it| it.wire == WIRE)?;
            let field = signature.item.as_ref()?.get(FIELD)?.as_str()?;
            (field == THINKING).then_some(reasoning.text.as_str())
        }
        _ => None,
    });
    texts.collect()
}

/// A detail with its content put back.
fn whole(item: &Map<String, Value>, text: &str, data: &str) -> Value {
    let mut detail = item.clone();
    let kind = item.get("type").and_then(Value::as_str).unwrap_or_default();
    let (shown, sealed) = match kind {
        "reasoning.summary" => ("summary", "data"),
        "reasoning.encrypted" => ("", "data"),
        _ => ("text", "signature"),
    };
    if !shown.is_empty() {
        let kept = detail.get(shown).and_then(Value::as_str).unwrap_or_default();
        let all = if text.starts_with(kept) { text.to_owned() } else { format!("{kept}{text}") };
        detail.insert(shown.to_owned(), all.into());
    }
    if !data.is_empty() {
        detail.insert(sealed.to_owned(), data.into());
    }
    Value::Object(detail)
}

#[cfg(test)]
mod tests {
    use entourage_core::provider::Request;
    use entourage_runtime::reply::Assembler;

    use super::*;
    use crate::openai_chat::{Dialect, OpenAiChatDecoder, encode};

    #[test]
    fn text_that_only_a_detail_shows_goes_back_with_its_seal() {
        let mut decoder = OpenAiChatDecoder::new(Dialect::COMMON);
        for detail in [r#""text":"Let me ""#, r#""text":"see.""#, r#""signature":"seal""#] {
            let detail = format!(r#"{{"type":"reasoning.text","index":0,{detail}}}"#);
            let delta = format!(r#"{{"choices":[{{"delta":{{"reasoning_details":[{detail}]}}}}]}}"#);
            decoder.push(format!("data: {delta}\n\n").as_bytes());
        }
        decoder
            .push(b"data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\n");
        decoder.finish();
        let mut assembler = Assembler::default();
        while let Some(delta) = decoder.pop() {
            assembler.push(&delta.unwrap()).unwrap();
        }
        let message = assembler.finish().unwrap().into_message();
        let body = encode(&Request::new("m", [message].into_iter().collect()), Dialect::COMMON);
        let body: Value = serde_json::from_slice(&body).unwrap();
        let sent =
            json!([{"type": "reasoning.text", "index": 0, "text": "Let me see.", "signature": "seal"}]);
        assert_eq!(body["messages"][0]["reasoning_details"], sent);
    }
}
