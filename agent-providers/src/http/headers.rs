//! Response headers about the request and about a refusal.

use std::time::{Duration, SystemTime};

use reqwest::header::{CONTENT_ENCODING, HeaderMap, RETRY_AFTER};

use super::limits;

/// The time that the service asks to wait: `retry-after-ms`, else `retry-after` in seconds or as a date.
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    asked(headers, now).and_then(limits::plausible)
}

fn asked(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let seconds = |text: &str| Duration::try_from_secs_f64(text.parse().ok()?).ok();
    if let Some(wait) = text(headers, "retry-after-ms").and_then(|ms| ms.parse::<f64>().ok()) {
        return Duration::try_from_secs_f64(wait / 1_000.0).ok();
    }
    let value = text(headers, RETRY_AFTER.as_str())?;
    seconds(value).or_else(|| {
        let date = httpdate::parse_http_date(value).ok()?;
        Some(date.duration_since(now).unwrap_or_default())
    })
}

/// The service's id of the request, for its support.
pub(crate) fn request_id(headers: &HeaderMap) -> Option<String> {
    ["x-request-id", "request-id", "apim-request-id", "mistral-correlation-id"]
        .into_iter()
        .find_map(|name| text(headers, name))
        .map(|id| id.chars().take(200).collect())
}

/// The value of `x-should-retry`.
pub(crate) fn should_retry(headers: &HeaderMap) -> Option<bool> {
    text(headers, "x-should-retry")?.parse().ok()
}

/// The compression of the body, if any. It was not requested, so it cannot be read.
pub(crate) fn compression(headers: &HeaderMap) -> Option<&str> {
    let coding = text(headers, CONTENT_ENCODING.as_str())?;
    (!coding.is_empty() && !coding.eq_ignore_ascii_case("identity")).then_some(coding)
}

/// The header's text; `None` if it is absent or not text.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    Some(headers.get(name)?.to_str().ok()?.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_compressed_when_a_header_says_so() {
        for (value, coding) in [("gzip", Some("gzip")), (" br", Some("br")), ("Identity", None), ("", None)] {
            let headers = HeaderMap::from_iter([(CONTENT_ENCODING, value.parse().unwrap())]);
            assert_eq!(compression(&headers), coding, "{value}");
        }
        assert_eq!(compression(&HeaderMap::new()), None);
    }

    #[test]
    fn waits_come_as_milliseconds_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:00 GMT").unwrap();
        let wait = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            retry_after(&headers, now)
        };
        assert_eq!(wait("retry-after-ms", "1500"), Some(Duration::from_millis(1500)));
        assert_eq!(wait("retry-after", "7"), Some(Duration::from_secs(7)));
        assert_eq!(wait("retry-after", "0.5"), Some(Duration::from_millis(500)));
        assert_eq!(wait("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::from_secs(37)));
        assert_eq!(wait("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(wait("retry-after", "1000000000"), Some(Duration::from_secs(1_000_000_000)));
        for nonsense in [
            "-1",
            "NaN",
            "inf",
            "1e300",
            "18446744073709551615",
            "1e19",
            "4e9",
            "soon",
            "",
            "Fri, 31 Dec 9999 23:59:59 GMT",
        ] {
            assert_eq!(wait("retry-after", nonsense), None, "{nonsense}");
        }
    }
}
