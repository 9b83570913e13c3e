//! The JSON of replies, borrowed from the bytes where it can be.
//!
//! The structs take every field as optional, in the lenient types of `json`. They must not decide what anything
//! means; `decode` does.

use std::borrow::Cow;

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::json::{Arguments, Count, Dollars, List, Maybe, RawList, Text, otherwise, skip_map};

/// One `data` of a stream, or the whole body of a reply that is not streamed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Chunk<'a> {
    #[serde(borrow)]
    pub(crate) id: Text<'a>,
    #[serde(borrow)]
    pub(crate) model: Text<'a>,
    #[serde(borrow)]
    pub(crate) object: Text<'a>,
    #[serde(borrow)]
    pub(crate) choices: Choices<'a>,
    pub(crate) usage: Maybe<WireUsage>,
    pub(crate) x_groq: Maybe<Groq>,
    #[serde(borrow)]
    pub(crate) error: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Groq {
    pub(crate) usage: Maybe<WireUsage>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Choice<'a> {
    pub(crate) index: Count,
    #[serde(borrow)]
    pub(crate) delta: Maybe<Said<'a>>,
    #[serde(borrow)]
    pub(crate) message: Maybe<Said<'a>>,
    #[serde(borrow)]
    pub(crate) finish_reason: Text<'a>,
    #[serde(borrow)]
    pub(crate) error: Option<&'a RawValue>,
}

/// A delta or a whole message: they have the same fields.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Said<'a> {
    #[serde(borrow)]
    pub(crate) content: Content<'a>,
    #[serde(borrow)]
    pub(crate) reasoning_content: Text<'a>,
    #[serde(borrow)]
    pub(crate) reasoning: Text<'a>,
    #[serde(borrow)]
    pub(crate) thinking: Text<'a>,
    #[serde(borrow)]
    pub(crate) reasoning_details: RawList<'a>,
    #[serde(borrow)]
    pub(crate) refusal: Text<'a>,
    #[serde(borrow)]
    pub(crate) tool_calls: List<WireCall<'a>>,
    #[serde(borrow)]
    pub(crate) function_call: Maybe<Function<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireCall<'a> {
    pub(crate) index: Count,
    #[serde(borrow)]
    pub(crate) id: Text<'a>,
    #[serde(borrow)]
    pub(crate) function: Maybe<Function<'a>>,
    #[serde(borrow)]
    pub(crate) custom: Maybe<Custom<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Function<'a> {
    #[serde(borrow)]
    pub(crate) name: Text<'a>,
    #[serde(borrow)]
    pub(crate) arguments: Arguments<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Custom<'a> {
    #[serde(borrow)]
    pub(crate) input: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireUsage {
    pub(crate) prompt_tokens: Count,
    pub(crate) completion_tokens: Count,
    pub(crate) total_tokens: Count,
    pub(crate) prompt_tokens_details: Maybe<PromptDetails>,
    pub(crate) completion_tokens_details: Maybe<CompletionDetails>,
    pub(crate) prompt_cache_hit_tokens: Count,
    pub(crate) cache_read_input_tokens: Count,
    pub(crate) cache_creation_input_tokens: Count,
    pub(crate) cached_tokens: Count,
    pub(crate) reasoning_tokens: Count,
    pub(crate) cost: Dollars,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PromptDetails {
    pub(crate) cached_tokens: Count,
    pub(crate) cache_write_tokens: Count,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CompletionDetails {
    pub(crate) reasoning_tokens: Count,
}

/// Choice 0 of an array of choices; the others are not read.
#[derive(Debug, Default)]
pub(crate) struct Choices<'a> {
    pub(crate) first: Option<Choice<'a>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Choices<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Choices<'de>;
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Choices<'de>, A::Error> {
                let mut first = None;
                while let Some(Maybe(choice)) = seq.next_element::<Maybe<Choice<'de>>>()? {
                    let choice = choice.filter(|choice| choice.index.0.unwrap_or(0) == 0);
                    first = first.or(choice);
                }
                Ok(Choices { first })
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Choices<'de>, A::Error> {
                skip_map(map)
            }
            otherwise! { visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_f64(f64) visit_str(&str) }
        }
        deserializer.deserialize_any(Read)
    }
}

/// The content of a message: text, or pieces of text and thinking in order.
#[derive(Debug, Default)]
pub(crate) enum Content<'a> {
    #[default]
    Absent,
    Text(Cow<'a, str>),
    Pieces(Vec<Piece<'a>>),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Piece<'a> {
    #[serde(borrow)]
    pub(crate) text: Text<'a>,
    #[serde(borrow)]
    pub(crate) thinking: Content<'a>,
}

impl<'a> Content<'a> {
    /// All text below, for thinking that may be a string or pieces again.
    pub(crate) fn into_text(self) -> Cow<'a, str> {
        match self {
            Self::Absent => Cow::Borrowed(""),
            Self::Text(text) => text,
            Self::Pieces(pieces) => Cow::Owned(pieces.iter().map(|piece| piece.text.as_str()).collect()),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Content<'de>;
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Content<'de>, E> {
                Ok(Content::Text(Cow::Borrowed(text)))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Content<'de>, E> {
                Ok(Content::Text(Cow::Owned(text.to_owned())))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Content<'de>, A::Error> {
                let mut pieces = Vec::new();
                while let Some(Maybe(piece)) = seq.next_element()? {
                    pieces.extend(piece);
                }
                Ok(Content::Pieces(pieces))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Content<'de>, A::Error> {
                skip_map(map)
            }
            otherwise! { visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_f64(f64) }
        }
        deserializer.deserialize_any(Read)
    }
}
