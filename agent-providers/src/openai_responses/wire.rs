//! The JSON of replies, borrowed from the bytes if possible.
//!
//! The structs take every field as optional, in the lenient types of `json`. They must not interpret anything;
//! `decode` and `items` do.

use entourage_core::{Money, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::json::{Arguments, Count, Dollars, List, Maybe, Raw, RawList, Text};

/// One event of a stream, with the fields of all kinds of events; most are absent in each.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Event<'a> {
    #[serde(borrow, rename = "type")]
    pub(crate) kind: Text<'a>,
    pub(crate) output_index: Count,
    pub(crate) content_index: Count,
    pub(crate) summary_index: Count,
    #[serde(borrow)]
    pub(crate) item_id: Text<'a>,
    #[serde(borrow)]
    pub(crate) delta: Text<'a>,
    #[serde(borrow)]
    pub(crate) text: Text<'a>,
    #[serde(borrow)]
    pub(crate) refusal: Text<'a>,
    #[serde(borrow)]
    pub(crate) arguments: Arguments<'a>,
    #[serde(borrow)]
    pub(crate) item: Raw<'a>,
    #[serde(borrow)]
    pub(crate) response: Raw<'a>,
    #[serde(borrow)]
    pub(crate) error: Option<&'a RawValue>,
}

/// A response: the body of a reply that is not streamed, and part of the events that begin and end a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Response<'a> {
    #[serde(borrow)]
    pub(crate) id: Text<'a>,
    #[serde(borrow)]
    pub(crate) model: Text<'a>,
    #[serde(borrow)]
    pub(crate) object: Text<'a>,
    #[serde(borrow)]
    pub(crate) status: Text<'a>,
    #[serde(borrow)]
    pub(crate) incomplete_details: Maybe<Incomplete<'a>>,
    #[serde(borrow)]
    pub(crate) error: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) output: RawList<'a>,
    pub(crate) usage: Maybe<WireUsage>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Incomplete<'a> {
    #[serde(borrow)]
    pub(crate) reason: Text<'a>,
}

/// One item of a reply, of any kind.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Item<'a> {
    #[serde(borrow, rename = "type")]
    pub(crate) kind: Text<'a>,
    #[serde(borrow)]
    pub(crate) id: Text<'a>,
    #[serde(borrow)]
    pub(crate) phase: Text<'a>,
    #[serde(borrow)]
    pub(crate) content: List<Piece<'a>>,
    #[serde(borrow)]
    pub(crate) summary: List<Piece<'a>>,
    #[serde(borrow)]
    pub(crate) encrypted_content: Text<'a>,
    #[serde(borrow)]
    pub(crate) call_id: Text<'a>,
    #[serde(borrow)]
    pub(crate) name: Text<'a>,
    #[serde(borrow)]
    pub(crate) namespace: Text<'a>,
    #[serde(borrow)]
    pub(crate) arguments: Arguments<'a>,
    #[serde(borrow)]
    pub(crate) input: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Piece<'a> {
    #[serde(borrow)]
    pub(crate) text: Text<'a>,
    #[serde(borrow)]
    pub(crate) refusal: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireUsage {
    input_tokens: Count,
    output_tokens: Count,
    input_tokens_details: Maybe<InputDetails>,
    output_tokens_details: Maybe<OutputDetails>,
    /// Cost in dollars.
    cost: Dollars,
    /// Cost in units of 1e-10 dollars.
    cost_in_usd_ticks: Count,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InputDetails {
    cached_tokens: Count,
    cache_write_tokens: Count,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    reasoning_tokens: Count,
}

impl WireUsage {
    /// Converts to a usage. On this wire input includes cached tokens, and output includes reasoning.
    pub(crate) fn usage(&self) -> Usage {
        let input = self.input_tokens_details.0.as_ref();
        let mut usage = Usage::default();
        usage.input = self.input_tokens.0;
        usage.output = self.output_tokens.0;
        usage.cache_read = input.and_then(|details| details.cached_tokens.0);
        usage.cache_write = input.and_then(|details| details.cache_write_tokens.0);
        usage.reasoning =
            self.output_tokens_details.0.as_ref().and_then(|details| details.reasoning_tokens.0);
        let ticks =
            || self.cost_in_usd_ticks.0.and_then(|ticks| ticks.checked_mul(100)).map(Money::from_pico);
        usage.cost = self.cost.0.or_else(ticks);
        usage
    }
}
