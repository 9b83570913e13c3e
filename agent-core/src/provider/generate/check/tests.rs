use proptest::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::json;

use super::*;
use crate::tool::schema_of;

#[test]
fn each_keyword_says_what_is_wrong_and_where() {
    let schema = json!({
        "type": "object",
        "required": ["n"],
        "additionalProperties": false,
        "properties": {
            "n": {"type": "integer", "minimum": 1, "maximum": 5},
            "x": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            "s": {"type": ["string", "null"], "minLength": 2, "maxLength": 3},
            "e": {"enum": ["a", "b"]},
            "c": {"const": true},
            "l": {"type": "array", "items": {"$ref": "#/$defs/P"}, "minItems": 1, "maxItems": 2},
            "t": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "boolean"}], "items": false},
            "m": {"type": "object", "additionalProperties": {"type": "integer"}},
            "a/b": {"allOf": [{"type": "integer"}, {"minimum": 3}]},
            "never": false,
        },
        "$defs": {"P": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}},
    });
    let fine = json!({"n": 5, "x": 0.5, "s": null, "e": "b", "c": true, "l": [{"id": 1.0, "more": 1}],
        "t": ["a", true], "m": {"k": 1}, "a/b": 3});
    assert_eq!(problems(&schema, &fine, 8), Vec::<String>::new());
    for (key, value, problem) in [
        ("n", json!(0), "/n should be at least 1 and is 0"),
        ("n", json!(6), "/n should be at most 5 and is 6"),
        ("n", json!(1.5), "/n should be integer and is 1.5"),
        ("n", json!("1"), "/n should be integer and is the string \"1\""),
        ("x", json!(0), "/x should be more than 0 and is 0"),
        ("x", json!(1), "/x should be less than 1 and is 1"),
        ("s", json!("é"), "/s should have at least 2 characters and has 1"),
        ("s", json!("éééé"), "/s should have at most 3 characters and has 4"),
        ("s", json!(true), "/s should be string or null and is true"),
        ("e", json!("c"), "/e should be one of \"a\", \"b\" and is the string \"c\""),
        ("c", json!(false), "/c should be true and is false"),
        ("l", json!([]), "/l should have at least 1 items and has 0"),
        ("l", json!([{"id": 1}, {"id": 1}, {"id": 1}]), "/l should have at most 2 items and has 3"),
        ("l", json!([{"id": 1}, {}]), "/l/1/id is missing: `id` is required"),
        ("l", json!([{"id": []}]), "/l/0/id should be integer and is an array of 0"),
        ("t", json!(["a", 1]), "/t/1 should be boolean and is 1"),
        ("t", json!(["a", true, 1]), "/t/2 is not allowed here"),
        ("m", json!({"k": {}}), "/m/k should be integer and is an object"),
        ("a/b", json!(2), "/a~1b should be at least 3 and is 2"),
        ("never", json!(1), "/never is not allowed here"),
        ("other", json!(1), "/other is not allowed here"),
    ] {
        let mut wrong = fine.clone();
        wrong[key] = value;
        assert_eq!(problems(&schema, &wrong, 8), [problem]);
    }
    let mut bare = fine;
    bare.as_object_mut().unwrap().remove("n");
    assert_eq!(problems(&schema, &bare, 8), ["/n is missing: `n` is required"]);
    assert_eq!(problems(&schema, &json!([]), 8), ["the value should be object and is an array of 0"]);
}

