use proptest::prelude::*;
use serde_json::{Value, json};

use super::{inlined, loose, object, strict};

fn done(schema: &Value) -> Value {
    let translated = strict(schema);
    assert!(translated.strict, "{schema}: {:?}", translated.lost);
    translated.schema
}

fn refused(schema: &Value) -> String {
    let translated = strict(schema);
    assert!(!translated.strict, "{schema} became {}", translated.schema);
    assert_eq!(translated.lost.len(), 1);
    translated.lost.concat()
}

/// An object with the one property `p`, required.
fn with(property: &Value) -> Value {
    json!({"type": "object", "properties": {"p": property}, "required": ["p"], "additionalProperties": false})
}

#[test]
fn objects_are_closed_and_every_property_is_required() {
    let from = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Args",
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "Who."},
            "limit": {"type": ["integer", "null"], "format": "uint32", "minimum": 0},
            "note": {"type": "string"},
            "deep": {"type": "boolean", "default": false},
            "kind": {"enum": ["a", "b"]}
        },
        "required": ["name"]
    });
    assert_eq!(
        done(&from),
        json!({
            "title": "Args",
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "Who."},
                "limit": {"type": ["integer", "null"], "description": "minimum: 0"},
                "note": {"type": ["string", "null"]},
                "deep": {"type": "boolean", "description": "default: false"},
                "kind": {"type": ["string", "null"], "enum": ["a", "b", null]}
            },
            "required": ["deep", "kind", "limit", "name", "note"],
            "additionalProperties": false
        })
    );
    let lost = strict(&from).lost;
    assert_eq!(lost, ["`format` of `limit`", "`minimum` of `limit`"]);
}

#[test]
fn a_tool_without_arguments_takes_an_empty_object() {
    let empty = json!({"type": "object", "properties": {}, "required": [], "additionalProperties": false});
    for from in [json!({}), json!({"type": "object"}), empty.clone()] {
        assert_eq!(done(&from), empty);
    }
}

#[test]
fn each_construct_has_its_form() {
    for (from, to) in [
        (
            json!({"type": "string", "minLength": 1, "pattern": "^a"}),
            json!({"type": "string", "description": "minLength: 1, pattern: ^a"}),
        ),
        (
            json!({"type": "string", "format": "date-time", "description": "When."}),
            json!({"type": "string", "description": "When. (format: date-time)"}),
        ),
        (
            json!({"type": "number", "format": "double", "multipleOf": 0.5}),
            json!({"type": "number", "description": "multipleOf: 0.5"}),
        ),
        (json!({"const": "x"}), json!({"type": "string", "enum": ["x"]})),
        (json!({"type": "string", "examples": ["a"], "deprecated": true}), json!({"type": "string"})),
        (json!({"type": "string", "nullable": true}), json!({"type": ["string", "null"]})),
        (
            json!({"type": "array", "items": {"type": "integer"}, "maxItems": 3}),
            json!({"type": "array", "items": {"type": "integer"}, "description": "maxItems: 3"}),
        ),
        (
            json!({"oneOf": [{"const": "a", "description": "A."}, {"enum": [1, 2.5]}]}),
            json!({"anyOf": [{"type": "string", "enum": ["a"], "description": "A."}, {"type": ["integer", "number"], "enum": [1, 2.5]}]}),
        ),
        (
            json!({"type": "string", "anyOf": [{"format": "email"}, {"type": "null"}]}),
            json!({"anyOf": [{"type": "string", "description": "format: email"}, {"type": "null"}]}),
        ),
        (
            json!({"properties": {"a": {"type": "null"}}}),
            json!({"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"], "additionalProperties": false}),
        ),
        (
            json!({"allOf": [{"type": "string"}], "description": "D."}),
            json!({"type": "string", "description": "D."}),
        ),
        (
            json!({"type": "object", "additionalProperties": false}),
            json!({"type": "object", "properties": {}, "required": [], "additionalProperties": false}),
        ),
        (json!({"type": "string", "not": {"const": "x"}}), json!({"type": "string"})),
    ] {
        assert_eq!(done(&with(&from))["properties"]["p"], to, "{from}");
    }
}

