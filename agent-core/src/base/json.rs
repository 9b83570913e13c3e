//! JSON values without reserved keys.
//!
//! `serde_json`'s own reader of a `Value` treats an object specially if its first key is the one that it reserves for
//! raw text: it puts the parsed text in the object's place, or fails. Input from a model, a tool or a webhook must not
//! choose how it is read, nor make a stored session unreadable.

use std::{fmt, sync::Arc};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};

/// A value read without reserved keys.
struct Plain(Value);

/// Reads a JSON value as it was written, for `deserialize_with`: `serde_json` itself takes an object with a key that it
/// reserves for another value. Errors are the deserializer's.
pub fn value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    Plain::deserialize(deserializer).map(|plain| plain.0)
}

/// Reads a shared value, for `deserialize_with`.
pub(crate) fn shared<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<Value>, D::Error> {
    value(deserializer).map(Arc::new)
}

/// Reads a value or none, for `deserialize_with`.
pub(crate) fn option<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Ok(Option::<Plain>::deserialize(deserializer)?.map(|plain| plain.0))
}

/// Reads values with names, for `deserialize_with`.
pub(crate) fn named<'de, D, C>(deserializer: D) -> Result<C, D::Error>
where
    D: Deserializer<'de>,
    C: FromIterator<(String, Value)>,
{
    let named = Vec::<(String, Plain)>::deserialize(deserializer)?;
    Ok(named.into_iter().map(|(name, plain)| (name, plain.0)).collect())
}

/// Reads a value with a name, or none, for `deserialize_with`.
pub(crate) fn one_named<'de, D>(deserializer: D) -> Result<Option<(String, Value)>, D::Error>
where
    D: Deserializer<'de>,
{
    Ok(Option::<(String, Plain)>::deserialize(deserializer)?.map(|(name, plain)| (name, plain.0)))
}

/// Parses JSON text.
pub(crate) fn parse(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str::<Plain>(text).map(|plain| plain.0)
}

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader).map(Plain)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, it: bool) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_i64<E>(self, it: i64) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_u64<E>(self, it: u64) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_f64<E>(self, it: f64) -> Result<Value, E> {
        Ok(Number::from_f64(it).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, it: &str) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_string<E>(self, it: String) -> Result<Value, E> {
        Ok(it.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Plain(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((key, Plain(item))) = entries.next_entry::<String, Plain>()? {
            map.insert(key, item);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_04_a_reserved_key_is_a_key() {
        for text in [
            r#"{"$serde_json::private::RawValue":"[1,2]"}"#,
            r#"{"$serde_json::private::RawValue":"not JSON"}"#,
            r#"{"$serde_json::private::Number":"1"}"#,
            r#"[{"a":{"$serde_json::private::RawValue":"{}","x":[null]}}]"#,
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn other_values_read_as_ever() {
        for text in [
            "null",
            "true",
            "-9223372036854775808",
            "18446744073709551615",
            "1.5e300",
            "1e-400",
            r#""\ud83d\ude80 \u0000""#,
            "[]",
            "{}",
            r#"{"a":[1,{"b":null}],"a":2}"#,
        ] {
            assert_eq!(parse(text).unwrap(), serde_json::from_str::<Value>(text).unwrap(), "{text}");
        }
        for text in ["", "1e400", "[1,]", r#""\ud800""#, "{\"a\"}", "nul", "1 2", &"[".repeat(200)] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
