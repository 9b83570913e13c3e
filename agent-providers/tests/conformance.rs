//! The streaming suite on every wire: each spelled as its services spell it, byte for byte on a loopback listener,
//! alone and behind layers.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic, in its helpers too")]

#[path = "conformance/anthropic_messages.rs"]
mod anthropic_messages;
#[path = "conformance/gemini.rs"]
mod gemini;
#[path = "conformance/ollama.rs"]
mod ollama;
#[path = "conformance/openai_chat.rs"]
mod openai_chat;
#[path = "conformance/openai_responses.rs"]
mod openai_responses;
#[path = "conformance/server.rs"]
mod server;
#[path = "conformance/spelling.rs"]
mod spelling;

use std::{sync::Arc, time::Duration};

use entourage_core::{
    layers::{Check, Layer, Retry, Timeout},
    provider::Provider,
    testkit::stream::{Layered, Subject, conformance},
};
use spelling::{Spelling, Wire};

/// The suite passes, and these are the cases that the manifest excuses.
async fn passes(subject: &dyn Subject, skipped: &[&str]) {
    let report = conformance(subject).await;
    eprintln!("{report:#}");
    report.assert();
    let found: Vec<_> = report.skipped().iter().map(|(case, _)| case.as_str()).collect();
    assert_eq!(found, skipped);
}

const HOUR: Duration = Duration::from_secs(3_600);

fn stack(inner: Arc<dyn Provider>) -> Arc<dyn Provider> {
    let timeout = Timeout::new().total(HOUR).first_delta(HOUR).idle(HOUR);
    Retry::new().retries(0).layer(timeout.layer(Check::new().layer(inner)))
}

async fn passes_alone_and_in_a_stack<S: Spelling>(skipped: &[&str]) {
    passes(&Wire::<S>::new(), skipped).await;
    passes(&Layered::new(Wire::<S>::behind_a_proxy(), "a stack", stack), skipped).await;
}

#[tokio::test]
async fn chat_completions() {
    passes_alone_and_in_a_stack::<openai_chat::Chat>(&[]).await;
}

#[tokio::test]
async fn responses() {
    passes_alone_and_in_a_stack::<openai_responses::Responses>(&[]).await;
}

#[tokio::test]
async fn messages() {
    passes_alone_and_in_a_stack::<anthropic_messages::Messages>(&[]).await;
}

#[tokio::test]
async fn generate_content() {
    passes_alone_and_in_a_stack::<gemini::Generate>(&[]).await;
}

#[tokio::test]
async fn ollamas_chat() {
    passes_alone_and_in_a_stack::<ollama::Lines>(&[]).await;
}
