use proptest::prelude::*;
use serde_json::{Value, json};

use super::gemini;

fn same(schema: &Value) {
    let out = gemini(schema);
    assert_eq!((&out.schema, out.lost.len()), (schema, 0), "{:?}", out.lost);
}

#[test]
fn what_the_service_knows_is_passed_on() {
    same(&json!({
        "type": "object", "title": "T", "description": "D",
        "properties": {
            "a": {"type": ["string", "null"], "enum": ["x", "y"]},
            "b": {"type": "array", "items": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 9}, "minItems": 1, "maxItems": 3},
            "c": {"anyOf": [{"type": "number"}, {"type": "string", "format": "date-time"}]},
            "d": {"type": "array", "prefixItems": [{"type": "string"}]},
            "e": {"type": "object", "additionalProperties": {"type": "boolean"}}
        },
        "required": ["a"], "additionalProperties": false, "propertyOrdering": ["a", "b"]
    }));
}

#[test]
fn what_it_does_not_know_is_told_to_the_model() {
    let out = gemini(&json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "properties": {
            "a": {"type": "string", "description": "A.", "maxLength": 3, "pattern": "^a"},
            "b": {"type": "string", "format": "uuid", "default": "x"},
            "c": {"type": "integer", "format": "uint8", "exclusiveMinimum": 0},
            "d": {"const": "on"},
            "e": {"enum": [1, null]},
            "f": {"const": true},
            "g": {"oneOf": [{"type": "string"}, {"type": "null"}]},
            "h": {"type": "string", "nullable": true},
            "i": {"type": "array", "items": [{"type": "string"}]},
            "j": true,
            "k": {"if": {"type": "string"}, "patternProperties": {"x": {}}}
        },
        "required": ["a", "gone"]
    }));
    assert_eq!(
        out.schema,
        json!({
            "type": "object",
            "properties": {
                "a": {"type": "string", "description": "A. (maxLength: 3; pattern: \"^a\")"},
                "b": {"type": "string", "description": "(format: uuid; default: \"x\")"},
                "c": {"type": "integer", "description": "(exclusiveMinimum: 0)"},
                "d": {"type": "string", "enum": ["on"]},
                "e": {"type": ["number", "null"], "enum": [1]},
                "f": {"type": "boolean", "description": "(one of [true])"},
                "g": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "h": {"type": ["string", "null"]},
                "i": {"type": "array", "prefixItems": [{"type": "string"}]},
                "j": {},
                "k": {}
            },
            "required": ["a"]
        })
    );
    let mut lost = out.lost.clone();
    lost.sort();
    assert_eq!(
        lost,
        [
            "enum of f",
            "exclusiveMinimum of c",
            "format of b",
            "if of k",
            "maxLength of a",
            "pattern of a",
            "patternProperties of k"
        ]
    );
    same(&out.schema);
}

#[test]
fn references_stand_alone_or_are_written_out() {
    let out = gemini(&json!({
        "$ref": "#/definitions/Node",
        "definitions": {
            "Node": {"type": "object", "properties": {
                "next": {"$ref": "#/definitions/Node"},
                "other": {"$ref": "#/definitions/Node", "description": "Another."},
                "leaf": {"$ref": "#/definitions/Leaf", "description": "A leaf."},
                "plain": {"$ref": "#/definitions/Leaf"}
            }},
            "Leaf": {"type": "string", "description": "Of all."},
            "Unused": {"type": "null"}
        }
    }));
    let fields = json!({
        "next": {"$ref": "#/$defs/Node"}, "other": {"$ref": "#/$defs/Node"},
        "leaf": {"type": "string", "description": "A leaf."}, "plain": {"$ref": "#/$defs/Leaf"}
    });
    assert_eq!(
        out.schema,
        json!({
            "type": "object", "properties": fields,
            "$defs": {"Node": {"type": "object", "properties": fields}, "Leaf": {"type": "string", "description": "Of all."}}
        })
    );
    same(&out.schema);
    for (bad, lost) in [
        (json!({"properties": {"a": {"$ref": "#/$defs/Gone"}}}), "$ref of a"),
        (json!({"properties": {"a": {"$ref": "https://h/s"}}}), "$ref of a"),
        (json!({"properties": {"a": {"$ref": "#"}}}), "a reference to a schema that is no definition of a"),
    ] {
        assert_eq!(gemini(&bad).lost, [lost]);
    }
    let circle =
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}});
    gemini(&circle);
}

#[test]
fn parts_of_all_are_joined() {
    let out = gemini(&json!({
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"properties": {"b": {"type": "string"}}, "required": ["b", "a"]}
        ],
        "description": "Both."
    }));
    assert_eq!(
        out.schema,
        json!({"type": "object", "description": "Both.", "required": ["a", "b"],
               "properties": {"a": {"type": "string"}, "b": {"type": "string"}}})
    );
    assert_eq!(gemini(&json!({"allOf": [{"type": "string"}, {"type": "number"}]})).lost, ["allOf"]);
}

#[test]
fn attack_46_schemas_are_bounded() {
    let mut deep = json!({"type": "string"});
    for _ in 0..100 {
        deep = json!({"type": "array", "items": deep});
    }
    assert_eq!(gemini(&deep).lost.len(), 1);
    // Each definition is written out twice in the next.
    let mut definitions = serde_json::Map::new();
    for n in 0..40 {
        let next = json!({"$ref": format!("#/$defs/d{}", n + 1), "description": "x"});
        definitions.insert(format!("d{n}"), json!({"type": "object", "properties": {"a": next, "b": next}}));
    }
    let out = gemini(&json!({"$ref": "#/$defs/d0", "$defs": definitions}));
    assert!(out.schema.to_string().len() < 1_000_000);
    assert!(out.lost.len() <= 32);
}

fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(true)),
        Just(json!({})),
        Just(json!({"type": "string", "maxLength": 2, "format": "email"})),
        Just(json!({"enum": ["a", null, 3]})),
        Just(json!({"const": false, "default": 1})),
        Just(json!({"$ref": "#/$defs/D"})),
        Just(json!({"$ref": "#/$defs/D", "description": "d"})),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(|all| json!({"anyOf": all})),
            prop::collection::vec(inner.clone(), 0..3).prop_map(|all| json!({"allOf": all})),
            inner.clone().prop_map(|one| json!({"type": "array", "items": one})),
            prop::collection::btree_map("[a-c]", inner, 0..3)
                .prop_map(|all| json!({"type": "object", "properties": all, "required": ["a", "z"]})),
        ]
    })
}

proptest! {
    #[test]
    fn a_translation_is_its_own_translation(root in schemas(), definition in schemas()) {
        let mut schema = json!({"type": "object", "properties": {"root": root}});
        schema["$defs"] = json!({"D": definition});
        let once = gemini(&schema).schema;
        let twice = gemini(&once);
        prop_assert_eq!(&twice.schema, &once);
    }
}
