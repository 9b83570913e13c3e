//! The part of JSON Schema that every model service takes for the arguments of a tool. Pure.

use serde_json::{Map, Value};

/// Deepest nesting of objects and lists that services take.
const DEPTH: usize = 10;
/// Longest name, of a tool and of a property.
const NAME: usize = 64;
/// Most flaws that are named.
const MOST: usize = 10;

/// Keys that at least one service refuses or ignores.
const FOREIGN: &[&str] = &[
    "$dynamicRef",
    "contains",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "not",
    "patternProperties",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
];
const TYPES: &[&str] = &["object", "array", "string", "integer", "number", "boolean", "null"];

/// The flaws of a schema of arguments, with their places.
pub(super) fn flaws(schema: &Value) -> Vec<String> {
    let mut walk = Walk { root: schema, open: Vec::new(), found: Vec::new() };
    if schema.get("type").is_none_or(|kind| kind != "object") {
        walk.flaw("#", "is not `\"type\": \"object\"`, as services want it at the root");
    }
    for key in ["anyOf", "oneOf", "allOf", "enum", "const", "$ref"] {
        if schema.get(key).is_some() {
            walk.flaw(
                "#",
                &format!("has `{key}` at the root, which some services refuse; put it into a property"),
            );
        }
    }
    walk.schema(schema, "#", 0);
    walk.found.truncate(MOST);
    walk.found
}

/// True for a name that every service takes, of a tool or of a property.
pub(super) fn is_name(name: &str) -> bool {
    (1..=NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

struct Walk<'a> {
    root: &'a Value,
    /// The references that are being followed.
    open: Vec<&'a str>,
    found: Vec<String>,
}

impl<'a> Walk<'a> {
    fn flaw(&mut self, place: &str, text: &str) {
        self.found.push(format!("`{place}` {text}"));
    }

    fn schema(&mut self, schema: &'a Value, place: &str, depth: usize) {
        let fields = match schema {
            Value::Object(fields) => fields,
            Value::Bool(true) => return,
            _ => return self.flaw(place, "is no schema"),
        };
        if depth > DEPTH {
            return self.flaw(place, "nests deeper than services take; flatten it");
        }
        for key in FOREIGN.iter().filter(|key| fields.contains_key(**key)) {
            self.flaw(
                place,
                &format!("has `{key}`, which not every service takes; say it in the description"),
            );
        }
        if let Some(name) = fields.get("$ref") {
            return self.reference(name, place, depth);
        }
        let kinds: Vec<&str> = match fields.get("type") {
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
            kind => kind.and_then(Value::as_str).into_iter().collect(),
        };
        if let Some(odd) = kinds.iter().find(|kind| !TYPES.contains(kind)) {
            self.flaw(place, &format!("has the type `{odd}`, which JSON Schema does not know"));
        }
        if kinds.contains(&"array") && !fields.get("items").is_some_and(Value::is_object) {
            self.flaw(place, "is a list without `items`; say what is in it");
        }
        if fields.get("enum").is_some_and(|values| values.as_array().is_none_or(Vec::is_empty)) {
            self.flaw(place, "has an `enum` without a value");
        }
        self.properties(fields, place, depth);
        for key in ["anyOf", "oneOf", "allOf"] {
            for (index, choice) in fields.get(key).and_then(Value::as_array).into_iter().flatten().enumerate()
            {
                self.schema(choice, &format!("{place}/{key}/{index}"), depth);
            }
        }
        if let Some(items) = fields.get("items") {
            self.schema(items, &format!("{place}/items"), depth + 1);
        }
        if let Some(more) = fields.get("additionalProperties").filter(|more| more.is_object()) {
            self.schema(more, &format!("{place}/additionalProperties"), depth + 1);
        }
    }

    fn properties(&mut self, fields: &'a Map<String, Value>, place: &str, depth: usize) {
        let properties = fields.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            let place = format!("{place}/properties/{name}");
            if !is_name(name) {
                self.flaw(
                    &place,
                    "is named with other characters than a-z, A-Z, 0-9, _ and -, or with more than 64",
                );
            }
            self.schema(property, &place, depth + 1);
        }
        for name in fields.get("required").and_then(Value::as_array).into_iter().flatten() {
            if name.as_str().is_none_or(|name| properties.is_none_or(|all| !all.contains_key(name))) {
                self.flaw(place, &format!("requires {name}, which is not among its properties"));
            }
        }
    }

    fn reference(&mut self, name: &'a Value, place: &str, depth: usize) {
        let name = name.as_str().unwrap_or_default();
        let target = name.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        let Some(target) = target else {
            return self.flaw(place, &format!("refers to `{name}`, which is not in the schema"));
        };
        if !self.open.contains(&name) {
            self.open.push(name);
            self.schema(target, place, depth);
            self.open.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_service_refuses_is_found_with_its_place() {
        let object = |property: Value| json!({"type": "object", "properties": {"a": property}});
        for (schema, flaw) in [
            (json!({}), "`#` is not"),
            (json!(true), "`#` is not"),
            (json!({"type": "object", "oneOf": []}), "`#` has `oneOf`"),
            (json!({"type": "object", "required": ["b"]}), "requires \"b\""),
            (json!({"type": "object", "properties": {"a b": {}}}), "is named with"),
            (object(json!(false)), "`#/properties/a` is no schema"),
            (object(json!({"type": "text"})), "has the type `text`"),
            (object(json!({"type": ["array", "null"]})), "without `items`"),
            (object(json!({"enum": []})), "without a value"),
            (object(json!({"not": {}})), "has `not`"),
            (object(json!({"$ref": "#/$defs/B"})), "refers to `#/$defs/B`"),
            (object(json!({"$ref": "https://a.example/b"})), "refers to"),
            (
                object((0..20).fold(json!({}), |inner, _| json!({"type": "array", "items": inner}))),
                "nests deeper",
            ),
        ] {
            let found = flaws(&schema);
            assert!(found.iter().any(|it| it.contains(flaw)), "{schema}: {found:?}");
        }
    }

    #[test]
    fn what_every_service_takes_has_no_flaw() {
        let node = json!({"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}});
        for schema in [
            json!({"type": "object"}),
            json!({
                "type": "object",
                "properties": {
                    "any": true,
                    "count": {"type": ["integer", "null"], "minimum": 0},
                    "list": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
                    "kind": {"anyOf": [{"const": "a"}, {"type": "null"}]},
                },
                "required": ["list"],
                "$defs": {"Node": node},
            }),
        ] {
            assert_eq!(flaws(&schema), Vec::<String>::new());
        }
    }
}
