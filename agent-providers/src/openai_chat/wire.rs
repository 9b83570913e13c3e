//! The JSON of replies, borrowed from the bytes where it can be.
//!
//! Services get types wrong: a field of an unexpected type counts as absent here, it never fails the chunk. Only
//! what is no JSON fails. These types must not decide what anything means; `decode` does.

use std::{borrow::Cow, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{self, IgnoredAny, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::value::RawValue;

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
    pub(crate) reasoning_details: List<Detail<'a>>,
    #[serde(borrow)]
    pub(crate) refusal: Text<'a>,
    #[serde(borrow)]
    pub(crate) tool_calls: List<WireCall<'a>>,
    #[serde(borrow)]
    pub(crate) function_call: Maybe<Function<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Detail<'a> {
    #[serde(borrow)]
    pub(crate) signature: Text<'a>,
    #[serde(borrow)]
    pub(crate) data: Text<'a>,
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

/// Answers of a visitor for the types that it does not want: each counts as absent.
macro_rules! otherwise {
    ($($method:ident($type:ty))*) => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("any JSON")
        }
        fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
        $(fn $method<E: de::Error>(self, _: $type) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        })*
    };
}

fn skip_seq<'de, A: SeqAccess<'de>, T: Default>(mut seq: A) -> Result<T, A::Error> {
    while seq.next_element::<IgnoredAny>()?.is_some() {}
    Ok(T::default())
}

fn skip_map<'de, A: MapAccess<'de>, T: Default>(mut map: A) -> Result<T, A::Error> {
    while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
    Ok(T::default())
}

/// A string, borrowed when it has no escapes.
#[derive(Debug, Default)]
pub(crate) struct Text<'a>(Option<Cow<'a, str>>);

impl<'a> Text<'a> {
    /// The text, unless it is absent or empty.
    pub(crate) fn filled(self) -> Option<Cow<'a, str>> {
        self.0.filter(|text| !text.is_empty())
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Text<'de>;
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Some(Cow::Borrowed(text))))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Some(Cow::Owned(text.to_owned()))))
            }
            fn visit_string<E: de::Error>(self, text: String) -> Result<Text<'de>, E> {
                Ok(Text(Some(Cow::Owned(text))))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Text<'de>, A::Error> {
                skip_seq(seq)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Text<'de>, A::Error> {
                skip_map(map)
            }
            otherwise! { visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_f64(f64) }
        }
        deserializer.deserialize_any(Read)
    }
}

/// A call's arguments as JSON text: a string on the wire, an object at servers that know no better.
#[derive(Debug, Default)]
pub(crate) struct Arguments<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Arguments<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Arguments<'de>;
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Arguments<'de>, E> {
                Ok(Arguments(Cow::Borrowed(text)))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Arguments<'de>, E> {
                Ok(Arguments(Cow::Owned(text.to_owned())))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Arguments<'de>, A::Error> {
                skip_seq(seq)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Arguments<'de>, A::Error> {
                let value = serde_json::Value::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Arguments(Cow::Owned(value.to_string())))
            }
            otherwise! { visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_f64(f64) }
        }
        deserializer.deserialize_any(Read)
    }
}

/// A number of tokens or an index: a whole number that is not negative.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Count(pub(crate) Option<u64>);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Count;
            fn visit_u64<E: de::Error>(self, count: u64) -> Result<Count, E> {
                Ok(Count(Some(count)))
            }
            fn visit_i64<E: de::Error>(self, count: i64) -> Result<Count, E> {
                Ok(Count(u64::try_from(count).ok()))
            }
            fn visit_f64<E: de::Error>(self, count: f64) -> Result<Count, E> {
                // Through text: whole floats such as 12.0 count, and no cast can lose anything.
                Ok(Count(format!("{count:.0}").parse().ok().filter(|_| count.fract() == 0.0)))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Count, A::Error> {
                skip_seq(seq)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Count, A::Error> {
                skip_map(map)
            }
            otherwise! { visit_bool(bool) visit_str(&str) }
        }
        deserializer.deserialize_any(Read)
    }
}

/// An object, or nothing when there is something else.
#[derive(Debug)]
pub(crate) struct Maybe<T>(pub(crate) Option<T>);

impl<T> Default for Maybe<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Maybe<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Read<T> {
            type Value = Maybe<T>;
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Maybe<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(|value| Maybe(Some(value)))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Maybe<T>, A::Error> {
                skip_seq(seq)
            }
            otherwise! { visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_f64(f64) visit_str(&str) }
        }
        deserializer.deserialize_any(Read(PhantomData))
    }
}

/// The objects of an array; a lone object counts as an array of one.
#[derive(Debug)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Read<T> {
            type Value = List<T>;
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<List<T>, A::Error> {
                let mut all = Vec::new();
                while let Some(Maybe(item)) = seq.next_element()? {
                    all.extend(item);
                }
                Ok(List(all))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<List<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(|value| List(vec![value]))
            }
            otherwise! { visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_f64(f64) visit_str(&str) }
        }
        deserializer.deserialize_any(Read(PhantomData))
    }
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
