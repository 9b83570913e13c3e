//! Where services that speak this wire differ, as data.

/// What a service does differently from the wire's common form. The vendor table holds the known ones.
///
/// ```
/// use entourage_providers::openai_chat::Dialect;
///
/// let mut dialect = Dialect::default();
/// dialect.stop_means_tool_calls = true;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dialect {
    /// A reply with tool calls that ends with `stop` waits for their results. Off: such calls are not run.
    pub stop_means_tool_calls: bool,
    /// The output limit is called `max_completion_tokens`, not `max_tokens`.
    pub max_completion_tokens: bool,
    /// `top_k` is understood. Off: it is left out, with a warning.
    pub top_k: bool,
    /// Usage in a stream must be asked for with `stream_options`.
    pub stream_options: bool,
}

impl Dialect {
    /// What most services and local servers understand.
    pub const COMMON: Self = Self {
        stop_means_tool_calls: false,
        max_completion_tokens: false,
        top_k: true,
        stream_options: true,
    };
}

impl Default for Dialect {
    fn default() -> Self {
        Self::COMMON
    }
}
