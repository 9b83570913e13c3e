//! The last steps of a translation, when a schema will not be joined any more.
//!
//! Descriptions take up constraints that the service does not know, and names without a property are no longer
//! required. It must not look at the schema that was translated.

use serde_json::Value;

use super::{Fields, NOTES, name_of};

/// Finishes a schema and all within it; collects each named definition once.
pub(super) fn finish(schema: &mut Fields, named: &mut Vec<String>) {
    if let Some(name) = name_of(schema) {
        if !named.contains(&name) {
            named.push(name);
        }
        return;
    }
    describe(schema);
    require(schema);
    for (key, value) in schema {
        let within: Vec<&mut Value> = match (key.as_str(), value) {
            ("properties", Value::Object(all)) => all.values_mut().collect(),
            ("anyOf" | "prefixItems", Value::Array(all)) => all.iter_mut().collect(),
            ("items" | "additionalProperties", one) => vec![one],
            _ => continue,
        };
        within.into_iter().filter_map(Value::as_object_mut).for_each(|schema| finish(schema, named));
    }
}

fn describe(schema: &mut Fields) {
    let notes = schema.remove(NOTES);
    let notes = notes.as_ref().and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let notes = notes.collect::<Vec<_>>().join("; ");
    let own = schema.remove("description");
    let own = own.as_ref().and_then(Value::as_str).unwrap_or_default();
    let notes = if notes.is_empty() { notes } else { format!("({notes})") };
    let gap = if own.is_empty() || notes.is_empty() { "" } else { " " };
    let text = format!("{own}{gap}{notes}");
    if !text.is_empty() {
        schema.insert("description".to_owned(), Value::String(text));
    }
}

/// Removes required names that are not among the properties: the service would refuse them.
fn require(schema: &mut Fields) {
    let Some(Value::Array(mut names)) = schema.remove("required") else { return };
    let known = schema.get("properties").and_then(Value::as_object);
    names.retain(|name| name.as_str().is_some_and(|name| known.is_none_or(|known| known.contains_key(name))));
    if !names.is_empty() {
        schema.insert("required".to_owned(), Value::Array(names));
    }
}
