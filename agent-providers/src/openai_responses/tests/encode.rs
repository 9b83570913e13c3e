use std::sync::Arc;

use entourage_core::{
    message::{
        Arguments, Content, History, Media, MediaSource, Message, Opaque, Part, Reasoning, Role, Signature,
        ToolCall, ToolResult,
    },
    provider::{
        Effort, OutputFormat, OutputSchema, Params, Profile, PromptCache, ReasoningParams, Request,
        ToolChoice, Warning, WarningKind,
    },
    tool::ToolSpec,
};
use serde_json::{Value, json};

use super::{
    super::{NAME, OpenAiResponses, encode::encode_tools, encode::encode_with_tools},
    searched,
};

fn sent(request: &Request, vendor: &str) -> (Value, Vec<Warning>) {
    let strict = request.params.strict_tools == Some(true);
    let tools = encode_tools(&request.tools, strict);
    let encoded = encode_with_tools(request, &tools, vendor);
    (serde_json::from_slice(&encoded.body).unwrap(), encoded.warnings)
}

fn with(change: impl FnOnce(&mut Params)) -> Request {
    let mut params = Params::default();
    change(&mut params);
    Request::new("m", History::default()).with_params(params)
}

fn asked(change: impl FnOnce(&mut ReasoningParams)) -> ReasoningParams {
    let mut asked = ReasoningParams::default();
    change(&mut asked);
    asked
}

fn knowing(change: impl FnOnce(&mut Profile)) -> Profile {
    let mut profile = Profile::default();
    change(&mut profile);
    profile
}

fn body(request: &Request) -> Value {
    let (body, warnings) = sent(request, "openai");
    assert!(warnings.is_empty(), "{warnings:?}");
    body
}

fn input<M: Into<Arc<Message>>>(messages: impl IntoIterator<Item = M>) -> Value {
    body(&Request::new("m", messages.into_iter().map(Into::into).collect::<History>()))["input"].clone()
}

fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall::new(id, name, Arguments::parse(arguments).unwrap())
}

fn reasoning(text: &str, signature: Signature) -> Part {
    Part::Reasoning(Reasoning::new(text, Some(signature)))
}

#[test]
fn nothing_is_stored_and_nothing_said_that_was_not_asked_for() {
    let request = Request::new("gpt-4o", [Message::user("Hi")].into_iter().collect());
    assert_eq!(
        body(&request),
        json!({"model": "gpt-4o", "store": false, "stream": true, "input": [{"role": "user", "content": "Hi"}]})
    );
}

#[test]
fn every_setting_has_its_place() {
    let request = with(|params| {
        params.temperature = Some(0.5);
        params.top_p = Some(f64::NAN);
        params.max_output = Some(100);
        params.parallel_tool_calls = Some(false);
        params.cache = Some(PromptCache::Long);
        params.cache_key = Some("k".into());
        params.metadata = [("user_id", "u1"), ("team", "x")].map(|(a, b)| (a.into(), b.into())).into();
        params.reasoning = Some(asked(|asked| (asked.effort, asked.show) = (Some(Effort::Low), Some(true))));
    })
    .with_instructions("Be brief.")
    .with_tools([ToolSpec::new("look", "Looks.", json!({"type": "object"}))])
    .with_tool_choice(ToolChoice::Tool("look".into()))
    .with_profile(knowing(|profile| profile.reasoning = Some(true)));
    assert_eq!(
        body(&request),
        json!({
            "model": "m", "store": false, "stream": true, "instructions": "Be brief.", "input": [],
            "temperature": 0.5, "max_output_tokens": 100, "parallel_tool_calls": false,
            "prompt_cache_key": "k", "prompt_cache_retention": "24h", "safety_identifier": "u1", "metadata": {"team": "x"},
            "include": ["reasoning.encrypted_content"], "reasoning": {"effort": "low", "summary": "auto"},
            "tool_choice": {"type": "function", "name": "look"},
            "tools": [{"type": "function", "name": "look", "description": "Looks.", "strict": false,
                       "parameters": {"type": "object", "properties": {}}}],
        })
    );
}

