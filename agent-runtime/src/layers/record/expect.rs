//! Summary of a recorded reply, computed from its deltas: the `expect` of the recordings' format.

use entourage_core::{
    Usage,
    provider::{CallStart, Delta, Finish, ResponseInfo},
};
use serde_json::{Value, json};

use super::scrub::Scrubber;

/// Differences between the service's way of counting and [`Usage`].
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counting {
    pub(super) cache_apart: bool,
    pub(super) reasoning_apart: bool,
}

/// Summary of one reply.
#[derive(Debug, Default)]
pub(super) struct Expected {
    pub(super) text: String,
    reasoning: String,
    refusal: String,
    calls: Vec<(u32, CallStart, String)>,
    signatures: Vec<String>,
    blocks: Vec<Value>,
    pub(super) usage: Usage,
    finish: Option<Finish>,
    info: ResponseInfo,
    /// Status, code and message of the failure.
    pub(super) error: Option<Value>,
}

impl Expected {
    /// Adds up `deltas`, without those that a restart voids.
    pub(super) fn of(deltas: &[Delta], scrubber: &Scrubber) -> Self {
        let mut all = Self::default();
        deltas.iter().for_each(|delta| all.take(delta));
        // Text of different parts is joined here, so a secret may only now be whole.
        for text in [&mut all.text, &mut all.reasoning, &mut all.refusal] {
            scrubber.replace(text);
        }
        all
    }

    fn take(&mut self, delta: &Delta) {
        match delta {
            Delta::Text(text) => self.text.push_str(text),
            Delta::Reasoning(text) => self.reasoning.push_str(text),
            Delta::Refusal(text) => self.refusal.push_str(text),
            Delta::ReasoningSignature(signature) if !signature.data.is_empty() => {
                self.signatures.push(signature.data.clone());
            }
            Delta::ToolCallStart(call) => {
                self.calls.push((call.index, (**call).clone(), String::new()));
            }
            Delta::ToolCallArguments { index, text } => {
                if let Some((_, _, raw)) = self.calls.iter_mut().rev().find(|(at, ..)| at == index) {
                    raw.push_str(text);
                }
            }
            Delta::Opaque(block) => self.blocks.push(block_name(&block.data)),
            Delta::Response(info) => self.info.merge((**info).clone()),
            Delta::Usage(usage) => self.usage.merge(**usage),
            Delta::Restart(_) => *self = Self::default(),
            Delta::Finish(finish) => self.finish = Some((**finish).clone()),
            _ => {}
        }
    }

    pub(super) fn tool_calls(&self) -> Vec<Value> {
        let call = |(_, head, raw): &(u32, CallStart, String)| {
            let text = if raw.trim().is_empty() { "{}" } else { raw };
            let arguments: Option<Value> = serde_json::from_str(text).ok();
            let broken = arguments.is_none().then(|| ("arguments_invalid_json", true.into()));
            object(
                [
                    ("id", head.id.to_string().into()),
                    ("name", head.name.to_string().into()),
                    ("arguments", arguments.unwrap_or_default()),
                    ("arguments_raw", raw.as_str().into()),
                ]
                .into_iter()
                .chain(broken),
            )
        };
        self.calls.iter().map(call).collect()
    }

    /// The reason as the wire spells it; ours if no wire was crossed.
    pub(super) fn finish_reason(&self, wire: bool) -> Option<Value> {
        let finish = self.finish.as_ref()?;
        match &finish.raw {
            Some(word) => Some(word.to_string().into()),
            None if wire => None,
            None => serde_json::to_value(finish.reason).ok(),
        }
    }

    pub(super) fn to_value(&self, wire: bool, counting: Counting) -> Value {
        let some_text = |text: &String| (!text.is_empty()).then(|| text.clone().into());
        let fields = [
            ("text", Some(self.text.clone().into())),
            ("tool_calls", Some(self.tool_calls().into())),
            ("reasoning", some_text(&self.reasoning)),
            ("refusal", some_text(&self.refusal)),
            ("signatures", (!self.signatures.is_empty()).then(|| self.signatures.clone().into())),
            ("server_tools", (!self.blocks.is_empty()).then(|| self.blocks.clone().into())),
            ("usage", (!self.usage.is_unknown()).then(|| usage(&self.usage, counting))),
            ("finish_reason", self.finish_reason(wire)),
            ("model", self.info.model.as_ref().map(|model| model.to_string().into())),
            ("error", self.error.clone()),
        ];
        object(fields.into_iter().filter_map(|(name, value)| Some((name, value?))))
    }

