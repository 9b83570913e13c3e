//! Encodes a request as this wire's JSON: the blocks of each message, made once and kept in the message, joined into
//! turns.
//!
//! Consecutive messages of one side become one turn, since not every service joins them itself. Apart from cache marks
//! and closing brackets, a request is a byte prefix of the next one.

use entourage_core::{
    message::{Message, Role},
    provider::{PromptCache, Request, Warning, WarningKind},
};

use super::{
    media::{self, Sight},
    message, params,
    profile::Claude,
    thinking, tools,
};
use crate::{
    body::{Body, all_tools, gather, put},
    new_messages,
    service::Encoded,
};

/// Keys of a body that `extra` cannot replace: without them there is no call, or no stream, or they are merged.
const FIXED: [&str; 4] = ["messages", "stream", "tools", "output_config"];

/// The body of a call.
///
/// [`Params::extra`](entourage_core::provider::Params::extra) is merged last: its keys replace ours, and a null
/// removes a key. Exceptions: `messages` and `stream` stay; entries of `tools` are added to the request's;
/// `output_config` is merged key by key.
#[must_use]
pub fn encode(request: &Request) -> Vec<u8> {
    let strict = request.params.strict_tools == Some(true);
    let tools = tools::encode(&request.tools, strict);
    encode_with_tools(request, &tools, "the service").body
}

pub(super) fn encode_with_tools(request: &Request, tools: &[u8], vendor: &str) -> Encoded {
    let mut warnings = Vec::new();
    let params = &*request.params;
    let claude = Claude::named(&request.model);
    let leading = request.messages.iter().take_while(|message| message.role() == Role::System).count();
    let sight = Sight::of(&request.profile);
    let mut tools = all_tools(tools, params.extra.as_ref()).into_owned();
    let mut system = system(request, leading);
    let key = sight.key();
    let blocks_of = |message| Message::encoded(message, key, |message| message::blocks(message, sight));
    let (blocks, size) = gather(request.messages.iter().skip(leading), blocks_of);
    if let Some(cache) = params.cache {
        mark(&mut tools, cache);
        mark(&mut system, cache);
    }
    // A turn of its own for each message takes about 40 bytes around its blocks.
    let size = size.saturating_add(blocks.len().saturating_mul(40));
    let room = size.saturating_add(system.len()).saturating_add(tools.len()).saturating_add(1_024);
    let mut body = Body::new(room, params.extra.as_ref(), &FIXED);
    body.field("model", &*request.model);
    let limit = params::max_tokens(request, &mut warnings);
    body.field("max_tokens", &limit);
    let thinking = thinking::plan(request, claude, limit, &mut warnings);
    params::write(&mut body, request, claude, thinking.on, vendor, &mut warnings);
    body.optional("thinking", thinking.field);
    output_config(&mut body, request, thinking.effort, &mut warnings);
    if !tools.is_empty() {
        body.optional("tool_choice", tools::choice(request, thinking.on, &mut warnings));
    }
    body.extra();
    body.field("stream", &true);
    if !tools.is_empty() {
        body.array("tools", [tools]);
    }
    if !system.is_empty() {
        system.insert(0, b'[');
        system.push(b']');
        body.raw("system", &system);
    }
    body.array_with("messages", |out| {
        let mut turns = Turns::begin(out);
        for (message, blocks) in request.messages.iter().skip(leading).zip(&blocks) {
            turns.push(if message.role() == Role::Assistant { "assistant" } else { "user" }, blocks);
        }
        turns.finish(params.cache);
    });
    news(request, leading, sight, &mut warnings);
    Encoded { body: body.finish(), warnings }
}

/// The system prompt: instructions and leading system messages, joined by commas.
fn system(request: &Request, leading: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let more = request.messages.iter().take(leading).map(|message| message::system_text(message));
    for text in std::iter::once(tools::instructions(request).into_owned()).chain(more) {
        if text.trim().is_empty() {
            continue;
        }
        if !out.is_empty() {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"type\":\"text\",\"text\":");
        put(&mut out, &text);
        out.push(b'}');
    }
    out
}

fn output_config(body: &mut Body<'_>, request: &Request, effort: Option<&str>, warnings: &mut Vec<Warning>) {
    let extra = request.params.extra.as_ref().and_then(|extra| extra.get("output_config"));
    let mut config = Body::new(0, extra, &[]);
    config.optional("effort", effort);
    config.optional("format", tools::format(request, warnings));
    config.extra();
    if !config.is_empty() {
        body.raw("output_config", &config.finish());
    }
}

/// The conversation, written into bytes.
struct Turns<'a> {
    bytes: &'a mut Vec<u8>,
    role: Option<&'static str>,
    /// End positions of the last two user turns, the last one last.
    ends: [Option<usize>; 2],
}

impl<'a> Turns<'a> {
    fn begin(bytes: &'a mut Vec<u8>) -> Self {
        Self { bytes, role: None, ends: [None; 2] }
    }

    fn push(&mut self, role: &'static str, blocks: &[u8]) {
        if blocks.is_empty() {
            return;
        }
        if self.role == Some(role) {
            self.bytes.push(b',');
        } else {
            if self.role.is_some() {
                self.bytes.extend_from_slice(b"]},");
            }
            self.bytes.extend_from_slice(b"{\"role\":\"");
            self.bytes.extend_from_slice(role.as_bytes());
            self.bytes.extend_from_slice(b"\",\"content\":[");
            if role == "user" {
                self.ends = [self.ends[1], None];
            }
        }
        self.role = Some(role);
        self.bytes.extend_from_slice(blocks);
        if role == "user" {
            self.ends[1] = Some(self.bytes.len());
        }
    }

    fn finish(self, cache: Option<PromptCache>) {
        // The later mark first, so that the position of the earlier one stays valid.
        if let Some(cache) = cache {
            for end in self.ends.iter().rev().flatten() {
                let tail = self.bytes.split_off(*end);
                mark(self.bytes, cache);
                self.bytes.extend_from_slice(&tail);
            }
        }
        if self.role.is_some() {
            self.bytes.extend_from_slice(b"]}");
        }
    }
}

/// Adds a cache mark to the object at the end of `json`.
fn mark(json: &mut Vec<u8>, cache: PromptCache) {
    if json.pop_if(|last| *last == b'}').is_some() {
        let mark: &[u8] = match cache {
            PromptCache::Long => br#","cache_control":{"type":"ephemeral","ttl":"1h"}}"#,
            _ => br#","cache_control":{"type":"ephemeral"}}"#,
        };
        json.extend_from_slice(mark);
    }
}

/// Warns of content that is left out of the messages since the last reply, and, before the first reply, of the tools'
/// schemas.
fn news(request: &Request, leading: usize, sight: Sight, warnings: &mut Vec<Warning>) {
    let new = new_messages::messages(request).count();
    let late = new_messages::messages(request)
        .filter(|(place, message)| *place >= leading && message.role() == Role::System);
    for _ in late {
        let text =
            "the service takes system messages at the start only; a later one is shown as text of the user";
        warnings.push(Warning::new(WarningKind::History, "system", text));
    }
    new_messages::warn_of_files(request, |file| media::block(file, sight).err(), warnings);
    if new == request.messages.len() {
        tools::warnings(&request.tools, request.params.strict_tools == Some(true), warnings);
    }
}
