use std::sync::Arc;

use entourage_core::{
    message::{Arguments, Content, History, Media, MediaSource, Message, Part, Role, ToolCall, ToolResult},
    provider::{
        Effort, OutputFormat, OutputSchema, Params, Profile, PromptCache, ReasoningParams, Request,
        ToolChoice, Warning, WarningKind,
    },
    tool::ToolSpec,
};
use serde_json::{Value, json};

use super::super::{Gemini, Generate, encode, encode::encode_with_tools};
use crate::service::Wire;

fn body(request: &Request) -> Value {
    serde_json::from_slice(&encode(request)).unwrap()
}

fn said(request: &Request, cloud: bool) -> (Value, Vec<Warning>) {
    let tools = encode::encode_tools(&request.tools);
    let encoded = encode_with_tools(request, &tools, cloud);
    (serde_json::from_slice(&encoded.body).unwrap(), encoded.warnings)
}

fn subjects(warnings: &[Warning]) -> Vec<&str> {
    warnings.iter().map(|warning| &*warning.subject).collect()
}

fn request(model: &str) -> Request {
    Request::new(model, [Message::user("Hi")].into_iter().collect())
}

fn with(model: &str, params: Params) -> Request {
    request(model).with_params(params)
}

fn look() -> ToolSpec {
    let schema = json!({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]});
    ToolSpec::new("look", "Looks.", schema)
}

fn media(mime: &str) -> Media {
    Media::new(mime, MediaSource::Base64("aGk=".into()))
}

#[test]
fn the_plain_form() {
    assert_eq!(
        encode(&request("m").with_instructions("Be brief.")),
        br#"{"systemInstruction":{"parts":[{"text":"Be brief."}]},"contents":[{"role":"user","parts":[{"text":"Hi"}]}]}"#
    );
}

#[test]
fn leading_system_messages_are_system_parts_and_later_ones_the_users() {
    let messages = [Message::system("a"), Message::system("b"), Message::user("u"), Message::system("late")];
    let request = Request::new("m", messages.into_iter().collect()).with_instructions("i");
    let (body, warnings) = said(&request, false);
    assert_eq!(body["systemInstruction"]["parts"], json!([{"text": "i"}, {"text": "a"}, {"text": "b"}]));
    assert_eq!(
        body["contents"],
        json!([{"role": "user", "parts": [{"text": "u"}]}, {"role": "user", "parts": [{"text": "late"}]}])
    );
    assert_eq!(warnings.iter().map(|one| one.kind).collect::<Vec<_>>(), [WarningKind::History]);
}

#[test]
fn settings_have_their_places() {
    let mut params = Params::default();
    params.temperature = Some(0.5);
    params.top_p = Some(0.9);
    params.top_k = Some(7);
    params.presence_penalty = Some(f64::NAN);
    params.frequency_penalty = Some(-0.5);
    params.max_output = Some(100);
    params.stop = ["1", "2", "", "3", "4", "5", "6"].map(str::to_owned).into();
    params.seed = Some(4_000_000_000);
    params.cache = Some(PromptCache::Short);
    params.cache_key = Some("k".into());
    let (body, warnings) = said(&with("gemini-2.5-flash", params.clone()), false);
    assert_eq!(
        body["generationConfig"],
        json!({"temperature": 0.5, "topP": 0.9, "topK": 7, "frequencyPenalty": -0.5, "maxOutputTokens": 100,
               "stopSequences": ["1", "2", "3", "4", "5"]})
    );
    assert_eq!(subjects(&warnings), ["stop", "seed"]);
    params.stop.clear();
    params.seed = Some(-3);
    params.max_output = Some(0);
    let mut profile = Profile::default();
    profile.sampling = Some(false);
    let (body, warnings) = said(&with("m", params).with_profile(profile), false);
    assert_eq!(body["generationConfig"], json!({"seed": -3}));
    assert_eq!(subjects(&warnings), ["temperature", "top_p", "frequency_penalty", "top_k"]);
}

