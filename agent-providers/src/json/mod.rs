//! Lenient JSON for wires: types that tolerate fields of the wrong type.
//!
//! A field of an unexpected type counts as absent here and never fails the whole; only invalid JSON fails. Texts are
//! borrowed from the bytes if possible. Nothing here may know a wire or interpret a field.
//!
//! A wire's structs derive `Deserialize` with `#[serde(default)]`, mark borrowing fields with `#[serde(borrow)]`, and
//! are built of these types only. Where chunks are small and many, they are declared with [`object!`] instead.

mod halves;
mod money;
mod object;
mod scalar;
mod tree;

pub(crate) use halves::{Halves, mend, whole};
pub(crate) use money::Dollars;
pub(crate) use object::{Fill, InPlace, Object, Whole, object};
pub(crate) use scalar::{Arguments, Count, Flag, Text};
pub(crate) use tree::{List, Maybe, Raw, RawList};

use serde::{
    Deserialize,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess},
};

/// Reads one JSON text. Returns it with the bytes it was read from: `data`, or `data` with broken UTF-8 replaced, for
/// which `mended` is the buffer. Broken UTF-8 costs a replacement character, not the reply.
///
/// # Errors
/// The parser's own, for invalid JSON.
pub(crate) fn read<'a, T: Deserialize<'a>>(
    data: &'a [u8],
    mended: &'a mut String,
) -> serde_json::Result<(T, &'a [u8])> {
    let text = text(data, mended);
    Ok((serde_json::from_str(text)?, text.as_bytes()))
}

/// Reads an [`Object`] into `place`, otherwise like `read`. After an error, some fields may have been read.
///
/// # Errors
/// The parser's own, for invalid JSON, and for JSON that is neither an object nor an array.
pub(crate) fn read_into<'a, T: Object<'a>>(
    data: &'a [u8],
    mended: &'a mut String,
    place: &mut T,
) -> serde_json::Result<&'a [u8]> {
    let text = text(data, mended);
    let mut deserializer = serde_json::Deserializer::from_str(text);
    Whole(place).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(text.as_bytes())
}

/// The data as text, checked once here; a parser of bytes would check each string on its own.
fn text<'a>(data: &'a [u8], mended: &'a mut String) -> &'a str {
    if let Ok(text) = std::str::from_utf8(data) {
        return text;
    }
    *mended = String::from_utf8_lossy(data).into_owned();
    mended
}

/// Writes the rest of a lenient [`serde::de::Visitor`]: each of the named types counts as absent, as null does. A
/// visitor handles the others itself, so that none is forgotten.
macro_rules! otherwise {
    ($($method:ident($type:ty))*) => {
        fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
            f.write_str("any JSON")
        }
        fn visit_unit<E: ::serde::de::Error>(self) -> ::std::result::Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
        $(fn $method<E: ::serde::de::Error>(self, _: $type) -> ::std::result::Result<Self::Value, E> {
            Ok(Self::Value::default())
        })*
    };
}
pub(crate) use otherwise;

/// Start of the error for a list of more than [`MAX_ITEMS`].
pub(crate) const TOO_MANY: &str = "a list is too long";

/// Most items of a list that are read. They are far larger in memory than on the wire, where `{},` is an item.
pub(crate) const MAX_ITEMS: usize = 20_000;

/// Reads the items of an array.
///
/// # Errors
/// [`TOO_MANY`], for more than `most` items.
pub(crate) fn items<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(
    mut seq: A,
    most: usize,
) -> Result<Vec<T>, A::Error> {
    let mut all = Vec::new();
    while let Some(item) = seq.next_element()? {
        if all.len() >= most {
            return Err(serde::de::Error::custom(format!("{TOO_MANY}: more than {most} items")));
        }
        all.push(item);
    }
    Ok(all)
}

/// Skips an array that counts as absent.
pub(crate) fn skip_seq<'de, A: SeqAccess<'de>, T: Default>(mut seq: A) -> Result<T, A::Error> {
    while seq.next_element::<IgnoredAny>()?.is_some() {}
    Ok(T::default())
}

