//! Objects that have a field twice. Readers of JSON take one of the two, and not all the same one.

use std::{collections::HashSet, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};

/// The first field that an object of this JSON text has twice, in words; `None` when there is none up to the end of the
/// text, or up to where it is no JSON any more.
pub fn doubled(text: &str) -> Option<String> {
    let problem = serde_json::from_str::<Once>(text).err().filter(serde_json::Error::is_data)?;
    Some(problem.to_string())
}

/// A value in which each object has each of its fields once. Nothing is kept of it.
struct Once;

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OnceVisitor)
    }
}

struct OnceVisitor;

impl<'de> Visitor<'de> for OnceVisitor {
    type Value = Once;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_str<E>(self, _: &str) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Once, A::Error> {
        while items.next_element::<Once>()?.is_some() {}
        Ok(Once)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Once, A::Error> {
        let mut known = HashSet::new();
        while let Some(key) = fields.next_key::<String>()? {
            if known.contains(&key) {
                let shown: String = key.chars().take(40).collect();
                return Err(A::Error::custom(format!("the field `{shown}` is given twice")));
            }
            known.insert(key);
            fields.next_value::<Once>()?;
        }
        Ok(Once)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_08_a_field_that_is_given_twice_is_found_at_any_depth() {
        for text in
            [r#"{"a": 1, "a": 1}"#, r#"[{"b": [{"a": 1, "\u0061": 2}]}]"#, r#"{"x": 0, "a": {}, "a": null}"#]
        {
            let found = doubled(text).unwrap();
            assert!(found.starts_with("the field `a` is given twice"), "{found}");
        }
        for text in [
            r#"{"a": {"a": {"b": [1, -1, 1.5, "a", null, true, 1e400]}}, "b": [{"a": 1}, {"a": 1}]}"#,
            r#"{"a": 1, "b"#,
            r#"{"a": 1} {"a": 1}"#,
            "no JSON",
        ] {
            assert_eq!(doubled(text), None, "{text}");
        }
    }
}
