//! Shows a call to an observer of the wire, without credentials.

use entourage_core::provider::{CallContext, WireExchange, WireRequest};
use reqwest::{Url, header::HeaderMap};

use super::Redactor;

/// Name of a wire, and the way in which its services count.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Protocol {
    pub(crate) name: &'static str,
    /// True if prompt tokens exclude cached ones.
    pub(crate) cache_apart: bool,
    /// True if reply tokens exclude reasoning.
    pub(crate) reasoning_apart: bool,
}

/// Context for showing a call.
pub(super) struct Tapped<'a> {
    pub(super) protocol: Protocol,
    pub(super) redactor: &'a Redactor,
}

impl Tapped<'_> {
    /// Shows the request, if there is an observer.
    pub(super) fn request(
        &self,
        cx: &CallContext,
        method: &str,
        url: &Url,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Option<Shown> {
        let tap = cx.wiretap.as_ref()?;
        let clean = |text: &str| self.redactor.clean(text);
        let fields = url.query_pairs().filter(|(name, _)| !carries_secret(name));
        let query =
            fields.map(|(name, value)| format!("{name}={}", clean(&value))).collect::<Vec<_>>().join("&");
        let (path, headers) = (clean(url.path()), shown(headers, self.redactor));
        let mut request = WireRequest::post(self.protocol.name, &path, body)
            .with_query(&query)
            .with_headers(&headers)
            .counting_apart(self.protocol.cache_apart, self.protocol.reasoning_apart);
        request.method = method;
        Some(Shown { exchange: tap.request(&request), redactor: self.redactor.clone(), held: Vec::new() })
    }
}

/// An exchange that is shown without the secrets that the service repeats.
pub(super) struct Shown {
    exchange: Box<dyn WireExchange>,
    redactor: Redactor,
    /// The end of the bytes so far, if a secret may begin there.
    held: Vec<u8>,
}

impl Shown {
    fn body(&mut self, piece: &[u8]) {
        if self.redactor.is_empty() {
            self.exchange.body(piece);
            return;
        }
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(piece);
        let mut clean = Vec::with_capacity(all.len());
        let left = self.redactor.pass(&all, &mut clean);
        self.held = all.split_off(left.min(all.len()));
        if !clean.is_empty() {
            self.exchange.body(&clean);
        }
    }
}

/// Flushes the rest when the body has ended, or is no longer read.
impl Drop for Shown {
    fn drop(&mut self) {
        let mut clean = Vec::new();
        self.redactor.close(&self.held, &mut clean);
        if !clean.is_empty() {
            self.exchange.body(&clean);
        }
    }
}

/// Shows status and headers of the answer.
pub(super) fn answer(exchange: &mut Option<Shown>, status: u16, headers: &HeaderMap) {
    if let Some(shown_to) = exchange {
        let headers = shown(headers, &shown_to.redactor);
        shown_to.exchange.answer(status, &headers);
    }
}

/// Shows a piece of the answer's body.
pub(super) fn body(exchange: &mut Option<Shown>, piece: &[u8]) {
    if let Some(exchange) = exchange {
        exchange.body(piece);
    }
}

/// True if a header or query field of this name usually carries a secret.
pub(super) fn carries_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["auth", "key", "token", "secret", "cookie", "sig"].iter().any(|word| name.contains(word))
}

fn shown(headers: &HeaderMap, redactor: &Redactor) -> Vec<(String, String)> {
    let harmless = headers.iter().filter(|(name, value)| {
        // Token counts are not secret tokens.
        !value.is_sensitive() && (!carries_secret(name.as_str()) || name.as_str().contains("ratelimit"))
    });
    harmless
        .filter_map(|(name, value)| Some((name.as_str().to_owned(), redactor.clean(value.to_str().ok()?))))
        .collect()
}
