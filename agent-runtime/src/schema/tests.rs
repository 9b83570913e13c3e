use proptest::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::json;

use super::*;

/// Less than a quarter of what threads have.
const STACK: usize = 512 << 10;

/// All problems that are told at once.
fn problems(schema: &Value, value: &Value) -> Vec<String> {
    let told = super::problems(schema, value);
    assert_eq!(told.is_none(), follows(schema, value));
    told.map(|told| told.split("; ").map(str::to_owned).collect()).unwrap_or_default()
}
use entourage_core::tool::schema_of;

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
    assert_eq!(problems(&schema, &fine), Vec::<String>::new());
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
        ("e", json!("c"), "/e should be \"a\" or \"b\" and is the string \"c\""),
        ("c", json!(false), "/c should be true and is false"),
        ("l", json!([]), "/l should have at least 1 items and has 0"),
        ("l", json!([{"id": 1}, {"id": 1}, {"id": 1}]), "/l should have at most 2 items and has 3"),
        ("l", json!([{"id": 1}, {}]), "/l/1/id is missing: `id` is required and should be integer"),
        ("l", json!([{"id": []}]), "/l/0/id should be integer and is an array of 0"),
        ("t", json!(["a", 1]), "/t/1 should be boolean and is 1"),
        ("t", json!(["a", true, 1]), "/t/2 is not allowed here"),
        ("m", json!({"k": {}}), "/m/k should be integer and is an object"),
        ("a/b", json!(2), "/a~1b should be at least 3 and is 2"),
        ("never", json!(1), "/never is not allowed here"),
        (
            "other",
            json!(1),
            "/other is not allowed here, only `a/b`, `c`, `e`, `l`, `m`, `n`, `never`, `s`, `t` or `x`",
        ),
    ] {
        let mut wrong = fine.clone();
        wrong[key] = value;
        assert_eq!(problems(&schema, &wrong), [problem]);
    }
    let mut bare = fine;
    bare.as_object_mut().unwrap().remove("n");
    assert_eq!(problems(&schema, &bare), ["/n is missing: `n` is required and should be integer"]);
    assert_eq!(problems(&schema, &json!([])), ["the value should be object with `n` and is an array of 0"]);
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
        (json!({"kind": "circle"}), vec!["/r is missing: `r` is required and should be number"]),
        (
            json!(3),
            vec![
                "the value should be null, object with `kind`, `r` or object with `kind`, `w`, `h` and is 3",
            ],
        ),
        (
            json!({"kind": "bow", "w": 1}),
            vec!["/kind should be \"circle\" or \"box\" and is the string \"bow\""],
        ),
        // The form that the value names is the nearest, whatever else is wrong with it.
        (
            json!({"kind": "box", "r": 1}),
            vec![
                "/w is missing: `w` is required and should be number",
                "/h is missing: `h` is required and should be number",
            ],
        ),
    ] {
        assert_eq!(problems(&schema, &value), found, "{value}");
    }
}

#[test]
fn the_number_and_the_length_of_problems_are_bounded() {
    let schema = json!({"type": "array", "items": {"type": "string"}});
    let value: Value = (0..100).collect::<Vec<_>>().into();
    let first: Vec<_> = (0..8).map(|n| format!("/{n} should be string and is {n}")).collect();
    assert_eq!(problems(&schema, &value), first);

    let long = "é".repeat(10_000);
    let many: Vec<_> = (0..1_000).map(|n| format!("{n}{long}")).collect();
    let within = |inner: Value| {
        (0..60).fold(inner, |inner, _| json!({"type": "object", "properties": {&*long: inner}}))
    };
    let around = |inner: Value| (0..60).fold(inner, |inner, _| json!({&*long: inner}));
    for (schema, value) in [
        (json!({"enum": many}), json!(long)),
        (json!({"const": long}), json!(long)),
        (json!({"type": many}), json!(1)),
        (json!({"type": "object", "required": many}), json!({})),
        (
            json!({"anyOf": many.iter().map(|name| json!({"type": "object", "required": [name]})).collect::<Vec<_>>()}),
            json!({}),
        ),
        (
            json!({"properties": {"a": {}}, "additionalProperties": false}),
            many.iter().map(|name| (name.clone(), json!(1))).collect(),
        ),
    ] {
        let told = super::problems(&within(schema), &around(value)).unwrap_or_default();
        assert!(told.chars().count() < 20_000, "{} characters", told.chars().count());
    }
}

