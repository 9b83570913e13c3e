//! The JSON of replies, borrowed from the bytes if possible.
//!
//! The structs take every field as optional, in the lenient types of `json`. They must not interpret anything;
//! `decode` does.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json::{Count, Flag, List, Maybe, Raw, Text};

/// One line of a stream, or the whole body of a reply that is not streamed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Line<'a> {
    #[serde(borrow)]
    pub(super) model: Text<'a>,
    #[serde(borrow)]
    pub(super) message: Maybe<Said<'a>>,
    /// Text of a completion (`api/generate`), which takes the place of a message, with `thinking` beside it.
    #[serde(borrow)]
    pub(super) response: Text<'a>,
    #[serde(borrow)]
    pub(super) thinking: Text<'a>,
    pub(super) done: Flag,
    #[serde(borrow)]
    pub(super) done_reason: Text<'a>,
    pub(super) prompt_eval_count: Count,
    pub(super) eval_count: Count,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Said<'a> {
    #[serde(borrow)]
    pub(super) content: Text<'a>,
    #[serde(borrow)]
    pub(super) thinking: Text<'a>,
    #[serde(borrow)]
    pub(super) tool_calls: List<WireCall<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireCall<'a> {
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow)]
    pub(super) function: Maybe<Function<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Function<'a> {
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(borrow)]
    pub(super) arguments: Raw<'a>,
}
