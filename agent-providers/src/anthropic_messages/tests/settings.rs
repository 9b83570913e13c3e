//! Settings of a request and of the provider.

use entourage_core::{
    message::History,
    provider::{Effort, OutputFormat, OutputSchema, Profile, PromptCache, Request, ToolChoice, WarningKind},
    tool::ToolSpec,
};
use serde_json::{Value, json};

use super::{asked, body, encoded, hello};
use crate::anthropic_messages::{AnthropicMessages, Messages, encode, profile::profile, tools};
use crate::service::Wire;

#[test]
fn a_plain_request_says_what_the_wire_demands() {
    let (found, warnings) = body(&asked("m", |_| {}).with_instructions("Be brief."));
    assert_eq!(
        found,
        json!({"model": "m", "max_tokens": 8192, "stream": true, "system": [{"type": "text", "text": "Be brief."}],
               "messages": hello()})
    );
    assert!(warnings.is_empty());
    let address = Messages.address(&asked("m", |_| {}));
    assert_eq!(address.path, ["messages"]);
    assert_eq!(address.headers, [("anthropic-version", "2023-06-01".to_owned())]);
}

#[test]
fn settings_are_said_or_warned_of() {
    let (found, warnings) = encoded(&asked("some-model", |params| {
        params.temperature = Some(1.5);
        params.top_p = Some(0.5);
        params.top_k = Some(7);
        params.seed = Some(1);
        params.presence_penalty = Some(0.1);
        params.frequency_penalty = Some(0.1);
        params.stop = vec!["END".into(), " \n".into()];
        params.metadata = [("user_id".into(), "u1".into()), ("team".into(), "x".into())].into();
    }));
    assert_eq!(
        found,
        json!({"model": "some-model", "max_tokens": 8192, "temperature": 1.5, "top_p": 0.5, "top_k": 7,
               "stop_sequences": ["END"], "metadata": {"user_id": "u1"}, "stream": true, "messages": hello()})
    );
    let about: Vec<_> = warnings.iter().map(|warning| &*warning.subject).collect();
    assert_eq!(about, ["seed", "presence_penalty", "frequency_penalty", "stop", "metadata"]);
    assert!(warnings.iter().all(|warning| warning.kind == WarningKind::Setting));
    assert_eq!(&*warnings[0].text, "anthropic does not know `seed`; it was left out");

    let (found, warnings) = body(&asked("claude-sonnet-4-5", |params| {
        (params.temperature, params.top_p) = (Some(1.5), Some(0.5));
    }));
    assert_eq!((&found["temperature"], &found["top_p"]), (&json!(1.0), &Value::Null));
    assert_eq!(warnings, ["temperature", "top_p"]);
}

#[test]
fn sampling_is_left_out_where_the_model_refuses_it() {
    let mut known = Profile::default();
    known.sampling = Some(false);
    let request = asked("claude-opus-4-8", |params| {
        (params.temperature, params.top_p, params.top_k) = (Some(0.5), Some(0.99), Some(1));
    });
    let (found, warnings) = body(&request.with_profile(known));
    assert_eq!(
        found,
        json!({"model": "claude-opus-4-8", "max_tokens": 8192, "stream": true, "messages": hello()})
    );
    assert_eq!(warnings, ["temperature", "top_p", "top_k"]);
}

#[test]
fn the_output_limit_comes_from_the_first_who_knows_it() {
    let mut known = Profile::default();
    known.max_output = Some(1_000);
    let limit = |request: Request| {
        let (found, warnings) = body(&request);
        (found["max_tokens"].clone(), warnings.len())
    };
    let of = |tokens| asked("m", |params| params.max_output = tokens);
    assert_eq!(limit(of(None)), (json!(8192), 0));
    assert_eq!(limit(of(Some(0))), (json!(8192), 0));
    assert_eq!(limit(of(Some(50))), (json!(50), 0));
    assert_eq!(limit(of(None).with_profile(known.clone())), (json!(1000), 0));
    assert_eq!(limit(of(Some(2_000)).with_profile(known)), (json!(1000), 1));
    assert_eq!(limit(asked("m", |params| params.extra = Some(json!({"max_tokens": 3})))), (json!(3), 0));
}

/// `thinking`, the effort, and the number of warnings.
fn thinks(
    model: &str,
    effort: Option<Effort>,
    budget: Option<u64>,
    show: Option<bool>,
) -> (Value, Value, usize) {
    let request = asked(model, |params| {
        params.max_output = Some(20_000);
        let asked = params.reasoning.insert(Default::default());
        (asked.effort, asked.budget, asked.show) = (effort, budget, show);
    });
    let (found, warnings) = body(&request);
    (found["thinking"].clone(), found["output_config"]["effort"].clone(), warnings.len())
}

