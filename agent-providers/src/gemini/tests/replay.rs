//! Signatures come back at the part that they were on, byte for byte.

use std::sync::Arc;

use entourage_core::{
    message::{Arguments, Message, Part, Reasoning, Role, Signature, ToolCall, ToolResult},
    provider::Request,
};
use serde_json::{Value, json};

use super::{super::encode, parts, reply, stream};

fn contents(model: &str, messages: impl IntoIterator<Item = Message>) -> Value {
    let request = Request::new(model, messages.into_iter().collect());
    serde_json::from_slice::<Value>(&encode(&request)).unwrap()["contents"].take()
}

/// The model's parts in the request that sends back a reply of `chunks`.
fn again(chunks: &[&str]) -> Value {
    let mut all: Vec<_> = chunks.iter().map(|chunk| parts(chunk)).collect();
    all.push(r#""finishReason":"STOP""#.to_owned());
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    let (reply, errors) = reply(&stream(&all));
    assert!(errors.is_empty(), "{errors:?}");
    contents("gemini-2.5-flash", [reply.into_message()])[0]["parts"].take()
}

#[test]
fn signatures_come_back_where_they_were() {
    for (chunks, back) in [
        // On calls: the first of several is signed.
        (
            &[
                r#"{"functionCall":{"name":"a","args":{"x":1}},"thoughtSignature":"s+/="},{"functionCall":{"name":"b","args":{}}}"#,
            ][..],
            json!([
                {"functionCall": {"name": "a", "args": {"x": 1}}, "thoughtSignature": "s+/="},
                {"functionCall": {"name": "b", "args": {}}}
            ]),
        ),
        // On text, whose unsigned neighbours stay apart from it.
        (
            &[
                r#"{"text":"a"}"#,
                r#"{"text":"b","thoughtSignature":"s"}"#,
                r#"{"text":"c"}"#,
                r#"{"text":"d"}"#,
            ],
            json!([{"text": "a"}, {"text": "b", "thoughtSignature": "s"}, {"text": "cd"}]),
        ),
        (
            &[r#"{"text":"a","thoughtSignature":"s"}"#, r#"{"text":"b","thoughtSignature":"t"}"#],
            json!([{"text": "a", "thoughtSignature": "s"}, {"text": "b", "thoughtSignature": "t"}]),
        ),
        // On an empty text, at the end or before something else.
        (
            &[r#"{"text":"a"}"#, r#"{"text":"","thoughtSignature":"s"}"#],
            json!([{"text": "a"}, {"text": "", "thoughtSignature": "s"}]),
        ),
        (
            &[r#"{"thoughtSignature":"s"}"#, r#"{"functionCall":{"name":"a"}}"#],
            json!([{"text": "", "thoughtSignature": "s"}, {"functionCall": {"name": "a", "args": {}}}]),
        ),
        // After a thought, which stays behind; the signature is not the thought's.
        (
            &[r#"{"text":"hm","thought":true}"#, r#"{"functionCall":{"name":"a"},"thoughtSignature":"s"}"#],
            json!([{"functionCall": {"name": "a", "args": {}}, "thoughtSignature": "s"}]),
        ),
        (
            &[r#"{"text":"hm","thought":true}"#, r#"{"text":"","thoughtSignature":"s"}"#, r#"{"text":"a"}"#],
            json!([{"text": "", "thoughtSignature": "s"}, {"text": "a"}]),
        ),
        // On a thought.
        (
            &[r#"{"text":"hm","thought":true,"thoughtSignature":"s"}"#, r#"{"text":"a"}"#],
            json!([{"text": "hm", "thought": true, "thoughtSignature": "s"}, {"text": "a"}]),
        ),
        // On a block of the service.
        (
            &[
                r#"{"toolCall":{"id":"1"},"thoughtSignature":"s"},{"toolResponse":{"id":"1"},"thoughtSignature":"t"}"#,
            ],
            json!([
                {"toolCall": {"id": "1"}, "thoughtSignature": "s"},
                {"toolResponse": {"id": "1"}, "thoughtSignature": "t"}
            ]),
        ),
    ] {
        assert_eq!(again(chunks), back, "{chunks:?}");
    }
}

#[test]
fn a_stored_message_says_the_same() {
    let body = stream(&[
        &parts(r#"{"text":"a","thoughtSignature":"s"},{"text":"b"}"#),
        &parts(r#"{"text":"","thoughtSignature":"t"}"#),
        r#""finishReason":"STOP""#,
    ]);
    let message = reply(&body).0.into_message();
    let stored: Message = serde_json::from_str(&serde_json::to_string(&message).unwrap()).unwrap();
    assert_eq!(contents("m", [stored]), contents("m", [message]));
}

fn call(id: &str, name: &str) -> ToolCall {
    ToolCall::new(id, name, Arguments::parse(r#"{ "x": 1.0 }"#).unwrap())
}

#[test]
fn ids_that_we_made_are_not_sent() {
    let (own, made) = (call("own", "a"), call("gemini-call-1", "b"));
    let results = Message::tool([ToolResult::text(&own, "1"), ToolResult::error(&made, "no")]);
    let asked = Message::new(Role::Assistant, vec![Part::ToolCall(own), Part::ToolCall(made)]);
    assert_eq!(
        contents("gemini-2.5-flash", [asked, results]),
        json!([
            {"role": "model", "parts": [
                {"functionCall": {"id": "own", "name": "a", "args": {"x": 1.0}}},
                {"functionCall": {"name": "b", "args": {"x": 1.0}}}]},
            {"role": "user", "parts": [
                {"functionResponse": {"id": "own", "name": "a", "response": {"output": "1"}}},
                {"functionResponse": {"name": "b", "response": {"error": "no"}}}]},
        ])
    );
}

#[test]
fn calls_of_other_services_get_a_stand_in_where_signatures_are_wanted() {
    let foreign = Part::Reasoning(Reasoning::new("hm", Some(Signature::new("other", "secret"))));
    let message = Message::new(
        Role::Assistant,
        vec![foreign, Part::ToolCall(call("1", "a")), Part::ToolCall(call("2", "b"))],
    );
    let message = Arc::new(message);
    for (model, first) in [
        ("gemini-2.5-flash", Value::Null),
        ("gemini-3-flash-preview", json!("c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=")),
    ] {
        let request = Request::new(model, [Arc::clone(&message)].into_iter().collect());
        let body = String::from_utf8(encode(&request)).unwrap();
        assert!(!body.contains("secret") && !body.contains("hm"), "{body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        let parts = &body["contents"][0]["parts"];
        assert_eq!(
            (&parts[0]["thoughtSignature"], &parts[1]["thoughtSignature"]),
            (&first, &Value::Null),
            "{model}"
        );
    }
}

#[test]
fn blocks_and_silence_of_other_services_stay_behind() {
    let foreign = Part::Opaque(entourage_core::message::Opaque::new("other", json!({"x": 1})));
    let odd = Part::Opaque(entourage_core::message::Opaque::new("gemini", json!("no object")));
    let silent = Message::new(Role::Assistant, vec![foreign, odd, Part::Text(String::new())]);
    assert_eq!(
        contents("m", [silent, Message::user("go")]),
        json!([{"role": "user", "parts": [{"text": "go"}]}])
    );
}
