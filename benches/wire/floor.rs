//! The floor: a stream read by hand. reqwest, a search for line ends, and serde for the one field that is wanted.
//!
//! It trusts the service in everything: no bound, no error but a panic, no tool calls, no usage.

use std::borrow::Cow;

use memchr::memchr;
use serde::Deserialize;

pub(crate) type Client = reqwest::Client;

pub(crate) fn client() -> Client {
    // The service speaks plain HTTP, so nothing is trusted.
    let tls = rustls::ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    Client::builder().tls_backend_preconfigured(tls).no_proxy().tcp_nodelay(true).build().unwrap()
}

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
    content: Option<Text<'a>>,
}

/// Borrows the text. Serde borrows a `Cow` only in a field with this attribute, and would copy it otherwise.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Number of pieces of text, and the whole text.
#[derive(Default)]
pub(crate) struct Read {
    pub(crate) pieces: usize,
    pub(crate) text: String,
}

impl Read {
    fn line(&mut self, line: &[u8]) {
        let Some(data) = line.strip_prefix(b"data: ") else { return };
        if data == b"[DONE]" {
            return;
        }
        let chunk: Chunk<'_> = serde_json::from_slice(data).unwrap();
        let said = chunk.choices.into_iter().next().and_then(|choice| choice.delta.content);
        if let Some(Text(text)) = said
            && !text.is_empty()
        {
            self.pieces += 1;
            self.text.push_str(&text);
        }
    }
}

pub(crate) async fn read(client: &Client, base: &str) -> Read {
    let body = r#"{"model":"bench","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
    let request = client.post(format!("{base}/chat/completions")).bearer_auth("k");
    let mut reply = request.header("content-type", "application/json").body(body).send().await.unwrap();
    let (mut read, mut kept) = (Read::default(), Vec::new());
    while let Some(bytes) = reply.chunk().await.unwrap() {
        let mut rest = &bytes[..];
        while let Some(at) = memchr(b'\n', rest) {
            let line = &rest[..at];
            rest = &rest[at + 1..];
            if kept.is_empty() {
                read.line(line);
            } else {
                kept.extend_from_slice(line);
                read.line(&kept);
                kept.clear();
            }
        }
        kept.extend_from_slice(rest);
    }
    read
}