#[test]
fn reasoning_is_asked_for_in_the_form_that_the_model_takes() {
    let budget = |tokens: u64| json!({"type": "enabled", "budget_tokens": tokens});
    let adaptive = json!({"type": "adaptive"});
    let none = Value::Null;
    // Models of no known name, and earlier ones: a budget.
    assert_eq!(thinks("m", Some(Effort::Low), None, None), (budget(2_048), none.clone(), 0));
    assert_eq!(
        thinks("claude-sonnet-4-5", Some(Effort::Medium), None, None),
        (budget(8_192), none.clone(), 0)
    );
    assert_eq!(thinks("m", Some(Effort::Max), None, None), (budget(10_000), none.clone(), 0));
    assert_eq!(thinks("m", None, Some(3_000), None), (budget(3_000), none.clone(), 0));
    assert_eq!(thinks("m", Some(Effort::High), Some(1), None), (budget(1_024), none.clone(), 1));
    assert_eq!(thinks("m", None, Some(90_000), None), (budget(19_999), none.clone(), 1));
    // Later ones: an effort. Those between take both.
    assert_eq!(
        thinks("claude-opus-4-6", Some(Effort::Minimal), None, None),
        (adaptive.clone(), json!("low"), 0)
    );
    assert_eq!(thinks("claude-opus-4-6", None, Some(3_000), None), (budget(3_000), none.clone(), 0));
    assert_eq!(thinks("claude-opus-4-7", None, Some(3_000), None), (adaptive.clone(), json!("medium"), 1));
    assert_eq!(thinks("claude-sonnet-5", Some(Effort::Max), None, None), (adaptive.clone(), json!("max"), 0));
    // Shown, or not.
    let shown = json!({"type": "adaptive", "display": "summarized"});
    assert_eq!(thinks("claude-sonnet-5", None, None, Some(true)), (shown, none.clone(), 0));
    let hidden = json!({"type": "enabled", "budget_tokens": 8192, "display": "omitted"});
    assert_eq!(thinks("m", Some(Effort::Medium), None, Some(false)), (hidden, none.clone(), 0));
    assert_eq!(thinks("m", None, None, Some(false)), (none.clone(), none.clone(), 0));
    // Off.
    let off = json!({"type": "disabled"});
    assert_eq!(thinks("claude-opus-5", Some(Effort::None), None, None), (off.clone(), none.clone(), 0));
    assert_eq!(thinks("m", None, Some(0), None), (off, none.clone(), 0));
    assert_eq!(thinks("claude-fable-5", Some(Effort::None), None, None), (none.clone(), json!("low"), 1));
    assert_eq!(
        thinks("claude-3-5-haiku-20241022", Some(Effort::High), None, None),
        (none.clone(), none.clone(), 1)
    );
    assert_eq!(thinks("claude-3-5-haiku-20241022", Some(Effort::None), None, None), (none.clone(), none, 0));
}

#[test]
fn thinking_takes_away_what_the_service_refuses_beside_it() {
    let tool = ToolSpec::new("f", "", json!({}));
    let request = asked("m", |params| {
        params.reasoning = Some(Effort::Low.into());
        (params.temperature, params.top_p, params.top_k) = (Some(0.2), Some(0.97), Some(1));
    });
    let request = request.with_tools([tool]).with_tool_choice(ToolChoice::Required);
    let (found, warnings) = body(&request);
    assert_eq!(found["top_p"], json!(0.97));
    assert_eq!((found.get("temperature"), found.get("top_k"), found.get("tool_choice")), (None, None, None));
    assert_eq!(warnings, ["temperature", "top_k", "tool_choice"]);
    // No room to think in.
    let (found, warnings) = body(&asked("m", |params| {
        (params.reasoning, params.max_output) = (Some(Effort::Low.into()), Some(1_024));
    }));
    assert_eq!((found.get("thinking"), warnings.len()), (None, 1));
    // The caller's own field goes first, and counts.
    let request = asked("m", |params| {
        params.reasoning = Some(Effort::Low.into());
        params.temperature = Some(0.2);
        params.extra = Some(json!({"thinking": {"type": "adaptive"}}));
    });
    let (found, warnings) = body(&request);
    assert_eq!((&found["thinking"], found.get("temperature")), (&json!({"type": "adaptive"}), None));
    assert_eq!(warnings, ["temperature"]);
}

