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

use serde_json::{Value, json};

/// The schema of a tool's arguments for services that do not enforce it: an object at the root, with properties,
/// possibly none. A schema that cannot describe an object is replaced by that of any object.
pub(crate) fn object(schema: &Value) -> Value {
    let Value::Object(fields) = schema else {
        return json!({"type": "object", "properties": {}, "additionalProperties": true});
    };
    let mut fields = fields.clone();
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
