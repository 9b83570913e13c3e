//! A service's report of a failure, read from any of the shapes that services use.
//!
//! It only reads; `refusal` interprets the words.

use std::time::Duration;

use serde_json::{Map, Value, value::RawValue};

use super::limits;
use crate::json;

/// A service's report of a failure. Absent parts are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) code: String,
    pub(crate) kind: String,
    /// A more precise word than `kind`, from the details.
    pub(crate) reason: String,
    /// The service's id of the request.
    pub(crate) request: String,
    /// The time that the service asks to wait.
    pub(crate) retry_after: Option<Duration>,
}

impl Failure {
    /// Reads the body of a refusal: JSON in one of many shapes, plain text, or a web page.
    pub(crate) fn from_body(body: &[u8]) -> Self {
        let body = json::mend(body);
        let text = String::from_utf8_lossy(&body);
        let text = text.trim();
        match serde_json::from_str(text) {
            Ok(value) => Self::from_json(&value),
            Err(_) if text.starts_with('<') => Self::of("the answer is a web page"),
            Err(_) => Self::of(text),
        }
    }

    /// Reads a field called `error`, if it reports one; several services always send it, as null or empty.
    pub(crate) fn reported(error: &RawValue) -> Option<Self> {
        let value = serde_json::from_str(error.get()).ok()?;
        says_something(&value).then(|| Self::from_json(&value))
    }

    /// Reads `{"error": {…}}`, `{"error": "…"}`, `{"response": {"error": {…}}}`, `{"message": …}`, `{"detail": …}`, or
    /// the content of `error`.
    pub(crate) fn from_json(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::of(text),
            Value::Array(all) => all.first().map(Self::from_json).unwrap_or_default(),
            Value::Object(fields) => Self::from_fields(fields),
            other => Self::of(&other.to_string()),
        }
    }

    fn from_fields(fields: &Map<String, Value>) -> Self {
        let kind = || scalar(fields.get("type").filter(|kind| *kind != "error"));
        let inner =
            |fields: &Map<String, Value>| fields.get("error").filter(|inner| says_something(inner)).cloned();
        let response = || inner(fields.get("response")?.as_object()?);
        if let Some(inner) = inner(fields).or_else(response) {
            let mut failure = Self::from_json(&inner);
            failure.code = first(failure.code, || scalar(fields.get("code")));
            failure.kind = first(failure.kind, kind);
            failure.request = first(failure.request, || scalar(fields.get("request_id")));
            return failure;
        }
        let said = ["message", "detail", "msg", "errors"].iter().find_map(|name| fields.get(*name));
        let code = first(scalar(fields.get("code")), || scalar(fields.get("status_code")));
        let status = scalar(fields.get("status"));
        let word = || if code.is_empty() || is_number(&status) { String::new() } else { status.clone() };
        let details = fields.get("details").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        Self {
            message: said.map(plain).unwrap_or_default(),
            kind: first(kind(), word),
            code: first(code, || status),
            reason: scalar(details.iter().find_map(|detail| detail.get("reason"))),
            request: scalar(fields.get("request_id")),
            retry_after: details
                .iter()
                .find_map(|detail| limits::span(detail.get("retryDelay")?.as_str()?))
                .and_then(limits::plausible),
        }
    }

    fn of(message: &str) -> Self {
        Self { message: message.to_owned(), ..Self::default() }
    }

    /// The HTTP status that a failure inside a stream carries as its code.
    pub(super) fn status(&self) -> Option<u16> {
        self.code.parse().ok().filter(|status| (400..600).contains(status))
    }

    /// The most specific of the service's words for the failure; empty if there is none.
    pub(super) fn word(&self) -> &str {
        let words = [&self.code, &self.kind, &self.reason];
        let word = words.iter().find(|word| !word.is_empty() && !is_number(word));
        word.unwrap_or(&&self.code)
    }

    /// True if one of its codes is one of `words`.
    pub(super) fn is(&self, words: &[&str]) -> bool {
        [&self.code, &self.kind, &self.reason].iter().any(|word| words.contains(&word.as_str()))
    }
}

fn says_something(error: &Value) -> bool {
    match error {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(all) => !all.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

fn is_number(text: &str) -> bool {
    text.parse::<f64>().is_ok()
}

fn first(found: String, or: impl FnOnce() -> String) -> String {
    if found.is_empty() { or() } else { found }
}

fn scalar(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_of_refusal_gives_its_message_and_code() {
        for (body, message, code) in [
            (r#"{"error":{"message":"no","type":"t","code":"c"}}"#, "no", "c"),
            (r#"{"error":{"message":"no","code":404}}"#, "no", "404"),
            (r#"{"error":"no"}"#, "no", ""),
            (r#"{"object":"error","message":"no","code":"1500"}"#, "no", "1500"),
            (r#"{"detail":"no"}"#, "no", ""),
            (r#"{"detail":[{"loc":["body"]}]}"#, r#"[{"loc":["body"]}]"#, ""),
            (r#"[{"error":{"message":"no","code":400,"status":"INVALID_ARGUMENT"}}]"#, "no", "400"),
            (r#"{"error":null,"message":"no"}"#, "no", ""),
            ("no\n", "no", ""),
            ("<html><body>502</body></html>", "the answer is a web page", ""),
            ("", "", ""),
        ] {
            let failure = Failure::from_body(body.as_bytes());
            assert_eq!((failure.message.as_str(), failure.code.as_str()), (message, code), "{body}");
        }
    }

    #[test]
    fn what_services_add_to_a_refusal_is_kept() {
        let read = |body: &str| Failure::from_body(body.as_bytes());
        let overloaded = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}"#;
        let failure = read(overloaded);
        assert_eq!(
            (failure.word(), failure.message.as_str(), failure.request.as_str()),
            ("overloaded_error", "Overloaded", "req_1")
        );
        let flat = read(
            r#"{"type":"error","code":"server_error","message":"oops","param":null,"sequence_number":3}"#,
        );
        assert_eq!((flat.word(), flat.kind.as_str(), flat.message.as_str()), ("server_error", "", "oops"));
        let nested = read(
            r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"slow"}}}"#,
        );
        assert_eq!((nested.word(), nested.message.as_str()), ("rate_limit_exceeded", "slow"));
        let wait = read(
            r#"{"error":{"code":429,"message":"quota","status":"RESOURCE_EXHAUSTED","details":[
                {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"RATE_LIMIT_EXCEEDED"},
                {"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"7.5s"}]}}"#,
        );
        assert_eq!(
            (wait.word(), wait.status(), wait.reason.as_str()),
            ("RESOURCE_EXHAUSTED", Some(429), "RATE_LIMIT_EXCEEDED")
        );
        assert_eq!(wait.retry_after, Some(Duration::from_millis(7_500)));
        let plain = read(r#"{"code":"invalid-argument","error":"Incorrect API key provided."}"#);
        assert_eq!(
            (plain.word(), plain.message.as_str()),
            ("invalid-argument", "Incorrect API key provided.")
        );
        assert_eq!(read(r#"{"error":{"code":400,"message":"no"}}"#).word(), "400");
    }
}
