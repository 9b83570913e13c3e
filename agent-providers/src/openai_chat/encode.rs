//! Encodes a request as this wire's JSON: the bytes of each message, made once and kept in the message, joined in a
//! body.

use std::borrow::Cow;

use entourage_core::{
    message::Role,
    provider::{OutputFormat, PromptCache, Request, ToolChoice, Warning, WarningKind},
    tool::ToolSpec,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{CacheStyle, Dialect, SchemaSupport, media::Sight, message, params};
use crate::{
    body::{Body, all_tools, gather, items},
    new_messages, schema,
    service::Encoded,
};

/// The wire's name: in signatures, in opaque parts, and as a prefix of the keys of the bytes that messages keep.
pub(super) const WIRE: &str = "openai-chat";

/// Keys of a body that `extra` does not replace: without the first two there is no call, or no stream; tools are added
/// to ours.
const FIXED: [&str; 3] = ["messages", "stream", "tools"];

/// The body of a call.
///
/// [`extra`](entourage_core::provider::Params::extra) is merged last: its keys replace ours (except `messages` and
/// `stream`), and a null removes a key. Its `tools` follow ours.
#[must_use]
pub fn encode(request: &Request, dialect: Dialect) -> Vec<u8> {
    let strict = dialect.strict_tools && request.params.strict_tools == Some(true);
    encode_with_tools(request, dialect, &encode_tools(&request.tools, strict), "the service").body
}

/// The tools, joined by commas. They seldom change between calls, so the caller keeps them.
pub(super) fn encode_tools(tools: &[ToolSpec], strict: bool) -> Vec<u8> {
    #[derive(Serialize)]
    struct Tool<'a> {
        r#type: &'static str,
        function: Function<'a>,
    }
    #[derive(Serialize)]
    struct Function<'a> {
        name: &'a str,
        description: &'a str,
        parameters: Value,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        strict: bool,
    }
    let tools = tools.iter().map(|tool| {
        let enforced = strict.then(|| schema::strict(tool.schema())).filter(|it| it.strict);
        let strict = enforced.is_some();
        let parameters = enforced.map_or_else(|| schema::object(tool.schema()), |it| it.schema);
        let function = Function { name: tool.name(), description: tool.description(), parameters, strict };
        Tool { r#type: "function", function }
    });
    items(tools)
}

pub(super) fn encode_with_tools(request: &Request, dialect: Dialect, tools: &[u8], vendor: &str) -> Encoded {
    let mut warnings = Vec::new();
    let sight = Sight::of(&request.profile);
    let replays = dialect.replays_reasoning;
    let key = message::key(replays, sight);
    let encode = |message: &_| message::encode(message, replays, sight);
    let (mut messages, size) = gather(request.messages.iter(), |message| message.encoded(key, encode));
    let mut instructions = Vec::new();
    message::put_text(&mut instructions, "system", &instructions_of(request, dialect));
    if let Some(cache) = request.params.cache {
        mark_for_cache(request, dialect, cache, &mut instructions, &mut messages, &mut warnings, vendor);
    }
    let room = size.saturating_add(tools.len()).saturating_add(instructions.len()).saturating_add(1_024);
    let mut body = Body::new(room, request.params.extra.as_ref(), &FIXED);
    body.field("model", &*request.model);
    if !request.tools.is_empty() {
        tool_choice(&mut body, request, dialect, &mut warnings, vendor);
    }
    params::write(&mut body, request, dialect, &mut warnings, vendor);
    output(&mut body, request, dialect, &mut warnings, vendor);
    body.extra();
    body.field("stream", &true);
    let tools = all_tools(tools, request.params.extra.as_ref());
    if !tools.is_empty() {
        body.array("tools", [tools]);
    }
    body.array("messages", std::iter::once(&*instructions).chain(messages.iter().map(|bytes| &**bytes)));
    news(request, dialect, sight, &mut warnings, vendor);
    Encoded { body: body.finish(), warnings }
}

/// The instructions, including the schema if the service cannot enforce one.
fn instructions_of(request: &Request, dialect: Dialect) -> String {
    match (&request.output, dialect.schema) {
        (OutputFormat::Schema(output), SchemaSupport::JsonOnly) => {
            schema::told(&request.instructions, output)
        }
        _ => request.instructions.to_string(),
    }
}