#[test]
fn a_null_in_place_of_an_optional_property_counts_as_absent() {
    let schema = json!({
        "type": "object",
        "required": ["a"],
        "additionalProperties": false,
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}, "c": {"type": "integer", "nullable": true}},
    });
    assert_eq!(problems(&schema, &json!({"a": "x", "b": null, "c": null})), Vec::<String>::new());
    assert_eq!(problems(&schema, &json!({"a": null})), ["/a should be string and is null"]);
    assert_eq!(problems(&schema, &json!({"a": "x", "d": null})).len(), 1, "an unknown one does not");
}

#[test]
fn numbers_are_compared_exactly_and_by_value() {
    for (schema, fits, fails) in [
        (json!({"maximum": u64::MAX - 1}), json!(u64::MAX - 1), json!(u64::MAX)),
        (json!({"minimum": i64::MIN + 1}), json!(i64::MIN + 1), json!(i64::MIN)),
        (json!({"const": 1}), json!(1.0), json!(1.5)),
        (json!({"enum": [[1, {"a": 2}]]}), json!([1.0, {"a": 2.0}]), json!([1, {"a": 3}])),
        (json!({"multipleOf": 5}), json!(-10), json!(12)),
        (json!({"multipleOf": 0}), json!(7), json!(null)),
        (json!({"minProperties": 1, "maxProperties": 1}), json!({"a": 1}), json!({})),
    ] {
        assert!(follows(&schema, &fits), "{schema} {fits}");
        assert!(!follows(&schema, &fails) || fails.is_null(), "{schema} {fails}");
    }
}

/// Work that the look for problems takes, the search for the nearest forms included.
fn work(schema: &Value, value: &Value) -> usize {
    let mut checker = Checker::new(schema);
    checker.measure(schema, value);
    let measured = WORK - checker.left;
    checker.left = WORK;
    checker.check(schema, value);
    measured + WORK - checker.left
}

#[test]
fn attack_no_schema_and_no_value_makes_it_run_away() {
    let circle =
        json!({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}});
    assert_eq!(problems(&circle, &json!(1)), Vec::<String>::new());
    let stubborn = json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}, {"type": "string"}]});
    assert_eq!(problems(&stubborn, &json!(1)), ["the value should be string and is 1"]);
    // Each level doubles the ways to go.
    let twice = json!({"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}});
    let deep = (0..120).fold(json!(1), |inner, _| json!({ "a": inner }));
    assert!(!problems(&twice, &deep).is_empty());
    assert!(work(&twice, &deep) < 20_000);
    assert_eq!(problems(&json!({"$ref": "#/nowhere"}), &json!(1)), Vec::<String>::new());
    // A schema of a megabyte is applied to each of many values: nothing of it is free.
    let items = json!(vec![json!({"a": 1}); 10_000]);
    for schema in [
        json!({"required": vec!["a"; 200_000]}),
        json!({"enum": vec![json!({"a": 2}); 50_000]}),
        json!({"allOf": vec![json!({"type": "object"}); 50_000]}),
        json!({"anyOf": vec![json!({"properties": {"a": {"const": 2}}}); 50_000]}),
        json!({"$ref": format!("#{}", "/~0~1".repeat(200_000))}),
        json!({"type": vec!["odd"; 200_000]}),
        json!({"anyOf": vec![false; 200_000]}),
        json!({"allOf": vec![true; 200_000]}),
    ] {
        assert_spent(&json!({ "items": schema }), &items);
    }
    let fields: Value = (0..50_000).map(|n| (n.to_string(), json!(1))).collect();
    assert_spent(&json!({"allOf": vec![json!({"properties": {}}); 50_000]}), &fields);
    assert_spent(&json!({"allOf": vec![json!({"minLength": 1}); 50_000]}), &json!("é".repeat(50_000)));
}

/// The look at `value` stops when all work is spent, of which there is less than it would take.
fn assert_spent(schema: &Value, value: &Value) {
    let mut checker = Checker::new(schema);
    checker.left = 100_000;
    checker.measure(schema, value);
    assert_eq!(checker.left, 0, "{:.80}", schema.to_string());
}

#[test]
fn attack_a_chain_of_references_fits_a_small_stack() {
    let names =
        (0..10_000).map(|n| (format!("D{n}"), json!({"allOf": [{"$ref": format!("#/$defs/D{}", n + 1)}]})));
    let defs: Map<String, Value> = names.collect();
    let schema = json!({"$ref": "#/$defs/D0", "$defs": defs});
    let thread = std::thread::Builder::new().stack_size(STACK);
    let told = thread.spawn(move || super::problems(&schema, &json!(1))).unwrap().join().unwrap();
    assert_eq!(told, None);
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
fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(size).sum::<usize>(),
        Value::Object(fields) => fields.values().map(size).sum(),
        _ => 0,
    }
}

