//! The responses wire: items that are announced, sent in pieces, and repeated whole when they are done.

use std::{collections::BTreeMap, sync::Arc};

use entourage_core::{
    ErrorKind, Result, Usage,
    provider::{FinishReason, Provider},
};
use entourage_providers::openai_responses::OpenAiResponses;
use entourage_testkit::stream::{Capability, Ending, Failure, Manifest, Say};
use serde_json::{Value, json};

use crate::spelling::{Facts, KEY, Spelling, completed, dollars, event, unsupported};

#[derive(Debug)]
pub(crate) struct Responses;

impl Spelling for Responses {
    const WANTED: &'static [&'static str] =
        &["POST /v1/responses HTTP/1.1", "authorization: Bearer sk-4f0c9a71d2e8"];

    fn manifest() -> Manifest {
        Manifest::new("openai-responses")
            .without(Capability::RefusalFinish, "a refusal is a part of a message; the response is completed")
    }

    fn provider(address: &str) -> Result<Arc<dyn Provider>> {
        Ok(Arc::new(OpenAiResponses::builder().base_url(format!("{address}/v1")).api_key(KEY).build()?))
    }

    fn refused(failure: &Failure) -> Result<String> {
        let (kind, code) = words(failure.kind);
        let error = json!({"message": failure.message, "type": kind, "param": null, "code": code});
        Ok(json!({ "error": error }).to_string())
    }

    fn streamed(says: &[Say], ending: &Ending) -> Result<Vec<String>> {
        let mut reply = Reply::new(Facts::of(says));
        let begun = reply.response("in_progress");
        reply.event("response.created", json!({"response": begun}));
        reply.event("response.in_progress", json!({"response": begun}));
        for (at, say) in says.iter().enumerate() {
            reply.say(say)?;
            if let Some(call) = completed(says, at, ending) {
                reply.end_call(call);
            }
        }
        match ending {
            Ending::Finish(why) => reply.finish(*why)?,
            Ending::Failed(failure) => reply.fail(failure),
            _ => {}
        }
        Ok(reply.events)
    }
}

/// An item in progress: a message of one part, or reasoning of one summary.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Refusal,
    Reasoning,
}

struct Open {
    kind: Kind,
    text: String,
    sealed: Option<&'static str>,
}

struct Call {
    at: usize,
    item: Value,
}

struct Reply {
    facts: Facts,
    events: Vec<String>,
    /// The final output, in which unfinished items are null.
    output: Vec<Value>,
    /// The open item, which is the last one.
    open: Option<Open>,
    calls: BTreeMap<u32, Call>,
}

impl Reply {
    fn new(facts: Facts) -> Self {
        Self { facts, events: Vec::new(), output: Vec::new(), open: None, calls: BTreeMap::new() }
    }

    fn response(&self, status: &str) -> Value {
        json!({
            "id": self.facts.id.unwrap_or("resp_1"), "object": "response", "created_at": 1_782_321_544,
            "status": status, "background": false, "error": null, "incomplete_details": null,
            "instructions": null, "model": self.facts.model, "output": [], "parallel_tool_calls": true,
            "store": false, "usage": null, "metadata": {},
        })
    }

    fn event(&mut self, kind: &str, mut fields: Value) {
        fields["type"] = kind.into();
        fields["sequence_number"] = self.events.len().into();
        self.events.push(event(kind, &fields));
    }

    /// Sends an event about a part of the open item.
    fn part_event(&mut self, kind: &str, part: &str, mut fields: Value) {
        let at = self.output.len() - 1;
        fields["output_index"] = at.into();
        fields["item_id"] = format!("item_{at}").into();
        fields[part] = 0.into();
        self.event(kind, fields);
    }

    /// Announces an item. Returns its index in the output.
    fn add(&mut self, mut item: Value) -> usize {
        let at = self.output.len();
        item["id"] = format!("item_{at}").into();
        self.output.push(Value::Null);
        self.event("response.output_item.added", json!({"output_index": at, "item": item}));
        at
    }

