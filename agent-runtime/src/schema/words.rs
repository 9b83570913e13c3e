//! Schemas and values in a few words, for a model. Every text is bounded.

use serde_json::{Map, Value};

/// Maximum of things named in one list.
pub(super) const LISTED: usize = 12;
/// Maximum length of a name or value in characters.
const LENGTH: usize = 60;
/// Maximum length of a place in characters.
const PLACE: usize = 400;

/// The form that a schema asks for: its constants, its type, or the fields of its objects. Empty if it says none.
pub(super) fn described(schema: &Map<String, Value>) -> String {
    if let Some(only) = schema.get("const") {
        return short(only);
    }
    if let Some(Value::Array(choices)) = schema.get("enum") {
        return listed(choices.iter().map(short));
    }
    match schema.get("type") {
        Some(Value::String(kind)) if kind == "object" => {
            let required = schema.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let names = required.iter().filter_map(Value::as_str).map(|name| format!("`{}`", named(name)));
            let names: Vec<_> = names.take(4).collect();
            if names.is_empty() { "object".to_owned() } else { format!("object with {}", names.join(", ")) }
        }
        Some(Value::String(kind)) => named(kind),
        Some(Value::Array(kinds)) => listed(kinds.iter().filter_map(Value::as_str).map(named)),
        _ => String::new(),
    }
}

/// The things, joined by "or": at most twelve, and whether there are more.
pub(super) fn listed(things: impl IntoIterator<Item = String>) -> String {
    let mut things = things.into_iter().filter(|thing| !thing.is_empty());
    let mut named: Vec<_> = things.by_ref().take(LISTED).collect();
    if things.next().is_some() {
        return format!("{} or one of more", named.join(", "));
    }
    match (named.pop(), named.is_empty()) {
        (Some(last), false) => format!("{} or {last}", named.join(", ")),
        (last, _) => last.unwrap_or_default(),
    }
}

/// A name, cut if it is long.
pub(super) fn named(name: &str) -> String {
    let mut cut: String = name.chars().take(LENGTH).collect();
    if cut.len() < name.len() {
        cut.push('…');
    }
    cut
}

/// A constant as JSON, cut if it is long.
pub(super) fn short(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{:?}", named(text)),
        Value::Array(_) | Value::Object(_) => shown(value),
        value => value.to_string(),
    }
}

/// A value in a few words.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(_) => format!("the string {}", short(value)),
        Value::Array(items) => format!("an array of {}", items.len()),
        Value::Object(_) => "an object".to_owned(),
        value => value.to_string(),
    }
}

/// A place, without its beginning if it is long.
pub(super) fn end(place: String) -> String {
    match place.chars().count().checked_sub(PLACE) {
        None | Some(0) => place,
        Some(more) => std::iter::once('…').chain(place.chars().skip(more)).collect(),
    }
}
