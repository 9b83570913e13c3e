//! The check of values that plainly fit: most arguments of tools, and most typed answers, at a fraction of the work.
//! Says nothing of others.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::{admits, order, pointed};

/// Most work, in keywords and names looked at. What takes more is looked at closer.
const WORK: usize = 200_000;
/// Deepest schema within others: a reference may lead back to itself.
const DEPTH: u32 = 200;

/// Returns true for a value that follows `schema`, and false for one that does not, or that has to be looked at
/// closer, for a keyword of the schema that is not among the few here.
pub(super) fn plainly_follows(schema: &Value, value: &Value) -> bool {
    Look { root: schema, left: WORK, depth: DEPTH }.follows(schema, value)
}

struct Look<'a> {
    root: &'a Value,
    left: usize,
    depth: u32,
}

impl<'a> Look<'a> {
    fn pay(&mut self, size: usize) -> bool {
        let left = self.left.checked_sub(size);
        self.left = left.unwrap_or(0);
        left.is_some()
    }

    fn follows(&mut self, schema: &'a Value, value: &Value) -> bool {
        let (Value::Object(schema), Some(depth)) = (schema, self.depth.checked_sub(1)) else { return false };
        self.depth = depth;
        let follows = self.rules(schema, value);
        self.depth = depth.saturating_add(1);
        follows
    }

    fn rules(&mut self, schema: &'a Map<String, Value>, value: &Value) -> bool {
        self.pay(schema.len().saturating_add(1))
            && schema.iter().all(|(key, rule)| self.keyword(key, rule, value))
            && match value {
                Value::Object(fields) => self.object(schema, fields),
                Value::Array(all) => match schema.get("items") {
                    Some(schema) => all.iter().all(|item| self.follows(schema, item)),
                    None => true,
                },
                _ => true,
            }
    }

    /// True if the value follows this keyword, or a later look at its parts decides.
    fn keyword(&mut self, key: &str, rule: &'a Value, value: &Value) -> bool {
        match (key, rule) {
            ("type", Value::Array(kinds)) => self.pay(kinds.len()) && admits(rule, value),
            ("type", rule) => admits(rule, value),
            ("const", rule) => is_same(rule, value),
            ("enum", Value::Array(choices)) => {
                self.pay(choices.len()) && choices.iter().any(|choice| is_same(choice, value))
            }
            ("$ref", Value::String(target)) => {
                let target = target.strip_prefix('#').filter(|target| self.pay(target.len()));
                let target = target.and_then(|target| pointed(self.root, target));
                target.is_some_and(|target| self.follows(target, value))
            }
            ("anyOf" | "oneOf", Value::Array(choices)) => {
                choices.iter().any(|choice| self.follows(choice, value))
            }
            ("minimum", Value::Number(bound)) => {
                value.as_number().is_none_or(|number| order(number, bound).is_some_and(Ordering::is_ge))
            }
            (
                "properties"
                | "required"
                | "additionalProperties"
                | "items"
                | "title"
                | "description"
                | "default"
                | "examples"
                | "format"
                | "$schema"
                | "$defs",
                _,
            ) => true,
            _ => false,
        }
    }

    fn object(&mut self, schema: &'a Map<String, Value>, fields: &Map<String, Value>) -> bool {
        let known = schema.get("properties").and_then(Value::as_object);
        let required = schema.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let takes_others = match schema.get("additionalProperties") {
            None | Some(Value::Bool(true)) => true,
            Some(Value::Bool(false)) => false,
            Some(_) => return false,
        };
        self.pay(fields.len().saturating_add(required.len()))
            && required.iter().all(|name| name.as_str().is_some_and(|name| fields.contains_key(name)))
            && fields.iter().all(|(key, field)| match known.and_then(|known| known.get(key)) {
                Some(schema) => self.follows(schema, field),
                None => takes_others,
            })
    }
}