fn tool_choice(
    body: &mut Body<'_>,
    request: &Request,
    dialect: Dialect,
    warnings: &mut Vec<Warning>,
    vendor: &str,
) {
    match &request.tool_choice {
        ToolChoice::None => body.field("tool_choice", "none"),
        ToolChoice::Required => body.field("tool_choice", "required"),
        ToolChoice::Tool(name) => {
            body.field("tool_choice", &json!({"type": "function", "function": {"name": name}}));
        }
        // The service's own default.
        _ => {}
    }
    let parallel = request.params.parallel_tool_calls;
    body.optional("parallel_tool_calls", parallel.filter(|_| dialect.parallel_tool_calls));
    if parallel.is_some() && !dialect.parallel_tool_calls {
        warnings.push(params::unknown(WarningKind::Tool, "parallel_tool_calls", vendor));
    }
}

fn output(
    body: &mut Body<'_>,
    request: &Request,
    dialect: Dialect,
    warnings: &mut Vec<Warning>,
    vendor: &str,
) {
    let output = match &request.output {
        OutputFormat::Json => return body.field("response_format", &json!({"type": "json_object"})),
        OutputFormat::Schema(output) => output,
        _ => return,
    };
    let mut lose = |why: &str| {
        warnings.push(Warning::new(
            WarningKind::Schema,
            output.name.as_str(),
            format!("{vendor} does not enforce the reply's schema: {why}"),
        ));
    };
    if dialect.schema == SchemaSupport::JsonOnly {
        lose("it promises JSON only, so the schema went into the instructions");
        return body.field("response_format", &json!({"type": "json_object"}));
    }
    let translated = (output.strict && dialect.schema == SchemaSupport::Strict)
        .then(|| schema::strict(&output.schema))
        .filter(|translated| {
            if !translated.strict {
                lose(&translated.lost.join(", "));
            }
            translated.strict
        });
    let format = Format {
        name: &output.name,
        description: output.description.as_deref(),
        strict: output.strict && (translated.is_some() || dialect.schema != SchemaSupport::Strict),
        schema: translated.map_or_else(|| schema::loose(&output.schema), |translated| translated.schema),
    };
    body.field("response_format", &json!({"type": "json_schema", "json_schema": format}));
}

#[derive(Serialize)]
struct Format<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    strict: bool,
    schema: Value,
}

/// Marks the instructions and the newest two user messages, for services that pass marks on. The kept bytes do not
/// change.
fn mark_for_cache(
    request: &Request,
    dialect: Dialect,
    cache: PromptCache,
    instructions: &mut Vec<u8>,
    messages: &mut [Cow<'_, [u8]>],
    warnings: &mut Vec<Warning>,
    vendor: &str,
) {
    match dialect.cache {
        CacheStyle::Key => {}
        CacheStyle::Automatic => warnings.push(params::unknown(WarningKind::Setting, "cache", vendor)),
        CacheStyle::Marks => {
            message::mark(instructions, cache);
            let users = (0..messages.len()).rev().filter(|place| {
                request.messages.get(*place).is_some_and(|message| message.role() == Role::User)
            });
            for place in users.take(2) {
                let Some(bytes) = messages.get_mut(place) else { continue };
                let mut marked = bytes.to_vec();
                message::mark(&mut marked, cache);
                *bytes = Cow::Owned(marked);
            }
        }
    }
}

/// Warns of content that is left out of the messages since the last reply, and, before the first reply, of the tools'
/// schemas.
fn news(request: &Request, dialect: Dialect, sight: Sight, warnings: &mut Vec<Warning>, vendor: &str) {
    new_messages::warn_of_files(request, |file| sight.part(file).err(), warnings);
    let strict = request.params.strict_tools == Some(true) && !request.tools.is_empty();
    if strict && !dialect.strict_tools {
        warnings.push(params::unknown(WarningKind::Tool, "strict_tools", vendor));
    } else if strict && !request.messages.iter().any(|message| message.role() == Role::Assistant) {
        for tool in request.tools.iter() {
            let translated = schema::strict(tool.schema());
            if !translated.strict {
                let why = translated.lost.join(", ");
                let text = format!("the schema of `{}` is not enforced: {why}", tool.name());
                warnings.push(Warning::new(WarningKind::Schema, tool.name(), text));
            }
        }
    }
}
