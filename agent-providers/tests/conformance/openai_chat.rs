//! The chat completions wire: the common form, with reasoning in the two forms in which services show it.

use std::sync::Arc;

use entourage_core::{
    ErrorKind, Result, Usage,
    provider::{FinishReason, Provider},
};
use entourage_providers::openai_chat::OpenAiChat;
use entourage_testkit::stream::{Capability, Ending, Failure, Manifest, Say};
use serde_json::{Value, json};

use crate::spelling::{Facts, KEY, Spelling, dollars, event, unsupported};

#[derive(Debug)]
pub(crate) struct Chat;

impl Spelling for Chat {
    const WANTED: &'static [&'static str] =
        &["POST /v1/chat/completions HTTP/1.1", "authorization: Bearer sk-4f0c9a71d2e8"];

    fn manifest() -> Manifest {
        Manifest::new("openai-chat")
            .without(Capability::RefusalFinish, "a refusal has a field of its own, and ends with `stop`")
            .without(Capability::Blocks, "what a service does on its side is part of the text")
    }

    fn provider(address: &str) -> Result<Arc<dyn Provider>> {
        Ok(Arc::new(OpenAiChat::builder().base_url(format!("{address}/v1")).api_key(KEY).build()?))
    }

    fn refused(failure: &Failure) -> Result<String> {
        Ok(json!({ "error": error(failure) }).to_string())
    }

    fn streamed(says: &[Say], ending: &Ending) -> Result<Vec<String>> {
        let facts = Facts::of(says);
        // Gateways keep the connection awake with comments.
        let mut events = vec![": OPENROUTER PROCESSING\n\n".to_owned()];
        events.push(chunk(&facts, &json!({"role": "assistant", "content": "", "refusal": null}), None));
        let details = Details::of(says);
        for say in says {
            if let Some(delta) = delta(say, details)? {
                events.push(chunk(&facts, &delta, None));
            }
        }
        match ending {
            Ending::Finish(why) => {
                events.push(chunk(&facts, &json!({}), Some(reason(*why)?)));
                if let Some(usage) = facts.usage {
                    let mut last = whole(&facts, &json!([]));
                    last["usage"] = counted(&usage);
                    events.push(event("", &last));
                }
                events.push("data: [DONE]\n\n".to_owned());
            }
            Ending::Failed(failure) => {
                events.push(event("", &json!({ "error": error(failure) })));
                events.push("data: [DONE]\n\n".to_owned());
            }
            _ => {}
        }
        Ok(events)
    }
}

fn whole(facts: &Facts, choices: &Value) -> Value {
    json!({
        "id": facts.id.unwrap_or("chatcmpl-1"), "object": "chat.completion.chunk", "created": 1_766_084_448,
        "model": facts.model, "service_tier": "default", "system_fingerprint": "fp_1",
        "choices": choices, "usage": null,
    })
}

fn chunk(facts: &Facts, delta: &Value, finish: Option<&str>) -> String {
    let choice = json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]);
    event("", &whole(facts, &choice))
}

/// The form of a reply's reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Details {
    /// Plain text in a field.
    None,
    /// Details with text, the last of which is signed.
    Signed,
    /// A detail that only the service can read.
    Sealed,
}

impl Details {
    fn of(says: &[Say]) -> Self {
        let has = |is: fn(&Say) -> bool| says.iter().any(is);
        match (has(|say| matches!(say, Say::Signature(_))), has(|say| matches!(say, Say::Reasoning(_)))) {
            (false, _) => Self::None,
            (true, true) => Self::Signed,
            (true, false) => Self::Sealed,
        }
    }
}

fn delta(say: &Say, details: Details) -> Result<Option<Value>> {
    let detail = |word: &str, text: &str| json!([{"type": "reasoning.text", word: text, "format": "anthropic-claude-v1", "index": 0}]);
    Ok(Some(match *say {
        Say::Text(text) => json!({"content": text}),
        Say::Reasoning(text) if details == Details::Signed => {
            json!({"content": "", "reasoning": text, "reasoning_details": detail("text", text)})
        }
        Say::Reasoning(text) => json!({"content": null, "reasoning_content": text}),
        Say::Signature(data) if details == Details::Sealed => {
            let detail = json!({
                "type": "reasoning.encrypted", "data": data, "id": "rs_1", "format": "openai-responses-v1", "index": 0,
            });
            json!({"content": "", "reasoning": null, "reasoning_details": [detail]})
        }
        Say::Signature(data) => json!({"content": "", "reasoning_details": detail("signature", data)}),
        Say::Refusal(text) => json!({"refusal": text}),
        Say::CallStart { index, id, name } => {
            let function = json!({"name": name, "arguments": ""});
            json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]})
        }
        Say::Arguments { index, json } => {
            json!({"tool_calls": [{"index": index, "function": {"arguments": json}}]})
        }
        Say::ResponseId(_) | Say::ResponseModel(_) | Say::Usage(_) => return Ok(None),
        ref other => return Err(unsupported(format!("chat completions cannot say {other:?}"))),
    }))
}

fn reason(reason: FinishReason) -> Result<&'static str> {
    Ok(match reason {
        FinishReason::Stop => "stop",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::Length => "length",
        FinishReason::ContentFilter => "content_filter",
        other => return Err(unsupported(format!("no finish_reason says {other:?}"))),
    })
}

fn counted(usage: &Usage) -> Value {
    let (input, output) = (usage.input.unwrap_or(0), usage.output.unwrap_or(0));
    let mut counted = json!({
        "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read.unwrap_or(0),
            "cache_write_tokens": usage.cache_write.unwrap_or(0),
            "audio_tokens": 0,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning.unwrap_or(0), "audio_tokens": 0},
    });
    if let Some(cost) = usage.cost {
        counted["cost"] = dollars(cost).into();
    }
    counted
}

fn error(failure: &Failure) -> Value {
    let (kind, code) = match failure.kind {
        ErrorKind::Authentication => ("invalid_request_error", json!("invalid_api_key")),
        ErrorKind::PermissionDenied => ("invalid_request_error", json!("missing_scope")),
        ErrorKind::NotFound => ("invalid_request_error", json!("model_not_found")),
        ErrorKind::ContextOverflow => ("invalid_request_error", json!("context_length_exceeded")),
        ErrorKind::ContentFiltered => ("invalid_request_error", json!("content_filter")),
        ErrorKind::RateLimited => ("requests", json!("rate_limit_exceeded")),
        ErrorKind::Overloaded => ("server_error", Value::Null),
        _ => ("invalid_request_error", Value::Null),
    };
    json!({"message": failure.message, "type": kind, "param": null, "code": code})
}
