//! The JSON of replies, borrowed from the bytes if possible.
//!
//! The structs take every field as optional, in the lenient types of `json`. They must not interpret anything;
//! `decode` and `blocks` do.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json::{Count, Dollars, Maybe, Raw, RawList, Text};

/// One `data` of a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Text<'a>,
    pub(super) index: Count,
    #[serde(borrow)]
    pub(super) message: Maybe<Message<'a>>,
    #[serde(borrow)]
    pub(super) content_block: Raw<'a>,
    #[serde(borrow)]
    pub(super) delta: Maybe<WireDelta<'a>>,
    pub(super) usage: Maybe<WireUsage>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// A whole reply, or the known facts at its start.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Message<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow)]
    pub(super) model: Text<'a>,
    #[serde(borrow)]
    pub(super) content: RawList<'a>,
    #[serde(borrow)]
    pub(super) stop_reason: Text<'a>,
    #[serde(borrow)]
    pub(super) stop_details: Maybe<StopDetails<'a>>,
    pub(super) usage: Maybe<WireUsage>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// A block at its start, or all of it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Block<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow)]
    pub(super) text: Text<'a>,
    #[serde(borrow)]
    pub(super) citations: RawList<'a>,
    #[serde(borrow)]
    pub(super) thinking: Text<'a>,
    #[serde(borrow)]
    pub(super) signature: Text<'a>,
    #[serde(borrow)]
    pub(super) data: Text<'a>,
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(borrow)]
    pub(super) input: Raw<'a>,
    #[serde(borrow)]
    pub(super) caller: Raw<'a>,
}

/// A piece of a block, or of the message.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireDelta<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow)]
    pub(super) text: Text<'a>,
    #[serde(borrow)]
    pub(super) thinking: Text<'a>,
    #[serde(borrow)]
    pub(super) signature: Text<'a>,
    #[serde(borrow)]
    pub(super) partial_json: Text<'a>,
    #[serde(borrow)]
    pub(super) citation: Raw<'a>,
    #[serde(borrow)]
    pub(super) content: Raw<'a>,
    #[serde(borrow)]
    pub(super) encrypted_content: Raw<'a>,
    #[serde(borrow)]
    pub(super) stop_reason: Text<'a>,
    #[serde(borrow)]
    pub(super) stop_details: Maybe<StopDetails<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StopDetails<'a> {
    #[serde(borrow)]
    pub(super) explanation: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireUsage {
    pub(super) input_tokens: Count,
    pub(super) cache_read_input_tokens: Count,
    pub(super) cache_creation_input_tokens: Count,
    pub(super) output_tokens: Count,
    pub(super) output_tokens_details: Maybe<OutputDetails>,
    /// Cost in dollars. Gateways report it, Anthropic itself does not.
    pub(super) cost: Dollars,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OutputDetails {
    pub(super) thinking_tokens: Count,
}
