use proptest::prelude::*;
use serde_json::{Value, json};

use super::{gemini, resolve};

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
            "k": {"if": {"type": "string"}, "patternProperties": {"x": {}}},
            "l": {"enum": ["a", 3, null]},
            "m": {"anyOf": [{"type": "string"}], "oneOf": [{"type": "number"}]}
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
                "k": {},
                "l": {"type": ["string", "number", "null"], "enum": ["a", 3]},
                "m": {"anyOf": [{"type": "number"}]}
            },
            "required": ["a"]
        })
    );
    let mut lost = out.lost.clone();
    lost.sort();
    assert_eq!(
        lost,
        [
            "anyOf of m",
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
fn a_cycle_runs_through_properties_that_are_not_required() {
    let out = gemini(&json!({
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "children": {"type": "array", "items": {"$ref": "#"}},
            "leaf": {"$ref": "#/$defs/Leaf"}
        },
        "required": ["name", "children", "leaf"],
        "$defs": {"Leaf": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}
    }));
    let node = |required: Value| {
        json!({
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/Root"}},
                "leaf": {"$ref": "#/$defs/Leaf"}
            },
            "required": required,
        })
    };
    let mut expected = node(json!(["name", "children", "leaf"]));
    let leaf = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    expected["$defs"] = json!({"Leaf": leaf, "Root": node(json!(["name", "leaf"]))});
    assert_eq!(out.schema, expected);
    assert_eq!(out.lost, ["that `children` is required"]);
    same(&out.schema);
    // Two definitions that lead to each other, one of them through an object of its own.
    let out = gemini(&json!({
        "properties": {"a": {"$ref": "#/$defs/A"}}, "required": ["a"],
        "$defs": {
            "A": {"properties": {"in": {"properties": {"b": {"$ref": "#/$defs/B"}}, "required": ["b"]}}, "required": ["in"]},
            "B": {"properties": {"a": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}, "x": {"type": "null"}}, "required": ["a", "x"]}
        }
    }));
    assert_eq!(out.schema["required"], json!(["a"]));
    assert_eq!(out.schema["$defs"]["A"]["required"], json!(["in"]));
    assert_eq!(out.schema["$defs"]["A"]["properties"]["in"].get("required"), None);
    assert_eq!(out.schema["$defs"]["B"]["required"], json!(["x"]));
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
    is_settled(&out.schema);
}

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(true)),
        Just(json!({})),
        Just(json!({"type": "string", "maxLength": 2, "format": "email"})),
        Just(json!({"enum": ["a", null, 3]})),
        Just(json!({"const": false, "default": 1})),
        Just(json!({"required": ["a", "b"], "description": "r"})),
        Just(json!({"$ref": "#/$defs/D"})),
        Just(json!({"$ref": "#/$defs/D", "description": "d"})),
        Just(json!({"$ref": "#/definitions/E~1"})),
        Just(json!({"$ref": "#/definitions/E~1", "minItems": 1, "maxLength": 3})),
        Just(json!({"$ref": "#/$defs/D/items"})),
        Just(json!({"$ref": "#/properties/a"})),
    ]
}

fn schemas() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(4, 24, 3, |inner| {
        let all = prop::collection::vec(inner.clone(), 0..3);
        let properties = prop::collection::btree_map("[a-c]", inner.clone(), 0..3);
        prop_oneof![
            all.clone().prop_map(|all| json!({"anyOf": all})),
            all.clone().prop_map(|all| json!({"allOf": all})),
            (all.clone(), properties.clone())
                .prop_map(|(all, properties)| json!({"allOf": all, "properties": properties})),
            all.prop_map(|all| json!({"oneOf": all, "items": all})),
            inner.clone().prop_map(|one| json!({"type": "array", "items": one})),
            inner.prop_map(|one| json!({"type": "object", "additionalProperties": one})),
            properties.prop_map(|all| json!({"type": "object", "properties": all, "required": ["a", "z"]})),
        ]
    })
}

/// References anywhere in a translation, each with the number of keys beside it.
fn references<'a>(value: &'a Value, found: &mut Vec<(&'a str, usize)>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(name)) = fields.get("$ref") {
                found.push((name, fields.len() - 1));
            }
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(all) => all.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

/// Checks that a second translation changes nothing, and that the service takes the references.
fn is_settled(once: &Value) {
    same(once);
    assert!(once.get("$ref").is_none(), "{once}");
    let mut found = Vec::new();
    references(once, &mut found);
    for (name, company) in found {
        assert_eq!(company, 0, "{name} in {once}");
        let target = resolve(once, name).unwrap_or_else(|| panic!("{name} in {once}"));
        assert!(target.get("$ref").is_none(), "{name} in {once}");
    }
}

