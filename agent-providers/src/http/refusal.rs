//! Turns a service's refusal into a core error.
//!
//! Statuses, codes and the service's own words decide the kind here, once, so that no caller reads messages.

use std::{borrow::Cow, sync::Arc};

use entourage_core::{Error, ErrorKind, RetryStatus};

use super::{Failure, Redactor};
use crate::json;

/// Longest quotation of a service's message, in characters.
const QUOTE: usize = 1_000;

/// Makes the errors of one call, with the service's name, its keys and the id of the request.
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
        let mut error = match self.request_id {
            None if !failure.request.is_empty() => {
                error.during("model.stream").with("request", self.quote(&failure.request))
            }
            _ => self.sign(error),
        };
        if let Some(retry) = retry {
            error = error.with_retry(retry);
        }
        if let Some(wait) = failure.retry_after {
            error = error.with_retry_after(wait);
        }
        if let Some(status) = status {
            error = error.with("status", status.to_string());
        }
        let word = failure.word();
        if word.is_empty() { error } else { error.with("code", self.quote(word)) }
    }

    /// An error of this crate about the call.
    pub(crate) fn error(&self, kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Error {
        self.sign(Error::new(kind, message))
    }

    /// An error that the program's own client failed with: its kind and advice, and its words without secrets.
    pub(crate) fn passed_on(&self, error: &Error) -> Error {
        let passed = self.error(error.kind(), self.quote(error.message())).with_retry(error.retry());
        match error.retry_after() {
            Some(wait) => passed.with_retry_after(wait),
            None => passed,
        }
    }

    /// The error for `data` that should have been JSON. An incomplete JSON text may be complete at a retry.
    pub(crate) fn unreadable(&self, data: &[u8], error: &serde_json::Error) -> Error {
        let start: String = self.quote(&String::from_utf8_lossy(data)).chars().take(200).collect();
        // The parser's own text quotes its input.
        let told = self.quote(&error.to_string());
        if told.starts_with(json::TOO_MANY) {
            let text = format!("{} sent a reply that is too large to be read ({told})", self.vendor);
            return self.error(ErrorKind::TooLarge, text);
        }
        if error.is_eof() {
            let text = format!("{} sent JSON that breaks off ({told}); try again: {start}", self.vendor);
            return self.error(ErrorKind::Protocol, text).with_retry(RetryStatus::Temporary);
        }
        self.error(ErrorKind::Protocol, format!("{} sent what is no JSON ({told}): {start}", self.vendor))
    }

    /// `text` without secrets, in one line of at most 1,000 characters.
    pub(crate) fn quote(&self, text: &str) -> String {
        // Longer than the quote, so that enough is left after redaction.
        let start = text.trim();
        let start =
            start.char_indices().nth(8 * QUOTE).map_or(start, |(end, _)| start.get(..end).unwrap_or(start));
        let start = json::whole(start);
        let clean = self.redactor.clean(&start);
        let mut chars = clean.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
        let mut quote: String = chars.by_ref().take(QUOTE).collect();
        if chars.next().is_some() {
            quote.push('…');
        }
        quote
    }

    /// Adds the known details of the call to an error from elsewhere.
    pub(crate) fn sign(&self, error: Error) -> Error {
        let error = error.during("model.stream");
        match &self.request_id {
            Some(id) => error.with("request", id.clone()),
            None => error,
        }
    }
}