#[test]
fn extra_is_merged_into_what_it_names() {
    let mut params = Params::default();
    params.temperature = Some(0.5);
    params.extra = Some(json!({
        "generationConfig": {"temperature": 1, "candidateCount": 1},
        "toolConfig": {"retrievalConfig": {"languageCode": "en"}},
        "tools": [{"googleSearch": {}}],
        "cachedContent": "cachedContents/1",
        "contents": [],
        "systemInstruction": null,
    }));
    let request =
        with("m", params).with_instructions("i").with_tools([look()]).with_tool_choice(ToolChoice::Required);
    let body = body(&request);
    assert_eq!(body["generationConfig"], json!({"temperature": 1, "candidateCount": 1}));
    assert_eq!(
        body["toolConfig"],
        json!({"functionCallingConfig": {"mode": "ANY"}, "retrievalConfig": {"languageCode": "en"}})
    );
    assert_eq!(body["tools"][1], json!({"googleSearch": {}}));
    assert_eq!(body["cachedContent"], "cachedContents/1");
    assert_eq!(body["contents"].as_array().unwrap().len(), 1);
    assert!(body.get("systemInstruction").is_none());
    let mut params = Params::default();
    params.temperature = Some(0.5);
    params.extra = Some(json!({"generationConfig": null, "toolConfig": null, "tools": null}));
    let request = with("m", params).with_tools([look()]).with_tool_choice(ToolChoice::None);
    assert_eq!(encode(&request), br#"{"contents":[{"role":"user","parts":[{"text":"Hi"}]}]}"#);
    let mut params = Params::default();
    params.extra = Some(json!({"tools": [{"codeExecution": {}}]}));
    assert_eq!(self::body(&with("m", params))["tools"], json!([{"codeExecution": {}}]));
}

#[test]
fn tools_and_choices() {
    let none = ToolSpec::new("now", "", json!({"type": "object", "properties": {}}));
    let free =
        ToolSpec::new("free", "", json!({"type": "object", "additionalProperties": {"type": "string"}}));
    let base = request("m").with_tools([free, look(), none]);
    let body = body(&base);
    assert_eq!(
        body["tools"],
        json!([{"functionDeclarations": [
            {"name": "free", "parametersJsonSchema": {"type": "object", "additionalProperties": {"type": "string"}}},
            {"name": "look", "description": "Looks.", "parametersJsonSchema":
                {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}},
            {"name": "now"}]}])
    );
    assert!(body.get("toolConfig").is_none());
    for (choice, mode) in [
        (ToolChoice::None, json!({"mode": "NONE"})),
        (ToolChoice::Required, json!({"mode": "ANY"})),
        (ToolChoice::Tool("look".into()), json!({"mode": "ANY", "allowedFunctionNames": ["look"]})),
    ] {
        let body = self::body(&base.clone().with_tool_choice(choice));
        assert_eq!(body["toolConfig"]["functionCallingConfig"], mode);
    }
    let mut params = Params::default();
    params.strict_tools = Some(true);
    params.parallel_tool_calls = Some(false);
    let short = ToolSpec::new("short", "", json!({"properties": {"s": {"type": "string", "maxLength": 3}}}));
    let (body, warnings) = said(&with("m", params).with_tools([look(), short]), false);
    assert_eq!(body["toolConfig"]["functionCallingConfig"], json!({"mode": "VALIDATED"}));
    assert_eq!(subjects(&warnings), ["parallel_tool_calls", "short"]);
}

#[test]
fn typed_replies_are_asked_for_where_the_model_gives_them() {
    let schema = json!({"type": "object", "properties": {"s": {"type": "string", "pattern": "a+"}}});
    let wanted = OutputSchema::new("answer", schema);
    let (body, warnings) = said(&request("gemini-2.5-flash").with_output(wanted.clone()), false);
    assert_eq!(
        body["generationConfig"],
        json!({"responseMimeType": "application/json", "responseJsonSchema":
            {"type": "object", "properties": {"s": {"type": "string", "description": "(pattern: \"a+\")"}}}})
    );
    assert_eq!(subjects(&warnings), ["answer"]);
    let json_only = self::body(&request("m").with_output(OutputFormat::Json));
    assert_eq!(json_only["generationConfig"], json!({"responseMimeType": "application/json"}));
    let beside = |model: &str| said(&request(model).with_output(wanted.clone()).with_tools([look()]), false);
    let (body, warnings) = beside("gemini-2.5-flash");
    assert!(body.get("generationConfig").is_none());
    assert_eq!((warnings.len(), warnings[0].kind), (1, WarningKind::Schema));
    assert!(beside("gemini-3-flash-preview").0["generationConfig"]["responseJsonSchema"].is_object());
}

#[test]
fn thinking_follows_the_model() {
    let thinking = |model: &str, effort: Option<Effort>, budget: Option<u64>, show: Option<bool>| {
        let mut wanted = ReasoningParams::default();
        (wanted.effort, wanted.budget, wanted.show) = (effort, budget, show);
        let mut params = Params::default();
        params.reasoning = Some(wanted);
        let (body, warnings) = said(&with(model, params), false);
        (body["generationConfig"]["thinkingConfig"].clone(), warnings.len())
    };
    use Effort as E;
    for (model, effort, budget, config, warnings) in [
        ("gemini-2.5-flash", Some(E::None), None, json!({"thinkingBudget": 0}), 0),
        ("gemini-2.5-flash", Some(E::Minimal), None, json!({"thinkingBudget": 512}), 0),
        ("gemini-2.5-flash", Some(E::Low), None, json!({"thinkingBudget": 1024}), 0),
        ("gemini-2.5-flash", Some(E::Medium), None, json!({"thinkingBudget": 8192}), 0),
        ("gemini-2.5-flash", Some(E::High), None, json!({"thinkingBudget": 24_576}), 0),
        ("gemini-2.5-flash", Some(E::Low), Some(5), json!({"thinkingBudget": 5}), 0),
        ("gemini-2.5-flash", None, Some(100_000), json!({"thinkingBudget": 24_576}), 1),
        ("gemini-2.5-pro", Some(E::Max), None, json!({"thinkingBudget": 32_768}), 0),
        ("gemini-2.5-pro", Some(E::None), None, json!({"thinkingBudget": 128}), 1),
        ("gemini-2.5-flash-lite", None, Some(5), json!({"thinkingBudget": 512}), 1),
        ("gemini-3-pro-preview", Some(E::Medium), None, json!({"thinkingLevel": "high"}), 0),
        ("gemini-3.1-pro-preview", Some(E::Medium), None, json!({"thinkingLevel": "medium"}), 0),
        ("gemini-3-flash-preview", Some(E::None), None, json!({"thinkingLevel": "minimal"}), 1),
        ("gemini-3-flash-preview", Some(E::Low), Some(30_000), json!({"thinkingLevel": "low"}), 0),
        ("gemini-3-flash-preview", None, Some(5_000), json!({"thinkingLevel": "medium"}), 0),
        ("gemini-2.0-flash", Some(E::High), None, Value::Null, 1),
        ("gemini-2.0-flash", Some(E::None), None, Value::Null, 0),
    ] {
        let got = thinking(model, effort, budget, None);
        assert_eq!(got, (config, warnings), "{model} {effort:?} {budget:?}");
    }
    let shown = thinking("gemini-3-flash-preview", None, None, Some(true));
    assert_eq!(shown, (json!({"includeThoughts": true}), 0));
}

#[test]
fn metadata_is_labels_in_the_cloud() {
    let mut params = Params::default();
    params.metadata = [("team", "a-1"), ("User", "x"), ("long", &"y".repeat(64))]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    let request = with("m", params);
    let (body, warnings) = said(&request, true);
    assert_eq!(body["labels"], json!({"team": "a-1"}));
    assert_eq!(subjects(&warnings), ["metadata", "metadata"]);
    let (body, warnings) = said(&request, false);
    assert_eq!((body.get("labels"), subjects(&warnings)), (None, vec!["metadata"]));
}

#[test]
fn attack_40_files_of_the_user_are_shown_or_named() {
    let url = |mime: &str, text: &str| Part::Media(Media::new(mime, MediaSource::Url(text.into())));
    let broken = Media::new("image/png", MediaSource::Base64("not base64".into()));
    let message = Message::user("See")
        .with(Part::Media(media("image/png")))
        .with(url("video/mp4", "https://h/v"))
        .with(url("image/png", "gs://bucket/x"))
        .with(url("text/plain", "file:///etc/passwd"))
        .with(Part::Media(broken))
        .with(Part::Media(media("image/gif")))
        .with(Part::Media(media("application/zip")));
    let all = Request::new("m", [message].into_iter().collect());
    let (body, warnings) = said(&all, false);
    assert_eq!(
        body["contents"][0]["parts"],
        json!([
            {"text": "See"},
            {"inlineData": {"mimeType": "image/png", "data": "aGk="}},
            {"fileData": {"mimeType": "video/mp4", "fileUri": "https://h/v"}},
            {"text": "[image/png: left out, only http and https addresses are passed on]"},
            {"text": "[text/plain: left out, only http and https addresses are passed on]"},
            {"text": "[image/png: left out, its base64 text is broken]"},
            {"text": "[image/gif: left out, this service cannot be shown such a file]"},
            {"text": "[application/zip: left out, this service cannot be shown such a file]"},
        ])
    );
    assert_eq!(warnings.len(), 5);
    assert!(warnings.iter().all(|warning| warning.kind == WarningKind::Media));
    let mut profile = Profile::default();
    (profile.vision, profile.documents) = (Some(false), Some(false));
    let seen =
        Message::user("").with(Part::Media(media("image/png"))).with(Part::Media(media("application/pdf")));
    let blind = Request::new("m", [seen].into_iter().collect()).with_profile(profile);
    let (body, warnings) = said(&blind, false);
    assert!(!body.to_string().contains("aGk="), "{body}");
    assert_eq!(warnings.len(), 2);
    // There is no second warning about messages that the model has answered.
    let mut later = blind;
    later.messages.extend([Message::assistant("ok"), Message::user("more")]);
    let (_, warnings) = said(&later, false);
    assert!(warnings.is_empty());
}

#[test]
fn cm19_media_of_tools_follows_in_a_content_of_the_user() {
    let call = |id: &str, name: &str| ToolCall::new(id, name, Arguments::empty());
    let (one, two) = (call("a", "shot"), call("b", "f"));
    let mut png = media("image/png");
    png.name = Some("s.png".into());
    let taken = vec![Content::Text("taken".into()), Content::Media(png), Content::Media(media("a/b"))];
    let results = Message::tool([ToolResult::new(&one, taken, false), ToolResult::text(&two, "ok")]);
    let (body, warnings) = said(&Request::new("m", [results].into_iter().collect()), false);
    let text = "taken\n[image/png s.png: see the next message of the user]\n[a/b: left out, this service cannot be shown such a file]";
    assert_eq!(
        body["contents"],
        json!([
            {"role": "user", "parts": [
                {"functionResponse": {"id": "a", "name": "shot", "response": {"output": text}}},
                {"functionResponse": {"id": "b", "name": "f", "response": {"output": "ok"}}}]},
            {"role": "user", "parts": [
                {"text": "image/png s.png returned by the tool `shot`:"},
                {"inlineData": {"mimeType": "image/png", "data": "aGk="}}]},
        ])
    );
    assert_eq!(subjects(&warnings), ["a/b"]);
}

fn conversation(turns: usize) -> Vec<Arc<Message>> {
    let mut all = vec![Message::system("Be good.")];
    for turn in 0..turns {
        let call =
            ToolCall::new(format!("c{turn}"), "look", Arguments::parse(format!("{{\"x\":{turn}}}")).unwrap());
        let mut result = ToolResult::text(&call, "seen");
        result.content.push(Content::Media(media("image/png")));
        all.push(Message::user(format!("question {turn}")).with(Part::Media(media("application/pdf"))));
        all.push(Message::new(Role::Assistant, vec![Part::Text("I look.".into()), Part::ToolCall(call)]));
        all.push(Message::tool([result]));
        all.push(Message::assistant("So it is."));
    }
    all.into_iter().map(Arc::new).collect()
}

#[test]
fn prefix_of_a_request_is_the_request_before_it() {
    for model in ["gemini-2.5-flash", "gemini-3-flash-preview"] {
        let request = |messages: &[Arc<Message>]| {
            Request::new(model, messages.iter().cloned().collect())
                .with_instructions("sys")
                .with_tools([look()])
        };
        let all = conversation(4);
        let mut before: Vec<u8> = Vec::new();
        for n in 1..=all.len() {
            let body = encode(&request(&all[..n]));
            serde_json::from_slice::<Value>(&body).unwrap();
            let open = body.strip_suffix(b"]}").unwrap();
            assert!(open.starts_with(&before), "request {n} does not begin with the one before it");
            before = open.to_vec();
        }
    }
}

#[test]
fn prefix_costs_a_copy_messages_are_encoded_once() {
    let all: History = conversation(3).into_iter().collect();
    let request = Request::new("gemini-2.5-flash", all.clone());
    let body = encode(&request);
    for message in all.iter().skip(1) {
        message.encoded("gemini", |_| panic!("encoded a second time"));
    }
    assert_eq!(encode(&request), body);
}

#[test]
fn calls_go_to_the_model_that_is_named() {
    let wire = Generate { cloud: false };
    let path = |model: &str| wire.address(&request(model)).path.join("/");
    for (model, place) in [
        ("gemini-2.5-flash", "models/gemini-2.5-flash:streamGenerateContent"),
        ("models/gemini-2.5-flash", "models/gemini-2.5-flash:streamGenerateContent"),
        ("tunedModels/mine", "tunedModels/mine:streamGenerateContent"),
        ("../../evil", "models/evil:streamGenerateContent"),
    ] {
        assert_eq!(path(model), place, "{model}");
    }
    assert_eq!(wire.address(&request("m")).query, [("alt", "sse".to_owned())]);
}

#[test]
fn the_service_is_known_by_its_address_and_debug_shows_no_secret() {
    let builder = || Gemini::builder().api_key("AIza-very-secret").header("x-key", "hidden-value");
    let own = builder().build().unwrap();
    assert_eq!(own.base_url(), "https://generativelanguage.googleapis.com/v1beta");
    let cloud =
        "https://us-central1-aiplatform.googleapis.com/v1/projects/p/locations/us-central1/publishers/google";
    let cloud = builder().base_url(cloud).bearer().build().unwrap();
    let other = builder().base_url("https://llm.example/v1?k=v").build().unwrap();
    let names = [&own, &cloud, &other].map(|one| entourage_core::provider::Provider::name(one).to_owned());
    assert_eq!(names, ["gemini", "gemini", "llm.example"]);
    assert_eq!(own.model("gemini-2.5-flash").profile().vision, Some(true));
    for shown in [format!("{own:?}"), format!("{cloud:?}"), format!("{other:?}"), format!("{:?}", builder())]
    {
        assert!(!shown.contains("secret") && !shown.contains("hidden") && !shown.contains("k=v"), "{shown}");
    }
    assert!(builder().base_url("http://llm.example").build().is_err());
}
