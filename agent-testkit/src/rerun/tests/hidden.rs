//! Texts that are taken out of a transcript: they stand nowhere in its file.

use entourage_core::{
    ErrorKind,
    message::{Arguments, Content, Message, Opaque, Part, Role, ToolCall},
    run::Status,
    tool::Labels,
};
use proptest::prelude::*;

use super::*;
use crate::rerun::{TranscriptCall, TranscriptRun, lines::without as without_all};

/// A transcript with this in all places that have JSON of users, tools and models.
fn holding(value: &Value, text: &str) -> Transcript {
    let arguments = Arguments::parse(json!({"of": value}).to_string()).unwrap();
    let mut transcript = Transcript::new("case");
    transcript.given = vec![
        Arc::new(Message::user(text)),
        Arc::new(Message::new(
            Role::Assistant,
            vec![
                Part::ToolCall(ToolCall::new("1", "send", arguments.clone())),
                Part::Opaque(Opaque::new("wire", value.clone())),
            ],
        )),
    ];
    transcript.runs.push(TranscriptRun {
        agent: "clerk".into(),
        prompt: Arc::new(Message::user(text)),
        labels: Labels::empty(),
        answer: text.to_owned(),
        status: Some(Status::Completed),
    });
    transcript.calls.push(TranscriptCall {
        run: 0,
        agent: "clerk".into(),
        place: "7$$0".into(),
        tool: "send".into(),
        arguments: Some(arguments),
        content: vec![Content::Text(text.to_owned())],
        is_error: false,
        is_answered: true,
        stop_turn: false,
        metadata: Some(json!({"of": value})),
        labels: Labels::PRIVATE,
        fatal: None,
    });
    transcript
}

fn without(transcript: &Transcript, secret: &str, other: &str) -> entourage_core::Result<Transcript> {
    transcript.with_texts(|text| text.replace(secret, other))
}

