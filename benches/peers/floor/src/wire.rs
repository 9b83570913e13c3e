//! A reader of streamed chat completions.

use std::{borrow::Cow, hint::black_box};

use futures::StreamExt;
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Delta<'a>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
}

/// Returns the number of deltas.
pub(crate) async fn stream(client: reqwest::Client, model: &str) -> usize {
    let body = json!({"model": model, "stream": true, "messages": [{"role": "user", "content": "hi"}]});
    let url = format!("{}/chat/completions", kit::base_url());
    let reply = client.post(url).bearer_auth("k").json(&body).send().await.unwrap();
    let mut parts = reply.bytes_stream();
    let mut text = String::new();
    let (mut buffer, mut deltas) = (Vec::new(), 0);
    while let Some(part) = parts.next().await {
        buffer.extend_from_slice(&part.unwrap());
        let mut at = 0;
        while let Some(length) = buffer[at..].iter().position(|byte| *byte == b'\n') {
            let line = &buffer[at..at + length];
            at += length + 1;
            let Some(data) = line.strip_prefix(b"data: ").filter(|data| *data != b"[DONE]") else { continue };
            let chunk: Chunk<'_> = serde_json::from_slice(data).unwrap();
            let delta = chunk.choices.first().and_then(|choice| choice.delta.content.as_deref());
            if let Some(delta) = delta.filter(|delta| !delta.is_empty()) {
                deltas += 1;
                text.push_str(delta);
            }
        }
        buffer.drain(..at);
    }
    black_box(text);
    deltas
}
