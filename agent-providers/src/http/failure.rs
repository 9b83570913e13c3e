//! A service's refusal, in any of the shapes that services use, turned into a core error.
//!
//! Statuses, codes and the service's own words decide the kind here, once, so that nobody above reads messages.

use std::{borrow::Cow, sync::Arc};

use entourage_core::{Error, ErrorKind, Retry};
use serde_json::Value;

use super::Redactor;

/// Longest quotation of a service's message, in characters.
const QUOTE: usize = 1_000;

/// What a service said about its failure. Absent parts are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) code: String,
    pub(crate) kind: String,
}

impl Failure {
    /// From the body of a refusal: JSON in one of many shapes, plain text, or a web page.
    pub(crate) fn from_body(body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let text = text.trim();
        match serde_json::from_str(text) {
            Ok(value) => Self::from_json(&value),
            Err(_) if text.starts_with('<') => Self::of("the answer is a web page"),
            Err(_) => Self::of(text),
        }
    }

    /// From `{"error": {…}}`, `{"error": "…"}`, `{"message": …}`, `{"detail": …}`, or what is inside `error`.
    pub(crate) fn from_json(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::of(text),
            Value::Array(all) => all.first().map(Self::from_json).unwrap_or_default(),
            Value::Object(fields) => {
                if let Some(inner) = fields.get("error").filter(|inner| says_something(inner)) {
                    let mut failure = Self::from_json(inner);
                    failure.code = first(failure.code, || scalar(fields.get("code")));
                    failure.kind = first(failure.kind, || scalar(fields.get("type")));
                    return failure;
                }
                let said = ["message", "detail", "msg", "errors"].iter().find_map(|name| fields.get(*name));
                let code = first(scalar(fields.get("code")), || scalar(fields.get("status_code")));
                Self {
                    message: said.map(plain).unwrap_or_default(),
                    code: first(code, || scalar(fields.get("status"))),
                    kind: scalar(fields.get("type")),
                }
            }
            other => Self::of(&other.to_string()),
        }
    }

    fn of(message: &str) -> Self {
        Self { message: message.to_owned(), ..Self::default() }
    }

    /// The HTTP status that a failure inside a stream carries as its code.
    fn status(&self) -> Option<u16> {
        self.code.parse().ok().filter(|status| (400..600).contains(status))
    }
}

