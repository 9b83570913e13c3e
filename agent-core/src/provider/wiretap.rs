//! Showing somebody what goes over the wire, for recordings and debugging.

use std::fmt;

/// Is shown the exchanges of a model call as they cross the wire: set it with [`super::CallContext::with_wiretap`].
///
/// Providers without a wire show nothing. Credentials are left out by the provider: headers and query fields that
/// carry them are not shown, and what a service repeats of them is replaced by `[key]`.
///
/// # Contract
/// Quick, and never blocks: it is called from within the call.
pub trait Wiretap: Send + Sync + fmt::Debug {
    /// A request is about to leave. The answer is shown to what this returns.
    fn request(&self, request: &WireRequest<'_>) -> Box<dyn Exchange>;
}

/// One request and its answer.
pub trait Exchange: Send + Sync + fmt::Debug {
    /// The status and the headers (names in lower case) of the answer.
    fn answer(&mut self, status: u16, headers: &[(String, String)]);

    /// More of the answer's body, after decompression, as it was cut on the wire; the end of a piece in which a
    /// credential may begin comes with the next one.
    fn body(&mut self, piece: &[u8]);
}

/// A request as it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WireRequest<'a> {
    /// The name of the wire's protocol.
    pub protocol: &'a str,
    /// Such as `POST`.
    pub method: &'a str,
    /// Begins with `/`.
    pub path: &'a str,
    /// What follows `?`; empty for none.
    pub query: &'a str,
    /// Names in lower case; without those that carry credentials.
    pub headers: &'a [(String, String)],
    /// The body.
    pub body: &'a [u8],
    /// The service's prompt tokens leave cached tokens out.
    pub cache_apart: bool,
    /// The service's reply tokens leave reasoning out.
    pub reasoning_apart: bool,
}

impl<'a> WireRequest<'a> {
    /// A request of `protocol` with `body` to `path`, whose service counts cached and reasoning tokens in.
    #[must_use]
    pub fn post(protocol: &'a str, path: &'a str, body: &'a [u8]) -> Self {
        let (method, query, headers) = ("POST", "", [].as_slice());
        Self { protocol, method, path, query, headers, body, cache_apart: false, reasoning_apart: false }
    }

    /// The same with what follows `?`.
    #[must_use]
    pub fn with_query(mut self, query: &'a str) -> Self {
        self.query = query;
        self
    }

    /// The same with headers, names in lower case.
    #[must_use]
    pub fn with_headers(mut self, headers: &'a [(String, String)]) -> Self {
        self.headers = headers;
        self
    }

    /// Says how the service counts: whether cached tokens are left out of the prompt's, and reasoning out of the reply's.
    #[must_use]
    pub fn counting_apart(mut self, cache: bool, reasoning: bool) -> Self {
        self.cache_apart = cache;
        self.reasoning_apart = reasoning;
        self
    }
}
