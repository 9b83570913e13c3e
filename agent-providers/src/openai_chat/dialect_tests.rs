//! Requests in each dialect, and reasoning on its way back.

use std::sync::Arc;

use entourage_core::{
    Usage,
    message::{History, Media, MediaSource, Message, Part, Reasoning, Role, Signature},
    provider::{
        Effort, OutputFormat, OutputSchema, Params, Profile, PromptCache, ReasoningParams, Request, Size,
    },
    tool::ToolSpec,
};
use entourage_runtime::reply::Assembler;
use serde_json::{Value, json};

use super::{Dialect, OpenAiChatDecoder, encode};

fn encoded(request: &Request, dialect: Dialect) -> (Value, Vec<String>) {
    let strict = dialect.strict_tools && request.params.strict_tools == Some(true);
    let tools = encode::encode_tools(&request.tools, strict);
    let encoded = encode::encode_with_tools(request, dialect, &tools, "it");
    let warned = encoded.warnings.iter().map(|warning| warning.subject.to_string()).collect();
    (serde_json::from_slice(&encoded.body).unwrap(), warned)
}

fn ask() -> Request {
    Request::new("m", [Message::user("Hi")].into_iter().collect())
}

fn with(set: impl FnOnce(&mut Params)) -> Request {
    let mut params = Params::default();
    set(&mut params);
    ask().with_params(params)
}

#[test]
fn reasoning_is_asked_for_in_each_service_s_words() {
    let effort = |effort: Effort| ReasoningParams::from(effort);
    let mut budget = ReasoningParams::default();
    budget.budget = Some(3_000);
    let mut hidden = effort(Effort::High);
    hidden.show = Some(false);
    let cases: [(Dialect, ReasoningParams, &str, Value, &[&str]); 9] = [
        (Dialect::OPENAI, effort(Effort::Max), "reasoning_effort", json!("xhigh"), &[]),
        (Dialect::OPENAI, effort(Effort::None), "reasoning_effort", json!("none"), &[]),
        (Dialect::COMMON, effort(Effort::Low), "reasoning_effort", json!("low"), &[]),
        (Dialect::COMMON, effort(Effort::Max), "reasoning_effort", json!("high"), &["reasoning"]),
        (Dialect::COMMON, budget, "reasoning_effort", json!("medium"), &["reasoning.budget"]),
        (Dialect::OPENROUTER, budget, "reasoning", json!({"max_tokens": 3_000}), &[]),
        (Dialect::OPENROUTER, hidden, "reasoning", json!({"effort": "high", "exclude": true}), &[]),
        (Dialect::DEEPSEEK, effort(Effort::None), "thinking", json!({"type": "disabled"}), &[]),
        (Dialect::DEEPSEEK, effort(Effort::High), "thinking", json!({"type": "enabled"}), &["reasoning"]),
    ];
    for (dialect, reasoning, key, wanted, warned) in cases {
        let (body, warnings) = encoded(&with(|params| params.reasoning = Some(reasoning)), dialect);
        assert_eq!((&body[key], &warnings[..]), (&wanted, &warned.map_to_owned()[..]), "{reasoning:?}");
    }
}

trait MapToOwned {
    fn map_to_owned(&self) -> Vec<String>;
}

impl MapToOwned for &[&str] {
    fn map_to_owned(&self) -> Vec<String> {
        self.iter().map(|&text| text.to_owned()).collect()
    }
}

