//! A request as this wire's JSON: each message's bytes, made once and kept in the message, joined in a body.

use entourage_core::{
    message::{Content, Media, Message, Part, Role, ToolResult},
    provider::{Params, Request, ToolChoice, Warning, WarningKind},
    tool::ToolSpec,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Dialect, media};
use crate::{
    body::{Body, finite, put},
    media::describe,
};

/// The name under which messages keep their bytes.
pub(super) const WIRE: &str = "openai-chat";

/// Keys of a body that `extra` cannot replace: without them there is no call, or no stream.
const FIXED: [&str; 2] = ["messages", "stream"];

/// The body of a call.
///
/// [`Params::extra`] is merged last: its keys replace ours (`messages` and `stream` excepted), and a null takes a key out.
#[must_use]
pub fn encode(request: &Request, dialect: Dialect) -> Vec<u8> {
    encode_with_tools(request, dialect, &encode_tools(&request.tools))
}

/// What the service cannot honour of a request.
pub(super) fn warnings(request: &Request, dialect: Dialect, vendor: &str) -> Option<Warning> {
    (request.params.top_k.is_some() && !dialect.top_k).then(|| {
        Warning::new(
            WarningKind::Setting,
            "top_k",
            format!("{vendor} does not know `top_k`; it was left out"),
        )
    })
}

/// The `tools` array. It seldom changes between calls, so the caller keeps it.
pub(super) fn encode_tools(tools: &[ToolSpec]) -> Vec<u8> {
    #[derive(Serialize)]
    struct Tool<'a> {
        r#type: &'static str,
        function: Function<'a>,
    }
    #[derive(Serialize)]
    struct Function<'a> {
        name: &'a str,
        description: &'a str,
        parameters: &'a Value,
    }
    let tools = tools.iter().map(|tool| Tool {
        r#type: "function",
        function: Function { name: tool.name(), description: tool.description(), parameters: tool.schema() },
    });
    let mut out = Vec::new();
    put(&mut out, &tools.collect::<Vec<_>>());
    out
}

pub(super) fn encode_with_tools(request: &Request, dialect: Dialect, tools: &[u8]) -> Vec<u8> {
    let messages: Vec<_> =
        request.messages.iter().map(|message| message.encoded(WIRE, encode_message)).collect();
    let size: usize = messages.iter().map(|bytes| bytes.len().saturating_add(1)).sum();
    let mut instructions = Vec::new();
    put_text(&mut instructions, "system", &request.instructions);
    let room = size.saturating_add(tools.len()).saturating_add(instructions.len()).saturating_add(1_024);
    let mut body = Body::new(room, request.params.extra.as_ref(), &FIXED);
    body.field("model", &*request.model);
    if !request.tools.is_empty() {
        body.raw("tools", tools);
        tool_choice(&mut body, &request.tool_choice, request.params.parallel_tool_calls);
    }
    params(&mut body, &request.params, dialect);
    body.extra();
    body.field("stream", &true);
    body.array("messages", std::iter::once(&*instructions).chain(messages.iter().map(|bytes| &**bytes)));
    body.finish()
}

fn tool_choice(body: &mut Body<'_>, choice: &ToolChoice, parallel: Option<bool>) {
    match choice {
        ToolChoice::None => body.field("tool_choice", "none"),
        ToolChoice::Required => body.field("tool_choice", "required"),
        ToolChoice::Tool(name) => {
            body.field("tool_choice", &json!({"type": "function", "function": {"name": name}}));
        }
        // The service's own default.
        _ => {}
    }
    body.optional("parallel_tool_calls", parallel);
}

