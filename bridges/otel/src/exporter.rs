//! The exporter between the batches and the wire: it turns lists back into lists, and remembers what was lost.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use opentelemetry::{Array, StringValue, Value};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{SpanData, SpanExporter},
};

/// Attributes that are lists of words. `tracing` has no lists, so spans carry them as JSON strings.
const LISTS: &[&str] = &["gen_ai.response.finish_reasons"];

/// Spans that the collector did not take, with the error of the newest attempt.
///
/// Batches are sent in the background as well, and nobody hears the errors of those.
#[derive(Debug, Clone, Default)]
pub(crate) struct Losses(Arc<Mutex<Option<(usize, String)>>>);

impl Losses {
    /// Removes and returns what was lost since the last call.
    pub(crate) fn take(&self) -> Option<(usize, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn add(&self, spans: usize, error: String) {
        let mut lost = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = lost.as_ref().map_or(0, |(spans, _)| *spans);
        *lost = Some((before.saturating_add(spans), error));
    }
}

/// An exporter that turns the attributes of `LISTS` from JSON strings into lists, and notes failures.
#[derive(Debug)]
pub(crate) struct Exporter<E> {
    wire: E,
    losses: Losses,
}

impl<E> Exporter<E> {
    pub(crate) fn new(wire: E, losses: Losses) -> Self {
        Self { wire, losses }
    }
}

impl<E: SpanExporter> SpanExporter for Exporter<E> {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        for attribute in batch.iter_mut().flat_map(|span| &mut span.attributes) {
            if LISTS.contains(&attribute.key.as_str())
                && let Value::String(text) = &attribute.value
                && let Some(words) = words(text.as_str())
            {
                attribute.value = Value::Array(Array::String(words));
            }
        }
        let spans = batch.len();
        let sent = self.wire.export(batch).await;
        if let Err(error) = &sent {
            self.losses.add(spans, error.to_string());
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.wire.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.wire.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.wire.set_resource(resource);
    }
}

/// The words of a list such as `["stop"]`. No word contains a character that JSON escapes.
fn words(list: &str) -> Option<Vec<StringValue>> {
    let inside = list.strip_prefix('[')?.strip_suffix(']')?;
    if inside.is_empty() {
        return Some(Vec::new());
    }
    let word = |text: &str| {
        let word = text.trim().strip_prefix('"')?.strip_suffix('"')?;
        (!word.contains(['"', '\\'])).then(|| StringValue::from(word.to_owned()))
    };
    inside.split(',').map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_words_is_read_and_anything_else_is_left_alone() {
        let read =
            |text: &str| words(text).map(|it| it.iter().map(|it| it.as_str().to_owned()).collect::<Vec<_>>());
        assert_eq!(read("[\"stop\"]"), Some(vec!["stop".to_owned()]));
        assert_eq!(read("[\"stop\", \"length\"]"), Some(vec!["stop".to_owned(), "length".to_owned()]));
        assert_eq!(read("[]"), Some(vec![]));
        for other in ["stop", "[stop]", "[\"a\\\"b\"]", "[\"a\",]", "["] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