#[test]
fn names_of_models_are_read() {
    let facts = |name: &str| {
        let known = profile("anthropic", name);
        (known.max_output, known.reasoning, known.sampling)
    };
    for (name, expected) in [
        ("claude-3-opus-20240229", (Some(4_096), Some(false), None)),
        ("claude-3-5-sonnet-20241022", (Some(8_192), Some(false), None)),
        ("claude-3-7-sonnet@20250219", (Some(64_000), Some(true), None)),
        ("claude-opus-4-20250514", (Some(32_000), Some(true), None)),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", (Some(64_000), Some(true), None)),
        ("anthropic/claude-opus-4.6", (Some(128_000), Some(true), None)),
        ("claude-opus-4-7", (Some(128_000), Some(true), Some(false))),
        ("claude-mythos-preview", (Some(128_000), Some(true), Some(false))),
        ("claude-fable-5-1", (Some(128_000), Some(true), Some(false))),
        ("claude-", (None, None, None)),
        ("llama-4-6", (None, None, None)),
    ] {
        assert_eq!(facts(name), expected, "{name}");
    }
    for (vendor, name, searches) in [
        ("anthropic", "claude-haiku-4-5", Some(true)),
        ("anthropic", "claude-opus-5", Some(true)),
        ("anthropic", "claude-opus-4-1", None),
        ("gateway.example", "claude-haiku-4-5", None),
    ] {
        assert_eq!(profile(vendor, name).tool_search, searches, "{vendor}: {name}");
    }
}

#[test]
fn tool_choices_have_their_words() {
    let tool =
        ToolSpec::new("f", "Does.", json!({"type": "object", "properties": {"a": {"type": "string"}}}));
    let request = |choice: ToolChoice, parallel: Option<bool>| {
        let request = asked("m", |params| params.parallel_tool_calls = parallel);
        body(&request.with_tools([tool.clone()]).with_tool_choice(choice)).0["tool_choice"].clone()
    };
    assert_eq!(request(ToolChoice::Auto, None), Value::Null);
    assert_eq!(request(ToolChoice::Auto, Some(true)), Value::Null);
    assert_eq!(
        request(ToolChoice::Auto, Some(false)),
        json!({"type": "auto", "disable_parallel_tool_use": true})
    );
    assert_eq!(request(ToolChoice::None, Some(false)), json!({"type": "none"}));
    assert_eq!(request(ToolChoice::Required, None), json!({"type": "any"}));
    assert_eq!(
        request(ToolChoice::Tool("f".into()), Some(false)),
        json!({"type": "tool", "name": "f", "disable_parallel_tool_use": true})
    );
    let (found, _) = body(&asked("m", |_| {}).with_tool_choice(ToolChoice::Required));
    assert_eq!((found.get("tool_choice"), found.get("tools")), (None, None));
}

#[test]
fn tools_are_enforced_as_far_as_the_service_can() {
    let open =
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "$schema": "x"});
    let tools = [
        ToolSpec::new("a", "Does.", open.clone()),
        ToolSpec::new(
            "b",
            "",
            json!({"anyOf": [{"properties": {"x": {"type": "integer"}}}, {"properties": {"y": {}}}]}),
        ),
    ];
    let (found, warnings) = body(&asked("m", |_| {}).with_tools(tools.clone()));
    assert_eq!(
        found["tools"],
        json!([
            {"name": "a", "description": "Does.",
             "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}},
            {"name": "b", "input_schema": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {}}}},
        ])
    );
    assert_eq!(warnings, ["b"]);
    let (found, warnings) = body(&asked("m", |params| params.strict_tools = Some(true)).with_tools(tools));
    assert_eq!(found["tools"][0]["strict"], json!(true));
    assert_eq!(found["tools"][0]["input_schema"]["additionalProperties"], json!(false));
    assert_eq!(found["tools"][1].get("strict"), None);
    assert_eq!(warnings, ["b"]);
    let many: Vec<_> = (0..25).map(|n| ToolSpec::new(format!("t{n:02}"), "", open.clone())).collect();
    let (found, warnings) = body(&asked("m", |params| params.strict_tools = Some(true)).with_tools(many));
    let strict = found["tools"].as_array().unwrap().iter().filter(|tool| tool["strict"] == true).count();
    assert_eq!((strict, warnings.len()), (20, 5));
}

#[test]
fn the_form_of_a_reply_is_enforced_or_warned_of() {
    let schema =
        json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]});
    let request = asked("m", |params| params.reasoning = Some(Effort::Low.into()));
    let request = request.with_output(OutputSchema::new("out", schema));
    let (found, warnings) = body(&request);
    let format = &found["output_config"]["format"];
    assert_eq!(format["type"], json!("json_schema"));
    assert_eq!(format["schema"]["additionalProperties"], json!(false));
    assert_eq!(format["schema"]["properties"]["n"].get("minimum"), None);
    assert_eq!(warnings, ["output"]);
    let mut weak = Profile::default();
    weak.structured_output = Some(false);
    let (found, warnings) = body(&request.clone().with_profile(weak));
    assert_eq!((found.get("output_config"), warnings), (None, vec!["output".to_owned()]));
    let (found, warnings) = body(&asked("m", |_| {}).with_output(OutputFormat::Json));
    assert_eq!((found.get("output_config"), warnings), (None, vec!["output".to_owned()]));
    let endless = json!({"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"], "additionalProperties": false});
    let (found, warnings) = body(&asked("m", |_| {}).with_output(OutputSchema::new("out", endless)));
    assert_eq!((found.get("output_config"), warnings), (None, vec!["output".to_owned()]));
}

