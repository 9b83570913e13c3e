//! The wire of Ollama's own chat: a line of JSON for each piece, whole calls, and errors without a code.

use std::sync::Arc;

use entourage_core::{
    ErrorKind, Result,
    provider::{FinishReason, Provider},
};
use entourage_providers::ollama::Ollama;
use entourage_testkit::stream::{Capability, Ending, Failure, Manifest, Say};
use serde_json::{Value, json};

use crate::spelling::{Facts, KEY, Spelling, arguments, object, unsupported};

#[derive(Debug)]
pub(crate) struct Lines;

impl Spelling for Lines {
    const FILLER: &'static str = "\n";
    const CONTENT_TYPE: &'static str = "application/x-ndjson";

    const WANTED: &'static [&'static str] =
        &["POST /api/chat HTTP/1.1", "authorization: Bearer sk-4f0c9a71d2e8"];

    fn manifest() -> Manifest {
        let object = "the arguments of a call are an object, which comes whole";
        let tokens = "tokens of the prompt and of the reply are all that is counted";
        Manifest::new("ollama")
            .without(Capability::Signatures, "thinking is not signed")
            .without(Capability::RefusalText, "a refusal is text")
            .without(Capability::RefusalFinish, "what the model declines ends with `stop`")
            .without(Capability::ContentFilter, "nothing is withheld")
            .without(Capability::RawArguments, object)
            .without(Capability::StreamedArguments, object)
            .without(Capability::Blocks, "the server has no tools of its own")
            .without(Capability::CacheReads, tokens)
            .without(Capability::CacheWrites, tokens)
            .without(Capability::ReasoningUsage, tokens)
            .without(Capability::Cost, "no price is told")
            .without(Capability::ResponseId, "replies have no id")
            .without(
                Capability::StreamErrors,
                "an error in a stream is words, without anything to tell its kind",
            )
            .without(Capability::FilteredRequests, "no request is refused for its content")
    }

    fn provider(address: &str) -> Result<Arc<dyn Provider>> {
        Ok(Arc::new(Ollama::builder().base_url(address).api_key(KEY).build()?))
    }

    fn refused(failure: &Failure) -> Result<String> {
        let said = failure.message;
        let words = match failure.kind {
            ErrorKind::ContextOverflow => format!("prompt too long; exceeded max context length by {said}"),
            ErrorKind::ContentFiltered => return Err(unsupported("no request is refused for its content")),
            _ => said.to_owned(),
        };
        Ok(json!({ "error": words }).to_string())
    }

    fn streamed(says: &[Say], ending: &Ending) -> Result<Vec<String>> {
        let facts = Facts::of(says);
        let mut lines = Vec::new();
        for say in says {
            match *say {
                Say::CallStart { index, .. } if *ending == Ending::CutOff && object(says, index).is_err() => {
                    lines.push(cut_call(&arguments(says, index)));
                }
                ref say => {
                    let Some(message) = message(say, says)? else { continue };
                    lines.push(line(&facts, &message, None));
                }
            }
        }
        match ending {
            Ending::Finish(why) => {
                let message = json!({"role": "assistant", "content": ""});
                lines.push(line(&facts, &message, Some(reason(*why)?)));
            }
            Ending::Failed(failure) => lines.push(format!("{}\n", json!({ "error": failure.message }))),
            Ending::Open if says.iter().any(|say| matches!(say, Say::Arguments { .. })) => {
                return Err(unsupported("a call comes whole, or not at all"));
            }
            _ => {}
        }
        Ok(lines)
    }
}

/// A call whose connection breaks in the middle.
fn cut_call(arguments: &str) -> String {
    format!(
        "{{\"model\":\"model-1\",\"message\":{{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{{\"function\":{{\"name\":\"look\",\"arguments\":{arguments}"
    )
}

fn line(facts: &Facts, message: &Value, done: Option<&str>) -> String {
    let mut line = json!({
        "model": facts.model, "created_at": "2026-08-05T08:10:56.372032Z", "message": message,
        "done": done.is_some(),
    });
    if let Some(reason) = done {
        line["done_reason"] = reason.into();
        line["total_duration"] = 7_577_982_042_u64.into();
        if let Some(usage) = &facts.usage {
            line["prompt_eval_count"] = usage.input.into();
            line["eval_count"] = usage.output.into();
        }
    }
    format!("{line}\n")
}

fn message(say: &Say, says: &[Say]) -> Result<Option<Value>> {
    Ok(Some(match *say {
        Say::Text(text) => json!({"role": "assistant", "content": text}),
        Say::Reasoning(text) => json!({"role": "assistant", "content": "", "thinking": text}),
        Say::CallStart { index, id, name } => {
            let function = json!({"index": index, "name": name, "arguments": object(says, index)?});
            json!({"role": "assistant", "content": "", "tool_calls": [{"id": id, "function": function}]})
        }
        Say::Arguments { .. } | Say::ResponseId(_) | Say::ResponseModel(_) | Say::Usage(_) => {
            return Ok(None);
        }
        ref other => return Err(unsupported(format!("no line says {other:?}"))),
    }))
}

/// The wire's finish reason. The server says `stop` for calls too.
fn reason(reason: FinishReason) -> Result<&'static str> {
    Ok(match reason {
        FinishReason::Stop | FinishReason::ToolCalls => "stop",
        FinishReason::Length => "length",
        other => return Err(unsupported(format!("no done_reason says {other:?}"))),
    })
}
