//! Encodes a request as this wire's JSON: settings, tools, instructions, and then the items that its messages kept.

use entourage_core::{
    provider::{Request, Warning, WarningKind},
    tool::ToolSpec,
};
use serde_json::json;

use super::{input::Variant, params::Settings};
use crate::{
    body::{Body, all_tools, gather, items},
    new_messages,
    on_demand::{searches, told},
    schema,
    service::Encoded,
};

/// Keys of a body that `extra` cannot replace: without `input` and `stream` there is no call; the others are merged.
const FIXED: [&str; 5] = ["input", "stream", "tools", "text", "reasoning"];

/// The body of a call.
///
/// `store` is false unless [`extra`](entourage_core::provider::Params::extra) says otherwise; models that are known to
/// reason are asked for their encrypted reasoning. `extra` is merged last: its keys replace ours (except `input` and
/// `stream`), and a null removes a key. Its `text` and `reasoning` are merged with ours key by key, and its `tools`
/// follow ours, which offers the service's own tools in this way.
///
/// A reasoning budget becomes an effort here: none for 0 tokens, minimal up to 1,024, low up to 4,096, medium up to
/// 16,384, else high.
#[must_use]
pub fn encode(request: &Request) -> Vec<u8> {
    let strict = request.params.strict_tools == Some(true);
    encode_with_tools(request, &encode_tools(&request.tools, strict), "the service").body
}

/// The tools, joined by commas. They seldom change between calls, so the caller keeps them.
pub(super) fn encode_tools(tools: &[ToolSpec], strict: bool) -> Vec<u8> {
    let ours = told(tools).into_iter().map(|tool| {
        let translated = strict.then(|| schema::strict(tool.schema()));
        let enforced = translated.as_ref().is_some_and(|translated| translated.strict);
        // Unlike other wires, this one enforces schemas by default.
        let mut item = json!({
            "type": "function",
            "name": tool.name(),
            "description": tool.description(),
            "parameters": translated.map_or_else(|| schema::object(tool.schema()), |translated| translated.schema),
            "strict": enforced,
        });
        if let Some(fields) = item.as_object_mut().filter(|_| tool.is_deferred()) {
            fields.insert("defer_loading".to_owned(), json!(true));
        }
        item
    });
    let search = searches(tools).then(|| json!({"type": "tool_search"}));
    items(ours.chain(search))
}

pub(super) fn encode_with_tools(request: &Request, tools: &[u8], vendor: &str) -> Encoded {
    let mut warnings = Vec::new();
    unenforced(request, &mut warnings);
    let variant = Variant::of(request);
    let (said, size) = gather(request.messages.iter(), |message| variant.items(message));
    let room =
        size.saturating_add(tools.len()).saturating_add(request.instructions.len()).saturating_add(1_024);
    let mut body = Body::new(room, request.params.extra.as_ref(), &FIXED);
    body.field("model", &*request.model);
    Settings { request, vendor, warnings: &mut warnings }.put(&mut body);
    body.extra();
    body.field("stream", &true);
    let tools = all_tools(tools, request.params.extra.as_ref());
    if !tools.is_empty() {
        body.array("tools", [tools]);
    }
    if !request.instructions.is_empty() {
        body.field("instructions", &*request.instructions);
    }
    body.array("input", said.iter());
    new_messages::warn_of_files(request, |file| variant.shows.checked(file).err(), &mut warnings);
    Encoded { body: body.finish(), warnings }
}

/// Warns of tools whose schema should be enforced and cannot be.
fn unenforced(request: &Request, warnings: &mut Vec<Warning>) {
    if request.params.strict_tools != Some(true) {
        return;
    }
    for tool in told(&request.tools) {
        let translated = schema::strict(tool.schema());
        if !translated.strict {
            let text =
                format!("the schema of `{}` is not enforced: {}", tool.name(), translated.lost.join(", "));
            warnings.push(Warning::new(WarningKind::Schema, tool.name(), text));
        }
    }
}