#[test]
fn extra_replaces_adds_and_merges() {
    let request = asked("claude-opus-4-6", |params| {
        params.temperature = Some(0.5);
        params.reasoning = Some(Effort::Low.into());
        params.extra = Some(json!({
            "service_tier": "auto", "metadata": null, "messages": [], "stream": false,
            "tools": [{"type": "web_search_20250305", "name": "web_search"}],
            "output_config": {"effort": "xhigh", "task_budget": 5},
        }));
    });
    let tool = ToolSpec::new("f", "", json!({}));
    let plain = json!({"name": "f", "input_schema": {"type": "object", "properties": {}}});
    let search = json!({"type": "web_search_20250305", "name": "web_search"});
    let (found, _) = body(&request.clone().with_tools([tool]));
    assert_eq!(
        (&found["service_tier"], &found["stream"], &found["messages"]),
        (&json!("auto"), &json!(true), &hello())
    );
    assert_eq!(found["tools"], json!([plain, search]));
    assert_eq!(found["output_config"], json!({"effort": "xhigh", "task_budget": 5}));
    assert_eq!(body(&request).0["tools"], json!([search]));
    let silent = Request::new("m", History::default());
    let found: Value = serde_json::from_slice(&encode(&silent)).unwrap();
    assert_eq!(found["messages"], json!([]));
}

#[test]
fn providers_are_built_for_any_address_and_show_no_secret() {
    let builder = || AnthropicMessages::builder().api_key("sk-very-secret").header("x-key", "hidden-value");
    let provider = builder().build().unwrap();
    assert_eq!(
        (provider.base_url(), provider.0.vendor()),
        ("https://api.anthropic.com/v1".to_owned(), "anthropic")
    );
    let other = builder().base_url("https://llm.example/v1").bearer().build().unwrap();
    assert_eq!((other.base_url(), other.0.vendor()), ("https://llm.example/v1".to_owned(), "llm.example"));
    let refused = builder().base_url("http://llm.example/v1").build().unwrap_err();
    assert_eq!(refused.kind(), entourage_core::ErrorKind::Config);
    for shown in [
        format!("{provider:?}"),
        format!("{:?}", builder()),
        format!("{:?}", provider.model("m")),
        format!("{refused:?}"),
    ] {
        assert!(!shown.contains("secret") && !shown.contains("hidden"), "{shown}");
    }
    let known = provider.model("claude-opus-4-7");
    assert!(format!("{known:?}").contains("claude-opus-4-7"));
}

#[test]
fn issue_15_deferred_tools_are_declared_and_searched_by_the_service() {
    let spec = |name: &str| ToolSpec::new(name, "", json!({"type": "object"}));
    let tools = [
        spec("ask"),
        spec("find").finding_deferred(),
        spec("rate").deferred(),
        spec("stock").deferred(),
        spec("use").calling_deferred(),
    ];
    let declared = |tools: &[ToolSpec]| -> Value {
        let items = String::from_utf8(tools::encode(tools, false)).unwrap();
        serde_json::from_str(&format!("[{items}]")).unwrap()
    };
    let object = json!({"type": "object", "properties": {}});
    let shown = json!({"name": "ask", "input_schema": object});
    assert_eq!(
        declared(&tools),
        json!([
            shown,
            {"name": "rate", "input_schema": object, "defer_loading": true},
            {"name": "stock", "input_schema": object, "defer_loading": true},
            {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
        ])
    );
    // There is nothing to search.
    let find = json!({"name": "find", "input_schema": object});
    assert_eq!(declared(&tools[..2]), json!([shown, find]));
    // The cache marker is at none of them, which the service would refuse.
    let messages = Messages;
    let cached = asked("m", |params| params.cache = Some(PromptCache::Short)).with_tools(tools);
    let encoded = messages.encode(&cached, &messages.encode_tools(&cached.tools, false), "v");
    let sent: Value = serde_json::from_slice(&encoded.body).unwrap();
    let marked: Vec<_> = (0..4).map(|place| sent["tools"][place].get("cache_control").is_some()).collect();
    assert_eq!(marked, [false, false, false, true]);
}