#[test]
fn schemas_are_joined_at_any_depth_without_company_for_a_reference() {
    let email = json!({"type": "string", "description": "(format: email; maxLength: 2)"});
    let told = json!({"type": "string", "format": "email", "maxLength": 2});
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let to_d = json!({"$ref": "#/$defs/D"});
    let list = json!({"type": "array", "items": to_d});
    for (what, root, definition, expected, lost) in [
        (
            "items that are a definition in one part, and something else in another",
            json!({"allOf": [{"allOf": [to_d]}, list]}),
            json!({"type": "array", "items": told}),
            // The first part expands the definition, so within it the definition is only named.
            json!({"properties": {"root": list}, "$defs": {"D": {"type": "array", "items": email}}}),
            "format of root.items, maxLength of root.items, allOf of root.items, format of items, maxLength of items",
        ),
        (
            "a definition that is one of its own choices, in company",
            json!({"allOf": [to_d, {"title": "T"}]}),
            json!({"anyOf": [{"allOf": [to_d, told]}]}),
            json!({"properties": {"root": {"anyOf": [to_d], "title": "T"}}, "$defs": {"D": {"anyOf": [to_d]}}}),
            "format of root.anyOf, maxLength of root.anyOf, allOf of root.anyOf, format of anyOf, maxLength of anyOf, allOf of anyOf",
        ),
        (
            "the same, referred to",
            to_d.clone(),
            json!({"anyOf": [{"allOf": [to_d, told]}]}),
            json!({"properties": {"root": to_d}, "$defs": {"D": {"anyOf": [to_d]}}}),
            "format of anyOf, maxLength of anyOf, allOf of anyOf",
        ),
        (
            "a list of itself meets a list of lists of texts",
            json!({"allOf": [to_d, {"items": texts}]}),
            list.clone(),
            json!({"properties": {"root": list}, "$defs": {"D": list}}),
            "allOf of root.items",
        ),
        (
            "two lists of the same",
            json!({"allOf": [list, {"items": to_d, "minItems": 1}]}),
            json!({"type": "string"}),
            json!({"properties": {"root": {"type": "array", "items": to_d, "minItems": 1}},
                   "$defs": {"D": {"type": "string"}}}),
            "",
        ),
        (
            "a property of both",
            json!({"allOf": [{"properties": {"a": to_d}}, {"properties": {"a": {"description": "A."}, "b": true}}]}),
            json!({"type": "string", "description": "D.", "maxLength": 2}),
            json!({"properties": {"root": {"type": "object", "properties": {
                "a": {"type": "string", "description": "A. (maxLength: 2)"}, "b": {}
            }}}}),
            "maxLength of root.a",
        ),
        (
            "a definition that is itself, and more",
            to_d.clone(),
            json!({"allOf": [to_d, {"type": "string"}]}),
            json!({"properties": {"root": to_d}, "$defs": {"D": {"type": "string"}}}),
            "",
        ),
        (
            "a definition that is nothing but itself",
            json!({"$ref": "#/$defs/D", "description": "R."}),
            to_d.clone(),
            json!({"properties": {"root": {"description": "R."}}}),
            "",
        ),
        (
            "a name that is dropped defines nothing",
            json!({"allOf": [{"prefixItems": [to_d]}, {"prefixItems": [true]}]}),
            json!({"type": "string"}),
            json!({"properties": {"root": {"prefixItems": [{}]}}}),
            "allOf of root",
        ),
        (
            "what stands beside a reference holds too",
            json!({"$ref": "#/$defs/D", "maxLength": 2, "title": "T"}),
            json!({"type": "string", "description": "D."}),
            json!({"properties": {"root": {"type": "string", "description": "D. (maxLength: 2)", "title": "T"}}}),
            "maxLength of root",
        ),
        (
            "what is required is known when all is joined",
            json!({"allOf": [{"required": ["a", "z"]}, {"properties": {"a": true}}]}),
            json!({}),
            json!({"properties": {"root": {"type": "object", "properties": {"a": {}}, "required": ["a"]}}}),
            "",
        ),
    ] {
        let schema = json!({"type": "object", "properties": {"root": root}, "$defs": {"D": definition}});
        let once = gemini(&schema);
        let mut expected = expected;
        expected["type"] = json!("object");
        assert_eq!((&once.schema, once.lost.join(", ").as_str()), (&expected, lost), "{what}");
        is_settled(&expected);
    }
}

#[test]
fn a_name_for_a_name_is_written_out_where_a_name_will_not_do() {
    let once = gemini(&json!({
        "$ref": "#/$defs/A",
        "$defs": {
            "A": {"$ref": "#/$defs/B"},
            "B": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}, "c": {"$ref": "#/$defs/C"}}},
            "C": {"$ref": "#/$defs/D", "title": "C"},
            "D": {"$ref": "#/$defs/C"}
        }
    }));
    let b = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}, "c": {"$ref": "#/$defs/C"}}});
    let mut expected = b.clone();
    expected["$defs"] = json!({"A": b, "C": {"title": "C"}});
    assert_eq!((&once.schema, once.lost.len()), (&expected, 0));
    is_settled(&once.schema);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_translation_is_its_own_translation(root in schemas(), d in schemas(), e in schemas(), bare in any::<bool>()) {
        let mut schema = if bare { root } else { json!({"type": "object", "properties": {"a": root}}) };
        if let Some(fields) = schema.as_object_mut() {
            fields.insert("$defs".into(), json!({"D": d}));
            fields.insert("definitions".into(), json!({"E/": e}));
        }
        is_settled(&gemini(&schema).schema);
    }
}
