//! Sequences whose expectations are wrong, or say what no reader of a stream can know, each with the reason.
//!
//! One that would pass fails the test, and so does one that is not among the recordings.

pub(crate) const SKIPS: &[(&str, &str)] = &[(
    "gpustack-chat-with-extended-thinking-gpustack-qwen3-streams-thinking-16e424",
    "the stream ends with a field `error: {…failed to decode…}` and without a finish; that is an error, and none is expected",
)];