    fn done(&mut self, at: usize, mut item: Value) {
        item["id"] = format!("item_{at}").into();
        self.event("response.output_item.done", json!({"output_index": at, "item": item}));
        self.output[at] = item;
    }

    fn say(&mut self, say: &Say) -> Result<()> {
        match *say {
            Say::Text(text) => self.speak(Kind::Text, text),
            Say::Refusal(text) => self.speak(Kind::Refusal, text),
            Say::Reasoning(text) => self.speak(Kind::Reasoning, text),
            Say::Signature(data) => {
                if !self.open.as_ref().is_some_and(|open| open.kind == Kind::Reasoning) {
                    self.open(Kind::Reasoning);
                }
                if let Some(open) = &mut self.open {
                    open.sealed = Some(data);
                }
                self.close();
            }
            Say::CallStart { index, id, name } => {
                self.close();
                let item = json!({
                    "type": "function_call", "status": "in_progress", "arguments": "", "call_id": id, "name": name,
                });
                let at = self.add(item.clone());
                self.calls.insert(index, Call { at, item });
            }
            Say::Arguments { index, json } => {
                let call = self.calls.get_mut(&index).unwrap();
                let so_far = call.item["arguments"].as_str().unwrap_or_default().to_owned();
                call.item["arguments"] = (so_far + json).into();
                let fields =
                    json!({"delta": json, "output_index": call.at, "item_id": format!("item_{}", call.at)});
                self.event("response.function_call_arguments.delta", fields);
            }
            Say::Block => self.search(),
            Say::ResponseId(_) | Say::ResponseModel(_) | Say::Usage(_) => {}
            ref other => return Err(unsupported(format!("responses cannot say {other:?}"))),
        }
        Ok(())
    }

    fn search(&mut self) {
        self.close();
        let item = |status: &str| {
            let action = json!({"type": "search", "query": "weather"});
            json!({"type": "web_search_call", "status": status, "action": action})
        };
        let at = self.add(item("in_progress"));
        for step in ["in_progress", "searching", "completed"] {
            let fields = json!({"output_index": at, "item_id": format!("item_{at}")});
            self.event(&format!("response.web_search_call.{step}"), fields);
        }
        self.done(at, item("completed"));
    }

    fn open(&mut self, kind: Kind) {
        self.close();
        self.add(match kind {
            Kind::Text | Kind::Refusal => {
                json!({"type": "message", "status": "in_progress", "content": [], "role": "assistant"})
            }
            Kind::Reasoning => json!({"type": "reasoning", "encrypted_content": "Zmlyc3Q=", "summary": []}),
        });
        self.open = Some(Open { kind, text: String::new(), sealed: None });
    }

    fn speak(&mut self, kind: Kind, text: &str) {
        if self.open.as_ref().is_none_or(|open| open.kind != kind) {
            self.open(kind);
            let (name, part) = part_of(kind);
            self.part_event(&format!("response.{name}.added"), part, json!({"part": piece(kind, "")}));
        }
        if let Some(open) = &mut self.open {
            open.text.push_str(text);
        }
        self.part_event(&format!("response.{}.delta", stem(kind)), part_of(kind).1, json!({"delta": text}));
    }

    /// Completes the open item: three events repeat its text.
    fn close(&mut self) {
        let Some(Open { kind, text, sealed }) = self.open.take() else { return };
        let (name, part) = part_of(kind);
        let word = if kind == Kind::Refusal { "refusal" } else { "text" };
        if !text.is_empty() {
            self.part_event(&format!("response.{}.done", stem(kind)), part, json!({ word: text }));
            self.part_event(&format!("response.{name}.done"), part, json!({"part": piece(kind, &text)}));
        }
        let item = match kind {
            Kind::Text | Kind::Refusal => json!({
                "type": "message", "status": "completed", "content": [piece(kind, &text)], "role": "assistant",
            }),
            Kind::Reasoning => {
                let summary: Vec<_> = (!text.is_empty()).then(|| piece(kind, &text)).into_iter().collect();
                json!({"type": "reasoning", "summary": summary, "encrypted_content": sealed})
            }
        };
        self.done(self.output.len() - 1, item);
    }

