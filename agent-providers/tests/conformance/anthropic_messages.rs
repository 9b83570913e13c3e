//! The messages wire: blocks with indexes, which begin, grow and stop.

use std::{collections::BTreeMap, sync::Arc};

use entourage_core::{
    ErrorKind, Result, Usage,
    provider::{FinishReason, Provider},
};
use entourage_providers::anthropic_messages::AnthropicMessages;
use entourage_testkit::stream::{Capability, Ending, Failure, Manifest, Say};
use serde_json::{Value, json};

use crate::spelling::{Facts, KEY, Spelling, completed, dollars, event, unsupported};

#[derive(Debug)]
pub(crate) struct Messages;

impl Spelling for Messages {
    const WANTED: &'static [&'static str] =
        &["POST /v1/messages HTTP/1.1", "x-api-key: sk-4f0c9a71d2e8", "anthropic-version: 2023-06-01"];

    fn manifest() -> Manifest {
        Manifest::new("anthropic-messages")
            .without(Capability::ContentFilter, "what the service withholds ends as a refusal")
            .without(Capability::UnreportedUsage, "a message begins with what it used")
    }

    fn provider(address: &str) -> Result<Arc<dyn Provider>> {
        Ok(Arc::new(AnthropicMessages::builder().base_url(format!("{address}/v1")).api_key(KEY).build()?))
    }

    fn refused(failure: &Failure) -> Result<String> {
        Ok(error(failure).to_string())
    }

    fn streamed(says: &[Say], ending: &Ending) -> Result<Vec<String>> {
        let facts = Facts::of(says);
        let mut reply = Reply::begin(&facts);
        for (at, say) in says.iter().enumerate() {
            reply.say(say)?;
            if let Some(call) = completed(says, at, ending) {
                reply.end_call(call);
            }
        }
        match ending {
            Ending::Finish(why) => reply.finish(*why, &facts)?,
            Ending::Failed(failure) => reply.events.push(event("error", &error(failure))),
            _ => {}
        }
        Ok(reply.events)
    }
}

#[derive(Default)]
struct Reply {
    events: Vec<String>,
    /// Number of blocks that began.
    blocks: u64,
    /// The kind of the open block, unless it is a call.
    open: Option<&'static str>,
    calls: BTreeMap<u32, u64>,
    explanation: String,
}

impl Reply {
    fn begin(facts: &Facts) -> Self {
        let mut reply = Self::default();
        let message = json!({
            "id": facts.id.unwrap_or("msg_1"), "type": "message", "role": "assistant", "model": facts.model,
            "content": [], "stop_reason": null, "stop_sequence": null, "stop_details": null,
            "usage": begun(facts.usage.as_ref()),
        });
        reply.event("message_start", json!({ "message": message }));
        reply
    }

    fn event(&mut self, kind: &str, mut fields: Value) {
        fields["type"] = kind.into();
        self.events.push(event(kind, &fields));
    }

    fn start(&mut self, block: &Value) -> u64 {
        let index = self.blocks;
        self.blocks += 1;
        self.event("content_block_start", json!({"index": index, "content_block": block}));
        if index == 0 {
            self.event("ping", json!({}));
        }
        index
    }

    fn delta(&mut self, index: u64, delta: &Value) {
        self.event("content_block_delta", json!({"index": index, "delta": delta}));
    }

    fn stop(&mut self, index: u64) {
        self.event("content_block_stop", json!({ "index": index }));
    }

    fn close(&mut self) {
        if self.open.take().is_some() {
            self.stop(self.blocks - 1);
        }
    }

    /// Index of the open block of this kind, which is opened if needed.
    fn opened(&mut self, kind: &'static str, block: &Value) -> u64 {
        if self.open != Some(kind) {
            self.close();
            self.start(block);
            self.open = Some(kind);
        }
        self.blocks - 1
    }

