//! Cyclic references. The service unrolls them, and takes them only within properties that are not required.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Fields, name_of};

/// Makes each property within which a definition comes back to itself one that is not required. Returns the names of
/// the properties that were. A program that needs such a property says so when it reads the value.
pub(super) fn relax(definitions: &mut Fields) -> Vec<String> {
    let places: BTreeMap<String, usize> =
        definitions.keys().enumerate().map(|(place, name)| (name.clone(), place)).collect();
    let leads: Vec<Vec<usize>> = definitions
        .values()
        .map(|schema| {
            let mut names = Vec::new();
            names_in(schema, &mut names);
            names.iter().filter_map(|name| places.get(name).copied()).collect()
        })
        .collect();
    let mut relaxed = Vec::new();
    for (place, schema) in definitions.values_mut().enumerate() {
        let sources = leading_to(place, &leads);
        let comes_back =
            |name: &str| places.get(name).is_some_and(|to| sources.get(*to).copied().unwrap_or(false));
        within(schema, &comes_back, &mut relaxed);
    }
    relaxed
}

/// Tells for each definition if it leads to the one at `place`, that one included.
fn leading_to(place: usize, leads: &[Vec<usize>]) -> Vec<bool> {
    let mut found = vec![false; leads.len()];
    let mut from: Vec<Vec<usize>> = vec![Vec::new(); leads.len()];
    for (source, targets) in leads.iter().enumerate() {
        for target in targets {
            if let Some(sources) = from.get_mut(*target) {
                sources.push(source);
            }
        }
    }
    let mut next = vec![place];
    while let Some(target) = next.pop() {
        match found.get_mut(target) {
            Some(seen) if !*seen => *seen = true,
            _ => continue,
        }
        next.extend(from.get(target).into_iter().flatten());
    }
    found
}

/// Returns true if a cycle runs through the schema, and through no property of it that is not required now.
fn within(schema: &mut Value, comes_back: &dyn Fn(&str) -> bool, relaxed: &mut Vec<String>) -> bool {
    let Some(fields) = schema.as_object_mut() else { return false };
    if let Some(name) = name_of(fields) {
        return comes_back(&name);
    }
    let (mut cyclic, mut free) = (false, Vec::new());
    for (key, value) in fields.iter_mut() {
        match (key.as_str(), value) {
            ("properties", Value::Object(all)) => {
                let cyclic = all
                    .iter_mut()
                    .filter_map(|(name, schema)| within(schema, comes_back, relaxed).then(|| name.clone()));
                free.extend(cyclic);
            }
            ("anyOf" | "prefixItems", Value::Array(all)) => {
                all.iter_mut().for_each(|one| cyclic |= within(one, comes_back, relaxed));
            }
            ("items" | "additionalProperties", one) => cyclic |= within(one, comes_back, relaxed),
            _ => {}
        }
    }
    let mut required = fields.remove("required");
    if let Some(Value::Array(names)) = &mut required {
        names.retain(|name| match name.as_str().filter(|name| free.iter().any(|free| free == name)) {
            Some(name) => {
                relaxed.push(name.to_owned());
                false
            }
            None => true,
        });
    }
    if let Some(required) = required.filter(|names| names.as_array().is_none_or(|names| !names.is_empty())) {
        fields.insert("required".to_owned(), required);
    }
    cyclic
}

/// Collects the definitions that a schema names.
fn names_in(schema: &Value, names: &mut Vec<String>) {
    let Some(fields) = schema.as_object() else { return };
    names.extend(name_of(fields));
    for (key, value) in fields {
        match (key.as_str(), value) {
            ("properties", Value::Object(all)) => all.values().for_each(|one| names_in(one, names)),
            ("anyOf" | "prefixItems", Value::Array(all)) => all.iter().for_each(|one| names_in(one, names)),
            ("items" | "additionalProperties", one) => names_in(one, names),
            _ => {}
        }
    }
}