    fn end_call(&mut self, call: u32) {
        let Some(Call { at, mut item }) = self.calls.remove(&call) else { return };
        let fields =
            json!({"arguments": item["arguments"], "output_index": at, "item_id": format!("item_{at}")});
        self.event("response.function_call_arguments.done", fields);
        item["status"] = "completed".into();
        self.done(at, item);
    }

    fn finish(&mut self, why: FinishReason) -> Result<()> {
        self.close();
        let (status, reason) = match why {
            FinishReason::Stop | FinishReason::ToolCalls => ("completed", None),
            FinishReason::Length => ("incomplete", Some("max_output_tokens")),
            FinishReason::ContentFilter => ("incomplete", Some("content_filter")),
            other => return Err(unsupported(format!("no status says {other:?}"))),
        };
        let mut response = self.response(status);
        response["output"] = std::mem::take(&mut self.output).into();
        response["incomplete_details"] = reason.map(|reason| json!({ "reason": reason })).into();
        response["usage"] = self.facts.usage.as_ref().map(counted).into();
        self.event(&format!("response.{status}"), json!({ "response": response }));
        Ok(())
    }

    /// Reports an error inside the stream, in one of the two ways of the services.
    fn fail(&mut self, failure: &Failure) {
        let (_, code) = words(failure.kind);
        if failure.kind == ErrorKind::RateLimited {
            self.event("error", json!({"code": code, "message": failure.message, "param": null}));
            return;
        }
        let mut response = self.response("failed");
        response["error"] = json!({"code": code, "message": failure.message});
        self.event("response.failed", json!({ "response": response }));
    }
}

fn stem(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "output_text",
        Kind::Refusal => "refusal",
        Kind::Reasoning => "reasoning_summary_text",
    }
}

/// Name of the parts of an item, and of their index.
fn part_of(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Text | Kind::Refusal => ("content_part", "content_index"),
        Kind::Reasoning => ("reasoning_summary_part", "summary_index"),
    }
}

fn piece(kind: Kind, text: &str) -> Value {
    match kind {
        Kind::Text => json!({"type": "output_text", "annotations": [], "logprobs": [], "text": text}),
        Kind::Refusal => json!({"type": "refusal", "refusal": text}),
        Kind::Reasoning => json!({"type": "summary_text", "text": text}),
    }
}

fn counted(usage: &Usage) -> Value {
    let (input, output) = (usage.input.unwrap_or(0), usage.output.unwrap_or(0));
    let mut counted = json!({
        "input_tokens": input, "output_tokens": output, "total_tokens": input + output,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read.unwrap_or(0),
            "cache_write_tokens": usage.cache_write.unwrap_or(0),
        },
        "output_tokens_details": {"reasoning_tokens": usage.reasoning.unwrap_or(0)},
    });
    if let Some(cost) = usage.cost {
        counted["cost"] = dollars(cost).into();
    }
    counted
}

/// Type and code of an error.
fn words(kind: ErrorKind) -> (&'static str, Option<&'static str>) {
    match kind {
        ErrorKind::Authentication => ("invalid_request_error", Some("invalid_api_key")),
        ErrorKind::PermissionDenied => ("invalid_request_error", Some("missing_scope")),
        ErrorKind::NotFound => ("invalid_request_error", Some("model_not_found")),
        ErrorKind::ContextOverflow => ("invalid_request_error", Some("context_length_exceeded")),
        ErrorKind::ContentFiltered => ("invalid_request_error", Some("content_policy_violation")),
        ErrorKind::RateLimited => ("requests", Some("rate_limit_exceeded")),
        ErrorKind::Overloaded => ("server_error", Some("server_error")),
        _ => ("invalid_request_error", None),
    }
}
