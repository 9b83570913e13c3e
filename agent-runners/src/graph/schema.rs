//! The digest of a type's JSON schema that stored runs keep. It ignores names of types and descriptions.

use serde_json::{Map, Value};

use entourage_core::Digest;

/// Digests a schema. The digest stays the same when a type is renamed or redescribed, and changes with the data that it
/// reads.
pub(super) fn digest(schema: &Value) -> Digest {
    let mut plain = Plain { schema, order: Vec::new() };
    let mut pieces = vec![plain.of(schema, true).to_string()];
    let mut next = 0;
    // Definitions follow in the order of their first use, each once.
    while let Some(name) = plain.order.get(next).cloned() {
        let definition = schema.get("$defs").and_then(|defs| defs.get(&name)).unwrap_or(&Value::Null);
        pieces.push(plain.of(definition, true).to_string());
        next += 1;
    }
    Digest::of(pieces.iter().map(String::as_bytes))
}

struct Plain<'a> {
    schema: &'a Value,
    /// Definitions used so far: each is identified by its index here instead of its name.
    order: Vec<String>,
}

impl Plain<'_> {
    /// Returns `value` without names and descriptions. `schema` decides what its keys mean: the keys of `properties`
    /// are data.
    fn of(&mut self, value: &Value, schema: bool) -> Value {
        match value {
            Value::Object(fields) => Value::Object(self.fields(fields, schema)),
            Value::Array(items) => items.iter().map(|item| self.of(item, schema)).collect(),
            other => other.clone(),
        }
    }

    fn fields(&mut self, fields: &Map<String, Value>, schema: bool) -> Map<String, Value> {
        let mut sorted: Vec<_> = fields.iter().collect();
        sorted.sort_by_key(|(key, _)| *key);
        let mut plain = Map::new();
        for (key, field) in sorted {
            let field = match key.as_str() {
                _ if !schema => self.of(field, true),
                "title" | "description" | "examples" | "$schema" | "$defs" | "$comment" => continue,
                "$ref" => self.reference(field),
                "properties" | "patternProperties" | "dependentSchemas" => self.of(field, false),
                "const" | "enum" | "default" => field.clone(),
                "required" => in_order(field),
                _ => self.of(field, true),
            };
            plain.insert(key.clone(), field);
        }
        plain
    }

    fn reference(&mut self, to: &Value) -> Value {
        let name = to.as_str().and_then(|to| to.strip_prefix("#/$defs/"));
        let Some(name) = name.map(|name| name.replace("~1", "/").replace("~0", "~")) else {
            return to.clone();
        };
        if self.schema.get("$defs").and_then(|defs| defs.get(&name)).is_none() {
            return to.clone();
        }
        let place = self.order.iter().position(|met| *met == name).unwrap_or_else(|| {
            self.order.push(name);
            self.order.len() - 1
        });
        place.into()
    }
}

fn in_order(names: &Value) -> Value {
    let mut names: Vec<_> = names.as_array().into_iter().flatten().map(Value::to_string).collect();
    names.sort();
    names.into()
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;

    use super::*;
    use entourage_core::tool::schema_of;

    fn of<T: JsonSchema>() -> Digest {
        digest(&schema_of::<T>())
    }

    mod old {
        /// As it was.
        #[derive(schemars::JsonSchema)]
        #[allow(dead_code, reason = "only its schema counts")]
        pub(super) struct Report {
            /// The title.
            title: String,
            parts: Vec<Part>,
            next: Option<Box<Report>>,
        }

        #[derive(schemars::JsonSchema)]
        #[allow(dead_code, reason = "only its schema counts")]
        pub(super) struct Part {
            description: u32,
        }
    }

    mod new {
        #[derive(schemars::JsonSchema)]
        #[allow(dead_code, reason = "only its schema counts")]
        pub(super) struct Account {
            parts: Vec<Piece>,
            next: Option<Box<Account>>,
            /// In other words.
            title: String,
        }

        #[derive(schemars::JsonSchema)]
        #[allow(dead_code, reason = "only its schema counts")]
        pub(super) struct Piece {
            description: u32,
        }

        #[derive(schemars::JsonSchema)]
        #[allow(dead_code, reason = "only its schema counts")]
        pub(super) struct Other {
            parts: Vec<Piece>,
            next: Option<Box<Other>>,
            name: String,
        }
    }

    #[test]
    fn names_of_types_and_words_do_not_count() {
        assert_eq!(of::<old::Report>(), of::<new::Account>());
        assert_eq!(of::<Vec<old::Part>>(), of::<Vec<new::Piece>>());
    }

    #[test]
    fn names_and_types_of_fields_count() {
        assert_ne!(of::<new::Account>(), of::<new::Other>());
        assert_ne!(of::<u32>(), of::<i32>());
        assert_ne!(of::<Vec<u32>>(), of::<u32>());
        assert_ne!(of::<Option<String>>(), of::<String>());
    }
}
