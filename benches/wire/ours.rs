//! The same stream through the provider, as a user would read it: deltas to the finished message.

use entourage::{
    message::{History, Message},
    provider::{CallContext, Delta, Model},
    providers::openai_chat::OpenAiChat,
};
use entourage_runtime::reply::Assembler;
use futures_util::StreamExt;

pub(crate) fn model(base: &str) -> Model {
    OpenAiChat::builder().base_url(base).api_key("k").build().unwrap().model("bench")
}

/// Reads the reply. Returns the number of pieces of text, and the message.
pub(crate) async fn read(model: &Model) -> (usize, Message) {
    let mut history = History::default();
    history.push(Message::user("hi"));
    let cx = CallContext::new();
    let mut deltas = model.stream(model.request(history), &cx).await.unwrap();
    let (mut assembler, mut pieces) = (Assembler::default(), 0);
    while let Some(delta) = deltas.next().await {
        let delta = delta.unwrap();
        assembler.push(&delta).unwrap();
        pieces += usize::from(matches!(delta, Delta::Text(_)));
    }
    (pieces, assembler.finish().unwrap().into_message())
}