#[test]
fn numbers_and_keys_are_texts_too() {
    let value =
        json!({"cents": 41_500, "4150": [1.5, 4_111_111_111_111_111_u64, true], "x4150": {"4150": null}});
    let original = holding(&value, "pay 4150");
    let hidden = without(&original, "4150", "hidden").unwrap();
    let expected = json!({
        "cents": "hidden0", "hidden": [1.5, 4_111_111_111_111_111_u64, true], "xhidden": {"hidden": null},
    });
    assert_eq!(hidden.calls[0].metadata, Some(json!({"of": expected})));
    assert_eq!(hidden.calls[0].arguments.as_ref().unwrap().to_value(), json!({"of": expected}));
    assert_eq!(hidden.given[1].parts()[1], holding(&expected, "").given[1].parts()[1]);
    assert_eq!(hidden.runs, holding(&expected, "pay hidden").runs);
    let text = hidden.to_jsonl().unwrap();
    assert!(!text.contains("4150"), "{text}");
    assert_eq!(Transcript::from_jsonl(&text).unwrap(), hidden);
    // Digits that no float holds, and what becomes of a part of them.
    let mut long = original.clone();
    let arguments = r#"{"card": 41111111111111111111111111111112, "paid": 1.50, "S\u0045CRET": 1}"#;
    long.calls[0].arguments = Some(Arguments::parse(arguments).unwrap());
    let hidden = without(&long, "SECRET", "key").unwrap();
    let text = |it: &Transcript| it.calls[0].arguments.as_ref().unwrap().as_str().to_owned();
    assert_eq!(text(&hidden), r#"{"card":41111111111111111111111111111112,"paid":1.50,"key":1}"#);
    let hidden = without(&long, "11111112", "x").unwrap();
    assert!(text(&hidden).contains(r#""card":"411111111111111111111111x""#), "{}", text(&hidden));
}

#[test]
fn keys_that_become_the_same_lose_no_value() {
    let value = json!({"QA": 1, "QB": 2, "QC": 3, "x": 4, "x (2)": 5});
    let hidden = holding(&value, "").with_texts(|text| match text {
        "QA" | "QB" | "QC" => "x".to_owned(),
        text => text.to_owned(),
    });
    let expected = json!({"x (3)": 1, "x (4)": 2, "x (5)": 3, "x": 4, "x (2)": 5});
    assert_eq!(hidden.unwrap().calls[0].metadata, Some(json!({"of": expected})));
}

#[test]
fn what_cannot_be_taken_out_is_an_error_that_says_where() {
    let mut original = holding(&json!({"a": 1}), "Send it");
    original.steps = 1500;
    let cases = [
        ("1500", "x", "line=1 place=transcript.steps"),
        ("user", "x", "line=2"),
        ("role", "x", "line=2 place=given.role"),
        ("arguments", "x", "line=3 place=given.parts.tool_call.arguments"),
        // Across two texts, and in what was put in its place.
        ("\":\"Se", "x", "line=2"),
        ("Send", "to Send", "line=2"),
        ("}\n{", "x", ""),
    ];
    for (secret, other, place) in cases {
        let error = without(&original, secret, other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{secret}");
        let context = error.context().map(|(name, it)| format!("{name}={it}")).collect::<Vec<_>>().join(" ");
        assert!(context.contains("line=") != place.is_empty(), "{secret}: {error}");
        for part in place.split(' ') {
            assert!(context.contains(part), "{secret}: {context}");
        }
    }
}

#[test]
fn of_texts_that_overlap_no_part_is_left() {
    let cases: [(&[&str], &str, &str); 6] = [
        (&["sk-live", "sk-live-9f8e7d"], "key sk-live-9f8e7d.", "key *."),
        (&["Ann", "Annabelle", "belle"], "Ann, Annabelle and belle", "*, * and *"),
        (&["QXZ", "XZW", "ZWV"], "xQXZWVx", "x*x"),
        (&["QXQ"], "xQXQXQx", "x*x"),
        (&["QX", "ZW"], "QXZW", "**"),
        (&["é", "éQ", ""], "éQé", "**"),
    ];
    for (texts, text, expected) in cases {
        let original = holding(&json!({}), text);
        let mut texts = texts.to_vec();
        for _ in 0..texts.len() {
            texts.rotate_left(1);
            for texts in [texts.clone(), texts.iter().rev().copied().collect()] {
                let hidden = original.hiding(texts.iter().copied(), "*").unwrap();
                assert_eq!(hidden.runs[0].answer, expected, "{texts:?}");
            }
        }
    }
    // What stands there instead completes another one.
    let original = holding(&json!({}), "xSECRETy");
    let error = original.hiding(["SECRET", "x*"], "*").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert_eq!(original.hiding([""; 2], "*").unwrap(), original);
}

/// Letters of texts, keys and numbers: some of them are those of a secret, some those of JSON.
const TEXT: &str = "[QX47 \"\\\\\n{:,]{0,6}";

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        "[47]{1,12}".prop_map(|digits| Value::from(digits.parse::<u64>().unwrap())),
        (-99_i64..99).prop_map(|number| Value::from(number as f64 / 4.0)),
        any::<f64>().prop_filter_map("no number", |it| serde_json::Number::from_f64(it).map(Value::from)),
        TEXT.prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((TEXT, inner), 0..5).prop_map(|it| Value::Object(it.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn a_text_that_was_taken_out_stands_nowhere(
        value in values(),
        text in TEXT,
        secret in prop_oneof!["[47]{2,3}", "[QX]{1,3}", "[QX47]{2}", "[a-z\":{},0-9]{1,3}"],
    ) {
        let original = holding(&value, &text);
        match without(&original, &secret, "hidden") {
            Ok(hidden) => {
                let text = hidden.to_jsonl().unwrap();
                prop_assert!(!text.contains(&secret), "{secret:?} is in {text}");
                prop_assert_eq!(Transcript::from_jsonl(&text).unwrap(), hidden);
            }
            Err(error) => {
                prop_assert_eq!(error.kind(), ErrorKind::InvalidInput);
                // Neither the format nor the replacement holds it.
                let is_foreign = secret.chars().all(|c| "QX47".contains(c));
                prop_assert!(!is_foreign, "{secret:?}: {error}");
            }
        }
    }

    #[test]
    fn each_letter_of_texts_that_are_hidden_is_gone(
        text in "[abé]{0,12}",
        texts in proptest::collection::vec("[abé]{1,4}", 1..4),
    ) {
        let mut is_gone = vec![false; text.len()];
        for secret in &texts {
            for begin in (0..text.len()).filter(|at| text.as_bytes()[*at..].starts_with(secret.as_bytes())) {
                is_gone[begin..begin + secret.len()].fill(true);
            }
        }
        let left: String = text.char_indices().filter(|(at, _)| !is_gone[*at]).map(|(_, c)| c).collect();
        prop_assert_eq!(without_all(&text, &texts, ""), left);
    }

    #[test]
    fn a_transcript_in_which_nothing_changes_stays_as_it_is(value in values(), text in TEXT) {
        let original = holding(&value, &text);
        prop_assert_eq!(original.with_texts(str::to_owned).unwrap(), original);
    }
}