/// A valid tree is accepted and one with a wrong leaf is not, both in linear time.
fn assert_judged<T: Serialize + DeserializeOwned + JsonSchema>(tree: &T) -> Result<(), TestCaseError> {
    let schema = schema_of::<T>();
    let value = serde_json::to_value(tree).unwrap();
    let most = size(&value) * size(&schema) * 2;
    let steps = work(&schema, &value) / 2;
    prop_assert_eq!(problems(&schema, &value), Vec::<String>::new());
    prop_assert!(steps <= most, "{} steps, at most {} wanted", steps, most);

    // A form without required fields takes whatever a wrong leaf holds.
    let wrong = value.to_string().replace("\"n\":", "\"n\":-1");
    let wrong: Value = serde_json::from_str(&wrong).unwrap();
    let steps = work(&schema, &wrong);
    prop_assert_eq!(problems(&schema, &wrong).is_empty(), serde_json::from_value::<T>(wrong).is_ok());
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
    assert_eq!(problems(&schema_of::<Internal>(), &tree), [problem]);
    let tree = (0..5).fold(json!({"kind": "Txt"}), |child, _| json!({"kind": "Tab", "child": child}));
    let found = problems(&schema_of::<Internal>(), &tree);
    assert!(
        found.len() == 1 && found[0].starts_with(&format!("{place}/kind should be \"Row\", \"Col\"")),
        "{found:?}"
    );
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
    assert_eq!(problems(&schema_of::<Vec<Row>>(), &rows), Vec::<String>::new());
    rows[49_999]["b"] = json!("x");
    assert_eq!(
        problems(&schema_of::<Vec<Row>>(), &rows),
        ["/49999/b should be integer and is the string \"x\""]
    );
    assert_eq!(problems(&schema_of::<Vec<u8>>(), &json!(vec![1; 210_000])), Vec::<String>::new());
}

