//! The streaming suite on every wire, spelled as its services spell it, byte for byte on a loopback listener, alone
//! and behind layers.

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
#[path = "conformance/schemas.rs"]
mod schemas;
#[path = "conformance/server.rs"]
mod server;
#[path = "conformance/spelling.rs"]
mod spelling;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{
    Error, Result,
    budget::{Budget, BudgetLimits},
    provider::{Layer, Provider},
};
use entourage_runtime::layers::{
    BudgetLayer, Check, CredentialRefresh, Fallback, RateLimit, Recorder, Refresh, ResponseCache, Retry,
    Timeout,
};
use entourage_testkit::stream::{Layered, Subject, conformance, scenarios};

use spelling::{Spelling, Wire};

/// Checks that the suite passes, with exactly these cases excused by the manifest.
async fn passes(subject: &dyn Subject, skipped: &[&str]) {
    let report = conformance(subject).await;
    report.assert();
    let found: Vec<_> = report.skipped().iter().map(|(case, _)| case.as_str()).collect();
    assert_eq!(found, skipped, "{report:#}");
    assert_eq!(report.passed().len() + skipped.len(), scenarios().len());
}

const HOUR: Duration = Duration::from_secs(3_600);

fn timeout() -> Timeout {
    Timeout::new().with_total(HOUR).with_first_delta(HOUR).with_idle(HOUR)
}

fn stack(inner: Arc<dyn Provider>) -> Arc<dyn Provider> {
    Retry::new().with_retries(0).layer(timeout().layer(Check::new().layer(inner)))
}

async fn passes_alone_and_in_a_stack<S: Spelling>(skipped: &[&str]) {
    passes(&Wire::<S>::new(), skipped).await;
    passes(&Layered::new(Wire::<S>::behind_a_proxy(), "a stack", stack), skipped).await;
}

#[tokio::test]
async fn chat_completions() {
    passes_alone_and_in_a_stack::<openai_chat::Chat>(&[
        "a_refusal_told_by_the_finish",
        "a_block_of_the_service",
    ])
    .await;
}

#[tokio::test]
async fn responses() {
    passes_alone_and_in_a_stack::<openai_responses::Responses>(&["a_refusal_told_by_the_finish"]).await;
}

#[tokio::test]
async fn messages() {
    passes_alone_and_in_a_stack::<anthropic_messages::Messages>(MESSAGES_SKIPS).await;
}

#[tokio::test]
async fn generate_content() {
    passes_alone_and_in_a_stack::<gemini::Generate>(&[
        "a_refusal_in_its_own_channel",
        "a_refusal_told_by_the_finish",
        "arguments_come_back_byte_for_byte",
        "broken_arguments_are_marked",
        "usage_with_tokens_written_to_a_cache",
        "usage_with_a_price",
        "refused_for_its_content",
        "arguments_are_shown_while_they_come",
    ])
    .await;
}

#[tokio::test]
async fn ollamas_chat() {
    passes_alone_and_in_a_stack::<ollama::Lines>(&[
        "signed_reasoning",
        "a_signature_without_shown_reasoning",
        "a_refusal_in_its_own_channel",
        "a_refusal_told_by_the_finish",
        "a_block_of_the_service",
        "a_content_filter",
        "arguments_come_back_byte_for_byte",
        "broken_arguments_are_marked",
        "usage_with_cached_tokens",
        "usage_with_tokens_written_to_a_cache",
        "usage_with_reasoning",
        "usage_with_a_price",
        "the_responses_id",
        "refused_for_its_content",
        "an_error_after_text",
        "an_error_before_any_text",
        "an_error_after_a_call",
        "a_rate_limit_inside_the_stream",
        "a_call_after_an_error_in_the_stream_works",
        "arguments_are_shown_while_they_come",
    ])
    .await;
}

const MESSAGES_SKIPS: &[&str] = &["a_content_filter", "unreported_usage_is_unknown"];

/// A refresh hook without another credential.
#[derive(Debug)]
struct NoOther;

#[async_trait]
impl Refresh for NoOther {
    async fn refresh(&self, error: &Error, _: &Arc<dyn Provider>) -> Result<Arc<dyn Provider>> {
        Err(Error::new(error.kind(), "there is no other key"))
    }
}

#[tokio::test]
async fn messages_behind_every_layer() {
    let every = |inner: Arc<dyn Provider>| {
        let inner =
            BudgetLayer::new(&Budget::new(BudgetLimits::none()), "suite").layer(Check::new().layer(inner));
        let inner = RateLimit::new().layer(timeout().layer(inner));
        let inner = CredentialRefresh::new(NoOther).layer(Retry::new().with_retries(0).layer(inner));
        let inner = ResponseCache::new().layer(Fallback::to([]).layer(inner));
        Recorder::new().layer(inner)
    };
    let subject = Layered::new(Wire::<anthropic_messages::Messages>::new(), "every layer", every)
        .skipping("three_calls_in_a_row", "the cache answers the second call, which is the first one again");
    let skipped = [MESSAGES_SKIPS, &["three_calls_in_a_row"]].concat();
    passes(&subject, &skipped).await;
}
