//! Objects with known fields, read into an existing place.
//!
//! A chunk of a stream is a large struct of mostly empty fields; passed by value through every layer of a parser it is
//! copied many times, which costs as much as the parsing. So a wire whose replies are many small chunks declares its
//! structs with [`object!`]. Of a repeated key the last value counts.

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};

use super::{Maybe, Text, otherwise, skip_seq};

/// An object with known fields, all of which may be absent.
pub(crate) trait Object<'de>: Default {
    /// Reads the value of `key`, which is the next in `map`, known or not.
    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error>;

    /// Reads all fields.
    fn fields<A: MapAccess<'de>>(&mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<Text<'de>>()? {
            self.field(key.as_str(), &mut map)?;
        }
        Ok(())
    }
}

impl<'de, T: Object<'de>> Object<'de> for Box<T> {
    fn field<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        T::field(self, key, map)
    }
}

/// A value that can be read in place, from JSON of any type.
pub(crate) trait Fill<'de> {
    /// Resets the value and reads a new one.
    fn fill<D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error>;
}

impl<'de, T: Object<'de>> Fill<'de> for Maybe<T> {
    fn fill<D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        struct Read<'p, T>(&'p mut Option<T>);
        impl<'de, T: Object<'de>> Visitor<'de> for Read<'_, T> {
            type Value = ();
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
                self.0.insert(T::default()).fields(map)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
                skip_seq(seq)
            }
            otherwise! { visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_f64(f64) visit_str(&str) }
        }
        self.0 = None;
        deserializer.deserialize_any(Read(&mut self.0))
    }
}

/// A seed that fills the value it points at.
pub(crate) struct InPlace<'p, T>(pub(crate) &'p mut T);

impl<'de, T: Fill<'de>> DeserializeSeed<'de> for InPlace<'_, T> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.0.fill(deserializer)
    }
}

/// A required object. An array counts as an object without fields, since some services wrap their errors in one, and
/// their reader looks at the bytes.
pub(crate) struct Whole<'p, T>(pub(crate) &'p mut T);

impl<'de, T: Object<'de>> DeserializeSeed<'de> for Whole<'_, T> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Object<'de>> Visitor<'de> for Whole<'_, T> {
    type Value = ();
    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        self.0.fields(map)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        skip_seq(seq)
    }
}

/// Declares a struct whose fields have the names of their keys and the types of this module. Mark a field that is a
/// large object, or holds one, with `#[in_place]`: its type must be [`Fill`].
#[allow(unused_macros, reason = "it serves all wires, and some do without")]
macro_rules! object {
    (
        $(#[$meta:meta])*
        struct $name:ident $(<$life:lifetime>)? { $($(#[$place:ident])? $field:ident: $type:ty,)* }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        pub(crate) struct $name $(<$life>)? { $(pub(crate) $field: $type,)* }

        impl<'de> $crate::json::Object<'de> for $name $(<$life>)? {
            fn field<A: ::serde::de::MapAccess<'de>>(
                &mut self,
                key: &str,
                map: &mut A,
            ) -> ::std::result::Result<(), A::Error> {
                match key {
                    $(stringify!($field) => $crate::json::object!(@ $($place)? self.$field, map),)*
                    _ => _ = map.next_value::<::serde::de::IgnoredAny>()?,
                }
                Ok(())
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name $(<$life>)? {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> ::std::result::Result<Self, D::Error> {
                let mut object = Self::default();
                ::serde::de::DeserializeSeed::deserialize($crate::json::Whole(&mut object), from)?;
                Ok(object)
            }
        }
    };
    (@ in_place $place:expr, $map:ident) => { $map.next_value_seed($crate::json::InPlace(&mut $place))? };
    (@ $place:expr, $map:ident) => { $place = $map.next_value()? };
}
pub(crate) use object;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{Count, List};

    object! {
        struct Outer<'de> {
            text: Text<'de>,
            #[in_place]
            inner: Maybe<Inner<'de>>,
            #[in_place]
            boxed: Maybe<Box<Inner<'de>>>,
            list: List<Inner<'de>>,
        }
    }
    object! {
        struct Inner<'de> {
            name: Text<'de>,
            count: Count,
        }
    }

    fn read(json: &str) -> serde_json::Result<Outer<'_>> {
        serde_json::from_str(json)
    }

    fn said<'a>(inner: Option<&'a Inner<'_>>) -> Option<(&'a str, Option<u64>)> {
        inner.map(|inner| (inner.name.as_str(), inner.count.0))
    }

    #[test]
    fn fields_are_read_wherever_they_are_and_others_passed_over() {
        let outer = read(
            r#"{"new":[{"text":"x"}],"inner":{"count":1,"new":{"name":"x"},"name":"a"},"te\u0078t":"t",
                "boxed":{"name":"b"},"list":[{"name":"c"},null,{"count":2}]}"#,
        )
        .unwrap();
        assert_eq!(outer.text.as_str(), "t");
        assert_eq!(said(outer.inner.0.as_ref()), Some(("a", Some(1))));
        assert_eq!(said(outer.boxed.0.as_deref()), Some(("b", None)));
        let list: Vec<_> = outer.list.0.iter().filter_map(|inner| said(Some(inner))).collect();
        assert_eq!(list, [("c", None), ("", Some(2))]);
    }

    #[test]
    fn a_value_of_any_type_is_an_object_or_none() {
        for value in ["null", "true", "1", "-1", "1.5", "\"t\"", "[]", "[1,{\"name\":2}]"] {
            let json = format!(r#"{{"inner":{value},"boxed":{value},"text":"after"}}"#);
            let outer = read(&json).unwrap();
            assert!(outer.inner.0.is_none() && outer.boxed.0.is_none(), "{json}");
            assert_eq!(outer.text.as_str(), "after", "{json}");
        }
        assert_eq!(said(read(r#"{"inner":{}}"#).unwrap().inner.0.as_ref()), Some(("", None)));
        assert!(read(r#"{"inner":{"name":"a"}"#).is_err() && read(r#"{"inner":{"name":}}"#).is_err());
    }

    #[test]
    fn the_whole_must_be_an_object_or_an_array() {
        for value in ["null", "true", "1", "-1", "1.5", "\"t\""] {
            assert!(read(value).unwrap_err().to_string().contains("expected an object"), "{value}");
        }
        assert_eq!(read(r#"["a",{"text":"t"}]"#).unwrap().text.as_str(), "");
        assert!(read("[1").is_err());
    }

    #[test]
    fn a_key_that_comes_twice_counts_as_it_came_last() {
        let outer = read(
            r#"{"text":"a","inner":{"name":"a"},"boxed":{"name":"a"},
                "text":"b","inner":{"count":1,"count":2},"boxed":null}"#,
        )
        .unwrap();
        assert_eq!(outer.text.as_str(), "b");
        assert_eq!((said(outer.inner.0.as_ref()), outer.boxed.0.is_none()), (Some(("", Some(2))), true));
    }
}
