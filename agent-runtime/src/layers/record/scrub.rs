//! Removal of credentials and addresses from a recording. What is removed is replaced by as many `x`.
//!
//! It errs on the safe side and knows only patterns: a secret of no known shape must be registered.

use std::fmt;

use serde_json::Value;

/// Prefixes of services' keys. A key has at least [`TAIL`] more characters, and a digit.
const KEY_STARTS: &[&str] = &[
    "sk-",
    "sk_",
    "pk-",
    "pk_",
    "rk-",
    "rk_",
    "gsk_",
    "AIza",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "hf_",
    "AKIA",
    "ASIA",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xoxs-",
];

/// Names of fields that hold a credential, in a query, a form, JSON or a header.
const FIELDS: &[&str] = &[
    "api_key",
    "api-key",
    "apikey",
    "x-api-key",
    "access_token",
    "refresh_token",
    "auth_token",
    "id_token",
    "token",
    "secret",
    "client_secret",
    "password",
    "authorization",
];

/// Names of such fields in a query or a form only; elsewhere they name harmless things.
const QUERY_FIELDS: &[&str] = &["key", "sig"];

/// Minimum of characters of a key after its prefix.
const TAIL: usize = 12;

/// Minimum of characters of a credential that only the text before it identifies.
const SHORTEST: usize = 8;

/// Length in characters from which a credential needs no digit.
const LONG: usize = 24;

/// Scrubber of recordings: removes text that looks like a credential or an e-mail address, and registered text.
#[derive(Clone, Default)]
pub(super) struct Scrubber {
    /// Registered texts, each as it is, and in its escaped forms in JSON and a query.
    registered: Vec<Vec<char>>,
}

impl fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scrubber({} registered)", self.registered.len())
    }
}

impl Scrubber {
    /// Registers a text to remove. Empty text is ignored.
    pub(super) fn register(&mut self, text: &str) {
        let json = Value::from(text).to_string();
        let json = json.strip_prefix('"').and_then(|json| json.strip_suffix('"')).unwrap_or_default();
        for form in [text, json, &in_a_query(text)] {
            let form: Vec<char> = form.chars().collect();
            if !form.is_empty() && !self.registered.contains(&form) {
                self.registered.push(form);
            }
        }
        // The longest first: one text may be part of another.
        self.registered.sort_by_key(|form| std::cmp::Reverse(form.len()));
    }

    /// True if `text` holds a registered text.
    pub(super) fn finds_registered(&self, text: &str) -> bool {
        self.registered.iter().any(|form| text.contains(&form.iter().collect::<String>()))
    }

    /// `text` with each secret replaced by as many `x`, and the number of secrets removed.
    pub(super) fn text(&self, text: &str) -> (String, usize) {
        let signs: Vec<char> = text.chars().collect();
        let mut out = String::with_capacity(text.len());
        let (mut at, mut count) = (0, 0);
        while let Some(sign) = signs.get(at) {
            let rest = signs.get(at..).unwrap_or_default();
            let before = at.checked_sub(1).and_then(|at| signs.get(at)).copied();
            let (skipped, taken) = self.at(before, rest);
            if taken == 0 {
                out.push(*sign);
                at += 1;
                continue;
            }
            out.extend(rest.iter().take(skipped));
            out.extend(std::iter::repeat_n('x', taken));
            at += skipped + taken;
            count += 1;
        }
        (out, count)
    }

    /// Number of characters to keep and then to remove, if a secret begins here.
    fn at(&self, before: Option<char>, rest: &[char]) -> (usize, usize) {
        if let Some(form) = self.registered.iter().find(|form| rest.starts_with(form)) {
            return (0, form.len());
        }
        if before.is_some_and(is_token) || !rest.first().copied().is_some_and(is_token) {
            return (0, 0);
        }
        let email = email(rest);
        let key = if email == 0 { key(rest) } else { email };
        if key > 0 {
            return (0, key);
        }
        let introduced = after_word(rest).or_else(|| after_field(rest));
        introduced.filter(|(_, taken)| *taken > 0).unwrap_or_default()
    }