/// Skips an object that counts as absent.
pub(crate) fn skip_map<'de, A: MapAccess<'de>, T: Default>(mut map: A) -> Result<T, A::Error> {
    while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
    Ok(T::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct All<'a> {
        #[serde(borrow)]
        text: Text<'a>,
        #[serde(borrow)]
        arguments: Arguments<'a>,
        count: Count,
        flag: Flag,
        #[serde(borrow)]
        maybe: Maybe<Inner<'a>>,
        #[serde(borrow)]
        list: List<Inner<'a>>,
        #[serde(borrow)]
        raw: Raw<'a>,
        #[serde(borrow)]
        raws: RawList<'a>,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Inner<'a> {
        #[serde(borrow)]
        name: Text<'a>,
        #[serde(borrow)]
        item: Raw<'a>,
    }

    fn all(json: &str) -> All<'_> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_value_of_any_type_is_read_or_counts_as_absent() {
        for value in [
            "null",
            "true",
            "1",
            "-1",
            "1.5",
            "1e300",
            "\"t\"",
            "[]",
            "[1,{\"name\":2}]",
            "{}",
            "{\"a\":[1]}",
        ] {
            for field in ["text", "arguments", "count", "flag", "maybe", "list", "raw", "raws"] {
                let json = format!(r#"[{{"{field}":{value}}},{{"text":"after"}}]"#);
                let read: Vec<All<'_>> = serde_json::from_str(&json).unwrap();
                assert_eq!(read.last().unwrap().text.as_str(), "after", "{json}");
            }
        }
    }

    #[test]
    fn values_of_the_right_type_are_kept() {
        let read = all(
            r#"{"text":"t\u00e9","arguments":{"a":1},"count":3.0,"flag":true,"maybe":{"name":"n","item":{ "x": 1 }},
                "list":[null,{"name":"a"},7,{"name":"b"}],"raw":{ "b" : 2, "a" : 1 },"raws":[{ "i":1 },"s",null]}"#,
        );
        assert_eq!((read.text.as_str(), &*read.arguments.0, read.count.0), ("té", r#"{"a":1}"#, Some(3)));
        assert!(read.flag.is_true());
        let inner = read.maybe.0.unwrap();
        assert_eq!((inner.name.as_str(), inner.item.get()), ("n", Some(r#"{ "x": 1 }"#)));
        let names: Vec<_> = read.list.0.iter().map(|inner| inner.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(read.raw.get(), Some(r#"{ "b" : 2, "a" : 1 }"#));
        let raws: Vec<_> = read.raws.0.iter().filter_map(|raw| raw.get()).collect();
        assert_eq!(raws, [r#"{ "i":1 }"#, "\"s\"", "null"]);
        assert_eq!(all(r#"{"raws":{"i":1}}"#).raws.0.len(), 1);
        assert_eq!(all(r#"{"raws":"none"}"#).raws.0.len(), 0);
        assert_eq!(all(r#"{"list":{"name":"one"}}"#).list.0.len(), 1);
        assert_eq!(all(r#"{"raw":null}"#).raw.get(), None);
    }

    #[test]
    fn what_was_kept_raw_can_be_read_later() {
        let read = all(r#"{"raw":{"name":"n"},"raws":[3]}"#);
        assert_eq!(read.raw.read::<Inner<'_>>().unwrap().name.as_str(), "n");
        assert_eq!(read.raw.value(), Some(serde_json::json!({"name": "n"})));
        assert!(read.raws.0.first().unwrap().read::<Maybe<Inner<'_>>>().unwrap().0.is_none());
    }

    #[test]
    fn broken_utf8_costs_a_character_and_broken_json_everything() {
        let mut room = String::new();
        let (value, from) = read::<All<'_>>(b"{\"text\":\"a\xFFb\"}", &mut room).unwrap();
        assert_eq!((value.text.as_str(), from), ("a\u{fffd}b", "{\"text\":\"a\u{fffd}b\"}".as_bytes()));
        assert!(read::<All<'_>>(b"{\"text\":", &mut String::new()).is_err());
    }

    object! {
        struct Placed<'de> {
            text: Text<'de>,
        }
    }

    #[test]
    fn an_object_is_read_into_its_place_as_by_value() {
        let (mut room, mut placed) = (String::new(), Placed::default());
        let from = read_into(b"{\"text\":\"a\xFFb\"} ", &mut room, &mut placed).unwrap();
        assert_eq!((placed.text.as_str(), from), ("a\u{fffd}b", "{\"text\":\"a\u{fffd}b\"} ".as_bytes()));
        for broken in ["", "{", "{}x", "{}{}", "null", "[", "{\"text\":\"\\ud800\"}"] {
            let (mut room, mut placed) = (String::new(), Placed::default());
            assert!(read_into(broken.as_bytes(), &mut room, &mut placed).is_err(), "{broken}");
        }
    }
}
