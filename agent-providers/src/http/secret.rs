//! Keeps keys out of text for people: services tend to quote the key that they refuse.

use std::{fmt, sync::Arc};

use entourage_core::provider::Delta;
use secrecy::{ExposeSecret, SecretString};

use super::{
    base64,
    spelling::{self, Match},
};

/// Shorter secrets are placeholders such as `none`; removing them would only garble messages.
pub(super) const SHORTEST: usize = 6;

/// Shortest piece of a header, such as a cookie's value, that counts as a secret of its own, in characters.
const SHORTEST_PIECE: usize = 8;

/// Headers that hold no secret, whatever their value.
const PLAIN_HEADERS: [&str; 8] = [
    "accept",
    "accept-encoding",
    "accept-language",
    "content-type",
    "http-referer",
    "referer",
    "user-agent",
    "x-title",
];

/// Length from which on the value of any other header counts as a secret, even if it is all letters or digits.
const LONGEST_PLAIN: usize = 16;

/// Words before a credential, in a header of any name.
const SCHEMES: [&str; 6] = ["bearer", "basic", "token", "apikey", "api-key", "key"];

/// The replacement of a secret.
const SHOWN: &str = "[key]";

/// Removes known secrets from text, in every spelling in which a service may echo them: as sent, without `Bearer` or
/// `Basic`, in base64 or out of it, in any case, and escaped for JSON, HTML or an address. Clones share the secrets.
#[derive(Clone, Default)]
pub(crate) struct Redactor(Arc<Secrets>);

#[derive(Default)]
struct Secrets {
    /// The secrets, longest first, since one may be part of another.
    all: Vec<SecretString>,
    /// The bytes with which a spelling of a secret can begin.
    begins: Vec<u8>,
}

impl Redactor {
    /// A redactor of whole values, such as keys.
    pub(crate) fn new(values: impl IntoIterator<Item = SecretString>) -> Self {
        let mut secrets = Collected::default();
        values.into_iter().for_each(|value| secrets.value(value.expose_secret()));
        secrets.finish()
    }

    /// A redactor of keys and values, and of headers, which may hold several secrets if their name indicates one.
    pub(super) fn with_headers<'a>(
        values: impl IntoIterator<Item = &'a str>,
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let mut secrets = Collected::default();
        values.into_iter().for_each(|value| secrets.value(value));
        for (name, value) in headers {
            if super::tap::carries_secret(name) {
                secrets.value(value);
                value.split_once(' ').into_iter().for_each(|(_, word)| secrets.add(word.trim()));
                let pieces = value.split([' ', '\t', ',', ';', '=', '"', '&']);
                pieces.filter(|piece| is_opaque(piece)).for_each(|piece| secrets.add(piece));
            } else if !is_plain(name, value) {
                secrets.value(value);
            }
        }
        secrets.finish()
    }

    /// True if there is nothing to remove.
    pub(super) fn is_empty(&self) -> bool {
        self.0.all.is_empty()
    }

    /// `text` with each secret replaced by `[key]`. That includes an incomplete secret at its end, where the text may
    /// have been cut.
    pub(crate) fn clean(&self, text: &str) -> String {
        if self.is_empty() {
            return text.to_owned();
        }
        let mut out = Vec::with_capacity(text.len());
        let left = self.pass(text.as_bytes(), &mut out);
        self.close(text.as_bytes().get(left..).unwrap_or_default(), &mut out);
        String::from_utf8(out).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    /// Appends `bytes` without secrets to `out`, up to a possible secret that may continue in the next bytes. Returns
    /// the position of that.
    pub(super) fn pass(&self, bytes: &[u8], out: &mut Vec<u8>) -> usize {
        let mut at = 0_usize;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let plain = rest.iter().position(|byte| self.0.begins.contains(byte)).unwrap_or(rest.len());
            if plain > 0 {
                out.extend(rest.iter().take(plain));
                at = at.saturating_add(plain);
                continue;
            }
            match self.at(rest, true) {
                Match::Whole(length) => {
                    out.extend_from_slice(SHOWN.as_bytes());
                    at = at.saturating_add(length.max(1));
                }
                Match::Cut(_) => return at,
                Match::None => {
                    out.extend(rest.first());
                    at = at.saturating_add(1);
                }
            }
        }
        at
    }

    /// Appends the rest that [`Redactor::pass`] left, when no more bytes follow.
    pub(super) fn close(&self, bytes: &[u8], out: &mut Vec<u8>) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = match self.at(rest, false) {
                Match::Whole(length) => length.max(1),
                Match::Cut(signs) if signs >= SHORTEST => rest.len(),
                Match::Cut(_) | Match::None => 0,
            };
            if taken > 0 {
                out.extend_from_slice(SHOWN.as_bytes());
            } else {
                out.extend(rest.first());
            }
            rest = rest.get(taken.max(1)..).unwrap_or_default();
        }
    }

    /// The longest secret that `bytes` begin with. While more bytes may come, a shorter one does not match if a longer
    /// one may be incomplete.
    fn at(&self, bytes: &[u8], more: bool) -> Match {
        let mut cut = Match::None;
        for secret in &self.0.all {
            let secret = secret.expose_secret().as_bytes();
            let found = spelling::find(bytes, secret);
            match (found, cut) {
                // Its end may be the start of an incomplete escape.
                (Match::Whole(length), _) if more && spelling::is_open(bytes, length, secret) => {
                    cut = Match::Cut(secret.len());
                }
                (Match::Whole(_), Match::Cut(signs)) if more || signs >= secret.len() => {}
                (Match::Whole(_), _) => return found,
                (Match::Cut(signs), Match::Cut(known)) if signs <= known => {}
                (Match::Cut(_), _) => cut = found,
                (Match::None, _) => {}
            }
        }
        cut
    }

    /// A delta without secrets in the service's own words. The reply itself is the model's, and content that goes back
    /// to the service must stay unchanged.
    pub(crate) fn delta(&self, mut delta: Delta) -> Delta {
        if self.is_empty() {
            return delta;
        }
        let clean = |text: &mut Box<str>| *text = self.clean(text).into();
        match &mut delta {
            Delta::Response(info) => {
                let info = &mut **info;
                [&mut info.id, &mut info.model, &mut info.request].into_iter().flatten().for_each(clean);
            }
            Delta::Warning(warning) => clean(&mut warning.text),
            Delta::Finish(finish) => finish.raw.iter_mut().for_each(clean),
            _ => {}
        }
        delta
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} spellings)", self.0.all.len())
    }
}

