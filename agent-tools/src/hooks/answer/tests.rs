use proptest::prelude::*;
use serde_json::json;

use super::*;

fn answer(value: &Value) -> Answer {
    Answer::read(Some(0), Some(value.to_string().as_bytes()), b"").unwrap()
}

fn merged(answers: &[Value]) -> Merged {
    merge(answers.iter().enumerate().map(|(place, value)| (place.to_string(), answer(value))))
}

#[test]
fn ce03_exit_codes_say_what_they_say() {
    let read = |code, out: &str, err: &str| Answer::read(code, Some(out.as_bytes()), err.as_bytes());
    let denied = |halt, reason: &str| Answer {
        decision: Some(Decision::Deny),
        halt: Some(halt),
        reason: Some(reason.to_owned()),
        ..Answer::default()
    };
    assert_eq!(read(Some(0), "", "noise"), Ok(Answer::default()));
    assert_eq!(read(Some(0), " \n", ""), Ok(Answer::default()));
    assert_eq!(read(Some(0), r#"{"decision":"allow"}"#, "").unwrap().decision, Some(Decision::Allow));
    assert_eq!(read(Some(2), r#"{"decision":"allow"}"#, "no"), Ok(denied(false, "no")));
    assert_eq!(read(Some(49), "", "stop"), Ok(denied(true, "stop")));
    for code in [-1, 1, 3, 48, 50, 126, 127, 255] {
        assert!(read(Some(code), r#"{"decision":"deny"}"#, "").is_err(), "{code}");
    }
    assert!(read(None, "{}", "").is_err());
    // Too long: an answer is not to be cut.
    assert!(Answer::read(Some(0), None, b"").is_err());
    assert_eq!(Answer::read(Some(2), None, b"no"), Ok(denied(false, "no")));
}

#[test]
fn ce03_broken_answers_are_ignored_whole() {
    let deep =
        format!(r#"{{"decision":"allow","arguments":{{"a":{}{}}}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    for out in [
        "yes",
        "[]",
        "null",
        "\"allow\"",
        r#"{"decision":"Allow"}"#,
        r#"{"decision":true}"#,
        r#"{"desicion":"deny"}"#,
        r#"{"decision":"allow"} {"decision":"deny"}"#,
        r#"{"decision":"allow","decision":"deny"}"#,
        r#"{"decision":"allow","halt":1}"#,
        r#"{"decision":"allow","arguments":[]}"#,
        r#"{"decision":"allow","arguments":{"a":1e999}}"#,
        r#"{"decision":"allow","context":{}}"#,
        &deep,
    ] {
        assert!(Answer::read(Some(0), Some(out.as_bytes()), b"").is_err(), "{:.60}", out);
    }
    assert!(Answer::read(Some(0), Some(b"{\"reason\":\"\xff\"}"), b"").is_err());
    let nothing = r#"{"decision":null,"halt":null,"reason":null,"context":null,"arguments":null}"#;
    assert_eq!(Answer::read(Some(0), Some(nothing.as_bytes()), b""), Ok(Answer::default()));
}

#[test]
fn ce03_answers_are_merged_in_their_order() {
    let (allow, deny) =
        (json!({"decision": "allow", "reason": "tests"}), json!({"decision": "deny", "reason": "no"}));
    let none = json!({"decision": "none", "reason": "so what"});
    assert_eq!(merged(&[]), Merged::default());
    assert_eq!(merged(&[none.clone(), allow.clone()]).decision, Decision::Allow);
    assert_eq!(merged(&[none.clone(), allow.clone()]).allowed(), "hook `1`: tests");
    assert_eq!(merged(&[allow.clone(), deny.clone(), allow.clone()]).decision, Decision::Deny);
    assert_eq!(merged(&[allow.clone(), deny.clone()]).refusal(), "refused by a hook: no");
    assert_eq!(merged(&[json!({"decision": "allow"})]).allowed(), "hook `0`");
    assert_eq!(merged(std::slice::from_ref(&none)), Merged::default());

    let halted = merged(&[json!({"halt": true, "reason": "late"}), allow.clone(), json!({"halt": false})]);
    assert!(halted.halt);
    assert_eq!(halted.refusal(), "a hook ended the turn: late");

    let patched = merged(&[
        json!({"arguments": {"a": 1, "b": {"x": 1}}, "context": "one"}),
        json!({"arguments": {"b": {"y": 2}, "c": null}, "context": "  "}),
        json!({"context": "two"}),
    ]);
    assert_eq!(Value::Object(patched.arguments.clone()), json!({"a": 1, "b": {"y": 2}, "c": null}));
    assert_eq!(patched.note().unwrap(), "From a hook, not from the tool:\none\ntwo");
    assert!(merged(&[deny, json!({"context": "why"})]).refusal().ends_with("not from the tool:\nwhy"));
}

#[test]
fn ce03_long_reasons_are_cut() {
    let long = merged(&[json!({"decision": "deny", "reason": "é".repeat(10_000)})]);
    assert!(long.refusal().len() <= REASON + 40, "{}", long.refusal().len());
}

fn any_answer() -> impl Strategy<Value = Value> {
    let decision = prop_oneof![Just("allow"), Just("deny"), Just("none")];
    let fields = prop::collection::btree_map("[abc]", 0..9_u8, 0..3);
    (decision, any::<bool>(), prop::option::of("[xyz]"), prop::option::of("[pq]"), fields).prop_map(
        |(decision, halt, reason, context, fields)| {
            json!({"decision": decision, "halt": halt, "reason": reason, "context": context, "arguments": fields})
        },
    )
}

proptest! {
    #[test]
    fn ce03_merged_answers_are_those_of_a_naive_model(answers in prop::collection::vec(any_answer(), 0..6)) {
        let merged = merged(&answers);
        let says = |word: &str| answers.iter().any(|it| it["decision"] == word);
        let decision = match (says("deny"), says("allow")) {
            (true, _) => Decision::Deny,
            (_, true) => Decision::Allow,
            _ => Decision::None,
        };
        prop_assert_eq!(merged.decision, decision);
        prop_assert_eq!(merged.halt, answers.iter().any(|it| it["halt"] == true));
        let mut fields = json!({});
        for answer in &answers {
            for (name, value) in answer["arguments"].as_object().unwrap() {
                fields[name] = value.clone();
            }
        }
        prop_assert_eq!(Value::Object(merged.arguments.clone()), fields);
        let contexts: Vec<_> = answers.iter().filter_map(|it| it["context"].as_str()).collect();
        let note = merged.note().unwrap_or_default();
        prop_assert_eq!(note.lines().skip(1).collect::<Vec<_>>(), contexts);
        // Nothing but an allow allows.
        prop_assert!(merged.decision != Decision::Allow || says("allow") && !says("deny"));
    }
}