#[test]
fn what_cannot_be_honoured_is_left_out_with_a_warning() {
    let long = "k".repeat(70);
    let request = with(|params| {
        params.top_k = Some(1);
        params.presence_penalty = Some(0.1);
        params.frequency_penalty = Some(0.1);
        params.stop = vec!["x".into()];
        params.seed = Some(1);
        params.temperature = Some(1.0);
        params.cache = Some(PromptCache::Long);
        params.cache_key = Some(long);
        params.reasoning = Some(Effort::High.into());
        params.metadata = [("a".repeat(65), String::new())].into();
    })
    .with_profile(knowing(|profile| (profile.reasoning, profile.sampling) = (Some(false), Some(false))));
    let (body, warnings) = sent(&request, "xai");
    assert_eq!(
        body,
        json!({"model": "m", "store": false, "stream": true, "input": [], "prompt_cache_key": "k".repeat(64)})
    );
    let about: Vec<_> = warnings.iter().map(|warning| (&*warning.subject, warning.kind)).collect();
    let subjects = [
        "temperature",
        "top_k",
        "presence_penalty",
        "frequency_penalty",
        "stop",
        "seed",
        "reasoning",
        "cache_key",
        "cache",
    ];
    let mut wanted: Vec<_> = subjects.iter().map(|subject| (*subject, WarningKind::Setting)).collect();
    let name = format!("metadata.{}", "a".repeat(64));
    wanted.push((&name, WarningKind::Setting));
    assert_eq!(about, wanted);
}

#[test]
fn efforts_and_budgets_become_the_models_words() {
    let asked = |model: &str, vendor: &str, reasoning: ReasoningParams| {
        let mut request = with(|params| params.reasoning = Some(reasoning));
        request.model = model.into();
        let (body, warnings) = sent(&request, vendor);
        (body["reasoning"].clone(), warnings.len())
    };
    let budget = |tokens| self::asked(|asked| asked.budget = Some(tokens));
    assert_eq!(asked("gpt-5.2", "openai", Effort::Max.into()), (json!({"effort": "xhigh"}), 0));
    assert_eq!(asked("gpt-5", "openai", Effort::Max.into()), (json!({"effort": "high"}), 1));
    assert_eq!(asked("o3", "openai", Effort::None.into()), (json!({"effort": "low"}), 1));
    assert_eq!(asked("m", "openai", budget(5_000)), (json!({"effort": "medium"}), 0));
    assert_eq!(asked("m", "openrouter", budget(5_000)), (json!({"max_tokens": 5_000}), 0));
}

#[test]
fn extra_is_merged_last_and_into_nested_settings() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]});
    let request = with(|params| {
        params.temperature = Some(0.5);
        params.reasoning = Some(Effort::Low.into());
        params.extra = Some(json!({
            "store": true, "temperature": null, "service_tier": "flex", "input": [1], "stream": false,
            "tools": [{"type": "web_search"}], "text": {"verbosity": "low"}, "reasoning": {"effort": "high"},
        }));
    })
    .with_output(OutputSchema::new("answer", schema))
    .with_tools([ToolSpec::new("a", "", json!({}))]);
    let body = body(&request);
    assert_eq!(body["text"]["verbosity"], "low");
    assert_eq!(body["text"]["format"]["name"], "answer");
    assert_eq!(
        (&body["text"]["format"]["strict"], &body["reasoning"]),
        (&json!(true), &json!({"effort": "high"}))
    );
    assert_eq!(
        (&body["store"], &body["service_tier"], &body["input"], &body["stream"]),
        (&json!(true), &json!("flex"), &json!([]), &json!(true))
    );
    assert_eq!(body.get("temperature"), None);
    assert_eq!((&body["tools"][0]["name"], &body["tools"][1]), (&json!("a"), &json!({"type": "web_search"})));
}

