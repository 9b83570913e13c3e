//! Against a real llama.cpp server: `LLM_PEER_URL=http://127.0.0.1:PORT cargo test … --test peer -- --ignored`.
//!
//! Its model knows one byte a token and says gibberish, so nothing here depends on what is said: only on how. A user's
//! turn with tools gives a call, a tool's result gives text, and grammars force arguments and schemas.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test may panic and print, in its helpers too"
)]

#[path = "peer/bounds.rs"]
mod bounds;
#[path = "peer/record.rs"]
mod record;
#[path = "peer/tools.rs"]
mod tools;
#[path = "peer/typed.rs"]
mod typed;

use std::sync::Arc;

use entourage_core::{
    message::Message,
    provider::{CallContext, Delta, FinishReason, Model, Params, Provider, Request},
};
use entourage_providers::{
    anthropic_messages::AnthropicMessages, openai_chat::OpenAiChat, openai_responses::OpenAiResponses,
};
use futures_util::StreamExt;

/// The key that goes to the server, which does not ask for one.
const KEY: &str = "sk-peer-0123456789-secret";

/// Bytes that the model may say: seconds, not minutes.
const MAX_OUTPUT: u64 = 1_500;

/// A wire that the server speaks.
struct Peer {
    /// The wire's name, as recordings have it.
    wire: &'static str,
    path: &'static str,
    /// Whether the wire itself can ask for a schema that the server obeys.
    native: bool,
    provider: Arc<dyn Provider>,
    model: Model,
}

fn server() -> String {
    let url = std::env::var("LLM_PEER_URL").expect("set LLM_PEER_URL to the server's address, without /v1");
    url.trim_end_matches('/').to_owned()
}

fn peers() -> [Peer; 3] {
    let url = format!("{}/v1", server());
    // No name: the server is asked which model it has.
    let chat = OpenAiChat::builder().base_url(&url).api_key(KEY).build().unwrap();
    let responses = OpenAiResponses::builder().base_url(&url).api_key(KEY).build().unwrap();
    let messages = AnthropicMessages::builder().base_url(&url).bearer().api_key(KEY).build().unwrap();
    [
        Peer {
            wire: "openai-chat",
            path: "/v1/chat/completions",
            native: true,
            model: chat.model("default"),
            provider: Arc::new(chat),
        },
        Peer {
            wire: "openai-responses",
            path: "/v1/responses",
            native: false,
            model: responses.model("default"),
            provider: Arc::new(responses),
        },
        Peer {
            wire: "anthropic-messages",
            path: "/v1/messages",
            native: false,
            model: messages.model("default"),
            provider: Arc::new(messages),
        },
    ]
}

fn params() -> Params {
    let mut params = Params::default();
    params.max_output = Some(MAX_OUTPUT);
    params
}

fn request(text: &str) -> Request {
    Request::new("default", [Message::user(text)].into_iter().collect()).with_params(params())
}

#[tokio::test]
#[ignore = "needs LLM_PEER_URL, the address of a llama.cpp server"]
async fn text_comes_in_pieces_and_tokens_are_counted() {
    for peer in peers() {
        let asked = request("Which file is the longest?").with_instructions("Answer briefly.");
        let mut stream = peer.provider.stream(asked, &CallContext::new()).await.unwrap();
        let (mut pieces, mut text, mut usage, mut end, mut model) = (0, String::new(), None, None, None);
        while let Some(delta) = stream.next().await {
            match delta.unwrap() {
                Delta::Text(piece) => {
                    assert!(end.is_none(), "{}: text after the end", peer.wire);
                    pieces += 1;
                    text.push_str(&piece);
                }
                Delta::Usage(told) => usage = Some(*told),
                Delta::Response(info) => model = info.model.or(model),
                Delta::Finish(finish) => end = Some(finish),
                Delta::Warning(warning) => panic!("{}: {warning:?}", peer.wire),
                other => panic!("{}: {other:?}", peer.wire),
            }
        }
        let (usage, end) = (usage.unwrap(), end.unwrap());
        println!("{}: {pieces} pieces, {} bytes, {usage}, {end:?}, model {model:?}", peer.wire, text.len());
        assert!(pieces > 1, "{}: one piece: {text:?}", peer.wire);
        assert!(matches!(end.reason, FinishReason::Stop | FinishReason::Length), "{end:?}");
        assert!(usage.input.is_some_and(|tokens| tokens > 0), "{usage:?}");
        assert!(usage.output.is_some_and(|tokens| tokens > 0), "{usage:?}");
    }
}
