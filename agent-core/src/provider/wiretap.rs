//! Showing somebody what goes over the wire, for recordings and debugging.

use std::fmt;

/// Is shown the exchanges of a model call as they cross the wire: set it with [`super::CallContext::with_wiretap`].
///
/// Providers without a wire show nothing. Credentials are left out by the provider: headers that carry them are not
/// shown.
///
/// # Contract
/// Quick, and never blocks: it is called from within the call.
pub trait Wiretap: Send + Sync + fmt::Debug {
    /// A request is about to leave. The answer is shown to what this returns.
    fn request(&self, method: &str, path: &str, query: &str, body: &[u8]) -> Box<dyn Exchange>;
}

/// One request and its answer.
pub trait Exchange: Send + Sync + fmt::Debug {
    /// The status and the headers (names in lower case) of the answer.
    fn answer(&mut self, status: u16, headers: &[(String, String)]);

    /// More of the answer's body, after decompression, as it was cut on the wire.
    fn body(&mut self, piece: &[u8]);
}