#[test]
fn schemas_are_enforced_where_they_can_be() {
    let request = with(|params| params.strict_tools = Some(true)).with_tools([
        ToolSpec::new("closed", "", json!({"type": "object", "properties": {"n": {"type": "integer"}}})),
        ToolSpec::new("open", "", json!({"type": "object", "additionalProperties": true})),
    ]);
    let (body, warnings) = sent(&request, "openai");
    assert_eq!(body["tools"][0]["strict"], true);
    assert_eq!(body["tools"][0]["parameters"]["properties"]["n"]["type"], json!(["integer", "null"]));
    assert_eq!(body["tools"][1]["strict"], false);
    assert_eq!(
        warnings.iter().map(|one| (one.kind, &*one.subject)).collect::<Vec<_>>(),
        [(WarningKind::Schema, "open")]
    );

    let any = json!({"type": "array"});
    let mut output = OutputSchema::new("list", any.clone());
    output.description = Some("A list.".into());
    let (body, warnings) = sent(&with(|_| {}).with_output(output.clone()), "openai");
    let format = json!({"type": "json_schema", "name": "list", "description": "A list.", "strict": false, "schema": any});
    assert_eq!((&body["text"]["format"], warnings.len()), (&format, 1));
    output.strict = false;
    assert!(sent(&with(|_| {}).with_output(output), "openai").1.is_empty());
    assert_eq!(
        self::body(&with(|_| {}).with_output(OutputFormat::Json))["text"],
        json!({"format": {"type": "json_object"}})
    );
}

