//! Sequences whose expectations are wrong, or that no reader of a stream can meet, each with the reason.
//!
//! A skip that would pass fails the test, and so does one without a recording.

pub(crate) const SKIPS: &[(&str, &str)] = &[(
    "gpustack-chat-with-extended-thinking-gpustack-qwen3-streams-thinking-16e424",
    "the stream ends with a field `error: {…failed to decode…}` and without a finish; that is an error, and none is expected",
)];