    fn say(&mut self, say: &Say) -> Result<()> {
        match *say {
            Say::Text(text) => {
                let index = self.opened("text", &json!({"type": "text", "text": ""}));
                self.delta(index, &json!({"type": "text_delta", "text": text}));
            }
            Say::Reasoning(text) => {
                let block = json!({"type": "thinking", "thinking": "", "signature": ""});
                let index = self.opened("thinking", &block);
                self.delta(index, &json!({"type": "thinking_delta", "thinking": text}));
            }
            Say::Signature(data) if self.open == Some("thinking") => {
                self.delta(self.blocks - 1, &json!({"type": "signature_delta", "signature": data}));
                self.close();
            }
            Say::Signature(data) => {
                self.close();
                let index = self.start(&json!({"type": "redacted_thinking", "data": data}));
                self.stop(index);
            }
            Say::Refusal(text) => self.explanation.push_str(text),
            Say::CallStart { index: call, id, name } => {
                self.close();
                let index = self.start(&json!({"type": "tool_use", "id": id, "name": name, "input": {}}));
                self.delta(index, &json!({"type": "input_json_delta", "partial_json": ""}));
                self.calls.insert(call, index);
            }
            Say::Arguments { index, json } => {
                let index = self.calls.get(&index).copied().unwrap();
                self.delta(index, &json!({"type": "input_json_delta", "partial_json": json}));
            }
            Say::Block => {
                self.close();
                let index = self.start(&json!({"type": "compaction", "content": null}));
                self.delta(index, &json!({"type": "compaction_delta", "content": "They said hello."}));
                self.stop(index);
            }
            Say::ResponseId(_) | Say::ResponseModel(_) | Say::Usage(_) => {}
            ref other => return Err(unsupported(format!("messages cannot say {other:?}"))),
        }
        Ok(())
    }

    fn end_call(&mut self, call: u32) {
        if let Some(index) = self.calls.remove(&call) {
            self.stop(index);
        }
    }

    fn finish(&mut self, why: FinishReason, facts: &Facts) -> Result<()> {
        self.close();
        let details = (!self.explanation.is_empty())
            .then(|| json!({"type": "refusal", "category": null, "explanation": self.explanation}));
        let reason = match why {
            _ if details.is_some() => "refusal",
            FinishReason::Stop => "end_turn",
            FinishReason::ToolCalls => "tool_use",
            FinishReason::Length => "max_tokens",
            FinishReason::Refusal => "refusal",
            other => return Err(unsupported(format!("no stop_reason says {other:?}"))),
        };
        let delta = json!({"stop_reason": reason, "stop_sequence": null, "stop_details": details});
        self.event("message_delta", json!({"delta": delta, "usage": ended(facts.usage.as_ref())}));
        self.event("message_stop", json!({}));
        Ok(())
    }
}

/// The start of a message. On this wire the input excludes tokens that a cache read or wrote.
fn begun(usage: Option<&Usage>) -> Value {
    let (read, written) = cached(usage);
    let input = usage.map_or(12, |usage| usage.input.unwrap_or(0) - read - written);
    json!({
        "input_tokens": input, "cache_creation_input_tokens": written, "cache_read_input_tokens": read,
        "cache_creation": {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0},
        "output_tokens": 1, "service_tier": "standard",
    })
}

fn ended(usage: Option<&Usage>) -> Value {
    let mut ended = begun(usage);
    ended["output_tokens"] = usage.and_then(|usage| usage.output).unwrap_or(7).into();
    if let Some(thinking) = usage.and_then(|usage| usage.reasoning) {
        ended["output_tokens_details"] = json!({ "thinking_tokens": thinking });
    }
    if let Some(cost) = usage.and_then(|usage| usage.cost) {
        // Gateways that speak this wire report it.
        ended["cost"] = dollars(cost).into();
    }
    ended
}

fn cached(usage: Option<&Usage>) -> (u64, u64) {
    usage.map_or((0, 0), |usage| (usage.cache_read.unwrap_or(0), usage.cache_write.unwrap_or(0)))
}

/// An error. Only the words distinguish a prompt that is too long, or content that is refused, from another bad
/// request.
fn error(failure: &Failure) -> Value {
    let said = failure.message;
    let (kind, message) = match failure.kind {
        ErrorKind::Authentication => ("authentication_error", said.to_owned()),
        ErrorKind::PermissionDenied => ("permission_error", said.to_owned()),
        ErrorKind::NotFound => ("not_found_error", said.to_owned()),
        ErrorKind::TooLarge => ("request_too_large", said.to_owned()),
        ErrorKind::RateLimited => ("rate_limit_error", said.to_owned()),
        ErrorKind::Overloaded if failure.status == 529 => ("overloaded_error", said.to_owned()),
        ErrorKind::Overloaded => ("api_error", said.to_owned()),
        ErrorKind::ContextOverflow => ("invalid_request_error", format!("prompt is too long: {said}")),
        ErrorKind::ContentFiltered => {
            ("invalid_request_error", format!("Output blocked by content filtering policy: {said}"))
        }
        _ => ("invalid_request_error", said.to_owned()),
    };
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"})
}