#[test]
fn a_conversation_becomes_items() {
    let (one, two) = (call("c1", "f", r#"{ "x": 1 }"#), call("c2", "g", "{}"));
    let sealed = Signature::new(NAME, "gAAA").with_item(json!({
        "type": "reasoning", "id": "rs_1", "status": "completed", "content": null, "summary": [{"type": "summary_text", "text": "hm"}]}));
    let phase = Signature::new(NAME, "").with_item(json!({"type": "message", "phase": "commentary"}));
    let namespace =
        Signature::new(NAME, "").with_item(json!({"type": "function_call", "namespace": "tools"}));
    let search = json!({"type": "web_search_call", "id": "ws_1", "status": "completed"});
    let assistant = Message::new(
        Role::Assistant,
        vec![
            reasoning("hm", sealed),
            reasoning("", phase),
            Part::Text("I look.".into()),
            Part::Opaque(Opaque::new(NAME, search.clone())),
            Part::Opaque(Opaque::new("another", json!({"type": "x"}))),
            reasoning("", namespace),
            Part::ToolCall(one.clone()),
            Part::ToolCall(two.clone()),
            Part::Refusal("No.".into()),
        ],
    );
    let results = Message::tool([ToolResult::text(&one, "1"), ToolResult::error(&two, "bad")]);
    assert_eq!(
        input([Message::system("More rules."), Message::user("Go"), assistant, results]),
        json!([
            {"role": "system", "content": "More rules."},
            {"role": "user", "content": "Go"},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "gAAA"},
            {"type": "message", "role": "assistant", "phase": "commentary", "content": [{"type": "output_text", "text": "I look."}]},
            search,
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{ \"x\": 1 }", "namespace": "tools"},
            {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
            {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            {"type": "function_call_output", "call_id": "c1", "output": "1"},
            {"type": "function_call_output", "call_id": "c2", "output": "bad"},
        ])
    );
}

#[test]
fn reasoning_is_sent_again_only_when_the_service_can_read_it() {
    let item = json!({"type": "reasoning", "id": "rs_1", "summary": []});
    let open = json!({"type": "reasoning", "id": "rs_2", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]});
    let message = Message::new(
        Role::Assistant,
        vec![
            reasoning("unsealed", Signature::new(NAME, "").with_item(item.clone())),
            reasoning("open", Signature::new(NAME, "").with_item(open.clone())),
            reasoning("bare", Signature::new(NAME, "sealed")),
            reasoning("foreign", Signature::new("another", "sig")),
            Part::Reasoning(Reasoning::new("unsigned", None)),
        ],
    );
    let bare = json!({"type": "reasoning", "summary": [], "encrypted_content": "sealed"});
    assert_eq!(input([message.clone()]), json!([open, bare]));
    let mut request = with(|params| params.extra = Some(json!({"store": true})));
    request.messages = [message].into_iter().collect();
    assert_eq!(body(&request)["input"], json!([item, open, bare]));
}

#[test]
fn cm19_tools_return_media_in_their_output() {
    let one = call("a", "shot", "{}");
    let png = Media::new("image/png", MediaSource::Base64("aGk=".into()));
    let mut pdf = Media::new("application/pdf", MediaSource::Base64("aGk=".into()));
    pdf.name = Some("x.pdf".into());
    let content = vec![Content::Text("taken".into()), Content::Media(png), Content::Media(pdf)];
    assert_eq!(
        input([Message::tool([ToolResult::new(&one, content, false)])]),
        json!([{"type": "function_call_output", "call_id": "a", "output": [
            {"type": "input_text", "text": "taken"},
            {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
            {"type": "input_file", "filename": "x.pdf", "file_data": "data:application/pdf;base64,aGk="},
        ]}])
    );
}

#[test]
fn attack_40_files_are_shown_or_named_and_warned_of_once() {
    let url = |mime: &str, text: &str| Part::Media(Media::new(mime, MediaSource::Url(text.into())));
    let data = |mime: &str, data: &str| Part::Media(Media::new(mime, MediaSource::Base64(data.into())));
    let message = Message::user("See")
        .with(url("image/jpeg", "https://h/i"))
        .with(url("application/pdf", "https://h/d"))
        .with(url("image/jpeg", "file:///etc/x"))
        .with(url("application/pdf", "gs://b/o"))
        .with(data("image/png", "no base64"))
        .with(data("audio/wav", "aGk="));
    let request = Request::new("m", [message.clone()].into_iter().collect());
    let (body, warnings) = sent(&request, "openai");
    let note = |text: &str| json!({"type": "input_text", "text": text});
    assert_eq!(
        body["input"][0]["content"],
        json!([
            note("See"),
            {"type": "input_image", "image_url": "https://h/i"},
            {"type": "input_file", "file_url": "https://h/d"},
            note("[image/jpeg: left out, only http and https addresses are passed on]"),
            note("[application/pdf: left out, only http and https addresses are passed on]"),
            note("[image/png: left out, its base64 text is broken]"),
            note("[audio/wav: left out, this service cannot be shown such a file]"),
        ])
    );
    assert_eq!(warnings.iter().filter(|warning| warning.kind == WarningKind::Media).count(), 4);

    let blind = request
        .with_profile(knowing(|profile| (profile.vision, profile.documents) = (Some(false), Some(false))));
    let (body, warnings) = sent(&blind, "openai");
    assert_eq!(body["input"][0]["content"][1], note("[image/jpeg: left out, this model sees no images]"));
    assert_eq!(
        body["input"][0]["content"][2],
        note("[application/pdf: left out, this model reads no documents]")
    );
    assert_eq!(warnings.len(), 6);

    let later = [message, Message::assistant("Seen."), Message::user("And?")];
    assert!(sent(&Request::new("m", later.into_iter().collect()), "openai").1.is_empty());
}

fn history(steps: usize) -> Vec<Arc<Message>> {
    let mut all = vec![Message::system("s"), Message::user("go")];
    for n in 0..steps {
        let call = call(&format!("c{n}"), "look", "{}");
        let item = json!({"type": "reasoning", "id": format!("rs_{n}"), "summary": []});
        all.push(Message::new(
            Role::Assistant,
            vec![reasoning("", Signature::new(NAME, "sealed").with_item(item)), Part::ToolCall(call.clone())],
        ));
        all.push(Message::tool([ToolResult::text(&call, "seen")]));
    }
    all.into_iter().map(Arc::new).collect()
}

#[test]
fn prefix_tools_instructions_and_items_begin_the_next_request() {
    let spec = ToolSpec::new("look", "Looks.", json!({"type": "object"}));
    let all = history(4);
    let mut before: Vec<u8> = Vec::new();
    for n in 1..=all.len() {
        let request = Request::new("m", all[..n].iter().cloned().collect())
            .with_instructions("sys")
            .with_tools([spec.clone()])
            .with_tool_choice(if n % 2 == 0 { ToolChoice::Auto } else { ToolChoice::Required });
        let body = super::super::encode(&request);
        serde_json::from_slice::<Value>(&body).unwrap();
        let start = body.windows(8).position(|bytes| bytes == b"\"tools\":").unwrap();
        let open = body[start..].strip_suffix(b"]}").unwrap();
        assert!(open.starts_with(&before), "request {n} does not begin with the one before it");
        before = open.to_vec();
    }
}

#[test]
fn a_message_is_encoded_once() {
    let all: History = history(3).into_iter().collect();
    let request = Request::new("m", all.clone());
    let body = super::super::encode(&request);
    for message in all.iter() {
        message.encoded(NAME, |_| panic!("encoded a second time"));
    }
    assert_eq!(super::super::encode(&request), body);
}

#[test]
fn names_follow_the_address_and_debug_shows_no_secret() {
    let provider =
        OpenAiResponses::builder().api_key("sk-very-secret").header("x-key", "hidden-value").build().unwrap();
    assert_eq!((provider.0.vendor(), provider.base_url().as_str()), ("openai", "https://api.openai.com/v1"));
    let other = OpenAiResponses::builder()
        .base_url("https://llm.example/v1?k=v")
        .vendor_name("mine")
        .build()
        .unwrap();
    assert_eq!((other.0.vendor(), other.base_url().as_str()), ("mine", "https://llm.example/v1"));
    let builder = OpenAiResponses::builder().api_key("sk-very-secret").header("x-key", "hidden-value");
    for shown in [
        format!("{provider:?}"),
        format!("{builder:?}"),
        format!("{:?}", provider.model("m")),
        format!("{other:?}"),
    ] {
        assert!(!shown.contains("secret") && !shown.contains("hidden") && !shown.contains("k=v"), "{shown}");
    }
}

#[test]
fn issue_15_deferred_tools_are_declared_and_searched_by_the_service() {
    let spec = |name: &str| ToolSpec::new(name, "", json!({"type": "object", "properties": {}}));
    // Those by which any other model finds and calls deferred tools are not for this one.
    let doors = [spec("find").finding_deferred(), spec("use").calling_deferred()];
    let tools: Vec<_> = [spec("ask"), spec("rate").deferred()].into_iter().chain(doors.clone()).collect();
    let items = encode_tools(&tools, false);
    let sent: Value = serde_json::from_str(&format!("[{}]", String::from_utf8(items).unwrap())).unwrap();
    let flags: Vec<_> = (0..2).map(|place| (&sent[place]["name"], &sent[place]["defer_loading"])).collect();
    assert_eq!(flags, [(&json!("ask"), &Value::Null), (&json!("rate"), &json!(true))]);
    assert_eq!(sent[2], json!({"type": "tool_search"}));
    assert!(sent.get(3).is_none(), "{sent}");
    let without = String::from_utf8(encode_tools(&doors, false)).unwrap();
    assert!(without.contains("find") && without.contains("use"), "{without}");
    assert!(!without.contains("tool_search"), "there is nothing to search: {without}");
}

#[test]
fn issue_15_searches_for_tools_are_sent_back_as_they_came() {
    let [search, found] = searched();
    let namespace = Signature::new(NAME, "").with_item(json!({"type": "function_call", "namespace": "rate"}));
    let reply = Message::new(
        Role::Assistant,
        vec![
            Part::Opaque(Opaque::new(NAME, search.clone())),
            Part::Opaque(Opaque::new(NAME, found.clone())),
            reasoning("", namespace),
            Part::ToolCall(call("c1", "rate", "{}")),
        ],
    );
    let called = json!({"type": "function_call", "call_id": "c1", "name": "rate", "arguments": "{}", "namespace": "rate"});
    assert_eq!(
        input([Message::user("Go"), reply]),
        json!([{"role": "user", "content": "Go"}, search, found, called])
    );
}