#[test]
fn what_a_service_or_model_cannot_honour_is_left_out_with_a_warning() {
    let all = |params: &mut Params| {
        params.temperature = Some(0.5);
        params.top_k = Some(3);
        params.seed = Some(7);
        params.presence_penalty = Some(0.1);
        params.parallel_tool_calls = Some(false);
        params.strict_tools = Some(true);
        params.cache = Some(PromptCache::Short);
        params.cache_key = Some("k".into());
        params.metadata.insert("job".into(), "7".into());
    };
    let spec = ToolSpec::new("look", "", json!({"type": "object", "properties": {"n": {"type": "integer"}}}));
    let request = with(all).with_tools([spec]);
    let (body, warned) = encoded(&request, Dialect::DEEPSEEK);
    assert_eq!(
        warned,
        ["cache", "parallel_tool_calls", "top_k", "seed", "metadata", "cache_key", "strict_tools"]
    );
    for key in ["top_k", "seed", "parallel_tool_calls", "metadata", "prompt_cache_key"] {
        assert!(body.get(key).is_none(), "{key}");
    }
    assert_eq!((&body["temperature"], &body["presence_penalty"]), (&json!(0.5), &json!(0.1)));
    let (body, warned) = encoded(&request, Dialect::OPENAI);
    assert_eq!(warned, ["top_k"]);
    assert_eq!((&body["prompt_cache_key"], &body["metadata"]), (&json!("k"), &json!({"job": "7"})));
    let function = &body["tools"][0]["function"];
    assert_eq!(
        (&function["strict"], &function["parameters"]["additionalProperties"]),
        (&json!(true), &json!(false))
    );
    let mut profile = Profile::default();
    profile.sampling = Some(false);
    let (body, warned) = encoded(&request.with_profile(profile), Dialect::OPENAI);
    assert_eq!(
        (body.get("temperature"), &warned[..]),
        (None, &["temperature", "top_k", "presence_penalty"].map(String::from)[..])
    );
    assert_eq!(encoded(&with(|params| params.seed = Some(7)), Dialect::MISTRAL).0["random_seed"], 7);
}

