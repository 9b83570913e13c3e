//! Answers to requests for tokens, as far as they are kept. Pure.
//!
//! The library that asks keeps and logs all of an answer, and sends a token as it is.

use serde_json::{Map, Value};

/// Most bytes of a token, since servers take no longer header, and of the scopes.
const TOKEN: usize = 16 << 10;
const SCOPES: usize = 8 << 10;
/// Longest time in seconds for which a token is believed to hold: ten years.
const HOLDS: u64 = 10 * 366 * 24 * 3_600;

/// The part of an answer that is kept: nothing for one whose token cannot be sent.
pub(super) fn kept(body: &[u8], is_success: bool) -> Vec<u8> {
    let Ok(Value::Object(fields)) = serde_json::from_slice(body) else { return Vec::new() };
    let kept = if is_success { token(fields) } else { Some(error(&fields)) };
    kept.and_then(|kept| serde_json::to_vec(&kept).ok()).unwrap_or_default()
}

fn token(mut fields: Map<String, Value>) -> Option<Map<String, Value>> {
    let mut kept = Map::new();
    let mut keep = |name: &str, fits: fn(&Value) -> bool| {
        let value = fields.remove(name).filter(fits)?;
        kept.insert(name.to_owned(), value);
        Some(())
    };
    keep("access_token", is_token)?;
    keep("token_type", is_bearer)?;
    // Without these it is not refreshed, and has the scopes that were asked for.
    let _ = (keep("refresh_token", is_token), keep("scope", is_scope));
    // A time that cannot be read is as good as none: the token holds until the server refuses it.
    if let Some(seconds) = fields.get("expires_in").and_then(seconds) {
        kept.insert("expires_in".to_owned(), seconds.min(HOLDS).into());
    }
    Some(kept)
}

fn is_bearer(value: &Value) -> bool {
    value.as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("bearer"))
}

fn error(fields: &Map<String, Value>) -> Map<String, Value> {
    let error = fields.get("error").and_then(Value::as_str).and_then(code_of_error);
    Map::from_iter([("error".to_owned(), error.unwrap_or("unknown").into())])
}

/// True for text that a header takes as it is.
fn is_token(value: &Value) -> bool {
    let fits =
        |text: &str| !text.is_empty() && text.len() <= TOKEN && text.chars().all(|c| c.is_ascii_graphic());
    value.as_str().is_some_and(fits)
}

fn is_scope(value: &Value) -> bool {
    let fits = |text: &str| text.len() <= SCOPES && text.chars().all(|c| c == ' ' || c.is_ascii_graphic());
    value.as_str().is_some_and(fits)
}

/// Seconds as a number, or as a text as some servers write it.
fn seconds(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// A code of an error, if it looks like one.
pub(super) fn code_of_error(text: &str) -> Option<&str> {
    let fits = |c: char| c.is_ascii_lowercase() || c == '_';
    Some(text).filter(|text| !text.is_empty() && text.len() <= 40 && text.chars().all(fits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_41_of_a_token_no_more_is_kept_than_can_be_sent() {
        let kept = |text: &str, is_success| String::from_utf8(kept(text.as_bytes(), is_success)).unwrap();
        let good = |rest: &str| kept(&format!(r#"{{"access_token":"a","token_type":"bearer"{rest}}}"#), true);
        for (rest, more) in [
            (r#","id_token":"b""#, ""),
            (r#","expires_in":60"#, r#""expires_in":60,"#),
            (r#","expires_in":"60""#, r#""expires_in":60,"#),
            (r#","expires_in":18446744073709551615"#, r#""expires_in":316224000,"#),
            (r#","expires_in":-1"#, ""),
            (r#","expires_in":1e300"#, ""),
            (r#","refresh_token":null,"scope":["a"]"#, ""),
            (r#","scope":"a b\n""#, ""),
        ] {
            assert_eq!(
                good(rest),
                format!(r#"{{"access_token":"a",{more}"token_type":"bearer"}}"#),
                "{rest}"
            );
        }
        for bad in [
            r#"{"access_token":"a"}"#,
            r#"{"access_token":"a","token_type":"mac"}"#,
            r#"{"access_token":"a\r\nb: c","token_type":"bearer"}"#,
            r#"{"access_token":"","token_type":"bearer"}"#,
            r#"["access_token"]"#,
            "<html>",
        ] {
            assert_eq!(kept(bad, true), "", "{bad}");
        }
        let error = r#"{"error": "invalid_grant", "error_description": "rt-1"}"#;
        assert_eq!(kept(error, false), r#"{"error":"invalid_grant"}"#);
        assert_eq!(kept(r#"{"error": "rt-1"}"#, false), r#"{"error":"unknown"}"#);
    }
}