fn params(body: &mut Body<'_>, params: &Params, dialect: Dialect) {
    body.optional("temperature", finite(params.temperature));
    body.optional("top_p", finite(params.top_p));
    body.optional("top_k", params.top_k.filter(|_| dialect.top_k));
    body.optional("presence_penalty", finite(params.presence_penalty));
    body.optional("frequency_penalty", finite(params.frequency_penalty));
    let limit = if dialect.max_completion_tokens { "max_completion_tokens" } else { "max_tokens" };
    body.optional(limit, params.max_output.filter(|max| *max > 0));
    body.optional("stop", (!params.stop.is_empty()).then_some(&params.stop));
    body.optional("seed", params.seed);
    if dialect.stream_options {
        body.raw("stream_options", br#"{"include_usage":true}"#);
    }
}

/// The wire's messages for one of ours, joined by commas; empty when nothing of it can be said on this wire.
fn encode_message(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    match message.role() {
        Role::System => put_text(&mut out, "system", &texts(message)),
        Role::User => user(&mut out, message),
        Role::Assistant => assistant(&mut out, message),
        Role::Tool => results(&mut out, message),
    }
    out
}

fn put_text(out: &mut Vec<u8>, role: &str, text: &str) {
    if !text.is_empty() {
        out.extend_from_slice(b"{\"role\":");
        put(out, role);
        out.extend_from_slice(b",\"content\":");
        put(out, text);
        out.push(b'}');
    }
}

fn texts(message: &Message) -> String {
    let texts = message.parts().iter().filter_map(|part| match part {
        Part::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn user(out: &mut Vec<u8>, message: &Message) {
    if !message.parts().iter().any(|part| matches!(part, Part::Media(_))) {
        return put_text(out, "user", &texts(message));
    }
    let parts = message.parts().iter().filter_map(|part| match part {
        Part::Text(text) if text.is_empty() => None,
        Part::Text(text) => Some(json!({"type": "text", "text": text})),
        Part::Media(media) => {
            Some(media::part(media).unwrap_or_else(|note| json!({"type": "text", "text": note})))
        }
        _ => None,
    });
    put(out, &json!({"role": "user", "content": parts.collect::<Vec<_>>()}));
}

/// Reasoning stays behind: this wire has no field for it that all services accept.
fn assistant(out: &mut Vec<u8>, message: &Message) {
    let mut said = String::new();
    for part in message.parts() {
        if let Part::Text(text) | Part::Refusal(text) = part {
            said.push_str(text);
        }
    }
    if message.tool_calls().next().is_none() {
        return put_text(out, "assistant", &said);
    }
    out.extend_from_slice(b"{\"role\":\"assistant\",\"content\":");
    put(out, &(!said.is_empty()).then_some(&said));
    out.extend_from_slice(b",\"tool_calls\":[");
    for (n, call) in message.tool_calls().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"id\":");
        put(out, &call.id);
        out.extend_from_slice(b",\"type\":\"function\",\"function\":{\"name\":");
        put(out, &call.name);
        out.extend_from_slice(b",\"arguments\":");
        put(out, call.arguments.as_str());
        out.extend_from_slice(b"}}");
    }
    out.extend_from_slice(b"]}");
}

/// CM19: a tool message holds only text here, so what a tool returned as media follows in a message of the user.
/// It follows after all results of the step, because services want those together.
fn results(out: &mut Vec<u8>, message: &Message) {
    let mut shown: Vec<Value> = Vec::new();
    for result in message.tool_results() {
        if !out.is_empty() {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"role\":\"tool\",\"tool_call_id\":");
        put(out, &result.call);
        out.extend_from_slice(b",\"content\":");
        put(out, &result_text(result, &mut shown));
        out.push(b'}');
    }
    if !shown.is_empty() {
        out.push(b',');
        put(out, &json!({"role": "user", "content": shown}));
    }
}

/// The text of a result; media goes to `shown` with a line that says where it is from.
fn result_text(result: &ToolResult, shown: &mut Vec<Value>) -> String {
    let mut show = |file: &Media| match media::part(file) {
        Ok(part) => {
            let from = format!("{} returned by the tool `{}`:", describe(file), result.name);
            shown.extend([json!({"type": "text", "text": from}), part]);
            format!("[{}: see the next message of the user]", describe(file))
        }
        Err(note) => note,
    };
    let pieces = result.content.iter().map(|content| match content {
        Content::Text(text) => text.clone(),
        Content::Media(file) => show(file),
        other => other.as_text(),
    });
    pieces.collect::<Vec<_>>().join("\n")
}
