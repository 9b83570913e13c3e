//! A request as this wire's JSON: settings, tools, instructions, and then the items that its messages kept.

use entourage_core::{
    provider::{Request, Warning, WarningKind},
    tool::ToolSpec,
};
use serde_json::{Value, json};

use super::{input::Variant, params::Settings};
use crate::{
    body::{Body, put},
    fresh, schema,
    service::Encoded,
};

/// Keys of a body that `extra` cannot replace: without `input` and `stream` there is no call; the others are merged.
const FIXED: [&str; 5] = ["input", "stream", "tools", "text", "reasoning"];

/// The body of a call.
///
/// `store` is false unless [`extra`](entourage_core::provider::Params::extra) says otherwise; models that are known to
/// reason are asked for their encrypted reasoning. `extra` is merged last: its keys replace ours (`input` and `stream`
/// excepted), and a null takes a key out. Its `text` and `reasoning` are merged with ours key by key, and its `tools`
/// follow ours: that is how a service's own tools are offered.
///
/// A reasoning budget becomes an effort here: none for 0 tokens, minimal up to 1,024, low up to 4,096, medium up to
/// 16,384, else high.
#[must_use]
pub fn encode(request: &Request) -> Vec<u8> {
    let strict = request.params.strict_tools == Some(true);
    encode_with_tools(request, &encode_tools(&request.tools, strict), "the service").body
}

/// The `tools` array. It seldom changes between calls, so the caller keeps it.
pub(super) fn encode_tools(tools: &[ToolSpec], strict: bool) -> Vec<u8> {
    let tools = tools.iter().map(|tool| {
        let translated = strict.then(|| schema::strict(tool.schema()));
        let enforced = translated.as_ref().is_some_and(|translated| translated.strict);
        // Unlike other wires, this one enforces schemas unless it is told not to.
        json!({
            "type": "function",
            "name": tool.name(),
            "description": tool.description(),
            "parameters": translated.map_or_else(|| schema::object(tool.schema()), |translated| translated.schema),
            "strict": enforced,
        })
    });
    let mut out = Vec::new();
    put(&mut out, &tools.collect::<Vec<_>>());
    out
}

pub(super) fn encode_with_tools(request: &Request, tools: &[u8], vendor: &str) -> Encoded {
    let mut warnings = Vec::new();
    unenforced(request, &mut warnings);
    let variant = Variant::of(request);
    let items: Vec<_> = request.messages.iter().map(|message| variant.items(message)).collect();
    let size: usize = items.iter().map(|bytes| bytes.len().saturating_add(1)).sum();
    let room =
        size.saturating_add(tools.len()).saturating_add(request.instructions.len()).saturating_add(1_024);
    let mut body = Body::new(room, request.params.extra.as_ref(), &FIXED);
    body.field("model", &*request.model);
    Settings { request, vendor, warnings: &mut warnings }.put(&mut body);
    body.extra();
    body.field("stream", &true);
    all_tools(request, tools, &mut body);
    if !request.instructions.is_empty() {
        body.field("instructions", &*request.instructions);
    }
    body.array("input", items.iter());
    fresh::warn_of_files(request, |file| variant.shows.checked(file).err(), &mut warnings);
    Encoded { body: body.finish(), warnings }
}

/// Our tools, and after them those that `extra` has.
fn all_tools(request: &Request, tools: &[u8], body: &mut Body<'_>) {
    let extra = request.params.extra.as_ref().and_then(|extra| extra.get("tools")).and_then(Value::as_array);
    let ours = if request.tools.is_empty() {
        None
    } else {
        tools.strip_prefix(b"[").and_then(|tools| tools.strip_suffix(b"]"))
    };
    let more = extra.into_iter().flatten().map(|tool| tool.to_string().into_bytes());
    let all: Vec<Vec<u8>> = ours.map(<[u8]>::to_vec).into_iter().chain(more).collect();
    if !all.is_empty() {
        body.array("tools", &all);
    }
}

/// Warns of tools whose schema should be enforced and cannot be.
fn unenforced(request: &Request, warnings: &mut Vec<Warning>) {
    if request.params.strict_tools != Some(true) {
        return;
    }
    for tool in request.tools.iter() {
        let translated = schema::strict(tool.schema());
        if !translated.strict {
            let text =
                format!("the schema of `{}` is not enforced: {}", tool.name(), translated.lost.join(", "));
            warnings.push(Warning::new(WarningKind::Schema, tool.name(), text));
        }
    }
}
