//! The next request of a long conversation, after one append, beside a copy of its bytes.

use std::{hint::black_box, sync::Arc, time::Instant};

use entourage::{
    ErrorKind,
    message::{Arguments, History, Message, Part, ToolCall, ToolResult},
    provider::{CallContext, Egress, Model, Request},
    providers::openai_chat::{Dialect, encode},
    tool::ToolSpec,
};
use serde_json::json;

const MESSAGES: usize = 1_000;
const INSTRUCTIONS: &str =
    "You are a careful assistant. Look things up before you answer, and say where from.";

/// Words for at least `length` bytes, some with characters that JSON must escape.
fn prose(seed: usize, length: usize) -> String {
    const WORDS: [&str; 12] = [
        "the",
        "file",
        "\"main.rs\"",
        "holds",
        "a",
        "list",
        "of\n",
        "r\u{e9}sum\u{e9}s",
        "which",
        "nobody",
        "reads",
        "twice.",
    ];
    let mut text = String::with_capacity(length + 12);
    let mut n = seed;
    while text.len() < length {
        n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(WORDS[(n >> 33) % WORDS.len()]);
        text.push(' ');
    }
    text
}

/// Message `n` of a conversation with tools: a question, calls, results, an answer; 200 to 2,000 bytes each.
fn message(n: usize) -> Message {
    let text = prose(n, 200 + n * 7_919 % 1_800);
    let arguments =
        Arguments::parse(json!({ "path": "notes/plan.md", "reason": prose(n / 4, 150) }).to_string());
    let call = ToolCall::new(format!("call_{}", n / 4), "read_file", arguments.unwrap());
    match n % 4 {
        0 => Message::user(text),
        1 => Message::assistant(prose(n, 200)).with(Part::ToolCall(call)),
        2 => Message::tool([ToolResult::text(&call, text)]),
        _ => Message::assistant(text),
    }
}

fn tools() -> Arc<[ToolSpec]> {
    let schema = json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "description": "Where it is, below the workspace." },
            "lines": { "type": "integer", "minimum": 1 },
            "mode": { "type": "string", "enum": ["text", "bytes"] },
        },
        "required": ["path"],
    });
    (0..10).map(|n| ToolSpec::new(format!("tool_{n}"), prose(n, 200), schema.clone())).collect()
}

/// A conversation of which all but the newest message were sent before.
pub(crate) struct Conversation {
    sent: History,
    tools: Arc<[ToolSpec]>,
    model: Model,
    cx: CallContext,
}

impl Conversation {
    pub(crate) fn new() -> Self {
        let mut sent = History::default();
        (0..MESSAGES - 1).for_each(|n| sent.push(message(n)));
        let model = super::ours::model("http://127.0.0.1:9/v1");
        let cx = CallContext::new().with_egress(Egress::Forbidden);
        let conversation = Self { sent, tools: tools(), model, cx };
        bytes(&conversation.next(false));
        conversation
    }

    /// The next request, with one message that no wire has seen yet.
    pub(crate) fn next(&self, tools: bool) -> Request {
        let mut messages = self.sent.clone();
        messages.push(message(MESSAGES - 1));
        let request = Request::new("bench", messages).with_instructions(INSTRUCTIONS);
        if tools { request.with_tools(Arc::clone(&self.tools)) } else { request }
    }

    /// Runs a call up to its connection, which the context forbids. The bytes of the tools are kept from call to call,
    /// so this is the cost that users pay.
    pub(crate) fn call(&self, tokio: &tokio::runtime::Runtime, request: Request) {
        let failed = tokio.block_on(self.model.stream(request, &self.cx)).err().unwrap();
        assert_eq!(failed.kind(), ErrorKind::PermissionDenied);
    }
}

pub(crate) fn bytes(request: &Request) -> Vec<u8> {
    encode(request, Dialect::COMMON)
}

/// Seconds of one copy of the bytes and of one encoding, in turns. The return value of `encode` is dropped off the
/// clock.
pub(crate) fn pairs<T>(
    samples: usize,
    conversation: &Conversation,
    tools: bool,
    encode: impl Fn(Request) -> T,
) -> (Vec<f64>, Vec<f64>) {
    let copied = bytes(&conversation.next(tools));
    let (mut copies, mut encodings) = (Vec::new(), Vec::new());
    for _ in 0..samples {
        let request = conversation.next(tools);
        let start = Instant::now();
        let left = encode(request);
        encodings.push(start.elapsed().as_secs_f64());
        drop(left);
        let start = Instant::now();
        black_box(copied.to_vec());
        copies.push(start.elapsed().as_secs_f64());
    }
    (copies, encodings)
}

/// The length of a request in bytes, and the allocations of an encoding and of a call, which must hold the bytes at
/// its peak.
pub(crate) fn sizes(conversation: &Conversation, tokio: &tokio::runtime::Runtime) -> (usize, [u64; 2]) {
    let length = bytes(&conversation.next(true)).len();
    conversation.call(tokio, conversation.next(true));
    let mut request = Some(conversation.next(false));
    let encoding = counting_alloc::count(|| _ = black_box(bytes(request.as_ref().unwrap())));
    request = Some(conversation.next(true));
    let call = counting_alloc::count(|| conversation.call(tokio, request.take().unwrap()));
    assert!(
        usize::try_from(call.peak).unwrap() > length,
        "a call forbids before it encodes; measure it otherwise"
    );
    (length, [encoding.calls, call.calls])
}
