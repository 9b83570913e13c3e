//! Objects and arrays, typed or kept as their own text.

use std::marker::PhantomData;

use entourage_core::{Error, ErrorKind, Result, message::parse_value};
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::{Value, value::RawValue};

use super::{MAX_ITEMS, items, otherwise, skip_seq};

/// An object, or `None` for a value of another type.
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
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<List<T>, A::Error> {
                let all: Vec<Maybe<T>> = items(seq, MAX_ITEMS)?;
                Ok(List(all.into_iter().filter_map(|item| item.0).collect()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<List<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(|value| List(vec![value]))
            }
            otherwise! { visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_f64(f64) visit_str(&str) }
        }
        deserializer.deserialize_any(Read(PhantomData))
    }
}

/// Any JSON, kept as its own text: for blocks that only their service understands, for content that must be replayed
/// byte for byte, and for values that are read once their kind is known.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Raw<'a>(Option<&'a RawValue>);

impl<'a> Raw<'a> {
    /// The JSON text; `None` when the field is absent or null.
    pub(crate) fn get(self) -> Option<&'a str> {
        self.0.map(RawValue::get)
    }

    /// The value read as `T`, unless it is absent or not a `T`.
    pub(crate) fn read<T: Deserialize<'a>>(self) -> Option<T> {
        serde_json::from_str(self.get()?).ok()
    }

    /// The value as a tree of its own, unless it exceeds the bounds of values that can be kept.
    pub(crate) fn value(self) -> Option<Value> {
        parse_value(self.get()?).ok()
    }

    /// The value as a tree of its own, for content that the reply cannot do without.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] or [`ErrorKind::Protocol`] if it exceeds the bounds.
    pub(crate) fn block(self) -> Result<Option<Value>> {
        let parsed = self.get().map(parse_value).transpose();
        parsed.map_err(|error| {
            let kind = match error.kind() {
                ErrorKind::TooLarge => ErrorKind::TooLarge,
                _ => ErrorKind::Protocol,
            };
            let text = format!("the model's service sent a block that cannot be kept: {}", error.message());
            Error::new(kind, text).during("model.stream").caused_by(error)
        })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Raw<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(Raw)
    }
}

impl<'a> From<&'a RawValue> for Raw<'a> {
    fn from(raw: &'a RawValue) -> Self {
        Self(Some(raw))
    }
}

/// The items of an array, each kept as its own text; a lone object counts as an array of one.
#[derive(Debug, Default)]
pub(crate) struct RawList<'a>(pub(crate) Vec<Raw<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for RawList<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Raw::deserialize(deserializer)?;
        let items = match raw.get() {
            Some(text) if text.starts_with('[') => {
                let read: Result<RawItems<'_>, _> = serde_json::from_str(text);
                read.map_err(|error| de::Error::custom(error.to_string()))?.0
            }
            Some(text) if text.starts_with('{') => raw.0.into_iter().collect(),
            _ => Vec::new(),
        };
        Ok(Self(items.into_iter().map(Raw::from).collect()))
    }
}

/// Most raw items: more than [`MAX_ITEMS`], since a reply that is not streamed may be an array of its chunks.
const MAX_RAW_ITEMS: usize = 1_000_000;

struct RawItems<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for RawItems<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = RawItems<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an array")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<RawItems<'de>, A::Error> {
                items(seq, MAX_RAW_ITEMS).map(RawItems)
            }
        }
        deserializer.deserialize_seq(Read)
    }
}