/// The kind of a failure, and its retry advice if that differs from the kind's default.
fn classify(status: Option<u16>, failure: &Failure) -> (ErrorKind, Option<RetryStatus>) {
    let message = failure.message.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    let named = NAMES.iter().find(|(names, _)| failure.is(names)).map(|(_, kind)| *kind);
    // These are hidden behind a general status or code. A named limit may speak of tokens too.
    if matches!(status, None | Some(400 | 413 | 422 | 500)) && !matches!(named, Some(ErrorKind::RateLimited))
    {
        if failure.is(OVERFLOW_CODES) || says(OVERFLOW_WORDS) {
            return (ErrorKind::ContextOverflow, None);
        }
        if failure.is(FILTER_CODES) || says(FILTER_WORDS) {
            return (ErrorKind::ContentFiltered, None);
        }
    }
    if matches!(status, None | Some(400)) {
        if failure.is(&["API_KEY_INVALID"]) || says(KEY_WORDS) {
            return (ErrorKind::Authentication, None);
        }
        if failure.is(&["billing_error"]) || says(&["credit balance is too low"]) {
            return (ErrorKind::PermissionDenied, None);
        }
        if failure.is(&["model_not_found", "invalid_model"]) || says(&["model not found"]) {
            return (ErrorKind::NotFound, None);
        }
    }
    let kind = match status {
        Some(401) => ErrorKind::Authentication,
        Some(402 | 403) => ErrorKind::PermissionDenied,
        Some(404) => ErrorKind::NotFound,
        Some(408 | 504) => ErrorKind::Timeout,
        Some(409) => return (ErrorKind::Conflict, Some(RetryStatus::Temporary)),
        Some(413) => ErrorKind::TooLarge,
        Some(429) => ErrorKind::RateLimited,
        Some(500..) => ErrorKind::Overloaded,
        Some(_) => ErrorKind::InvalidInput,
        None => named.unwrap_or(ErrorKind::Protocol),
    };
    // Waiting does not refill an account.
    let spent = kind == ErrorKind::RateLimited && failure.is(SPENT_CODES);
    (kind, spent.then_some(RetryStatus::Permanent))
}

/// The services' names for failures: the only clue inside a stream, which has no status.
const NAMES: &[(&[&str], ErrorKind)] = &[
    (
        &[
            "rate_limit_exceeded",
            "rate_limit_error",
            "RESOURCE_EXHAUSTED",
            "insufficient_quota",
            "too_many_requests",
        ],
        ErrorKind::RateLimited,
    ),
    (
        &[
            "server_error",
            "internal_server_error",
            "api_error",
            "overloaded_error",
            "service_unavailable",
            "UNAVAILABLE",
            "INTERNAL",
        ],
        ErrorKind::Overloaded,
    ),
    (&["timeout_error", "DEADLINE_EXCEEDED", "vector_store_timeout"], ErrorKind::Timeout),
    (&["authentication_error", "invalid_api_key", "UNAUTHENTICATED"], ErrorKind::Authentication),
    (&["permission_error", "billing_error", "PERMISSION_DENIED"], ErrorKind::PermissionDenied),
    (&["not_found_error", "NOT_FOUND", "model_not_found"], ErrorKind::NotFound),
    (&["request_too_large"], ErrorKind::TooLarge),
    (
        &[
            "invalid_request_error",
            "INVALID_ARGUMENT",
            "FAILED_PRECONDITION",
            "OUT_OF_RANGE",
            "invalid_image",
            "invalid_image_format",
            "invalid_base64_image",
            "invalid_image_url",
            "invalid_image_mode",
            "image_too_large",
            "image_too_small",
            "image_parse_error",
            "image_file_too_large",
            "image_file_not_found",
            "empty_image_file",
            "unsupported_image_media_type",
            "failed_to_download_image",
        ],
        ErrorKind::InvalidInput,
    ),
];

const SPENT_CODES: &[&str] = &["insufficient_quota", "billing_hard_limit_reached", "billing_not_active"];

const KEY_WORDS: &[&str] = &["api key not valid", "api key expired", "incorrect api key", "invalid api key"];

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
    "exceeds the context length",
    "greater than the context length",
    "context window",
    "exceed context limit",
    "exceeds the available context size",
    "maximum prompt length",
    "prompt is too long",
    "prompt too long",
    "input is too long",
    "input token count",
    "`max_new_tokens` must be",
    "total length of all messages is too long",
    "too many tokens",
    "is too large to process",
];

const FILTER_CODES: &[&str] = &[
    "content_filter",
    "content_policy_violation",
    "image_content_policy_violation",
    "invalid_prompt",
    "ResponsibleAIPolicyViolation",
];

const FILTER_WORDS: &[&str] = &["content management policy", "content filtering policy"];