/// True for equal values that hold no others.
fn is_same(one: &Value, other: &Value) -> bool {
    !one.is_array() && !one.is_object() && one == other
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::schema::Checker;

    fn fits(schema: &Value, value: &Value) -> bool {
        Checker::new(schema).measure(schema, value).fits()
    }

    #[test]
    fn references_lists_and_alternatives_are_plain() {
        let schema = json!({
            "type": "object", "required": ["steps"], "additionalProperties": false, "description": "A plan.",
            "properties": {
                "answer": {"type": ["string", "null"], "default": null},
                "steps": {"type": "array", "items": {"$ref": "#/$defs/Step"}},
            },
            "$defs": {
                "Kind": {"oneOf": [{"const": "code", "description": "Code."}, {"type": "string", "enum": ["text"]}]},
                "Step": {
                    "type": "object", "required": ["kind"],
                    "properties": {
                        "kind": {"$ref": "#/$defs/Kind"},
                        "after": {"type": "array", "items": {"type": "integer", "minimum": 0}},
                        "next": {"anyOf": [{"$ref": "#/$defs/Step"}, {"type": "null"}]},
                    },
                },
            },
        });
        for value in [
            json!({"steps": []}),
            json!({"answer": null, "steps": [{"kind": "code", "after": [1, 2]}, {"kind": "text", "next": {"kind": "code"}}]}),
        ] {
            assert!(plainly_follows(&schema, &value) && fits(&schema, &value), "{value}");
        }
        for value in [
            json!({}),
            json!({"steps": [{"kind": "other"}]}),
            json!({"steps": [{"kind": "code", "after": [-1]}]}),
            json!({"steps": [{"kind": "code", "next": {}}]}),
            json!({"steps": [], "more": 1}),
        ] {
            assert!(!plainly_follows(&schema, &value) && !fits(&schema, &value), "{value}");
        }
    }

    #[test]
    fn attack_22_a_reference_to_itself_and_many_alternatives_end() {
        let mut choices = json!({"type": "integer"});
        for _ in 0..60 {
            choices = json!({"anyOf": [choices, {"$ref": "#"}, {"$ref": "#"}]});
        }
        for schema in
            [json!({"$ref": "#"}), json!({"items": {"$ref": "#"}, "anyOf": [{"$ref": "#"}]}), choices]
        {
            assert!(!plainly_follows(&schema, &json!(["a"])));
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            Just(json!(true)),
            Just(json!(1)),
            Just(json!(1.0)),
            Just(json!(-2)),
            Just(json!("a")),
            Just(json!("b")),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[ab]", inner, 0..3).prop_map(|fields| json!(fields)),
            ]
        })
    }

    fn schema() -> impl Strategy<Value = Value> {
        let kind =
            prop::sample::select(vec!["null", "boolean", "string", "integer", "number", "array", "object"]);
        let leaf = prop_oneof![
            3 => kind.prop_map(|kind| json!({"type": kind})),
            1 => value().prop_map(|it| json!({"const": it})),
            1 => prop::collection::vec(value(), 0..3).prop_map(|all| json!({"enum": all})),
            1 => Just(json!({"$ref": "#"})),
            1 => Just(json!({"$ref": "#/properties/a"})),
            1 => Just(json!({"minimum": 0})),
            1 => Just(json!({"type": ["string", "null"]})),
            1 => Just(json!({})),
        ];
        leaf.prop_recursive(3, 16, 3, |inner| {
            let some = || prop::collection::vec(inner.clone(), 1..3);
            let fields = prop::collection::btree_map("[ab]", inner.clone(), 0..3);
            let names = prop::collection::vec("[ab]", 0..2);
            prop_oneof![
                2 => inner.clone().prop_map(|item| json!({"type": "array", "items": item})),
                3 => (fields, names, any::<bool>()).prop_map(|(fields, names, others)| {
                    json!({"properties": fields, "required": names, "additionalProperties": others})
                }),
                1 => some().prop_map(|all| json!({"anyOf": all})),
                1 => some().prop_map(|all| json!({"oneOf": all, "description": "One of them."})),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_value_that_plainly_fits_fits(schema in schema(), value in value()) {
            prop_assert!(!plainly_follows(&schema, &value) || fits(&schema, &value), "{schema} {value}");
        }
    }
}
