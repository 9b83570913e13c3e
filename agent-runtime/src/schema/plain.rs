//! The check of values that plainly fit: most arguments of tools, at a fraction of the work. Says nothing of others.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::{admits, order};

/// Returns true for a value that follows `schema`, and false for one that does not, or that has to be looked at
/// closer, for a keyword of the schema that is not among the few here. Looks at each part of the schema at most once.
pub(super) fn plainly_follows(schema: &Value, value: &Value) -> bool {
    let Value::Object(schema) = schema else { return false };
    let (mut properties, mut required, mut takes_others) = (None, None, true);
    for (key, rule) in schema {
        let is_known = match (key.as_str(), rule) {
            ("type", rule) => admits(rule, value),
            ("properties", Value::Object(known)) => {
                properties = Some(known);
                true
            }
            ("required", Value::Array(names)) => {
                required = Some(names);
                true
            }
            ("additionalProperties", Value::Bool(others)) => {
                takes_others = *others;
                true
            }
            ("minimum", Value::Number(bound)) => {
                value.as_number().is_none_or(|number| order(number, bound).is_some_and(Ordering::is_ge))
            }
            ("title" | "description" | "default" | "examples" | "format" | "$schema" | "$defs", _) => true,
            _ => false,
        };
        if !is_known {
            return false;
        }
    }
    let Value::Object(fields) = value else { return true };
    fields.iter().all(|(key, field)| match properties.and_then(|known| known.get(key)) {
        Some(schema) => plainly_follows(schema, field),
        None => takes_others,
    }) && required.is_none_or(|names| names.iter().all(|name| has(fields, name)))
}

fn has(fields: &Map<String, Value>, name: &Value) -> bool {
    name.as_str().is_some_and(|name| fields.contains_key(name))
}