#[test]
fn references_are_kept_and_stand_alone() {
    let defs = json!({"T": {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/T"}, {"type": "null"}]}}}});
    let from = json!({"type": "object", "$defs": defs, "required": ["a", "b"], "properties": {
        "a": {"$ref": "#/$defs/T"}, "b": {"$ref": "#/$defs/T", "description": "B."}, "c": {"$ref": "#/$defs/T"}}});
    let translated = strict(&from);
    assert!(translated.strict && translated.recursive);
    assert_eq!(
        translated.schema["properties"],
        json!({
            "a": {"$ref": "#/$defs/T"},
            "b": {"anyOf": [{"$ref": "#/$defs/T"}], "description": "B."},
            "c": {"anyOf": [{"$ref": "#/$defs/T"}, {"type": "null"}]}
        })
    );
    assert_eq!(translated.schema["$defs"]["T"]["required"], json!(["next"]));
    let root = json!({"$ref": "#/$defs/T", "$defs": defs});
    let translated = strict(&root);
    assert!(translated.strict && translated.recursive);
    assert_eq!(translated.schema["properties"], translated.schema["$defs"]["T"]["properties"]);
    let plain = json!({"type": "object", "$defs": {"S": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/S"}, "b": {"$ref": "#/$defs/S"}}});
    assert!(!strict(&plain).recursive);
    assert!(strict(&json!({"type": "object", "properties": {"me": {"$ref": "#"}}})).recursive);
}

#[test]
fn what_cannot_be_said_is_not_enforced_and_why() {
    for (property, why) in [
        (json!(true), "`p` takes any value"),
        (json!({}), "`p` takes any value"),
        (json!({"description": "Anything."}), "`p` takes any value"),
        (json!({"type": "object"}), "`p` takes any keys"),
        (json!({"type": "object", "additionalProperties": {"type": "string"}}), "`p` takes any keys"),
        (
            json!({"type": "object", "properties": {"a": {"type": "null"}}, "patternProperties": {"^x": {}}}),
            "`p` takes any keys",
        ),
        (
            json!({"type": "array", "prefixItems": [{"type": "string"}]}),
            "`p` is a list of anything or a tuple",
        ),
        (json!({"type": "array", "items": true}), "`p.items` takes any value"),
        (json!({"allOf": [{"type": "string"}, {"minLength": 1}]}), "`p` joins several schemas"),
        (json!({"anyOf": []}), "`p` chooses in two ways at once"),
        (json!({"type": "file"}), "`p` is of no known type"),
        (json!({"enum": [{"a": 1}]}), "`p` has an enum of other than plain values"),
        (json!({"$ref": "https://example.com/s"}), "which is not among its definitions"),
        (json!({"$ref": "#/properties/p"}), "which is not among its definitions"),
        (
            json!({"type": "object", "properties": {"a": {"type": "null"}}, "oneOf": [{"type": "object"}]}),
            "`p` has a choice beside",
        ),
    ] {
        let said = refused(&with(&property));
        assert!(said.contains(why), "{property}: {said}");
    }
    for root in [
        json!(true),
        json!([]),
        json!({"type": "string"}),
        json!({"anyOf": [{"type": "object"}]}),
        json!({"type": ["object", "null"]}),
    ] {
        refused(&root);
    }
    assert_eq!(refused(&json!({"type": "object", "additionalProperties": true})), "the root takes any keys");
    refused(&json!({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}));
}

#[test]
fn attack_46_schemas_too_deep_or_too_large_are_not_enforced() {
    let mut deep = json!({"type": "string"});
    for _ in 0..11 {
        deep = with(&deep);
    }
    assert!(refused(&deep).contains("nests too deeply"));
    let mut lists = json!({"type": "string"});
    for _ in 0..100 {
        lists = json!({"type": "array", "items": lists});
    }
    assert!(refused(&with(&lists)).contains("nests too deeply"));
    let wide: serde_json::Map<_, _> = (0..5_001).map(|n| (n.to_string(), json!({"type": "null"}))).collect();
    assert!(refused(&json!({"type": "object", "properties": wide})).contains("larger"));
    let values: Vec<_> = (0..1_001).collect();
    assert!(refused(&with(&json!({"enum": values}))).contains("too many enum values"));
}

#[test]
fn a_schema_that_is_not_enforced_describes_an_object() {
    let any = json!({"type": "object", "properties": {}, "additionalProperties": true});
    assert_eq!(object(&json!(true)), any);
    assert_eq!(object(&json!({"$schema": "x"})), json!({"type": "object", "properties": {}}));
    let choice = json!({"anyOf": [{"type": "object"}]});
    assert_eq!(object(&choice), choice);
    let free = json!({"type": "object", "additionalProperties": true});
    assert_eq!(object(&free), json!({"type": "object", "properties": {}, "additionalProperties": true}));
}

#[test]
fn a_schema_of_any_value_is_an_object_where_no_schema_is_enforced() {
    let from = json!({
        "type": "object",
        "properties": {"any": true, "map": {"type": "object", "additionalProperties": true}, "default": true},
        "additionalProperties": false,
        "anyOf": [true, {"items": true}],
        "default": {"properties": {"a": true}},
        "$defs": {"T": {"properties": {"t": true}, "not": true}}
    });
    let to = json!({
        "type": "object",
        "properties": {"any": {}, "map": {"type": "object", "additionalProperties": true}, "default": {}},
        "additionalProperties": false,
        "anyOf": [{}, {"items": {}}],
        "default": {"properties": {"a": true}},
        "$defs": {"T": {"properties": {"t": {}}, "not": {}}}
    });
    assert_eq!(loose(&from), to);
    assert_eq!(loose(&to), to);
}

#[test]
fn references_are_written_out_where_they_are_dropped() {
    let tree = json!({
        "type": "object",
        "properties": {"kind": {"$ref": "#/$defs/Kind", "description": "K."}, "all": {"type": "array", "items": {"$ref": "#"}}},
        "$defs": {"Kind": {"type": "string", "enum": ["a"]}}
    });
    let kind = json!({"type": "string", "enum": ["a"], "description": "K."});
    let node = |items: Value| json!({"type": "object", "properties": {"kind": kind, "all": {"type": "array", "items": items}}});
    assert_eq!(inlined(&tree), node(node(node(json!({"type": "object"})))));
    assert_eq!(inlined(&inlined(&tree)), inlined(&tree));
    let none = json!({"properties": {"a": {"$ref": "#/$defs/Gone"}, "b": {"$ref": "https://h/s"}}});
    assert_eq!(inlined(&none), json!({"properties": {"a": {"type": "object"}, "b": {"type": "object"}}}));
    inlined(&json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}));
}

#[test]
fn attack_46_a_schema_that_grows_when_it_is_written_out_is_bounded() {
    // Each definition names the next one ten times.
    let next = |n: usize| json!({"$ref": format!("#/$defs/d{n}")});
    let wide = |n: usize| json!({"anyOf": (0..10).map(|_| next(n + 1)).collect::<Vec<_>>()});
    let definitions: serde_json::Map<_, _> = (0..60).map(|n| (format!("d{n}"), wide(n))).collect();
    let out = inlined(&json!({"properties": {"a": next(0)}, "$defs": definitions}));
    assert!(out.to_string().len() < 500_000, "{}", out.to_string().len());
}

fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(true)),
        Just(json!({})),
        Just(json!({"type": "string", "minLength": 1})),
        Just(json!({"type": ["integer", "null"], "format": "int32", "default": 3})),
        Just(json!({"enum": ["a", null]})),
        Just(json!({"const": 1})),
        Just(json!({"$ref": "#/$defs/D"})),
        Just(json!({"$ref": "#", "description": "d"})),
        Just(json!({"$ref": 7})),
        Just(json!({"type": 5, "enum": {}})),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let all = prop::collection::vec(inner.clone(), 0..3);
        let properties = prop::collection::btree_map("[a-c]", inner.clone(), 0..3);
        prop_oneof![
            (properties, prop::collection::vec("[a-c]", 0..2), prop::option::of(any::<bool>())).prop_map(
                |(properties, required, more)| {
                    let mut schema =
                        json!({"type": "object", "properties": properties, "required": required});
                    if let (Some(more), Some(fields)) = (more, schema.as_object_mut()) {
                        fields.insert("additionalProperties".into(), json!(more));
                    }
                    schema
                }
            ),
            inner.clone().prop_map(|item| json!({"type": "array", "items": item, "minItems": 1})),
            all.clone().prop_map(|all| json!({"oneOf": all, "description": "d"})),
            all.clone().prop_map(|all| json!({"anyOf": all, "type": "string"})),
            all.prop_map(|all| json!({"allOf": all, "title": "t"})),
        ]
    })
}

