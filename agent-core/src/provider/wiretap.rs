//! Observation of the traffic on the wire, for recordings and debugging.

use std::fmt;

use crate::base::setters;

/// Observer of a model call's exchanges as they cross the wire. Set it with [`super::CallContext::with_wiretap`].
///
/// Providers without a wire show nothing. The provider leaves credentials out: headers and query fields that carry them
/// are not shown, and a credential that a service echoes is replaced by `[key]`.
///
/// # Contract
/// Methods return quickly and never block: they are called from within the call.
pub trait Wiretap: Send + Sync + fmt::Debug {
    /// Called before a request leaves. The returned exchange is shown the answer.
    fn request(&self, request: &WireRequest<'_>) -> Box<dyn WireExchange>;
}

/// One request and its answer.
pub trait WireExchange: Send + Sync + fmt::Debug {
    /// The status and the headers (names in lower case) of the answer.
    fn answer(&mut self, status: u16, headers: &[(String, String)]);

    /// The next piece of the answer's body, after decompression, as it was cut on the wire. If a credential may begin
    /// at the end of a piece, that end is held back until the next one.
    fn body(&mut self, piece: &[u8]);
}

/// A request as it leaves the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WireRequest<'a> {
    /// Name of the wire's protocol.
    pub protocol: &'a str,
    /// HTTP method, such as `POST`.
    pub method: &'a str,
    /// Path, beginning with `/`.
    pub path: &'a str,
    /// Query without its `?`; empty for none.
    pub query: &'a str,
    /// Headers, names in lower case; those that carry credentials are left out.
    pub headers: &'a [(String, String)],
    /// Body as sent.
    pub body: &'a [u8],
    /// True if the service's count of prompt tokens leaves cached tokens out.
    pub cache_apart: bool,
    /// True if the service's count of reply tokens leaves reasoning out.
    pub reasoning_apart: bool,
}

impl<'a> WireRequest<'a> {
    /// A request of `protocol` with `body` to `path`, whose service counts cached and reasoning tokens in.
    #[must_use]
    pub fn post(protocol: &'a str, path: &'a str, body: &'a [u8]) -> Self {
        let (method, query, headers) = ("POST", "", [].as_slice());
        Self { protocol, method, path, query, headers, body, cache_apart: false, reasoning_apart: false }
    }

    setters! {
        /// The same with a query, given without its `?`.
        with_query(query: &'a str) => query;
        /// The same with headers, names in lower case.
        with_headers(headers: &'a [(String, String)]) => headers;
    }

    /// The same with the service's way of counting: `cache` if prompt tokens leave cached ones out, `reasoning` if
    /// reply tokens leave reasoning out.
    #[must_use]
    pub fn counting_apart(mut self, cache: bool, reasoning: bool) -> Self {
        self.cache_apart = cache;
        self.reasoning_apart = reasoning;
        self
    }
}