    /// Scrubs everything inside a JSON value, field names included. Returns the number of secrets removed.
    pub(super) fn value(&self, value: &mut Value) -> usize {
        match value {
            Value::String(text) => self.replace(text),
            Value::Array(all) => all.iter_mut().map(|one| self.value(one)).sum(),
            Value::Object(fields) => {
                let mut count = 0;
                for (mut name, mut inner) in std::mem::take(fields) {
                    if let Value::String(text) = &mut inner
                        && one_of(FIELDS, &name)
                    {
                        count += take_first_token(text);
                    }
                    count += self.value(&mut inner) + self.replace(&mut name);
                    fields.insert(name, inner);
                }
                count
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
    }

    pub(super) fn replace(&self, text: &mut String) -> usize {
        let (clean, count) = self.text(text);
        if count > 0 {
            *text = clean;
        }
        count
    }
}

fn is_token(sign: char) -> bool {
    sign.is_ascii_alphanumeric() || matches!(sign, '-' | '_' | '.' | '~' | '+' | '/' | '%')
}

fn token_length(rest: &[char]) -> usize {
    rest.iter().take_while(|sign| is_token(**sign)).count()
}

/// Removes the token that [`after_field`] would remove in JSON text, for JSON that has been parsed.
fn take_first_token(text: &mut String) -> usize {
    let signs: Vec<char> = text.chars().collect();
    let from = signs.iter().take_while(|sign| is_between(**sign)).count();
    let length = token_length(signs.get(from..).unwrap_or_default());
    if !secretive(signs.get(from..from + length).unwrap_or_default()) {
        return 0;
    }
    let taken = from..from + length;
    *text =
        signs.iter().enumerate().map(|(at, sign)| if taken.contains(&at) { 'x' } else { *sign }).collect();
    1
}

fn is_between(sign: char) -> bool {
    matches!(sign, '"' | '\'' | '\\' | ' ' | ':' | '=')
}

fn secretive(token: &[char]) -> bool {
    token.len() >= LONG || (token.len() >= SHORTEST && token.iter().any(char::is_ascii_digit))
}

/// Length of `word`, if `rest` begins with it in any case.
fn begins(rest: &[char], word: &str) -> Option<usize> {
    let length = word.chars().count();
    let found = rest.get(..length)?;
    found.iter().zip(word.chars()).all(|(a, b)| a.eq_ignore_ascii_case(&b)).then_some(length)
}

/// Length of a key that its prefix or its shape identifies; 0 for none.
fn key(rest: &[char]) -> usize {
    let length = token_length(rest);
    let token = rest.get(..length).unwrap_or_default();
    let starts = |start: &&str| start.chars().zip(token).filter(|(a, b)| a == *b).count() == start.len();
    let known = KEY_STARTS.iter().find(|start| starts(start));
    let is_key =
        known.is_some_and(|start| length >= start.len() + TAIL) && token.iter().any(char::is_ascii_digit);
    let is_signed_token =
        token.starts_with(&['e', 'y', 'J']) && token.iter().filter(|sign| **sign == '.').count() == 2;
    if is_key || (is_signed_token && length >= LONG) { length } else { 0 }
}

/// Characters to keep and to remove, for a credential after `Bearer ` or `Basic `.
fn after_word(rest: &[char]) -> Option<(usize, usize)> {
    let word = begins(rest, "bearer ").or_else(|| begins(rest, "basic "))?;
    let rest = rest.get(word..)?;
    let length =
        token_length(rest) + rest.iter().skip(token_length(rest)).take_while(|sign| **sign == '=').count();
    secretive(rest.get(..length)?).then_some((word, length))
}

/// Characters to keep and to remove, for a credential after `key=`, `"api_key": "` and the like, also in JSON within
/// text.
fn after_field(rest: &[char]) -> Option<(usize, usize)> {
    let name = token_length(rest);
    let field: String = rest.get(..name)?.iter().collect();
    let between = rest.iter().skip(name).take_while(|sign| is_between(**sign)).count();
    let signs = rest.get(name..name + between)?;
    let assigned = signs.contains(&'=');
    let named = one_of(FIELDS, &field) && (assigned || signs.contains(&':'));
    let asked = assigned && one_of(QUERY_FIELDS, &field);
    if !named && !asked {
        return None;
    }
    let value = rest.get(name + between..)?;
    let value = value.get(..token_length(value))?;
    // A bare number in JSON must stay one.
    let quoted = assigned || signs.rsplit(|sign| *sign == ':').next().is_some_and(|end| end.contains(&'"'));
    let number =
        value.iter().all(|sign| sign.is_ascii_digit() || matches!(sign, '.' | '-' | '+' | 'e' | 'E'));
    (secretive(value) && (quoted || !number)).then_some((name + between, value.len()))
}

fn one_of(words: &[&str], name: &str) -> bool {
    words.iter().any(|word| word.eq_ignore_ascii_case(name))
}

/// Length of an e-mail address; 0 for none.
fn email(rest: &[char]) -> usize {
    let word = |sign: &&char| sign.is_ascii_alphanumeric() || matches!(sign, '.' | '_' | '%' | '+' | '-');
    let local = rest.iter().take_while(word).count();
    if local == 0 || rest.get(local) != Some(&'@') {
        return 0;
    }
    let host: Vec<char> = rest
        .iter()
        .skip(local + 1)
        .take_while(|sign| sign.is_ascii_alphanumeric() || matches!(sign, '.' | '-'))
        .copied()
        .collect();
    // A dot at the end belongs to the sentence.
    let length = host.iter().rposition(char::is_ascii_alphanumeric).map_or(0, |last| last + 1);
    let host = host.get(..length).unwrap_or_default();
    let top = host.rsplit(|sign| *sign == '.').next().unwrap_or_default();
    if top.len() < host.len() && top.len() >= 2 && top.iter().all(char::is_ascii_alphabetic) {
        local + 1 + length
    } else {
        0
    }
}

fn in_a_query(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        let sign = char::from(byte);
        if sign.is_ascii_alphanumeric() || matches!(sign, '-' | '_' | '.' | '~') {
            out.push(sign);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(text: &str) -> String {
        let (out, _) = Scrubber::default().text(text);
        assert_eq!(out.chars().count(), text.chars().count(), "{text}");
        assert_eq!(Scrubber::default().text(&out).0, out, "cleaning twice changes nothing");
        out
    }

    #[test]
    fn keys_tokens_and_addresses_are_taken_out() {
        for (text, secret) in [
            ("the key sk-proj-abc123DEF456ghi789, see", "sk-proj-abc123DEF456ghi789"),
            ("\"AIzaSyA1234567890abcdefghij\"", "AIzaSyA1234567890abcdefghij"),
            ("Authorization: Bearer abc123def456==", "abc123def456=="),
            ("bearer abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnopqrstuvwxyz"),
            ("GET /v1?alt=sse&key=abcd1234efgh", "abcd1234efgh"),
            ("{\"api_key\": \"abcd1234\"}", "abcd1234"),
            ("{\\\"api_key\\\": \\\"abcd1234\\\"}", "abcd1234"),
            ("API-KEY=abcd1234", "abcd1234"),
            ("password: hunter2hunter2", "hunter2hunter2"),
            ("eyJhbGciOi.eyJzdWIiOiIx.SflKxwRJSM", "eyJhbGciOi.eyJzdWIiOiIx.SflKxwRJSM"),
            ("write to ada.l+x@mail.example.org.", "ada.l+x@mail.example.org"),
            ("<a@b.io>", "a@b.io"),
            ("ghp_abcdef0123456789", "ghp_abcdef0123456789"),
        ] {
            assert_eq!(clean(text), text.replace(secret, &"x".repeat(secret.len())), "{text}");
        }
    }

    #[test]
    fn near_misses_are_kept() {
        for text in [
            "task-force-12345678901234567890",
            "sk-learn is a library, sk-learning-is-not-one",
            "the bearer Certificates",
            "monkey=bananas12345",
            "key=value",
            "\"prompt_cache_key\": \"abcd1234efgh\"",
            "\"signature\": \"EuYBCkQYAiJAQ2hhbmdlZA12345==\"",
            "max_tokens: 1234567890",
            "{\"key\": \"abcd1234efgh\", \"password\": 12345678}",
            "a@b, a @ b.io, @b.io, user@host",
            "xsk-abc123DEF456ghi789",
            "eyJhbGciOiJIUzI1NiJ9",
            "ünïcödé 世界 👧",
            "",
        ] {
            assert_eq!(clean(text), text);
        }
    }

    #[test]
    fn registered_secrets_are_removed_in_every_encoding() {
        let mut scrubber = Scrubber::default();
        scrubber.register("");
        scrubber.register("pass\"word/ü");
        scrubber.register("pass");
        assert_eq!(scrubber.text("pass\"word/ü pass").0, "xxxxxxxxxxx xxxx");
        assert_eq!(scrubber.text(r#"{"a":"pass\"word/ü"}"#).0, r#"{"a":"xxxxxxxxxxxx"}"#);
        assert_eq!(scrubber.text("q=pass%22word%2F%C3%BC").0, format!("q={}", "x".repeat(20)));
        let mut value =
            serde_json::json!({"pass": ["a pass", {"n": 1, "token": "abcd1234"}], "token": "short"});
        assert_eq!(scrubber.value(&mut value), 3);
        assert_eq!(
            value,
            serde_json::json!({"xxxx": ["a xxxx", {"n": 1, "token": "xxxxxxxx"}], "token": "short"})
        );
        assert!(scrubber.finds_registered("com-pass") && !scrubber.finds_registered("xxxx"));
        assert_eq!(format!("{scrubber:?}"), "Scrubber(4 registered)");
    }
}
