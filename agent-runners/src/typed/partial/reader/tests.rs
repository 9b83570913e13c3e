//! The reader against whole values, cut anywhere, and against texts that are none.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{MAX_DEPTH, Reader};

/// True if `after` holds all that `before` holds, and maybe more.
fn grows(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            before.iter().all(|(key, value)| after.get(key).is_some_and(|after| grows(value, after)))
        }
        (Value::Array(before), Value::Array(after)) => {
            before.len() <= after.len()
                && before.iter().zip(after).all(|(before, after)| grows(before, after))
        }
        (Value::String(before), Value::String(after)) => after.starts_with(before.as_str()),
        _ => before == after,
    }
}

/// Reads the text in pieces of this many characters. Asserts that the value only grows.
fn read(mut reader: Reader, text: &str, piece: usize) -> Option<Value> {
    let (chars, mut before) = (text.chars().collect::<Vec<_>>(), None);
    for piece in chars.chunks(piece) {
        let grew = reader.push(&piece.iter().collect::<String>());
        let after = reader.value().cloned();
        assert!(before.is_none() || after.is_some(), "{text}: {before:?} is gone");
        if let (Some(before), Some(after)) = (&before, &after) {
            assert!(grows(before, after), "{text}: {before} became {after}");
        }
        assert_eq!(grew, before != after, "{text}: {after:?}");
        before = after;
    }
    before
}

#[test]
fn only_what_is_certain_is_there() {
    for (text, value) in [
        (r#"{"#, None),
        (r#"{"a"#, None),
        (r#"{"a": "#, None),
        (r#"{"a": 1"#, None),
        (r#"{"a": 1,"#, Some(json!({"a": 1}))),
        (r#"{"a": 1.5e3}"#, Some(json!({"a": 1.5e3}))),
        (r#"{"a": nul"#, None),
        (r#"{"a": null"#, Some(json!({"a": null}))),
        (r#"{"a": ""#, Some(json!({"a": ""}))),
        (r#"{"a": "x\"#, Some(json!({"a": "x"}))),
        (r#"{"a": "x\u00e"#, Some(json!({"a": "x"}))),
        (r#"{"a": "x\u00e9\ud83d"#, Some(json!({"a": "xé"}))),
        (r#"{"a": "x\ud83d\ude00"#, Some(json!({"a": "x😀"}))),
        (r#"{"a": ["#, Some(json!({"a": []}))),
        (r#"{"a": [1, {"b": ["#, Some(json!({"a": [1, {"b": []}]}))),
        (r#"{"a": [[], 2]"#, Some(json!({"a": [[], 2]}))),
        (r#"{}"#, Some(json!({}))),
        ("I think {so} is {\"a\": 2} {\"b\": 3}", Some(json!({"a": 2}))),
        ("```json\n{\"a\": true}\n```", Some(json!({"a": true}))),
        ("<think>{\"a\": 1} or</think>{\"a\": 2}", Some(json!({"a": 2}))),
        ("<thin> {\"a\": 2}", Some(json!({"a": 2}))),
        // What is no JSON leaves what was certain.
        (r#"{"a": 1, b: 2}"#, Some(json!({"a": 1}))),
        (r#"{"a": 1, "b": 01, "c": 3}"#, Some(json!({"a": 1}))),
        (r#"{"a": 1, "a": 2}"#, Some(json!({"a": 1}))),
        (r#"{"a": "x\q"}"#, Some(json!({"a": "x"}))),
        (r#"{"a": "x\ud83dy"}"#, Some(json!({"a": "x"}))),
        (r#"{"a": [1}, "b": 2}"#, Some(json!({"a": [1]}))),
        ("no object", None),
    ] {
        for piece in [1, 3, 1_000] {
            assert_eq!(read(Reader::default(), text, piece), value, "{text}");
        }
    }
}

#[test]
fn whole_texts_come_at_their_end() {
    let at = |text| read(Reader::of_whole_texts(), text, 1);
    assert_eq!(at(r#"{"a": "data_lo"#), None);
    assert_eq!(at(r#"{"a": "data_loss""#), Some(json!({"a": "data_loss"})));
}

#[test]
fn attack_46_what_nests_too_deeply_stops_growing() {
    let deep = format!("{{\"a\": {}", "[".repeat(100_000));
    let mut depth = 0;
    let mut value = &read(Reader::default(), &deep, 1_000).unwrap()["a"];
    while let Some(inner) = value.get(0) {
        (value, depth) = (inner, depth + 1);
    }
    assert!(depth <= MAX_DEPTH, "{depth}");
    let key = format!("{{\"{}\": 1}}", "k".repeat(100_000));
    assert_eq!(read(Reader::default(), &key, 1_000), None);
}

#[test]
fn attack_22_a_long_text_in_small_pieces_is_read_once() {
    let mut reader = Reader::default();
    reader.push("{\"list\": [");
    // Looking at the whole text again for each piece would read 10^12 characters.
    (0..500_000).for_each(|_| assert!(reader.push("1,")));
    reader.push("\"");
    (0..500_000).for_each(|_| assert!(reader.push("ab")));
    reader.push("\"]}");
    let list = &reader.value().unwrap()["list"];
    assert_eq!((list.as_array().unwrap().len(), list[500_000].as_str().unwrap().len()), (500_001, 1_000_000));
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9_f64).prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
        "[\"\\\\\n\té😀]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-cé\"]{0,3}", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn a_value_grows_to_itself(value in any_value(), piece in 1_usize..9, pretty: bool) {
        let value = json!({"value": value});
        let text = if pretty { serde_json::to_string_pretty(&value).unwrap() } else { value.to_string() };
        prop_assert_eq!(read(Reader::default(), &text, piece), Some(value.clone()));
        prop_assert_eq!(read(Reader::of_whole_texts(), &text, piece), Some(value));
    }

    #[test]
    fn no_text_makes_it_panic_or_shrink(text in "\\PC{0,60}|[\\[\\]{}\",:0-9a-z `\n\\\\é]{0,80}", piece in 1_usize..9) {
        read(Reader::default(), &text, piece);
    }
}
