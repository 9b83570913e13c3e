//! Encodes a request as this wire's JSON: the bytes of each message, made once and kept in the message, joined in a
//! body.

use entourage_core::{
    message::Role,
    provider::{Request, ToolChoice, Warning, WarningKind},
    tool::ToolSpec,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    content::{self, Mode},
    media, params,
    params::setting,
};
use crate::{
    body::{Body, all_tools, gather, items},
    new_messages,
    schema::gemini,
    service::Encoded,
};

/// Keys of a body that `extra` does not replace: it is merged into the last three, and without the first there is no
/// call.
const FIXED: [&str; 4] = ["contents", "generationConfig", "toolConfig", "tools"];

/// The body of a call.
///
/// [`entourage_core::provider::Params::extra`] is merged last: its keys replace ours (except `contents`), and a null
/// removes a key. Its `generationConfig` and `toolConfig` are merged into ours in the same way, and its `tools`, such
/// as `{"googleSearch": {}}`, follow ours.
#[must_use]
pub fn encode(request: &Request) -> Vec<u8> {
    let tools = encode_tools(&request.tools);
    encode_with_tools(request, &tools, false).body
}

#[derive(Serialize)]
struct Declaration<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    #[serde(rename = "parametersJsonSchema", skip_serializing_if = "Option::is_none")]
    parameters: Option<Value>,
}

/// The tools, as one item. They seldom change between calls, so the caller keeps them.
pub(super) fn encode_tools(tools: &[ToolSpec]) -> Vec<u8> {
    let declarations: Vec<_> = tools
        .iter()
        .map(|tool| Declaration {
            name: tool.name(),
            description: tool.description(),
            parameters: parameters(tool),
        })
        .collect();
    items((!declarations.is_empty()).then(|| json!({"functionDeclarations": declarations})))
}

/// The schema of the arguments; `None` without arguments, because the service refuses objects without properties.
fn parameters(tool: &ToolSpec) -> Option<Value> {
    let mut schema = gemini(tool.schema()).schema;
    let fields = schema.as_object_mut()?;
    fields.entry("type").or_insert_with(|| json!("object"));
    let empty =
        fields.get("properties").is_none_or(|all| all.as_object().is_none_or(serde_json::Map::is_empty));
    let open = ["anyOf", "additionalProperties"]
        .iter()
        .any(|key| fields.get(*key).is_some_and(|value| value.is_object() || value.is_array()));
    (!empty || open).then_some(schema)
}

/// The body, with warnings about settings that it cannot express. `cloud` is true for Google's cloud, which keeps
/// labels.
pub(super) fn encode_with_tools(request: &Request, tools: &[u8], cloud: bool) -> Encoded {
    let mode = Mode::of(request);
    let mut warnings = Vec::new();
    let messages = request.messages.iter().skip_while(|message| message.role() == Role::System);
    let (contents, size) = gather(messages, |message| {
        message.encoded(mode.key(), |message| content::encode_message(message, mode))
    });
    let room =
        size.saturating_add(tools.len()).saturating_add(request.instructions.len()).saturating_add(2_048);
    let extra = request.params.extra.as_ref();
    let mut body = Body::new(room, extra, &FIXED);
    if let Some(config) = params::generation(request, &mut warnings) {
        body.raw("generationConfig", &config);
    }
    body.optional("labels", params::labels(&request.params, cloud, &mut warnings));
    body.extra();
    tool_config(&mut body, request, &mut warnings);
    let tools = all_tools(tools, extra);
    if !tools.is_empty() {
        body.array("tools", [tools]);
    }
    body.optional("systemInstruction", content::system(request));
    body.array("contents", contents);
    about_messages(request, mode, &mut warnings);
    Encoded { body: body.finish(), warnings }
}

fn tool_config(body: &mut Body<'_>, request: &Request, warnings: &mut Vec<Warning>) {
    let extra = request.params.extra.as_ref().and_then(|extra| extra.get("toolConfig"));
    if extra.is_some_and(Value::is_null) {
        return;
    }
    let mut config = Body::new(64, extra, &[]);
    if !request.tools.is_empty() {
        let strict = request.params.strict_tools == Some(true);
        let calling = match &request.tool_choice {
            ToolChoice::None => Some(json!({"mode": "NONE"})),
            ToolChoice::Required => Some(json!({"mode": "ANY"})),
            ToolChoice::Tool(name) => Some(json!({"mode": "ANY", "allowedFunctionNames": [name]})),
            // This mode prevents calls that do not fit their schemas; the model still chooses.
            _ => strict.then(|| json!({"mode": "VALIDATED"})),
        };
        config.optional("functionCallingConfig", calling);
        if request.params.parallel_tool_calls == Some(false) {
            let text = "the service cannot be held to one call at a time; the setting was left out";
            warnings.push(setting("parallel_tool_calls", text));
        }
        if strict {
            not_enforced(&request.tools, warnings);
        }
    }
    config.extra();
    if !config.is_empty() {
        body.raw("toolConfig", &config.finish());
    }
}

fn not_enforced(tools: &[ToolSpec], warnings: &mut Vec<Warning>) {
    for tool in tools {
        let lost = gemini(tool.schema()).lost;
        if !lost.is_empty() {
            let text = format!("the service does not enforce {}", lost.join(", "));
            warnings.push(Warning::new(WarningKind::Schema, tool.name(), text));
        }
    }
}

/// Warns of content in the new messages that was left out or changed.
fn about_messages(request: &Request, mode: Mode, warnings: &mut Vec<Warning>) {
    new_messages::warn_of_files(request, |file| media::part(file, mode).err(), warnings);
    let late_system = new_messages::messages(request)
        .any(|(place, message)| message.role() == Role::System && !new_messages::leads(request, place));
    if late_system {
        let text =
            "the service takes system text before the conversation only; later text was said as the user's";
        warnings.push(Warning::new(WarningKind::History, "system", text));
    }
}