/// An explanation, and the reader's next step.
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
            ("the request is larger than the model's context", "shorten or compact the conversation or text")
        }
        ErrorKind::ContentFiltered => ("the service refused the content", "change what is asked"),
        ErrorKind::InvalidInput => ("the request was refused", "correct what the service names"),
        _ => ("the service reported an error", "see the service's own words"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn refused(status: u16, body: &str) -> Error {
        Failing::default().refused(&Failure::from_body(body.as_bytes()), Some(status))
    }

    #[test]
    fn statuses_and_codes_decide_kind_and_retry() {
        use ErrorKind as K;
        use RetryStatus::{Permanent, Temporary};
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
            (
                500,
                r#"{"error":{"message":"input (9 tokens) is too large to process. increase …","type":"server_error"}}"#,
                K::ContextOverflow,
                Permanent,
            ),
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

    #[test]
    fn half_of_a_json_text_may_be_whole_the_next_time() {
        let unreadable = |data: &str| {
            let error = serde_json::from_str::<serde_json::Value>(data).unwrap_err();
            Failing::default().unreadable(data.as_bytes(), &error)
        };
        for (data, retry) in [("{\"a\":\"b", RetryStatus::Temporary), ("{a}", RetryStatus::Permanent)] {
            let error = unreadable(data);
            assert_eq!((error.kind(), error.retry()), (ErrorKind::Protocol, retry), "{error}");
            assert!(error.message().ends_with(data), "{error}");
        }
    }

    /// An error in the form of Anthropic's service, of Google's, and of OpenAI's responses.
    fn said(kind: &str, message: &str) -> String {
        format!(
            r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}"}},"request_id":"req_1"}}"#
        )
    }

    fn google(code: u16, status: &str, message: &str, details: &str) -> String {
        format!(
            r#"{{"error":{{"code":{code},"message":"{message}","status":"{status}","details":[{details}]}}}}"#
        )
    }

    fn failed(code: &str, message: &str) -> String {
        format!(
            r#"{{"type":"response.failed","response":{{"status":"failed","error":{{"code":"{code}","message":"{message}"}}}}}}"#
        )
    }

    #[test]
    fn each_service_is_understood_when_it_refuses() {
        use ErrorKind as K;
        let info = r#"{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}"#;
        for (status, body, kind) in [
            (400, said("invalid_request_error", "messages.0: Input does not match the expected shape."), K::InvalidInput),
            (400, said("invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum"), K::ContextOverflow),
            (
                400,
                said("invalid_request_error", "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"),
                K::ContextOverflow,
            ),
            (400, said("invalid_request_error", "Output blocked by content filtering policy"), K::ContentFiltered),
            (400, said("invalid_request_error", "Your credit balance is too low to access the API."), K::PermissionDenied),
            (401, said("authentication_error", "invalid x-api-key"), K::Authentication),
            (402, said("billing_error", "pay"), K::PermissionDenied),
            (403, said("permission_error", "no"), K::PermissionDenied),
            (404, said("not_found_error", "model: no-such"), K::NotFound),
            (413, said("request_too_large", "Request exceeds the maximum size"), K::TooLarge),
            (429, said("rate_limit_error", "too many tokens per minute"), K::RateLimited),
            (500, said("api_error", "Internal server error"), K::Overloaded),
            (504, said("timeout_error", "late"), K::Timeout),
            (529, said("overloaded_error", "Overloaded"), K::Overloaded),
            (400, google(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", info), K::Authentication),
            (400, google(400, "INVALID_ARGUMENT", "Please use a valid role: user, model.", ""), K::InvalidInput),
            (
                400,
                google(400, "INVALID_ARGUMENT", "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", ""),
                K::ContextOverflow,
            ),
            (
                400,
                google(400, "INVALID_ARGUMENT", "Unable to submit request because the input token count is 32769 but model only supports up to 32768.", ""),
                K::ContextOverflow,
            ),
            (401, google(401, "UNAUTHENTICATED", "no", ""), K::Authentication),
            (403, google(403, "PERMISSION_DENIED", "Method doesn't allow unregistered callers", ""), K::PermissionDenied),
            (404, google(404, "NOT_FOUND", "models/x is not found for API version v1beta", ""), K::NotFound),
            (429, google(429, "RESOURCE_EXHAUSTED", "Resource exhausted.", ""), K::RateLimited),
            (500, google(500, "INTERNAL", "An internal error has occurred.", ""), K::Overloaded),
            (503, google(503, "UNAVAILABLE", "The model is overloaded.", ""), K::Overloaded),
            (504, google(504, "DEADLINE_EXCEEDED", "late", ""), K::Timeout),
            (400, r#"{"error":{"message":"no","type":"invalid_request_error","param":"model","code":"model_not_found"}}"#.into(), K::NotFound),
            (
                400,
                r#"{"error":{"message":"Your input exceeds the context window of this model.","type":"invalid_request_error","code":"context_length_exceeded"}}"#.into(),
                K::ContextOverflow,
            ),
            (400, r#"{"code":"invalid-argument","error":"Incorrect API key provided."}"#.into(), K::Authentication),
            (400, r#"{"code":"invalid-argument","error":"Model not found: x"}"#.into(), K::NotFound),
            (400, r#"{"error":"input length exceeds the context length"}"#.into(), K::ContextOverflow),
            (404, r#"{"error":"model 'x' not found"}"#.into(), K::NotFound),
        ] {
            let error = refused(status, &body);
            assert_eq!(error.kind(), kind, "{status} {body}");
            let temporary = matches!(kind, K::RateLimited | K::Overloaded | K::Timeout);
            assert_eq!(error.retry() == RetryStatus::Temporary, temporary, "{status} {body}");
        }
    }

    #[test]
    fn each_service_is_understood_when_it_fails_inside_a_stream() {
        use ErrorKind as K;
        for (body, kind) in [
            (said("overloaded_error", "Overloaded"), K::Overloaded),
            (said("api_error", "Internal server error"), K::Overloaded),
            (said("rate_limit_error", "too many tokens per minute"), K::RateLimited),
            (said("timeout_error", "late"), K::Timeout),
            (said("invalid_request_error", "bad"), K::InvalidInput),
            (said("invalid_request_error", "prompt is too long"), K::ContextOverflow),
            (said("authentication_error", "no"), K::Authentication),
            (said("permission_error", "no"), K::PermissionDenied),
            (said("billing_error", "pay"), K::PermissionDenied),
            (said("not_found_error", "no"), K::NotFound),
            (said("request_too_large", "big"), K::TooLarge),
            (said("new_error", "hm"), K::Protocol),
            (google(503, "UNAVAILABLE", "overloaded", ""), K::Overloaded),
            (google(0, "RESOURCE_EXHAUSTED", "slow", ""), K::RateLimited),
            (failed("server_error", "oops"), K::Overloaded),
            (failed("rate_limit_exceeded", "Rate limit reached: too many tokens"), K::RateLimited),
            (failed("invalid_prompt", "flagged"), K::ContentFiltered),
            (failed("invalid_image_url", "no image there"), K::InvalidInput),
            (failed("context_length_exceeded", "Your input exceeds the context window"), K::ContextOverflow),
            (r#"{"error":"unexpected EOF"}"#.to_owned(), K::Protocol),
        ] {
            let error = Failing::default().refused(&Failure::from_body(body.as_bytes()), None);
            assert_eq!(error.kind(), kind, "{body}");
        }
    }

    #[test]
    fn a_body_may_say_how_long_to_wait_and_which_request_it_was() {
        let info = r#"{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.5s"}"#;
        let error = refused(429, &google(429, "RESOURCE_EXHAUSTED", "quota", info));
        assert_eq!(error.retry_after(), Some(Duration::from_millis(34_500)));
        assert!(error.context().any(|(name, value)| (name, value) == ("code", "RESOURCE_EXHAUSTED")));
        let request = |failing: Failing| {
            let error = failing.refused(&Failure::from_body(said("api_error", "no").as_bytes()), None);
            error
                .context()
                .filter(|(name, _)| *name == "request")
                .map(|(_, id)| id.to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(request(Failing::default()), ["req_1"]);
        assert_eq!(request(Failing { request_id: Some("h".into()), ..Failing::default() }), ["h"]);
    }
}
