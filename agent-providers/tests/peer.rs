//! Tests against a real llama.cpp server: `LLM_PEER_URL=http://127.0.0.1:PORT cargo test … --test peer -- --ignored`.
//!
//! Its model knows one byte per token and produces gibberish, so nothing here depends on its words, only on their
//! form. A user's turn with tools gives a call, a tool's result gives text, and grammars force arguments and schemas.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test may panic and print, in its helpers too"
)]

#[path = "peer/agents.rs"]
mod agents;
#[path = "peer/bounds.rs"]
mod bounds;
#[path = "peer/embeddings.rs"]
mod embeddings;
#[path = "peer/record.rs"]
mod record;
#[path = "peer/tools.rs"]
mod tools;
#[path = "peer/typed.rs"]
mod typed;

use std::sync::Arc;

use entourage_core::{
    Usage,
    message::Message,
    provider::{CallContext, Delta, Finish, FinishReason, Model, Params, Provider, Request},
};
use entourage_providers::{
    anthropic_messages::AnthropicMessages, openai_chat::OpenAiChat, openai_responses::OpenAiResponses,
};
use futures_util::StreamExt;
use tokio::sync::RwLock;

/// The key sent to the server, which does not require one.
const KEY: &str = "sk-peer-0123456789-secret";

/// Most bytes of a reply: seconds, not minutes.
const MAX_OUTPUT: u64 = 1_500;

/// A wire that the server speaks.
struct Peer {
    /// Name of the wire, as in recordings.
    wire: &'static str,
    path: &'static str,
    /// True if the wire itself can request a schema that the server enforces.
    native: bool,
    provider: Arc<dyn Provider>,
    model: Model,
}

/// Lock of the server. A test that looks at the whole server holds it exclusively.
static SERVER: RwLock<()> = RwLock::const_new(());

fn server() -> String {
    let url = std::env::var("LLM_PEER_URL").expect("set LLM_PEER_URL to the server's address, without /v1");
    url.trim_end_matches('/').to_owned()
}

fn peers() -> [Peer; 3] {
    let url = format!("{}/v1", server());
    // Without a name, the server is asked for its model.
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

/// Facts about a streamed reply.
#[derive(Debug, Default)]
struct Streamed {
    /// Number of pieces of text.
    pieces: usize,
    text: String,
    usage: Option<Usage>,
    model: Option<Box<str>>,
    finish: Option<Finish>,
}

async fn stream(peer: &Peer) -> Streamed {
    let asked = request("Which file is the longest?").with_instructions("Answer briefly.");
    let mut stream = peer.provider.stream(asked, &CallContext::new()).await.unwrap();
    let mut all = Streamed::default();
    while let Some(delta) = stream.next().await {
        match delta.unwrap() {
            Delta::Text(piece) => {
                assert!(all.finish.is_none(), "{}: text after the end", peer.wire);
                all.pieces += 1;
                all.text.push_str(&piece);
            }
            Delta::Usage(usage) => all.usage = Some(*usage),
            Delta::Response(info) => all.model = info.model.or(all.model),
            Delta::Finish(finish) => all.finish = Some(*finish),
            other => panic!("{}: {other:?}", peer.wire),
        }
    }
    all
}

#[tokio::test]
#[ignore = "needs LLM_PEER_URL, the address of a llama.cpp server"]
async fn text_comes_in_pieces_and_tokens_are_counted() {
    let _server = SERVER.read().await;
    for peer in peers() {
        let mut most = 0;
        // The model may say a single byte, though seldom.
        for _ in 0..10 {
            let all = stream(&peer).await;
            println!("{}: {all:?}", peer.wire);
            let (usage, finish) = (all.usage.unwrap(), all.finish.unwrap());
            assert!(matches!(finish.reason, FinishReason::Stop | FinishReason::Length), "{finish:?}");
            assert!(usage.input.is_some_and(|tokens| tokens > 0), "{}: {usage:?}", peer.wire);
            assert!(usage.output.is_some_and(|tokens| tokens > 0), "{}: {usage:?}", peer.wire);
            most = most.max(all.pieces);
            if most > 1 {
                break;
            }
        }
        assert!(most > 1, "{}: every reply came in one piece", peer.wire);
    }
}