#[test]
fn a_value_beyond_the_bounds_of_the_check_is_left_to_its_type() {
    let schema = json!({"type": "array", "items": {"type": "string"}});
    let value = json!([1]);
    let mut checker = Checker::new(&schema);
    checker.left = 1;
    checker.check(&schema, &value);
    assert_eq!(checker.found, Vec::<String>::new());
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
enum Kind {
    Plain,
    One(i64),
    Pair(String, bool),
    Named { at: Option<f64>, unit: Option<Unit> },
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Unit {
    /// With words of its own.
    FirstOne,
    SecondOne,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Inner<T> {
    held: T,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left_out: Option<u8>,
    #[serde(default)]
    flag: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Every {
    small: (i8, u16, i32),
    large: (u64, i64, i128),
    texts: Vec<Option<String>>,
    character: char,
    kinds: Vec<Kind>,
    by_name: std::collections::BTreeMap<String, Inner<Kind>>,
    by_number: std::collections::BTreeMap<u32, (Unit, f32)>,
    set: std::collections::BTreeSet<u8>,
    fixed: [Option<Unit>; 2],
    boxed: Option<Box<Inner<(u8, String)>>>,
    result: Result<u8, String>,
    unit: (),
    any: Value,
}

impl Kind {
    fn any() -> impl Strategy<Value = Self> {
        prop_oneof![
            Just(Self::Plain),
            any::<i64>().prop_map(Self::One),
            any::<(String, bool)>().prop_map(|(text, flag)| Self::Pair(text, flag)),
            (any::<Option<f64>>(), prop::option::of(unit())).prop_map(|(at, unit)| Self::Named { at, unit }),
        ]
    }
}

fn unit() -> impl Strategy<Value = Unit> {
    prop_oneof![Just(Unit::FirstOne), Just(Unit::SecondOne)]
}

fn inner<T: Clone + std::fmt::Debug>(held: impl Strategy<Value = T>) -> impl Strategy<Value = Inner<T>> {
    (held, any::<(Option<u8>, bool)>()).prop_map(|(held, (left_out, flag))| Inner { held, left_out, flag })
}

impl Every {
    fn any() -> impl Strategy<Value = Self> {
        let numbers =
            (any::<(i8, u16, i32)>(), (any::<u64>(), any::<i64>(), any::<i64>().prop_map(i128::from)));
        let texts = any::<(Vec<Option<String>>, char, Result<u8, String>)>();
        let maps = (
            prop::collection::btree_map(any::<String>(), inner(Kind::any()), 0..4),
            prop::collection::btree_map(any::<u32>(), (unit(), any::<f32>()), 0..4),
            any::<std::collections::BTreeSet<u8>>(),
        );
        let units = (prop::option::of(unit()), prop::option::of(unit()));
        let boxed = prop::option::of(inner(any::<(u8, String)>()).prop_map(Box::new));
        (numbers, texts, prop::collection::vec(Kind::any(), 0..4), maps, units, boxed, values()).prop_map(
            |((small, large), (texts, character, result), kinds, maps, (one, other), boxed, any)| {
                let (by_name, by_number, set) = maps;
                let fixed = [one, other];
                Self {
                    small,
                    large,
                    texts,
                    character,
                    kinds,
                    by_name,
                    by_number,
                    set,
                    fixed,
                    boxed,
                    result,
                    unit: (),
                    any,
                }
            },
        )
    }
}

/// Any JSON, with few names, so that schemas and values meet.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..3_i64).prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[abc]", inner, 0..4).prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

/// Schemas that nobody would write, with references to each other and to themselves.
fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        prop::sample::select(vec!["#", "#/$defs/A", "#/$defs/B", "#/properties/a", "#/$defs", "x"])
            .prop_map(|to| json!({ "$ref": to })),
        prop::sample::select(vec!["null", "string", "integer", "array", "object", "odd"])
            .prop_map(|kind| json!({ "type": kind })),
        values().prop_map(|only| json!({ "const": only })),
        values(),
    ];
    let schema = leaf.prop_recursive(6, 60, 4, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..4);
        let fields = prop::collection::btree_map("[abc]", inner, 0..4);
        (list, fields, prop::collection::vec("[abc]", 0..3), 0..256_u32).prop_map(
            |(list, fields, names, keep)| {
                let first = list.first().cloned().unwrap_or_default();
                let all = [
                    ("properties", json!(fields)),
                    ("anyOf", json!(list)),
                    ("allOf", json!(list)),
                    ("required", json!(names)),
                    ("additionalProperties", first.clone()),
                    ("items", first),
                    ("minimum", json!(names.len())),
                    ("additionalProperties", json!(names.is_empty())),
                ];
                let kept = all.into_iter().enumerate().filter(|(place, _)| keep & 1 << place != 0);
                kept.map(|(_, (key, rule))| (key.to_owned(), rule)).collect()
            },
        )
    });
    (schema.clone(), schema.clone(), schema).prop_map(|(mut root, one, other)| {
        if let Some(root) = root.as_object_mut() {
            root.insert("$defs".to_owned(), json!({"A": one, "B": other}));
        }
        root
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_a_type_writes_follows_its_schema(every in Every::any()) {
        let value = serde_json::to_value(&every).unwrap();
        prop_assert_eq!(problems(&schema_of::<Every>(), &value), Vec::<String>::new());
        let kinds = serde_json::to_value(&every.kinds).unwrap();
        let schema = schema_of::<Vec<Kind>>();
        prop_assert_eq!(problems(&schema, &kinds), Vec::<String>::new());
        // What is beyond the bounds of the work is not refused.
        for left in 0..200 {
            let mut checker = Checker::new(&schema);
            checker.left = left;
            prop_assert!(checker.check(&schema, &kinds).fits(), "{} {:?}", left, checker.found);
        }
    }

    #[test]
    fn a_value_that_follows_the_schema_of_a_type_is_read(mut every in Every::any(), odd in values(), place in 0..13_usize) {
        // The names of `by_number` are checked by a pattern, and patterns are not.
        prop_assume!(place != 3);
        every.any = Value::Null;
        let mut value = serde_json::to_value(&every).unwrap();
        // Types of integers are narrower than their schema, which takes 1.0 for one; a set takes an item twice.
        *value.as_object_mut().unwrap().values_mut().nth(place).unwrap() = odd;
        if follows(&schema_of::<Every>(), &value) {
            let read = serde_json::from_value::<Every>(value.clone());
            prop_assert!(read.is_ok(), "{} {:?}", value, read);
        }
    }

    #[test]
    fn attack_any_schema_and_value_end_in_bounded_work(schema in schemas(), value in values()) {
        let most = size(&value) * schema.to_string().len() * 16;
        let work = work(&schema, &value);
        prop_assert!(work <= most, "{} of {}", work, most);
        prop_assert_eq!(super::problems(&schema, &value).is_none(), follows(&schema, &value));
    }
}
