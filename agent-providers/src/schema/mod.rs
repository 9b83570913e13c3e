//! JSON Schema in the dialects of the services.
//!
//! Tools and typed replies describe themselves in JSON Schema, draft 2020-12; each service enforces a different part
//! of it. The translations are pure, bounded in depth and size, and idempotent. The wire decides if a service is asked
//! to enforce a schema at all.

mod gemini;
mod strict;
mod words;

#[cfg(test)]
mod tests;

pub(crate) use gemini::gemini;
pub(crate) use strict::{Translated, strict};

use entourage_core::provider::OutputSchema;
use serde_json::{Map, Value, json};

/// Deepest nesting of schemas that is followed.
const MAX_DEPTH: usize = 64;

/// The instructions of a request whose service does not enforce the schema of its reply: the model is told.
pub(crate) fn told(instructions: &str, output: &OutputSchema) -> String {
    let gap = if instructions.is_empty() { "" } else { "\n\n" };
    format!("{instructions}{gap}Reply with one JSON value that follows this JSON Schema:\n{}", output.schema)
}

/// A schema that is not enforced, for services that take no `true` for a schema: it is written `{}`, which says the
/// same.
pub(crate) fn loose(schema: &Value) -> Value {
    loosened(schema, 0)
}

fn loosened(schema: &Value, depth: usize) -> Value {
    let fields = match schema {
        Value::Bool(true) => return json!({}),
        Value::Object(fields) if depth < MAX_DEPTH => fields,
        other => return other.clone(),
    };
    let one = |schema: &Value| loosened(schema, depth.saturating_add(1));
    let loose = fields.iter().map(|(key, value)| {
        let value = match (key.as_str(), value) {
            ("properties" | "patternProperties" | "$defs" | "definitions", Value::Object(all)) => {
                all.iter().map(|(name, schema)| (name.clone(), one(schema))).collect::<Map<_, _>>().into()
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems" | "items", Value::Array(all)) => {
                all.iter().map(one).collect()
            }
            ("items" | "not" | "if" | "then" | "else" | "contains" | "propertyNames", schema) => one(schema),
            ("additionalProperties", Value::Object(_)) => one(value),
            _ => value.clone(),
        };
        (key.clone(), value)
    });
    Value::Object(loose.collect())
}

/// The schema of a tool's arguments for services that do not enforce it: an object at the root, with properties,
/// possibly none. A schema that cannot describe an object is replaced by that of any object.
pub(crate) fn object(schema: &Value) -> Value {
    let (true, Value::Object(mut fields)) = (schema.is_object(), loose(schema)) else {
        return json!({"type": "object", "properties": {}, "additionalProperties": true});
    };
    fields.remove("$schema");
    let choice = ["$ref", "anyOf", "oneOf", "allOf"].iter().any(|key| fields.contains_key(*key));
    if !choice {
        fields.entry("type").or_insert_with(|| json!("object"));
    }
    if fields.get("type").is_some_and(|kind| kind == "object") {
        fields.entry("properties").or_insert_with(|| json!({}));
    }
    Value::Object(fields)
}
