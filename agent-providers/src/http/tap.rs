//! Shows a call to whoever taps the wire: all that is no credential.

use entourage_core::provider::{CallContext, Exchange, WireRequest};
use reqwest::{Url, header::HeaderMap};

/// How a wire is named, and how its services count.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Protocol {
    pub(crate) name: &'static str,
    /// Prompt tokens leave cached ones out.
    pub(crate) cache_apart: bool,
    /// Reply tokens leave reasoning out.
    pub(crate) reasoning_apart: bool,
}

/// Shows the request, if anybody listens.
pub(super) fn request(
    cx: &CallContext,
    protocol: Protocol,
    method: &str,
    url: &Url,
    headers: &HeaderMap,
    body: &[u8],
) -> Option<Box<dyn Exchange>> {
    let tap = cx.wiretap.as_ref()?;
    let fields = url.query_pairs().filter(|(name, _)| !carries_secret(name));
    let query = fields.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&");
    let headers = shown(headers);
    let mut request = WireRequest::post(protocol.name, url.path(), body)
        .with_query(&query)
        .with_headers(&headers)
        .counting_apart(protocol.cache_apart, protocol.reasoning_apart);
    request.method = method;
    Some(tap.request(&request))
}

/// Shows status and headers of the answer.
pub(super) fn answer(exchange: &mut Option<Box<dyn Exchange>>, status: u16, headers: &HeaderMap) {
    if let Some(exchange) = exchange {
        exchange.answer(status, &shown(headers));
    }
}

/// Shows a piece of the answer's body.
pub(super) fn body(exchange: &mut Option<Box<dyn Exchange>>, piece: &[u8]) {
    if let Some(exchange) = exchange {
        exchange.body(piece);
    }
}

/// Whether a header or query field of this name usually carries a secret.
pub(super) fn carries_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["auth", "key", "token", "secret", "cookie", "sig"].iter().any(|word| name.contains(word))
}

fn shown(headers: &HeaderMap) -> Vec<(String, String)> {
    let harmless = headers.iter().filter(|(name, value)| {
        // Counts of tokens are no tokens.
        !value.is_sensitive() && (!carries_secret(name.as_str()) || name.as_str().contains("ratelimit"))
    });
    harmless
        .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())))
        .collect()
}
