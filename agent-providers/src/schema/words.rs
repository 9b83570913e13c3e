//! The keys of JSON Schema: constraints for descriptions, keys with a place of their own, and null.

use serde_json::{Map, Value, json};

/// Longest quotation of a constraint in a description, in characters.
const MAX_QUOTE: usize = 200;

/// Constraints that a description can express.
const TOLD: &[&str] = &[
    "minLength",
    "maxLength",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
    "uniqueItems",
    "contentEncoding",
    "contentMediaType",
];

/// Formats that mean something to a model; the others tell a program the size of a number.
const FORMATS: &[&str] = &[
    "date-time",
    "date",
    "time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
    "uri-reference",
    "regex",
];

/// Keys with a place of their own in the translation, or that say nothing about values.
const KNOWN: &[&str] = &[
    "$anchor",
    "$comment",
    "$defs",
    "$id",
    "$ref",
    "$schema",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "default",
    "definitions",
    "deprecated",
    "description",
    "enum",
    "examples",
    "format",
    "items",
    "nullable",
    "oneOf",
    "properties",
    "readOnly",
    "required",
    "title",
    "type",
    "unevaluatedProperties",
    "writeOnly",
];

/// A constraint, default or format as text for a description.
pub(super) fn told(key: &str, value: &Value) -> Option<String> {
    let tells = match key {
        "default" => !value.is_null(),
        "format" => FORMATS.iter().any(|format| value == format),
        _ => TOLD.contains(&key),
    };
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    tells.then(|| format!("{key}: {}", text.chars().take(MAX_QUOTE).collect::<String>()))
}

/// True if a service that reads the translation does not enforce the constraint `key`.
pub(super) fn is_lost(key: &str) -> bool {
    key == "format" || !KNOWN.contains(&key)
}

/// The name of a value's type.
pub(super) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Allows null in a translated schema.
pub(super) fn make_nullable(schema: &mut Map<String, Value>) {
    if let Some(name) = schema.remove("$ref") {
        schema.insert("anyOf".to_owned(), json!([{"$ref": name}, {"type": "null"}]));
    } else if let Some(Value::Array(choices)) = schema.get_mut("anyOf") {
        let is_null = |choice: &Value| match choice.get("type") {
            Some(Value::Array(all)) => all.iter().any(|one| one == "null"),
            one => one.is_some_and(|one| one == "null"),
        };
        if !choices.iter().any(is_null) {
            choices.push(json!({"type": "null"}));
        }
    } else {
        match schema.get_mut("type") {
            Some(Value::Array(all)) if !all.iter().any(|one| one == "null") => all.push(json!("null")),
            Some(one) if one.is_string() && *one != "null" => *one = json!([one.take(), "null"]),
            _ => {}
        }
        if let Some(Value::Array(values)) = schema.get_mut("enum")
            && !values.contains(&Value::Null)
        {
            values.push(Value::Null);
        }
    }
}
