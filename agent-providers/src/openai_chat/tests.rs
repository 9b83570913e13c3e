//! Encoded requests: bodies as services must get them, and bytes that are made once.

use std::sync::Arc;

use entourage_core::{
    message::{
        Arguments, Content, History, Media, MediaSource, Message, Part, Reasoning, Role, Signature, ToolCall,
        ToolResult,
    },
    provider::{Params, Request, ToolChoice},
    tool::ToolSpec,
};
use serde_json::{Value, json};

use super::{Dialect, OpenAiChat, encode};

fn body(request: &Request) -> Value {
    serde_json::from_slice(&encode(request, Dialect::COMMON)).unwrap()
}

fn messages(messages: impl IntoIterator<Item = Message>) -> Value {
    body(&Request::new("m", messages.into_iter().collect::<History>()))["messages"].clone()
}

fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall::new(id, name, Arguments::parse(arguments).unwrap())
}

/// A conversation with every kind of message, `n` rounds long.
fn history(n: usize) -> Vec<Message> {
    (0..n)
        .flat_map(|n| {
            let call = call(&format!("c{n}"), "look", r#"{ "at" : "Zürich \"x\"" }"#);
            let png = Media::new("image/png", MediaSource::Base64("aGk=".into()));
            let mut result = ToolResult::text(&call, "seen");
            result.content.push(Content::Media(png.clone()));
            [
                Message::user(format!("ask {n}\n\t\u{1}")).with(Part::Media(png)),
                Message::new(Role::Assistant, vec![Part::Reasoning(Reasoning::new("hm", None))]),
                Message::assistant("").with(Part::ToolCall(call)),
                Message::tool([result]),
                Message::assistant(format!("answer {n} 🦀")),
            ]
        })
        .collect()
}

#[test]
fn a_request_becomes_the_body_that_the_wire_defines() {
    let spec = ToolSpec::new("look", "Looks.", json!({"type": "object", "properties": {}}));
    let mut params = Params::default();
    params.temperature = Some(0.5);
    params.max_output = Some(100);
    params.stop = vec!["END".into()];
    params.seed = Some(-1);
    params.parallel_tool_calls = Some(false);
    let request = Request::new("m", [Message::user("Hi")].into_iter().collect())
        .with_instructions("Be \"brief\".\n")
        .with_tools([spec])
        .with_tool_choice(ToolChoice::Tool("look".into()))
        .with_params(params);
    assert_eq!(
        body(&request),
        json!({
            "model": "m",
            "tools": [{"type": "function", "function": {"name": "look", "description": "Looks.",
                       "parameters": {"type": "object", "properties": {}}}}],
            "tool_choice": {"type": "function", "function": {"name": "look"}},
            "parallel_tool_calls": false,
            "temperature": 0.5, "max_tokens": 100, "stop": ["END"], "seed": -1,
            "stream_options": {"include_usage": true}, "stream": true,
            "messages": [{"role": "system", "content": "Be \"brief\".\n"}, {"role": "user", "content": "Hi"}],
        })
    );
}

#[test]
fn cm18_what_is_absent_is_left_out() {
    let mut params = Params::default();
    params.max_output = Some(0);
    params.temperature = Some(f64::NAN);
    params.parallel_tool_calls = None;
    let request =
        Request::new("m", History::default()).with_params(params).with_tool_choice(ToolChoice::Required);
    assert_eq!(
        body(&request),
        json!({"model": "m", "stream_options": {"include_usage": true}, "stream": true, "messages": []})
    );
}

#[test]
fn dialects_change_names_and_leave_out_what_is_unknown() {
    let mut params = Params::default();
    params.max_output = Some(9);
    params.top_k = Some(40);
    let request = Request::new("m", History::default()).with_params(params);
    let body = |dialect| -> Value { serde_json::from_slice(&encode(&request, dialect)).unwrap() };
    let openai = body(Dialect::OPENAI);
    assert_eq!((&openai["max_completion_tokens"], &openai["top_k"]), (&json!(9), &Value::Null));
    let warned = |dialect| encode::encode_with_tools(&request, dialect, &[], "x").warnings;
    assert_eq!(&*warned(Dialect::OPENAI)[0].subject, "top_k");
    let common = body(Dialect::COMMON);
    assert_eq!((&common["max_tokens"], &common["top_k"]), (&json!(9), &json!(40)));
    assert_eq!(warned(Dialect::COMMON), []);
    assert!(body(Dialect::MISTRAL).get("stream_options").is_none());
}

#[test]
fn extra_is_merged_last_and_cannot_take_the_call_apart() {
    let mut params = Params::default();
    params.temperature = Some(0.5);
    params.extra = Some(json!({
        "temperature": 0.9, "stream_options": null, "reasoning": {"effort": "low"}, "messages": [], "stream": false,
    }));
    let request = Request::new("m", [Message::user("Hi")].into_iter().collect()).with_params(params);
    let text = String::from_utf8(encode(&request, Dialect::COMMON)).unwrap();
    assert_eq!(text.matches("temperature").count(), 1);
    assert_eq!(
        body(&request),
        json!({"model": "m", "temperature": 0.9, "reasoning": {"effort": "low"}, "stream": true,
               "messages": [{"role": "user", "content": "Hi"}]})
    );
}

#[test]
fn calls_and_results_keep_their_text_and_order() {
    let one = call("a", "f", r#"{ "x": 1 }"#);
    let mut bad = call("b", "g", "");
    bad.malformed = Some("no JSON".into());
    let results = [ToolResult::text(&one, "1"), ToolResult::error(&bad, "no")];
    let assistant = Message::new(
        Role::Assistant,
        vec![
            Part::Reasoning(Reasoning::new("secret", Some(Signature::new(encode::WIRE, "sig")))),
            Part::Text("I look.".into()),
            Part::ToolCall(one),
            Part::ToolCall(bad),
        ],
    );
    assert_eq!(
        messages([assistant, Message::tool(results)]),
        json!([
            {"role": "assistant", "content": "I look.", "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{ \"x\": 1 }"}},
                {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "a", "content": "1"},
            {"role": "tool", "tool_call_id": "b", "content": "no"},
        ])
    );
    let silent = Message::new(Role::Assistant, vec![Part::Reasoning(Reasoning::new("hm", None))]);
    assert_eq!(messages([silent, Message::user("go")]), json!([{"role": "user", "content": "go"}]));
    let mute = Message::new(Role::Assistant, vec![Part::ToolCall(call("a", "f", "{}"))]);
    assert_eq!(messages([mute])[0]["content"], Value::Null);
}

#[test]
fn cm19_media_of_tools_follows_in_a_message_of_the_user() {
    let (one, two) = (call("a", "shot", "{}"), call("b", "f", "{}"));
    let mut result = ToolResult::text(&one, "taken");
    let mut png = Media::new("image/png", MediaSource::Base64("aGk=".into()));
    png.name = Some("s.png".into());
    let broken = Media::new("image/png", MediaSource::Base64("not base64".into()));
    let video = Media::new("video/mp4", MediaSource::Base64("aGk=".into()));
    result.content.extend([Content::Media(png), Content::Media(broken), Content::Media(video)]);
    let text = "taken\n[image/png s.png: see the next message of the user]\n[image/png: left out, its base64 text is broken]\n\
                [video/mp4: left out, this service cannot be shown such a file]";
    assert_eq!(
        messages([Message::tool([result, ToolResult::text(&two, "ok")])]),
        json!([
            {"role": "tool", "tool_call_id": "a", "content": text},
            {"role": "tool", "tool_call_id": "b", "content": "ok"},
            {"role": "user", "content": [
                {"type": "text", "text": "image/png s.png returned by the tool `shot`:"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}]},
        ])
    );
}

#[test]
fn files_of_the_user_are_shown_or_named() {
    let url = |text: &str| Part::Media(Media::new("image/jpeg", MediaSource::Url(text.into())));
    let data = |mime: &str| Part::Media(Media::new(mime, MediaSource::Base64("aGk=".into())));
    let message = Message::user("See")
        .with(url("https://h/i"))
        .with(url("file:///etc/x"))
        .with(data("application/pdf"))
        .with(data("audio/wav"));
    assert_eq!(
        messages([message])[0]["content"],
        json!([
            {"type": "text", "text": "See"},
            {"type": "image_url", "image_url": {"url": "https://h/i"}},
            {"type": "text", "text": "[image/jpeg: left out, only http and https addresses are passed on]"},
            {"type": "file", "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,aGk="}},
            {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
        ])
    );
}

#[test]
fn the_messages_of_a_request_are_a_byte_prefix_of_the_next() {
    let spec = ToolSpec::new("look", "Looks.", json!({"type": "object"}));
    let request = |messages: &[Arc<Message>]| {
        Request::new("m", messages.iter().cloned().collect())
            .with_instructions("sys")
            .with_tools([spec.clone()])
    };
    let all: Vec<_> = history(4).into_iter().map(Arc::new).collect();
    let mut before: Vec<u8> = Vec::new();
    for n in 1..=all.len() {
        let body = encode(&request(&all[..n]), Dialect::COMMON);
        let open = body.strip_suffix(b"]}").unwrap();
        assert!(open.starts_with(&before), "request {n} does not begin with the one before it");
        serde_json::from_slice::<Value>(&body).unwrap();
        before = open.to_vec();
    }
}

#[test]
fn a_message_is_encoded_once() {
    let all: History = history(3).into_iter().collect();
    let request = Request::new("m", all.clone());
    let body = encode(&request, Dialect::COMMON);
    let kept: Vec<_> = all
        .iter()
        .map(|message| message.encoded(encode::WIRE, |_| panic!("encoded a second time")))
        .collect();
    assert_eq!(encode(&request, Dialect::COMMON), body);
    let again = all.iter().map(|message| message.encoded(encode::WIRE, |_| panic!("encoded a second time")));
    assert!(kept.iter().zip(again).all(|(one, two)| std::ptr::eq(&raw const **one, &raw const *two)));
}

#[test]
fn names_and_dialects_follow_the_address_and_debug_shows_no_secret() {
    let provider =
        OpenAiChat::builder().api_key("sk-very-secret").header("x-key", "hidden-value").build().unwrap();
    assert_eq!((provider.0.vendor(), provider.0.wire().0), ("openai", Dialect::OPENAI));
    assert_eq!(provider.base_url(), "https://api.openai.com/v1");
    let other =
        OpenAiChat::builder().base_url("https://llm.example/v1?k=v").vendor_name("mine").build().unwrap();
    assert_eq!((other.0.vendor(), other.0.wire().0), ("mine", Dialect::COMMON));
    assert_eq!(other.base_url(), "https://llm.example/v1");
    let builder = OpenAiChat::builder().api_key("sk-very-secret").header("x-key", "hidden-value");
    for shown in [
        format!("{provider:?}"),
        format!("{builder:?}"),
        format!("{:?}", provider.model("m")),
        format!("{other:?}"),
    ] {
        assert!(!shown.contains("secret") && !shown.contains("hidden") && !shown.contains("k=v"), "{shown}");
    }
}