#[test]
fn replies_are_made_to_follow_a_schema_as_far_as_the_service_can() {
    let closed = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let request = |schema: &Value| ask().with_output(OutputSchema::new("answer", schema.clone()));
    let (body, warned) = encoded(&request(&closed), Dialect::OPENAI);
    assert_eq!(body["response_format"]["json_schema"]["strict"], true);
    assert_eq!(body["response_format"]["json_schema"]["schema"]["additionalProperties"], false);
    assert!(warned.is_empty());
    let open = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let (body, warned) = encoded(&request(&open), Dialect::OPENAI);
    assert!(body["response_format"]["json_schema"].get("strict").is_none());
    assert_eq!(warned, ["answer"]);
    let (body, _) = encoded(&request(&open), Dialect::COMMON);
    assert_eq!(body["response_format"]["json_schema"]["schema"], open);
    let (body, warned) = encoded(&request(&closed), Dialect::DEEPSEEK);
    assert_eq!(body["response_format"], json!({"type": "json_object"}));
    assert!(body["messages"][0]["content"].as_str().unwrap().contains(r#""n":{"type":"integer"}"#));
    assert_eq!(warned, ["answer"]);
    let (body, _) = encoded(&ask().with_output(OutputFormat::Json), Dialect::COMMON);
    assert_eq!(body["response_format"], json!({"type": "json_object"}));
}

#[test]
fn prefix_cache_marks_are_put_beside_the_kept_bytes() {
    let history: History =
        [Message::user("a"), Message::assistant("b"), Message::user("c"), Message::user("d")]
            .into_iter()
            .collect();
    let mut params = Params::default();
    params.cache = Some(PromptCache::Long);
    let request = Request::new("m", history).with_instructions("S").with_params(params);
    let (marked, warned) = encoded(&request, Dialect::OPENROUTER);
    let mark = json!({"type": "ephemeral", "ttl": "1h"});
    let marks: Vec<_> = marked["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["content"][0]["cache_control"] == mark)
        .collect();
    assert_eq!((marks, warned.len()), (vec![true, false, false, true, true], 0));
    let (plain, _) = encoded(&request.with_params(Params::default()), Dialect::OPENROUTER);
    assert_eq!(plain["messages"][3], json!({"role": "user", "content": "c"}));
}

#[test]
fn cm19_a_model_without_eyes_gets_a_note() {
    let png = Media::new("image/png", MediaSource::Base64("aGk=".into()));
    let history: History = [Message::user("look").with(Part::Media(png))].into_iter().collect();
    let mut profile = Profile::default();
    profile.vision = Some(false);
    let request = Request::new("m", history).with_profile(profile);
    let (body, warned) = encoded(&request, Dialect::COMMON);
    assert_eq!(body["messages"][0]["content"][1]["text"], "[image/png: left out, this model sees no images]");
    assert_eq!(warned, ["image/png"]);
    // The same message for a model with vision: nothing of the note is kept.
    let (body, warned) = encoded(&request.with_profile(Profile::default()), Dialect::COMMON);
    assert_eq!((&body["messages"][0]["content"][1]["type"], warned.len()), (&json!("image_url"), 0));
}

fn reply(chunks: &[Value]) -> Arc<Message> {
    let mut decoder = OpenAiChatDecoder::new(Dialect::COMMON);
    for chunk in chunks {
        decoder.push(format!("data: {}\n\n", json!({"choices": [{"delta": chunk}]})).as_bytes());
    }
    decoder.push(b"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n");
    decoder.finish();
    let mut assembler = Assembler::default();
    while let Some(delta) = decoder.pop() {
        assembler.push(&delta.unwrap()).unwrap();
    }
    Arc::new(assembler.finish().unwrap().into_message())
}

fn back(message: &Arc<Message>, dialect: Dialect) -> Value {
    let mut history = History::default();
    history.push(Arc::clone(message));
    encoded(&Request::new("m", history), dialect).0["messages"][0].clone()
}

#[test]
fn reasoning_goes_back_under_the_name_under_which_it_came() {
    for field in ["reasoning_content", "reasoning", "thinking"] {
        let message = reply(&[json!({field: "a"}), json!({field: "b"}), json!({"content": "c"})]);
        assert_eq!(
            back(&message, Dialect::COMMON),
            json!({"role": "assistant", "content": "c", field: "ab"})
        );
        assert_eq!(back(&message, Dialect::GROQ), json!({"role": "assistant", "content": "c"}));
    }
    let thinking = json!({"type": "thinking", "thinking": [{"type": "text", "text": "a"}]});
    let message = reply(&[json!({"content": [thinking]}), json!({"content": "c"})]);
    let content = json!([thinking, {"type": "text", "text": "c"}]);
    assert_eq!(back(&message, Dialect::MISTRAL), json!({"role": "assistant", "content": content}));
}

#[test]
fn details_of_reasoning_go_back_whole_and_signed() {
    let text = |text: &str| json!({"reasoning": text, "reasoning_details": [{"type": "reasoning.text", "text": text, "format": "f", "index": 0}]});
    let signed = json!({"reasoning_details": [{"type": "reasoning.text", "signature": "S==", "format": "f", "index": 0}]});
    let message = reply(&[text("a"), text("b"), signed, json!({"content": "c"})]);
    assert_eq!(
        back(&message, Dialect::OPENROUTER)["reasoning_details"],
        json!([{"type": "reasoning.text", "text": "ab", "signature": "S==", "format": "f", "index": 0}])
    );
    let summary = json!({"reasoning": "s", "reasoning_details": [{"type": "reasoning.summary", "summary": "s", "index": 0}]});
    let sealed = json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": "E", "id": "rs_1", "index": 1}]});
    let message = reply(&[summary, sealed, json!({"content": "c"})]);
    assert_eq!(
        back(&message, Dialect::OPENROUTER)["reasoning_details"],
        json!([{"type": "reasoning.summary", "summary": "s", "index": 0},
               {"type": "reasoning.encrypted", "data": "E", "id": "rs_1", "index": 1}])
    );
    let message = reply(&[text("a"), json!({"content": "c"})]);
    assert_eq!(
        back(&message, Dialect::OPENROUTER)["reasoning_details"],
        json!([{"type": "reasoning.text", "text": "a", "format": "f", "index": 0}])
    );
}

#[test]
fn reasoning_of_another_wire_stays_behind() {
    let foreign = Part::Reasoning(Reasoning::new("a", Some(Signature::new("other", "S"))));
    let unsigned = Part::Reasoning(Reasoning::new("b", None));
    let message = Message::new(Role::Assistant, vec![foreign, unsigned, Part::Text("c".into())]);
    assert_eq!(back(&Arc::new(message), Dialect::OPENROUTER), json!({"role": "assistant", "content": "c"}));
}

#[test]
fn models_come_with_what_is_known_of_them() {
    let openai = super::OpenAiChat::builder().api_key("k").build().unwrap();
    let known = openai.model("gpt-5.4-mini");
    assert!(known.profile().prices.is_some() && known.profile().context_window.is_some());
    let unknown = openai.model("somebody-s-own-7b");
    assert_eq!((unknown.profile().prices.clone(), unknown.profile().size), (None, Some(Size::M)));
    assert_eq!(unknown.cost(&Usage::new(10, 10)), None);
    let local = super::OpenAiChat::builder().base_url("http://127.0.0.1:8080/v1").build().unwrap();
    assert_eq!(local.model("any").profile().structured_output, Some(true));
}