/// Whether a field called `error` reports one; several services always send it, as null or empty.
pub(crate) fn says_something(error: &Value) -> bool {
    match error {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(all) => !all.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
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

/// Makes the errors of one call: knows the service's name, its keys and the id of the request.
#[derive(Debug, Clone)]
pub(crate) struct Failing {
    pub(crate) vendor: Arc<str>,
    pub(crate) redactor: Redactor,
    pub(crate) request_id: Option<String>,
}

impl Default for Failing {
    fn default() -> Self {
        Self { vendor: "the model's service".into(), redactor: Redactor::default(), request_id: None }
    }
}

impl Failing {
    /// The error for `failure`. Without a `status`, the failure came inside a stream that had begun.
    pub(crate) fn refused(&self, failure: &Failure, status: Option<u16>) -> Error {
        let status = status.or_else(|| failure.status());
        let (kind, retry) = classify(status, failure);
        let (what, next) = explain(kind);
        let quote = self.quote(&failure.message);
        let colon = if quote.is_empty() { "" } else { ": " };
        let error = Error::new(kind, format!("{}: {what}{colon}{quote}; {next}", self.vendor));
        let mut error = self.sign(error);
        if let Some(retry) = retry {
            error = error.with_retry(retry);
        }
        if let Some(status) = status {
            error = error.with("status", status.to_string());
        }
        let code = if failure.code.is_empty() { &failure.kind } else { &failure.code };
        if code.is_empty() { error } else { error.with("code", self.quote(code)) }
    }

    /// An error of our own about this call.
    pub(crate) fn error(&self, kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Error {
        self.sign(Error::new(kind, message))
    }

    /// `text` without secrets, in one line of at most 1,000 characters.
    pub(crate) fn quote(&self, text: &str) -> String {
        let clean = self.redactor.clean(text);
        let mut chars = clean.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
        let mut quote: String = chars.by_ref().take(QUOTE).collect();
        if chars.next().is_some() {
            quote.push('…');
        }
        quote
    }

    fn sign(&self, error: Error) -> Error {
        let error = error.during("model.stream");
        match &self.request_id {
            Some(id) => error.with("request", id.clone()),
            None => error,
        }
    }
}

/// The kind of a failure, and whether to retry where that differs from the kind's habit.
fn classify(status: Option<u16>, failure: &Failure) -> (ErrorKind, Option<Retry>) {
    let message = failure.message.to_lowercase();
    let code = |words: &[&str]| words.iter().any(|word| failure.code == *word || failure.kind == *word);
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if matches!(status, None | Some(400 | 413 | 422)) {
        if code(OVERFLOW_CODES) || says(OVERFLOW_WORDS) {
            return (ErrorKind::ContextOverflow, None);
        }
        if code(FILTER_CODES) || says(&["content management policy"]) {
            return (ErrorKind::ContentFiltered, None);
        }
    }
    match status {
        Some(401) => (ErrorKind::Authentication, None),
        Some(402 | 403) => (ErrorKind::PermissionDenied, None),
        Some(404) => (ErrorKind::NotFound, None),
        Some(408) => (ErrorKind::Timeout, None),
        Some(409) => (ErrorKind::Conflict, Some(Retry::Temporary)),
        Some(413) => (ErrorKind::TooLarge, None),
        // Waiting does not refill an account.
        Some(429) if code(&["insufficient_quota"]) => (ErrorKind::RateLimited, Some(Retry::Permanent)),
        Some(429) => (ErrorKind::RateLimited, None),
        Some(500..) => (ErrorKind::Overloaded, None),
        Some(_) => (ErrorKind::InvalidInput, None),
        None if code(&["rate_limit_exceeded", "rate_limit_error"]) => (ErrorKind::RateLimited, None),
        None if code(&[
            "server_error",
            "internal_server_error",
            "overloaded_error",
            "service_unavailable",
        ]) =>
        {
            (ErrorKind::Overloaded, None)
        }
        None if code(&["invalid_request_error"]) => (ErrorKind::InvalidInput, None),
        None => (ErrorKind::Protocol, None),
    }
}

const OVERFLOW_CODES: &[&str] = &[
    "context_length_exceeded",
    "exceed_context_size_error",
    "too_many_prompt_tokens",
    "model_max_prompt_tokens_exceeded",
];

const OVERFLOW_WORDS: &[&str] = &[
    "maximum context length",
    "max context length",
    "context length exceeded",
    "context window",
    "exceeds the available context size",
    "prompt is too long",
    "prompt too long",
    "input is too long",
    "total length of all messages is too long",
    "too many tokens",
];

const FILTER_CODES: &[&str] = &["content_filter", "content_policy_violation", "ResponsibleAIPolicyViolation"];

/// What happened, and the reader's next step.
fn explain(kind: ErrorKind) -> (&'static str, &'static str) {
    match kind {
        ErrorKind::Authentication => ("the key was refused or is missing", "check the API key"),
        ErrorKind::PermissionDenied => {
            ("this account may not do that", "check the key's rights and the account's balance")
        }
        ErrorKind::NotFound => ("no such model or address", "check the model's name and the base URL"),
        ErrorKind::Timeout => ("the service gave up waiting", "try again"),
        ErrorKind::Conflict => ("the request met another one", "try again"),
        ErrorKind::TooLarge => ("the request is too large", "send less at once"),
        ErrorKind::RateLimited => {
            ("too many requests or no quota left", "wait, or check the account's limits")
        }
        ErrorKind::Overloaded => ("the service failed or has no room", "try again later"),
        ErrorKind::ContextOverflow => {
            ("the request is larger than the model's context", "shorten or compact the conversation")
        }
        ErrorKind::ContentFiltered => ("the service refused the content", "change what is asked"),
        ErrorKind::InvalidInput => ("the request was refused", "correct what the service names"),
        _ => ("the service reported an error", "see the service's own words"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, body: &str) -> Error {
        Failing::default().refused(&Failure::from_body(body.as_bytes()), Some(status))
    }

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
    fn statuses_and_codes_decide_kind_and_retry() {
        use ErrorKind as K;
        use Retry::{Permanent, Temporary};
        for (status, body, kind, retry) in [
            (400, "{}", K::InvalidInput, Permanent),
            (400, r#"{"error":{"code":"context_length_exceeded"}}"#, K::ContextOverflow, Permanent),
            (
                400,
                r#"{"error":{"message":"prompt too long; exceeded max context length by 9"}}"#,
                K::ContextOverflow,
                Permanent,
            ),
            (413, r#"{"error":{"message":"Prompt is too long"}}"#, K::ContextOverflow, Permanent),
            (400, r#"{"error":{"code":"content_filter"}}"#, K::ContentFiltered, Permanent),
            (401, "", K::Authentication, Permanent),
            (402, "", K::PermissionDenied, Permanent),
            (403, "", K::PermissionDenied, Permanent),
            (404, "", K::NotFound, Permanent),
            (408, "", K::Timeout, Temporary),
            (409, "", K::Conflict, Temporary),
            (413, "", K::TooLarge, Permanent),
            (422, "", K::InvalidInput, Permanent),
            (429, "", K::RateLimited, Temporary),
            (429, r#"{"error":{"code":"insufficient_quota"}}"#, K::RateLimited, Permanent),
            (500, "", K::Overloaded, Temporary),
            (529, "", K::Overloaded, Temporary),
        ] {
            let error = refused(status, body);
            assert_eq!((error.kind(), error.retry()), (kind, retry), "{status} {body}");
            assert!(error.context().any(|(name, value)| name == "status" && value == status.to_string()));
        }
    }

    #[test]
    fn a_failure_inside_a_stream_uses_its_code_as_status() {
        let failing = Failing::default();
        let kind = |body: &str| failing.refused(&Failure::from_body(body.as_bytes()), None).kind();
        assert_eq!(kind(r#"{"error":{"code":429,"message":"slow down"}}"#), ErrorKind::RateLimited);
        assert_eq!(kind(r#"{"error":{"code":"502","message":"bad gateway"}}"#), ErrorKind::Overloaded);
        assert_eq!(kind(r#"{"error":{"type":"server_error"}}"#), ErrorKind::Overloaded);
        assert_eq!(kind(r#"{"error":{"message":"hm"}}"#), ErrorKind::Protocol);
    }

    #[test]
    fn quotations_are_bounded_one_line_and_without_keys() {
        let failing =
            Failing { redactor: Redactor::new(["sk-secret".to_owned().into()]), ..Failing::default() };
        let long = format!("key sk-secret\nis wrong {}", "é".repeat(2_000));
        let error = failing.refused(&Failure::from_body(long.as_bytes()), Some(401));
        assert!(error.message().contains("key [key] is wrong éé"), "{error}");
        assert!(!format!("{error:?}").contains("sk-secret"));
        assert!(error.message().chars().count() < 1_150);
    }
}