/// True if every object is closed with all properties required, and every reference stands alone.
fn is_strict(schema: &Value) -> bool {
    let Value::Object(fields) = schema else { return true };
    let reference = !fields.contains_key("$ref") || fields.len() == 1;
    let properties = fields.get("properties").and_then(Value::as_object);
    let closed = properties.is_none_or(|properties| {
        let names: Vec<_> = properties.keys().map(String::as_str).collect();
        fields["additionalProperties"] == json!(false)
            && fields["required"] == json!(names)
            && properties.values().all(is_strict)
    });
    let known = fields.keys().all(|key| {
        [
            "$defs",
            "$ref",
            "additionalProperties",
            "anyOf",
            "description",
            "enum",
            "items",
            "properties",
            "required",
            "title",
            "type",
        ]
        .contains(&key.as_str())
    });
    let inner = ["items"].iter().filter_map(|key| fields.get(*key)).all(is_strict);
    let choices = fields.get("anyOf").and_then(Value::as_array).is_none_or(|all| all.iter().all(is_strict));
    let defs = fields.get("$defs").and_then(Value::as_object).is_none_or(|all| all.values().all(is_strict));
    reference && closed && known && inner && choices && defs
}

#[test]
fn a_schema_that_takes_all_has_one_form_however_it_is_written() {
    for of in ["anyOf", "oneOf", "allOf"] {
        let written =
            |all: Value| json!({"type": "object", "properties": {"a": {"type": "string", of: [all]}}});
        let (short, long) = (strict(&written(json!(true))), strict(&written(json!({}))));
        assert_eq!(short, long, "{of}");
        assert!(short.strict, "{of}: {short:?}");
    }
}

proptest! {
    #[test]
    fn a_translation_is_strict_and_its_own_translation(root in any_schema(), definition in any_schema()) {
        let mut root = root;
        if let Some(fields) = root.as_object_mut() {
            fields.insert("$defs".into(), json!({"D": definition}));
        }
        let once = strict(&root);
        let again = strict(&once.schema);
        prop_assert_eq!(&again.schema, &once.schema);
        prop_assert_eq!(again.strict, once.strict);
        if once.strict {
            prop_assert!(is_strict(&once.schema), "{}", once.schema);
            prop_assert!(again.lost.is_empty());
        }
    }

    #[test]
    fn no_json_breaks_the_translation(text in "\\{(\"(type|properties|items|\\$ref|enum|anyOf|required)\":(1|\"object\"|\\[\\]|\\{\\}|\\[\"a\",3\\]|null),){0,5}\"x\":0\\}") {
        let value: Value = serde_json::from_str(&text).unwrap();
        strict(&value);
        object(&value);
    }
}
