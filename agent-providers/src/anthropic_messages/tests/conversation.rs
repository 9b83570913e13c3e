//! Turns, cache marks, and the bytes that stay the same from one request to the next.

use std::sync::Arc;

use entourage_core::{
    message::{History, Media, MediaSource, Message, Opaque, Part, Reasoning, Role, Signature, ToolResult},
    provider::{Params, Profile, PromptCache, Request},
    tool::ToolSpec,
};
use serde_json::{Value, json};

use super::{body, call};
use crate::anthropic_messages::{NAME, encode};

fn params(cache: Option<PromptCache>) -> Params {
    let mut params = Params::default();
    params.cache = cache;
    params
}

fn conversation(steps: usize) -> Vec<Message> {
    let mut all = vec![Message::system("House rules."), Message::user("Start.")];
    for n in 0..steps {
        let one = call(&format!("c{n}"), "look", r#"{ "n": 1 }"#);
        let signature = Signature::new(NAME, format!("sig{n}"));
        all.push(Message::new(
            Role::Assistant,
            vec![
                Part::Reasoning(Reasoning::new("Hm.", Some(signature))),
                Part::Text(format!("Step {n}.")),
                Part::Opaque(Opaque::new(
                    NAME,
                    json!({"type": "server_tool_use", "id": "s", "input": {"b": 1, "a": 2}}),
                )),
                Part::ToolCall(one.clone()),
            ],
        ));
        let mut result = ToolResult::text(&one, "seen");
        let png = Media::new("image/png", MediaSource::Base64("aGk=".into()));
        result.content.push(entourage_core::message::Content::Media(png));
        all.push(Message::tool([result]));
        if n % 2 == 0 {
            all.push(Message::user("And?"));
        }
        if n % 3 == 0 {
            all.push(Message::system("Mind the time."));
        }
    }
    all
}

fn request(messages: &[Arc<Message>], cache: Option<PromptCache>) -> Request {
    Request::new("m", messages.iter().cloned().collect())
        .with_instructions("Be brief.")
        .with_tools([ToolSpec::new("look", "Looks.", json!({"type": "object", "properties": {}}))])
        .with_params(params(cache))
}

fn without_marks(body: &[u8]) -> String {
    let text = String::from_utf8(body.to_vec()).unwrap();
    text.replace(r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#, "")
        .replace(r#","cache_control":{"type":"ephemeral"}"#, "")
}

#[test]
fn prefix_each_request_begins_with_the_one_before_it() {
    for cache in [None, Some(PromptCache::Short), Some(PromptCache::Long)] {
        let all: Vec<_> = conversation(40).into_iter().map(Arc::new).collect();
        let mut before = String::new();
        for n in 2..=all.len() {
            let body = encode(&request(&all[..n], cache));
            serde_json::from_slice::<Value>(&body).unwrap();
            let open = without_marks(&body);
            let open = open.strip_suffix("]}]}").unwrap();
            assert!(open.starts_with(&before), "request {n} does not begin with the one before it");
            before = open.to_owned();
        }
    }
}

#[test]
fn prefix_a_message_is_encoded_once_for_each_sight() {
    let all: History = conversation(3).into_iter().collect();
    let request = Request::new("m", all.clone());
    let first = encode(&request);
    for message in all.iter().skip(1) {
        message.encoded(NAME, |_| panic!("encoded a second time"));
    }
    assert_eq!(encode(&request), first);
    let mut blind = Profile::default();
    blind.vision = Some(false);
    let text = String::from_utf8(encode(&request.clone().with_profile(blind))).unwrap();
    assert!(text.contains("this model does not see images") && !text.contains("\"image\""));
    assert_eq!(encode(&request), first);
}

#[test]
fn cache_marks_are_on_the_last_tool_the_system_prompt_and_the_last_two_turns() {
    let all: Vec<_> = conversation(3).into_iter().map(Arc::new).collect();
    let count = |body: &[u8]| String::from_utf8_lossy(body).matches("cache_control").count();
    let long = request(&all, Some(PromptCache::Long));
    assert_eq!(count(&encode(&long)), 4);
    assert_eq!(count(&encode(&request(&all, None))), 0);
    assert_eq!(count(&encode(&request(&all[..2], Some(PromptCache::Short)))), 3);
    let (found, _) = body(&long);
    let mark = json!({"type": "ephemeral", "ttl": "1h"});
    assert_eq!(found["tools"][0]["cache_control"], mark);
    let system = found["system"].as_array().unwrap();
    assert_eq!((system.len(), &system[1]["cache_control"], system[0].get("cache_control")), (2, &mark, None));
    let turns = found["messages"].as_array().unwrap();
    let marked: Vec<_> = turns
        .iter()
        .filter(|turn| {
            turn["content"].as_array().unwrap().last().unwrap().get("cache_control") == Some(&mark)
        })
        .collect();
    let users: Vec<_> = turns.iter().filter(|turn| turn["role"] == "user").collect();
    assert_eq!(marked, users[users.len() - 2..]);
    let short = Request::new("m", [Message::user("a")].into_iter().collect())
        .with_params(params(Some(PromptCache::Short)));
    assert_eq!(body(&short).0["messages"][0]["content"][0]["cache_control"], json!({"type": "ephemeral"}));
}

#[test]
fn turns_alternate_and_results_come_first() {
    let one = call("a", "f", "{}");
    let history = [
        Message::system("one"),
        Message::system("two"),
        Message::user("q"),
        Message::user(" \n"),
        Message::user("r"),
        Message::new(Role::Assistant, vec![Part::ToolCall(one.clone())]),
        Message::tool([ToolResult::error(&one, "no")]),
        Message::system("late"),
        Message::user("go on"),
        Message::new(Role::Assistant, vec![Part::Reasoning(Reasoning::new("unsigned", None))]),
        Message::user("well?"),
    ];
    let text = |text: &str| json!({"type": "text", "text": text});
    let (found, warnings) = body(&Request::new("m", history.clone().into_iter().collect()));
    assert_eq!(found["system"], json!([text("one"), text("two")]));
    assert_eq!(
        found["messages"],
        json!([
            {"role": "user", "content": [text("q"), text("r")]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "no", "is_error": true},
                text("<system>\nlate\n</system>"), text("go on"), text("well?")]},
        ])
    );
    assert!(warnings.is_empty(), "what is not new was warned of: {warnings:?}");
    let (_, warnings) = body(&Request::new("m", history.into_iter().take(9).collect()));
    assert_eq!(warnings, ["system"]);
}
