//! The text by which a model is shown the tools that it looked for. Bounded, whatever the tools declare.

use std::collections::BTreeMap;

use entourage_core::{bound, tool::ToolSpec};
use serde_json::{Map, Value, json};

/// Bytes of the results of one search, of a description and of a schema, at most.
pub(super) const RESULTS: usize = 32 << 10;
const DESCRIPTION: usize = 1 << 10;
const SCHEMA: usize = 8 << 10;

/// Groups of names in an overview, and bytes of a group's name, at most.
const GROUPS: usize = 30;
const GROUP: usize = 64;

/// Returns the results as JSON: the first is whole, others as long as there is room, and the rest by their names.
pub(super) fn results(found: &[&ToolSpec]) -> String {
    let (mut tools, mut more, mut left) = (Vec::new(), Vec::new(), RESULTS);
    for spec in found {
        let tool = json!({
            "name": spec.name(),
            "description": bound::shortened(spec.description(), DESCRIPTION),
            "arguments": schema(spec.schema()),
        });
        match left.checked_sub(bound::value(&tool)).filter(|_| more.is_empty()) {
            Some(rest) => {
                left = rest;
                tools.push(tool);
            }
            None => more.push(spec.name()),
        }
    }
    let mut shown = json!({ "tools": tools });
    if let Some(shown) = shown.as_object_mut().filter(|_| !more.is_empty()) {
        shown.insert("more".to_owned(), json!(more));
    }
    shown.to_string()
}

/// Returns a schema, or of a large one the names and types of its properties, as many as there is room for.
fn schema(schema: &Value) -> Value {
    if bound::value(schema) <= SCHEMA {
        return schema.clone();
    }
    let mut left = SCHEMA / 2;
    let mut kept = Map::new();
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let kind = property.get("type").filter(|kind| kind.is_string());
        let property = kind.map_or_else(|| json!({}), |kind| json!({ "type": kind }));
        let Some(rest) = left.checked_sub(name.len() + bound::value(&property) + 8) else { break };
        left = rest;
        kept.insert(name.clone(), property);
    }
    let mut required: Vec<&Value> = Vec::new();
    for name in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
        if name.as_str().is_some_and(|name| kept.contains_key(name)) {
            required.push(name);
        }
    }
    json!({
        "type": "object",
        "description": "Too large to be shown whole. A call that does not fit is told what is wrong.",
        "properties": kept,
        "required": required,
    })
}

/// Returns a sentence on the tools that there are: how many, by the first part of their names, which several share.
pub(super) fn overview(specs: &[&ToolSpec]) -> String {
    let mut groups: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for spec in specs {
        let name = spec.name();
        let end = name.find(['_', '-']).filter(|end| *end > 0);
        let group = end.and_then(|end| name.get(..=end)).unwrap_or(name);
        groups.entry(group).or_insert((0, name)).0 += 1;
    }
    let named = groups.iter().take(GROUPS).map(|(group, (count, first))| match count {
        1 => bound::shortened(first, GROUP).into_owned(),
        _ => format!("{}… ({count})", bound::shortened(group, GROUP)),
    });
    let mut named = named.collect::<Vec<_>>().join(", ");
    if groups.len() > GROUPS {
        named.push_str(", …");
    }
    match specs.len() {
        0 => "There is no tool to be found here.".to_owned(),
        1 => format!("There is one tool: {named}."),
        count => format!("There are {count} tools: {named}."),
    }
}