#[test]
fn of_several_forms_the_nearest_says_what_is_wrong() {
    let schema = json!({"anyOf": [
        {"type": "null"},
        {"type": "object", "required": ["kind", "r"],
            "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}}},
        {"type": "object", "required": ["kind", "w", "h"],
            "properties": {"kind": {"const": "box"}, "w": {"type": "number"}, "h": {"type": "number"}}},
    ]});
    for (value, found) in [
        (json!(null), vec![]),
        (json!({"kind": "circle", "r": 1}), vec![]),
        (json!({"kind": "box", "w": 1, "h": "2"}), vec!["/h should be number and is the string \"2\""]),
        (json!({"kind": "circle"}), vec!["/r is missing: `r` is required"]),
        (json!(3), vec!["the value has none of the 3 allowed forms: it is 3"]),
        (
            json!({"kind": "bow", "w": 1}),
            vec!["/kind should be one of \"circle\", \"box\" and is the string \"bow\""],
        ),
        // The form that the value names is the nearest, whatever else is wrong with it.
        (
            json!({"kind": "box", "r": 1}),
            vec!["/w is missing: `w` is required", "/h is missing: `h` is required"],
        ),
    ] {
        assert_eq!(problems(&schema, &value, 8), found, "{value}");
    }
}

#[test]
fn the_number_of_problems_is_bounded() {
    let schema = json!({"type": "array", "items": {"type": "string"}});
    let value: Value = (0..100).collect::<Vec<_>>().into();
    assert_eq!(problems(&schema, &value, 3), [0, 1, 2].map(|n| format!("/{n} should be string and is {n}")));
}

#[test]
fn attack_no_schema_and_no_value_makes_it_run_away() {
    let circle =
        json!({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}});
    assert_eq!(problems(&circle, &json!(1), 8), Vec::<String>::new());
    // Each level doubles the work.
    let twice = json!({"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}});
    let deep = (0..120).fold(json!(1), |inner, _| json!({ "a": inner }));
    assert!(!problems(&twice, &deep, 8).is_empty());
    assert_eq!(problems(&json!({"$ref": "#/nowhere"}), &json!(1), 8), Vec::<String>::new());
}

/// A tree whose kinds share the names of their fields, in each of serde's forms.
macro_rules! trees {
    ($($name:ident $(#[$form:meta])?),* $(,)?) => {$(
        #[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
        $(#[$form])?
        enum $name {
            Row { child: Box<$name> },
            Col { child: Box<$name> },
            Card { child: Box<$name>, note: Option<Box<$name>> },
            List { children: Vec<$name> },
            Pad { child: Option<Box<$name>> },
            Link { child: Box<$name>, to: String },
            Tab { child: Box<$name> },
            Text { n: u8 },
        }

        impl $name {
            fn any() -> impl Strategy<Value = Self> {
                let leaf = any::<u8>().prop_map(|n| Self::Text { n });
                let inner = leaf.prop_recursive(24, 60, 3, |inner| {
                    (0..8_u8, prop::collection::vec(inner, 1..3)).prop_map(|(kind, list)| Self::over(kind, list))
                });
                // A chain on top, deeper than the generator's trees are.
                (inner, prop::collection::vec(0..8_u8, 0..24)).prop_map(|(inner, kinds)| {
                    kinds.into_iter().fold(inner, |inner, kind| Self::over(kind, vec![inner]))
                })
            }

            fn over(kind: u8, mut list: Vec<Self>) -> Self {
                let child = Box::new(list.swap_remove(0));
                match kind {
                    0 => Self::Row { child },
                    1 => Self::Col { child },
                    2 => Self::Card { child, note: list.pop().map(Box::new) },
                    3 => {
                        list.push(*child);
                        Self::List { children: list }
                    }
                    4 => Self::Pad { child: Some(child) },
                    5 => Self::Link { child, to: "x".to_owned() },
                    6 => Self::Tab { child },
                    _ => Self::Pad { child: Some(child) },
                }
            }
        }
    )*};
}

trees! {
    Internal #[serde(tag = "kind")],
    Adjacent #[serde(tag = "kind", content = "of")],
    External,
    Untagged #[serde(untagged)],
}

/// Number of values in `value`, itself included.
fn size(value: &Value) -> u32 {
    1 + match value {
        Value::Array(items) => items.iter().map(size).sum::<u32>(),
        Value::Object(fields) => fields.values().map(size).sum(),
        _ => 0,
    }
}

/// Checks and returns the problems and the number of steps taken.
fn counted(schema: &Value, value: &Value) -> (Vec<String>, u32) {
    let mut checker = Checker::new(schema, 8);
    checker.check(schema, value);
    (checker.found, STEPS - checker.steps)
}

/// A valid tree is accepted and one with a wrong leaf is not, both in linear time.
fn assert_judged<T: Serialize + DeserializeOwned + JsonSchema>(tree: &T) -> Result<(), TestCaseError> {
    let schema = schema_of::<T>();
    let value = serde_json::to_value(tree).unwrap();
    let most = size(&value) * size(&schema) * 2;
    let (problems, steps) = counted(&schema, &value);
    prop_assert_eq!(problems, Vec::<String>::new());
    prop_assert!(steps <= most, "{} steps, at most {} wanted", steps, most);

    // A form without required fields takes whatever a wrong leaf holds.
    let wrong = value.to_string().replace("\"n\":", "\"n\":-1");
    let wrong: Value = serde_json::from_str(&wrong).unwrap();
    let (problems, steps) = counted(&schema, &wrong);
    prop_assert_eq!(problems.is_empty(), serde_json::from_value::<T>(wrong).is_ok());
    prop_assert!(steps <= most, "{} steps for a wrong leaf, at most {} wanted", steps, most);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn attack_run_k1_valid_trees_of_tagged_kinds_are_accepted_in_linear_time(tree in Internal::any()) {
        assert_judged(&tree)?;
    }

    #[test]
    fn trees_of_adjacently_tagged_kinds_are_accepted_in_linear_time(tree in Adjacent::any()) {
        assert_judged(&tree)?;
    }

    #[test]
    fn trees_of_externally_tagged_kinds_are_accepted_in_linear_time(tree in External::any()) {
        assert_judged(&tree)?;
    }

    #[test]
    fn trees_of_untagged_kinds_are_accepted_in_linear_time(tree in Untagged::any()) {
        assert_judged(&tree)?;
    }
}

#[test]
fn a_wrong_leaf_of_a_deep_tree_is_named_by_its_place() {
    let leaf = json!({"kind": "Text", "n": "one"});
    let tree = (0..5).fold(leaf, |child, _| json!({"kind": "Tab", "child": child}));
    let place = "/child".repeat(5);
    let problem = format!("{place}/n should be integer and is the string \"one\"");
    assert_eq!(problems(&schema_of::<Internal>(), &tree, 8), [problem]);
    let tree = (0..5).fold(json!({"kind": "Txt"}), |child, _| json!({"kind": "Tab", "child": child}));
    let found = problems(&schema_of::<Internal>(), &tree, 8);
    assert!(found.len() == 1 && found[0].starts_with(&format!("{place}/kind should be one of")), "{found:?}");
}

#[test]
fn attack_run_k4_a_long_list_is_judged_to_its_end() {
    #[derive(Serialize, Deserialize, JsonSchema)]
    struct Row {
        a: u8,
        b: u8,
        c: Option<u8>,
    }
    let mut rows = json!(vec![json!({"a": 1, "b": 2, "c": 3}); 50_000]);
    assert_eq!(problems(&schema_of::<Vec<Row>>(), &rows, 8), Vec::<String>::new());
    rows[49_999]["b"] = json!("x");
    assert_eq!(
        problems(&schema_of::<Vec<Row>>(), &rows, 8),
        ["/49999/b should be integer and is the string \"x\""]
    );
    assert_eq!(problems(&schema_of::<Vec<u8>>(), &json!(vec![1; 210_000]), 8), Vec::<String>::new());
}

#[test]
fn a_value_beyond_the_bounds_of_the_check_is_left_to_its_type() {
    let schema = json!({"type": "array", "items": {"type": "string"}});
    let value = json!([1]);
    let mut checker = Checker::new(&schema, 8);
    checker.steps = 1;
    checker.check(&schema, &value);
    assert_eq!(checker.found, Vec::<String>::new());
}
