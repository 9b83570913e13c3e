//! The generateContent wire: each event is a piece of the reply with whole parts; calls come at once.

use std::sync::Arc;

use entourage_core::{
    ErrorKind, Result, Usage,
    provider::{FinishReason, Provider},
};
use entourage_providers::gemini::Gemini;
use entourage_testkit::stream::{Capability, Ending, Failure, Manifest, Say};
use serde_json::{Value, json};

use crate::spelling::{Facts, KEY, Spelling, arguments, object, unsupported};

#[derive(Debug)]
pub(crate) struct Generate;

impl Spelling for Generate {
    const WANTED: &'static [&'static str] = &[
        "POST /v1beta/models/model-1:streamGenerateContent?alt=sse HTTP/1.1",
        "x-goog-api-key: sk-4f0c9a71d2e8",
    ];

    fn manifest() -> Manifest {
        let object = "the arguments of a call are an object, which comes whole";
        Manifest::new("gemini")
            .without(Capability::RefusalText, "a refusal is text")
            .without(Capability::RefusalFinish, "what the model declines ends with STOP")
            .without(Capability::RawArguments, object)
            .without(Capability::StreamedArguments, object)
            .without(Capability::CacheWrites, "only what a cache gave is counted")
            .without(Capability::Cost, "no price is told")
            .without(
                Capability::FilteredRequests,
                "a blocked prompt is answered with a reply without content",
            )
    }

    fn provider(address: &str) -> Result<Arc<dyn Provider>> {
        Ok(Arc::new(Gemini::builder().base_url(format!("{address}/v1beta")).api_key(KEY).build()?))
    }

    fn headers(_: &Failure) -> Vec<(&'static str, String)> {
        // The time to wait is in the body.
        vec![("Content-Type", "application/json; charset=UTF-8".to_owned())]
    }

    fn refused(failure: &Failure) -> Result<String> {
        if failure.kind == ErrorKind::ContentFiltered {
            return Err(unsupported("no error says that a prompt was blocked"));
        }
        Ok(format!("{:#}", error(failure, failure.status)))
    }

    fn streamed(says: &[Say], ending: &Ending) -> Result<Vec<String>> {
        let facts = Facts::of(says);
        let mut events = Vec::new();
        let mut signature = None;
        for say in says {
            match *say {
                Say::Signature(data) => signature = Some(data),
                Say::CallStart { index, .. } if *ending == Ending::CutOff && object(says, index).is_err() => {
                    events.push(cut_call(&arguments(says, index)));
                }
                ref say => {
                    let Some(mut part) = part(say, says)? else { continue };
                    if let Some(data) = signature.take() {
                        part["thoughtSignature"] = data.into();
                    }
                    events.push(event(&chunk(&facts, &json!([part]), None)));
                }
            }
        }
        match ending {
            Ending::Finish(why) => {
                let mut last = json!({"text": ""});
                if let Some(data) = signature {
                    last["thoughtSignature"] = data.into();
                }
                events.push(event(&chunk(&facts, &json!([last]), Some(reason(*why)?))));
            }
            Ending::Failed(failure) => {
                let status = if failure.kind == ErrorKind::Overloaded { 503 } else { failure.status };
                events.push(event(&error(failure, status)));
            }
            Ending::Open if says.iter().any(|say| matches!(say, Say::Arguments { .. })) => {
                return Err(unsupported("a call comes whole, or not at all"));
            }
            _ => {}
        }
        Ok(events)
    }
}

fn event(data: &Value) -> String {
    format!("data: {data}\r\n\r\n")
}

/// A call whose connection breaks in the middle.
fn cut_call(arguments: &str) -> String {
    format!(
        "data: {{\"candidates\": [{{\"content\": {{\"parts\": [{{\"functionCall\": {{\"name\": \"look\",\"args\": {arguments}"
    )
}

fn chunk(facts: &Facts, parts: &Value, finish: Option<&str>) -> Value {
    let mut candidate = json!({"content": {"parts": parts, "role": "model"}, "index": 0});
    let mut chunk = json!({"modelVersion": facts.model, "responseId": facts.id.unwrap_or("r-1")});
    if let Some(finish) = finish {
        candidate["finishReason"] = finish.into();
    }
    chunk["candidates"] = json!([candidate]);
    if let Some(usage) = &facts.usage {
        chunk["usageMetadata"] = counted(usage, finish.is_some());
    }
    chunk
}

fn part(say: &Say, says: &[Say]) -> Result<Option<Value>> {
    Ok(Some(match *say {
        Say::Text(text) => json!({"text": text}),
        Say::Reasoning(text) => json!({"text": text, "thought": true}),
        Say::CallStart { index, id, name } => {
            json!({"functionCall": {"name": name, "args": object(says, index)?, "id": id}})
        }
        Say::Block => json!({"executableCode": {"language": "PYTHON", "code": "print(1)\n"}}),
        Say::Arguments { .. } | Say::ResponseId(_) | Say::ResponseModel(_) | Say::Usage(_) => {
            return Ok(None);
        }
        ref other => return Err(unsupported(format!("no part says {other:?}"))),
    }))
}

/// The wire's finish reason. The service says `STOP` for calls too.
fn reason(reason: FinishReason) -> Result<&'static str> {
    Ok(match reason {
        FinishReason::Stop | FinishReason::ToolCalls => "STOP",
        FinishReason::Length => "MAX_TOKENS",
        FinishReason::ContentFilter => "SAFETY",
        other => return Err(unsupported(format!("no finishReason says {other:?}"))),
    })
}

/// The usage in the wire's form. Each chunk counts anew; candidates are counted without thoughts.
fn counted(usage: &Usage, all: bool) -> Value {
    let input = usage.input.unwrap_or(0);
    let mut counted = json!({"promptTokenCount": input, "totalTokenCount": input});
    if let Some(read) = usage.cache_read {
        counted["cachedContentTokenCount"] = read.into();
    }
    if all {
        let output = usage.output.unwrap_or(0);
        counted["candidatesTokenCount"] = (output - usage.reasoning.unwrap_or(0)).into();
        counted["totalTokenCount"] = (input + output).into();
        if let Some(thoughts) = usage.reasoning {
            counted["thoughtsTokenCount"] = thoughts.into();
        }
    }
    counted
}

fn error(failure: &Failure, status: u16) -> Value {
    let said = failure.message;
    let (word, message) = match failure.kind {
        ErrorKind::Authentication => ("UNAUTHENTICATED", said.to_owned()),
        ErrorKind::PermissionDenied => ("PERMISSION_DENIED", said.to_owned()),
        ErrorKind::NotFound => ("NOT_FOUND", said.to_owned()),
        ErrorKind::RateLimited => ("RESOURCE_EXHAUSTED", said.to_owned()),
        ErrorKind::Overloaded if status == 500 => ("INTERNAL", said.to_owned()),
        ErrorKind::Overloaded => ("UNAVAILABLE", said.to_owned()),
        ErrorKind::ContextOverflow => (
            "INVALID_ARGUMENT",
            format!("The input token count exceeds the maximum number of tokens allowed: {said}"),
        ),
        _ => ("INVALID_ARGUMENT", said.to_owned()),
    };
    let mut error = json!({"code": status, "message": message, "status": word});
    if let Some(wait) = failure.retry_after {
        let delay = format!("{}s", wait.as_secs());
        error["details"] =
            json!([{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}]);
    }
    json!({ "error": error })
}
