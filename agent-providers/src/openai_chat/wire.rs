//! The JSON of replies, borrowed from the bytes if possible.
//!
//! The structs take every field as optional, in the lenient types of `json`. Large and rare fields are boxed: most
//! chunks are a few letters of text. They must not interpret anything; `decode` does.

use std::borrow::Cow;

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::json::{
    Arguments, Count, Dollars, Fill, InPlace, List, MAX_ITEMS, Maybe, RawList, Text, items, object,
    otherwise, skip_map, skip_seq,
};

object! {
    /// One `data` of a stream, or the whole body of a reply that is not streamed.
    struct Chunk<'de> {
        id: Text<'de>,
        model: Text<'de>,
        object: Text<'de>,
        #[in_place]
        choices: Choices<'de>,
        usage: Maybe<Box<WireUsage>>,
        x_groq: Maybe<Box<Groq>>,
        error: Option<&'de RawValue>,
    }
}

object! {
    struct Groq {
        usage: Maybe<Box<WireUsage>>,
    }
}

object! {
    struct Choice<'de> {
        index: Count,
        #[in_place]
        delta: Maybe<Said<'de>>,
        message: Maybe<Box<Said<'de>>>,
        finish_reason: Text<'de>,
        error: Option<&'de RawValue>,
    }
}

object! {
    /// A delta or a whole message: they have the same fields.
    struct Said<'de> {
        content: Content<'de>,
        reasoning_content: Text<'de>,
        reasoning: Text<'de>,
        thinking: Text<'de>,
        reasoning_details: RawList<'de>,
        refusal: Text<'de>,
        tool_calls: List<WireCall<'de>>,
        function_call: Maybe<Box<Function<'de>>>,
    }
}

object! {
    struct WireCall<'de> {
        index: Count,
        id: Text<'de>,
        function: Maybe<Function<'de>>,
        custom: Maybe<Custom<'de>>,
    }
}

object! {
    struct Function<'de> {
        name: Text<'de>,
        arguments: Arguments<'de>,
    }
}

object! {
    struct Custom<'de> {
        input: Text<'de>,
    }
}

object! {
    struct WireUsage {
        prompt_tokens: Count,
        completion_tokens: Count,
        total_tokens: Count,
        prompt_tokens_details: Maybe<PromptDetails>,
        completion_tokens_details: Maybe<CompletionDetails>,
        prompt_cache_hit_tokens: Count,
        cache_read_input_tokens: Count,
        cache_creation_input_tokens: Count,
        cached_tokens: Count,
        reasoning_tokens: Count,
        cost: Dollars,
    }
}

object! {
    struct PromptDetails {
        cached_tokens: Count,
        cache_write_tokens: Count,
    }
}

object! {
    struct CompletionDetails {
        reasoning_tokens: Count,
    }
}

/// Choice 0 of an array of choices; the others are not read.
#[derive(Debug, Default)]
pub(crate) struct Choices<'a> {
    pub(crate) first: Maybe<Choice<'a>>,
}

impl<'de> Fill<'de> for Choices<'de> {
    fn fill<D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        struct Read<'p, 'de>(&'p mut Maybe<Choice<'de>>);
        impl<'de> Visitor<'de> for Read<'_, 'de> {
            type Value = ();
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
                while self.0.0.is_none() {
                    if seq.next_element_seed(InPlace(&mut *self.0))?.is_none() {
                        return Ok(());
                    }
                    self.0.0.take_if(|choice| choice.index.0.unwrap_or(0) != 0);
                }
                skip_seq(seq)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
                skip_map(map)
            }
            otherwise! { visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_f64(f64) visit_str(&str) }
        }
        self.first = Maybe(None);
        deserializer.deserialize_any(Read(&mut self.first))
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

object! {
    struct Piece<'de> {
        text: Text<'de>,
        thinking: Content<'de>,
    }
}

impl<'a> Content<'a> {
    /// All text of the content, for thinking that may be a string or pieces again.
    pub(crate) fn into_text(self) -> Cow<'a, str> {
        match self {
            Self::Absent => Cow::Borrowed(""),
            Self::Text(text) => text,
            Self::Pieces(pieces) => Cow::Owned(pieces.iter().map(|piece| piece.text.as_str()).collect()),
        }
    }
}

impl<'de> Deserialize<'de> for Content<'de> {
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
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Content<'de>, A::Error> {
                let pieces: Vec<Maybe<Piece<'de>>> = items(seq, MAX_ITEMS)?;
                Ok(Content::Pieces(pieces.into_iter().filter_map(|piece| piece.0).collect()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Content<'de>, A::Error> {
                skip_map(map)
            }
            otherwise! { visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_f64(f64) }
        }
        deserializer.deserialize_any(Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finish(json: &str) -> Option<String> {
        let (mut room, mut chunk) = (String::new(), Chunk::default());
        crate::json::read_into(json.as_bytes(), &mut room, &mut chunk).unwrap();
        assert_eq!(chunk.id.as_str(), "after", "{json}");
        chunk.choices.first.0.map(|choice| choice.finish_reason.as_str().to_owned())
    }

    #[test]
    fn the_first_choice_of_index_0_counts() {
        for (choices, first) in [
            (r#"[{"finish_reason":"a"}]"#, Some("a")),
            (r#"[{"index":1,"finish_reason":"b"},{"finish_reason":"a"}]"#, Some("a")),
            (
                r#"[null,7,[],{"index":0,"finish_reason":"a"},{"finish_reason":"b"},3,{"delta":{}}]"#,
                Some("a"),
            ),
            (r#"[{"finish_reason":"b","index":2},{"index":0.0,"finish_reason":"a"}]"#, Some("a")),
            (r#"[{}]"#, Some("")),
            (r#"[{"index":1,"finish_reason":"b"}]"#, None),
            ("[]", None),
            ("null", None),
            ("\"a\"", None),
            (r#"{"finish_reason":"a"}"#, None),
        ] {
            let json = format!(r#"{{"choices":{choices},"id":"after"}}"#);
            assert_eq!(finish(&json).as_deref(), first, "{json}");
        }
        let twice =
            r#"{"choices":[{"finish_reason":"a"}],"choices":[{"index":1}],"id":"before","id":"after"}"#;
        assert_eq!(finish(twice), None);
    }
}