/// True if a piece of a header may be a secret of its own, and not a word such as `Signature`.
fn is_opaque(piece: &str) -> bool {
    piece.len() >= SHORTEST_PIECE && piece.bytes().any(|byte| byte.is_ascii_digit())
}

/// True if a header without a telling name holds an ordinary value, whose removal would spoil the output: a media
/// type, a version, a name, a number.
fn is_plain(name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let (letters, digits) = (|byte: u8| byte.is_ascii_alphabetic(), |byte: u8| byte.is_ascii_digit());
    let mixed = value.bytes().any(letters) && value.bytes().any(digits);
    PLAIN_HEADERS.contains(&&*name)
        || ["-version", "-beta", "-organization", "-project"].iter().any(|end| name.ends_with(end))
        || (value.len() < LONGEST_PLAIN && !mixed && !value.contains(' '))
}

/// Secrets, with the other forms in which they may appear.
#[derive(Default)]
struct Collected(Vec<SecretString>);

impl Collected {
    /// Adds a value, and the part after the name of a scheme.
    fn value(&mut self, value: &str) {
        let value = value.trim();
        self.add(value);
        let Some((scheme, word)) = value.split_once(' ') else { return };
        if !SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme)) {
            return;
        }
        let word = word.trim();
        self.add(word);
        if scheme.eq_ignore_ascii_case("basic")
            && let Some(pair) = base64::decode(word).and_then(|pair| String::from_utf8(pair).ok())
        {
            self.add(&pair);
            let (user, password) = pair.split_once(':').unwrap_or_default();
            self.add(password);
            // Some services take the key as the user, without a password.
            if password.is_empty() {
                self.add(user);
            }
        }
    }

    fn add(&mut self, secret: &str) {
        if secret.len() < SHORTEST {
            return;
        }
        self.0.push(secret.to_owned().into());
        // The text that follows changes the last character of its base64.
        let groups = secret.len() / 3 * 3;
        let signs = base64::encode(secret.as_bytes().get(..groups).unwrap_or_default());
        if signs.len() >= SHORTEST_PIECE {
            self.0.push(signs.replace('+', "-").replace('/', "_").into());
            self.0.push(signs.into());
        }
    }

    fn finish(mut self) -> Redactor {
        self.0.sort_by(|one, two| {
            let (one, two) = (one.expose_secret(), two.expose_secret());
            two.len().cmp(&one.len()).then_with(|| one.cmp(two))
        });
        self.0.dedup_by(|one, two| one.expose_secret() == two.expose_secret());
        let mut begins: Vec<u8> = Vec::new();
        for byte in self.0.iter().filter_map(|secret| secret.expose_secret().bytes().next()) {
            begins.extend([byte.to_ascii_lowercase(), byte.to_ascii_uppercase()]);
        }
        if !self.0.is_empty() {
            begins.extend(spelling::ESCAPES);
        }
        begins.sort_unstable();
        begins.dedup();
        Redactor(Arc::new(Secrets { all: self.0, begins }))
    }
}

#[cfg(test)]
#[path = "secret_tests.rs"]
mod tests;
