//! List attributes. `tracing` has no lists, so spans carry them as JSON strings; the exporter here turns them back.

use std::time::Duration;

use opentelemetry::{Array, StringValue, Value};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{SpanData, SpanExporter},
};

/// Attributes that are lists of words.
const LISTS: &[&str] = &["gen_ai.response.finish_reasons"];

/// An exporter that turns the attributes of `LISTS` from JSON strings into lists.
#[derive(Debug)]
pub(crate) struct Lists<E>(pub(crate) E);

impl<E: SpanExporter> SpanExporter for Lists<E> {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        for attribute in batch.iter_mut().flat_map(|span| &mut span.attributes) {
            if LISTS.contains(&attribute.key.as_str())
                && let Value::String(text) = &attribute.value
                && let Some(words) = words(text.as_str())
            {
                attribute.value = Value::Array(Array::String(words));
            }
        }
        self.0.export(batch).await
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
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
