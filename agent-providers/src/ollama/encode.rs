//! Encodes a request as this wire's JSON: the bytes of each message, made once and kept in the message, joined in a
//! body.

use entourage_core::{
    provider::{Request, ToolChoice},
    tool::ToolSpec,
};
use serde::Serialize;
use serde_json::Value;

use super::{
    message::{encode_message, image, key, put_message},
    params,
};
use crate::{
    body::{Body, all_tools, gather, items},
    new_messages, schema,
    service::Encoded,
};

/// Keys of a body that `extra` does not replace: it is merged into the last two, and without the others there is no
/// call, or no stream.
const FIXED: [&str; 4] = ["messages", "stream", "options", "tools"];

/// The body of a call.
///
/// [`entourage_core::provider::Params::extra`] is merged last: its keys replace ours (except `messages` and `stream`),
/// such as `keep_alive`, and a null removes a key. Its `options`, such as `num_ctx`, are merged into ours in the same
/// way.
///
/// A prompt that exceeds the context is refused, with `truncate: false`: otherwise the server would silently drop the
/// oldest messages.
#[must_use]
pub fn encode(request: &Request) -> Vec<u8> {
    encode_with_tools(request, &encode_tools(&request.tools)).body
}

/// The tools, joined by commas. They seldom change between calls, so the caller keeps them.
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
        parameters: Value,
    }
    items(tools.iter().map(|tool| Tool {
        r#type: "function",
        function: Function {
            name: tool.name(),
            description: tool.description(),
            // The server reads properties as structures without references, and so forgets them.
            parameters: schema::inlined(&schema::object(tool.schema())),
        },
    }))
}

/// The body, with warnings about settings that it cannot express.
pub(super) fn encode_with_tools(request: &Request, tools: &[u8]) -> Encoded {
    let vision = request.profile.vision != Some(false);
    let mut warnings = Vec::new();
    let (messages, size) = gather(request.messages.iter(), |message| {
        message.encoded(key(vision), |message| encode_message(message, vision))
    });
    // The wire cannot forbid calls of an offered tool.
    let offers_tools = !request.tools.is_empty() && request.tool_choice != ToolChoice::None;
    let mut instructions = Vec::new();
    put_message(&mut instructions, "system", &params::instructions(request, offers_tools), &[]);
    let room = size.saturating_add(tools.len()).saturating_add(instructions.len()).saturating_add(1_024);
    let mut body = Body::new(room, request.params.extra.as_ref(), &FIXED);
    body.field("model", &*request.model);
    if let Some(options) = params::options(request, &mut warnings) {
        body.raw("options", &options);
    }
    body.optional("format", params::format(request, offers_tools, &mut warnings));
    body.optional("think", params::think(request, &mut warnings));
    params::not_taken(request, offers_tools, &mut warnings);
    body.field("truncate", &false);
    body.extra();
    body.field("stream", &true);
    let ours = if offers_tools { tools } else { b"" };
    let tools = all_tools(ours, request.params.extra.as_ref());
    if !tools.is_empty() {
        body.array("tools", [tools]);
    }
    body.array("messages", std::iter::once(&*instructions).chain(messages.iter().map(|bytes| &**bytes)));
    new_messages::warn_of_files(request, |file| image(file, vision).err(), &mut warnings);
    Encoded { body: body.finish(), warnings }
}
