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
/// Most schemas that are written out where they are named, and most of one definition within itself.
const MAX_INLINED: usize = 500;
const MAX_WITHIN: usize = 2;
/// Keys of definitions.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

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
    match schema {
        Value::Bool(true) => json!({}),
        Value::Object(fields) if depth < MAX_DEPTH => {
            let one = |schema: &Value| loosened(schema, depth.saturating_add(1));
            let mut loose = each(fields, &mut |schema| one(schema));
            for group in DEFINITIONS {
                let all = loose.get_mut(group).and_then(Value::as_object_mut);
                all.into_iter().flatten().for_each(|(_, schema)| *schema = one(schema));
            }
            Value::Object(loose)
        }
        other => other.clone(),
    }
}

/// Changes the schemas directly within a schema. Its definitions and the values of other keys stay.
fn each<'a>(fields: &'a Map<String, Value>, one: &mut dyn FnMut(&'a Value) -> Value) -> Map<String, Value> {
    let changed = fields.iter().map(|(key, value)| {
        let value = match (key.as_str(), value) {
            ("properties" | "patternProperties", Value::Object(all)) => {
                all.iter().map(|(name, schema)| (name.clone(), one(schema))).collect::<Map<_, _>>().into()
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems" | "items", Value::Array(all)) => {
                all.iter().map(&mut *one).collect()
            }
            ("items" | "not" | "if" | "then" | "else" | "contains" | "propertyNames", schema) => one(schema),
            ("additionalProperties", Value::Object(_)) => one(value),
            _ => value.clone(),
        };
        (key.clone(), value)
    });
    changed.collect()
}

/// A schema without references, for services that drop them: definitions are written out where they are named, within
/// themselves twice at most. Deeper, and in a schema that grows too large, only the type is left.
pub(crate) fn inlined(schema: &Value) -> Value {
    let mut inline = Inline { root: schema, open: Vec::new(), left: MAX_INLINED };
    inline.one(schema)
}

struct Inline<'a> {
    root: &'a Value,
    /// The references that are being written out.
    open: Vec<&'a str>,
    /// Number of schemas that may still be written out.
    left: usize,
}

impl<'a> Inline<'a> {
    fn one(&mut self, schema: &'a Value) -> Value {
        let Value::Object(fields) = schema else { return schema.clone() };
        let Some(name) = fields.get("$ref").and_then(Value::as_str) else {
            let mut written = each(fields, &mut |schema| self.one(schema));
            written.retain(|key, _| !DEFINITIONS.contains(&key.as_str()));
            return Value::Object(written);
        };
        let target = name.strip_prefix('#').and_then(|place| self.root.pointer(place));
        let mut out = match target {
            Some(target) if self.follows(name) => {
                self.left = self.left.saturating_sub(1);
                self.open.push(name);
                let written = self.one(target);
                self.open.pop();
                written
            }
            target => json!({"type": target.and_then(|it| it.get("type")).unwrap_or(&json!("object"))}),
        };
        if let Some(out) = out.as_object_mut() {
            let beside =
                fields.iter().filter(|(key, _)| *key != "$ref" && !DEFINITIONS.contains(&key.as_str()));
            out.extend(beside.map(|(key, value)| (key.clone(), value.clone())));
        }
        out
    }

    fn follows(&self, name: &str) -> bool {
        let within = self.open.iter().filter(|open| **open == name).count();
        within < MAX_WITHIN && self.open.len() < MAX_DEPTH && self.left > 0
    }
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
