//! The JSON of replies, borrowed from the bytes if possible.
//!
//! The structs take every field as optional, in the lenient types of `json`. They must not interpret anything;
//! `decode` does.

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value, value::RawValue};

use crate::json::{Count, Flag, List, Maybe, Raw, Text, otherwise, skip_seq};

/// One `data` of a stream, one element of an array of chunks, or the whole body of a reply that is not streamed.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) response_id: Text<'a>,
    #[serde(borrow)]
    pub(super) model_version: Text<'a>,
    #[serde(borrow)]
    pub(super) candidates: List<Candidate<'a>>,
    #[serde(borrow)]
    pub(super) prompt_feedback: Maybe<Feedback<'a>>,
    pub(super) usage_metadata: Maybe<WireUsage>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Candidate<'a> {
    pub(super) index: Count,
    #[serde(borrow)]
    pub(super) content: Maybe<Content<'a>>,
    #[serde(borrow)]
    pub(super) finish_reason: Text<'a>,
    #[serde(borrow)]
    pub(super) finish_message: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Content<'a> {
    #[serde(borrow)]
    pub(super) parts: List<Part<'a>>,
}

/// The reason why a prompt was not answered at all.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Feedback<'a> {
    #[serde(borrow)]
    pub(super) block_reason: Text<'a>,
    #[serde(borrow)]
    pub(super) block_reason_message: Text<'a>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WireUsage {
    pub(super) prompt_token_count: Count,
    pub(super) candidates_token_count: Count,
    pub(super) thoughts_token_count: Count,
    pub(super) cached_content_token_count: Count,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FunctionCall<'a> {
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(borrow)]
    pub(super) args: Raw<'a>,
}

/// One part of a content. Its kind follows from its fields.
#[derive(Debug, Default)]
pub(super) struct Part<'a> {
    pub(super) text: Text<'a>,
    pub(super) thought: Flag,
    pub(super) signature: Text<'a>,
    pub(super) call: Maybe<FunctionCall<'a>>,
    /// The fields that only the service understands, such as the code that it ran.
    pub(super) rest: Map<String, Value>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Part<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Part<'de>;
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Part<'de>, A::Error> {
                let mut part = Part::default();
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    match key.as_str() {
                        "text" => part.text = map.next_value()?,
                        "thought" => part.thought = map.next_value()?,
                        "thoughtSignature" => part.signature = map.next_value()?,
                        "functionCall" => part.call = map.next_value()?,
                        "" => {
                            map.next_value::<IgnoredAny>()?;
                        }
                        other => {
                            part.rest.insert(other.to_owned(), map.next_value()?);
                        }
                    }
                }
                Ok(part)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Part<'de>, A::Error> {
                skip_seq(seq)
            }
            otherwise! { visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_f64(f64) visit_str(&str) }
        }
        deserializer.deserialize_any(Read)
    }
}
