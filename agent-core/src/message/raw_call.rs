//! Tool calls as received.

use std::sync::Arc;

/// A tool call as received, before its arguments were checked.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RawCall {
    /// The service's id; may be empty.
    pub id: Arc<str>,
    /// The tool's name.
    pub name: Arc<str>,
    /// JSON text, incomplete if the reply broke off.
    pub arguments: String,
}

impl RawCall {
    /// A call as received; `arguments` is JSON text.
    #[must_use]
    pub fn new(id: impl Into<Arc<str>>, name: impl Into<Arc<str>>, arguments: impl Into<String>) -> Self {
        Self { id: id.into(), name: name.into(), arguments: arguments.into() }
    }
}