    /// Features of the reply, as the recordings' format names them.
    pub(super) fn features(&self) -> Vec<String> {
        let usage = &self.usage;
        let some = |tokens: Option<u64>| tokens.is_some_and(|tokens| tokens > 0);
        let features = [
            ("text", !self.text.is_empty()),
            ("reasoning", !self.reasoning.is_empty()),
            ("reasoning-signature", !self.signatures.is_empty()),
            ("tool-call", !self.calls.is_empty()),
            ("parallel-tool-calls", self.calls.len() > 1),
            ("text-and-tool-call", !self.calls.is_empty() && !self.text.is_empty()),
            ("server-tools", !self.blocks.is_empty()),
            ("cache-read-usage", some(usage.cache_read)),
            ("cache-write-usage", some(usage.cache_write)),
            ("reasoning-usage", some(usage.reasoning)),
            ("error", self.error.is_some()),
        ];
        let mut names: Vec<String> =
            features.into_iter().filter(|(_, occurs)| *occurs).map(|(name, _)| name.to_owned()).collect();
        if let Some(status) = self.error.as_ref().and_then(|error| error.get("status")?.as_u64()) {
            names.push(format!("error-{status}"));
        }
        names
    }
}

/// Usage as the provider counts it, without the tokens that it counts apart.
pub(super) fn usage(usage: &Usage, counting: Counting) -> Value {
    let without = |all: Option<u64>, parts: &[Option<u64>], apart: bool| {
        all.map(|all| {
            if apart { parts.iter().flatten().fold(all, |all, part| all.saturating_sub(*part)) } else { all }
        })
    };
    json!({
        "input_tokens": without(usage.input, &[usage.cache_read, usage.cache_write], counting.cache_apart),
        "output_tokens": without(usage.output, &[usage.reasoning], counting.reasoning_apart),
        "cache_read_tokens": usage.cache_read,
        "cache_write_tokens": usage.cache_write,
        "reasoning_tokens": usage.reasoning,
    })
}

/// A JSON object.
pub(super) fn object(fields: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// Kind of the block: its `type`, else its first field.
fn block_name(data: &Value) -> Value {
    let named = data.get("type").filter(|name| name.is_string()).cloned();
    let field = || data.as_object()?.keys().next().cloned().map(Value::from);
    named.or_else(field).unwrap_or_else(|| "block".into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use entourage_core::{
        Error, ErrorKind,
        message::{Opaque, Signature},
        provider::{FinishReason, Restart},
    };

    fn counted() -> Usage {
        let mut usage = Usage::new(100, 20);
        (usage.cache_read, usage.cache_write, usage.reasoning) = (Some(60), Some(10), Some(15));
        usage
    }

    #[test]
    fn a_reply_is_summarised_in_the_recording_format() {
        let error = Error::new(ErrorKind::Overloaded, "busy").record();
        let deltas = [
            Delta::text("void"),
            Delta::Restart(Box::new(Restart::new(2, error, Duration::ZERO))),
            Delta::Response(Box::new(ResponseInfo::new(Some("r".into()), Some("large-1".into())))),
            Delta::Reasoning("Hm.".into()),
            Delta::signature(Signature::new("w", "c2ln")),
            Delta::signature(Signature::new("w", "")),
            Delta::text("a"),
            Delta::tool_call(0, "1", "look"),
            Delta::tool_call(1, "2", "count"),
            Delta::arguments(0, "{\"at\":"),
            Delta::arguments(1, "{\"at"),
            Delta::arguments(0, "1}"),
            Delta::Opaque(Box::new(Opaque::new("w", json!({"type": "search"})))),
            Delta::Usage(Box::new(counted())),
            Delta::finish(Finish::from_wire(FinishReason::ToolCalls, "tool_use")),
        ];
        let said = Expected::of(&deltas, &Scrubber::default());
        let apart = Counting { cache_apart: true, reasoning_apart: true };
        assert_eq!(
            said.to_value(true, apart),
            json!({
                "text": "a", "reasoning": "Hm.", "signatures": ["c2ln"], "server_tools": ["search"],
                "model": "large-1", "finish_reason": "tool_use",
                "tool_calls": [
                    {"id": "1", "name": "look", "arguments": {"at": 1}, "arguments_raw": "{\"at\":1}"},
                    {"id": "2", "name": "count", "arguments": null, "arguments_invalid_json": true,
                     "arguments_raw": "{\"at"},
                ],
                "usage": {"input_tokens": 30, "output_tokens": 5, "cache_read_tokens": 60,
                          "cache_write_tokens": 10, "reasoning_tokens": 15},
            })
        );
        assert!(said.features().contains(&"parallel-tool-calls".to_owned()));
        assert_eq!(usage(&counted(), Counting::default())["input_tokens"], 100);
    }

    #[test]
    fn missing_fields_are_absent() {
        let said = Expected::of(&[Delta::finish(FinishReason::Stop)], &Scrubber::default());
        assert_eq!(said.to_value(true, Counting::default()), json!({"text": "", "tool_calls": []}));
        assert_eq!(said.to_value(false, Counting::default())["finish_reason"], "stop");
    }
}
