//! Single values: texts, numbers, flags, and the arguments of calls.

use std::borrow::Cow;

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};

use super::{otherwise, skip_map, skip_seq};

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

/// A call's arguments as JSON text: a string on the wire, an object from some servers. Where an object is the wire's
/// own form, [`super::Raw`] keeps its text unchanged.
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

/// A number of tokens or an index: a non-negative whole number.
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

/// A boolean flag.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Flag(pub(crate) Option<bool>);

impl Flag {
    /// True if the field is present and true.
    pub(crate) fn is_true(self) -> bool {
        self.0 == Some(true)
    }
}

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Flag;
            fn visit_bool<E: de::Error>(self, flag: bool) -> Result<Flag, E> {
                Ok(Flag(Some(flag)))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Flag, A::Error> {
                skip_seq(seq)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Flag, A::Error> {
                skip_map(map)
            }
            otherwise! { visit_i64(i64) visit_u64(u64) visit_f64(f64) visit_str(&str) }
        }
        deserializer.deserialize_any(Read)
    }
}
