use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind, Usage,
    message::{
        Arguments, Content, Media, MediaSource, Message, Part, Reasoning, Role, Signature, ToolCall,
        ToolResult,
    },
    provider::{
        Delta, Effort, FinishReason, OutputFormat, OutputSchema, Params, Profile, Provider, ReasoningParams,
        Request, ToolChoice, Warning, WarningKind,
    },
    tool::ToolSpec,
};
use entourage_runtime::reply::{Assembled, Assembler};
use serde_json::{Value, json};

use super::{Ollama, OllamaDecoder, encode, encode::encode_with_tools};

fn deltas<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Result<Delta, Error>> {
    let mut decoder = OllamaDecoder::new();
    let mut all = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        all.extend(std::iter::from_fn(|| decoder.pop()));
    }
    decoder.finish();
    all.extend(std::iter::from_fn(|| decoder.pop()));
    all
}

/// The assembled reply. Checks that it is the same wherever the body is cut.
fn reply(body: &str) -> Assembled {
    let whole = format!("{:?}", deltas([body.as_bytes()]));
    for at in 0..body.len() {
        let (one, two) = body.as_bytes().split_at(at);
        assert_eq!(format!("{:?}", deltas([one, two])), whole, "cut at {at}");
    }
    let mut assembler = Assembler::default();
    deltas([body.as_bytes()]).into_iter().for_each(|item| assembler.push(&item.unwrap()).unwrap());
    assembler.finish().unwrap()
}

fn said(request: &Request) -> (Value, Vec<Warning>) {
    let encoded = encode_with_tools(request, &encode::encode_tools(&request.tools));
    (serde_json::from_slice(&encoded.body).unwrap(), encoded.warnings)
}

fn subjects(warnings: &[Warning]) -> Vec<&str> {
    warnings.iter().map(|warning| &*warning.subject).collect()
}

fn request(model: &str) -> Request {
    Request::new(model, [Message::user("Hi")].into_iter().collect())
}

fn messages(all: impl IntoIterator<Item = Message>) -> Value {
    said(&Request::new("m", all.into_iter().collect())).0["messages"].take()
}

fn look() -> ToolSpec {
    ToolSpec::new("look", "Looks.", json!({"type": "object", "properties": {"x": {"type": "integer"}}}))
}

fn png() -> Media {
    Media::new("image/png", MediaSource::Base64("aGk=".into()))
}

#[test]
fn thoughts_text_calls_and_usage_add_up() {
    let body = concat!(
        r#"{"model":"q","message":{"role":"assistant","content":"","thinking":"h"},"done":false}"#,
        "\n",
        r#"{"model":"q","message":{"role":"assistant","content":"","thinking":"m"},"done":false}"#,
        "\n",
        r#"{"model":"q","message":{"role":"assistant","content":"Hé"},"done":false}"#,
        "\r\n",
        r#"{"message":{"role":"assistant","content":"","tool_calls":[{"id":"c","function":{"index":0,"name":"a","arguments":{"x": 1}}}]},"done":false}"#,
        "\n",
        r#"{"message":{"tool_calls":[{"function":{"index":0,"name":"b"}}]},"done":false}"#,
        "\n\n",
        r#"{"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":7,"eval_count":3}"#,
        "\n",
        "ignored",
    );
    let reply = reply(body);
    assert_eq!(reply.usage, Usage::new(7, 3));
    assert_eq!(reply.info.model.as_deref(), Some("q"));
    assert_eq!((reply.finish.reason, reply.finish.raw.as_deref()), (FinishReason::ToolCalls, Some("stop")));
    let message = reply.into_message();
    assert!(matches!(&message.parts()[0], Part::Reasoning(thought) if thought.text == "hm"));
    assert_eq!(message.text(), "Hé");
    let calls: Vec<_> =
        message.tool_calls().map(|call| (&*call.id, &*call.name, call.arguments.as_str())).collect();
    assert_eq!(calls, [("c", "a", r#"{"x": 1}"#), ("ollama-call-1", "b", "{}")]);
}

#[test]
fn whole_bodies_completions_and_old_servers_are_read_too() {
    let whole = "{\n  \"message\": {\"role\": \"assistant\", \"content\": \"a\"},\n  \"done\": true, \"done_reason\": \"length\"}\n";
    let completion =
        "{\"response\":\"a\",\"thinking\":\"t\",\"done\":false}\n{\"response\":\"b\",\"done\":true}\n";
    for (body, text, reason, raw) in [
        (whole, "a", FinishReason::Length, Some("length")),
        (completion, "ab", FinishReason::Stop, None),
        (
            "{\"message\":{\"content\":\"x\"},\"done\":true,\"done_reason\":\"load\"}",
            "x",
            FinishReason::Other,
            Some("load"),
        ),
    ] {
        let reply = reply(body);
        assert_eq!((reply.finish.reason, reply.finish.raw.as_deref()), (reason, raw));
        assert_eq!(reply.into_message().text(), text);
    }
}

#[test]
fn errors_are_reported_wherever_they_come() {
    let late = "{\"message\":{\"content\":\"a\"},\"done\":false}\n{\"error\":\"unexpected EOF\"}\n";
    let all = deltas([late.as_bytes()]);
    assert_eq!(all[0].as_ref().unwrap(), &Delta::Text("a".into()));
    assert!(all[1].as_ref().unwrap_err().message().contains("unexpected EOF"));
    assert_eq!(all.len(), 2, "an error is no end");
    for body in ["{broken\n", "{}", "{\"status\":\"success\"}\n", "[]", "<html>", "data: {}\n"] {
        let all = deltas([body.as_bytes()]);
        assert_eq!(all.len(), 1, "{body}: {all:?}");
        assert_eq!(all[0].as_ref().unwrap_err().kind(), ErrorKind::Protocol, "{body}");
    }
    assert_eq!(deltas([&b""[..]]).len(), 0);
    let mut cut = OllamaDecoder::new();
    cut.push(b"{\"message\":{\"content\":\"a\"},\"done\":false}\n");
    cut.finish();
    assert_eq!((cut.has_finish(), cut.is_done()), (false, false));
    assert_eq!(
        OllamaDecoder::refusal(404, b"{\"error\":\"model 'x' not found\"}").kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn attack_46_wrong_types_and_huge_lines_are_survived() {
    for line in [
        r#"{"message":[],"done":true,"done_reason":3}"#,
        r#"{"message":{"content":7,"tool_calls":[null,{"function":[]}]},"done":true}"#,
        r#"{"message":null,"response":[],"eval_count":-4,"prompt_eval_count":1e99,"done":true}"#,
    ] {
        assert!(reply(line).usage.is_unknown(), "{line}");
    }
    let big = format!(
        r#"{{"message":{{"tool_calls":[{{"function":{{"name":"a","arguments":{{"x":"{}"}}}}}}]}}}}"#,
        "y".repeat(50 << 20)
    );
    let all = deltas(big.as_bytes().chunks(1 << 20));
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].as_ref().unwrap_err().kind(), ErrorKind::TooLarge);
}

#[test]
fn the_plain_form() {
    assert_eq!(
        encode(&request("q").with_instructions("Be brief.")),
        br#"{"model":"q","truncate":false,"stream":true,"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}]}"#
    );
}

#[test]
fn settings_are_options_and_extra_is_merged_into_them() {
    let mut params = Params::default();
    params.temperature = Some(0.5);
    params.top_p = Some(0.9);
    params.top_k = Some(7);
    params.presence_penalty = Some(0.1);
    params.frequency_penalty = Some(f64::INFINITY);
    params.max_output = Some(100);
    params.stop = vec!["x".into()];
    params.seed = Some(3);
    params.cache_key = Some("k".into());
    params.extra = Some(
        json!({"options": {"num_ctx": 8192, "temperature": 1}, "keep_alive": "5m", "truncate": null, "stream": false}),
    );
    let (body, warnings) = said(&request("q").with_params(params.clone()));
    assert_eq!(
        body["options"],
        json!({"num_predict": 100, "top_p": 0.9, "presence_penalty": 0.1, "top_k": 7, "seed": 3, "stop": ["x"],
               "num_ctx": 8192, "temperature": 1})
    );
    assert_eq!(
        (&body["keep_alive"], body.get("truncate"), &body["stream"]),
        (&json!("5m"), None, &json!(true))
    );
    assert!(warnings.is_empty());
    params.extra = Some(json!({"options": null}));
    params.metadata = [("user_id".to_owned(), "u".to_owned())].into();
    let (body, warnings) = said(&request("q").with_params(params));
    assert_eq!((body.get("options"), subjects(&warnings)), (None, vec!["metadata"]));
    let mut params = Params::default();
    params.top_k = Some(1);
    let mut profile = Profile::default();
    profile.sampling = Some(false);
    let (body, warnings) = said(&request("q").with_params(params).with_profile(profile));
    assert_eq!((body.get("options"), subjects(&warnings)), (None, vec!["top_k"]));
}

#[test]
fn tools_choices_and_forms() {
    let bare = ToolSpec::new("bare", "", json!({}));
    let base = request("q").with_tools([bare, look()]);
    let (body, warnings) = said(&base);
    assert_eq!(
        body["tools"][1],
        json!({"type": "function", "function": {"name": "look", "description": "Looks.", "parameters":
            {"type": "object", "properties": {"x": {"type": "integer"}}}}})
    );
    assert_eq!(body["tools"][0]["function"]["parameters"]["type"], "object");
    assert!(warnings.is_empty());
    for choice in [ToolChoice::Required, ToolChoice::Tool("look".into())] {
        let (_, warnings) = said(&base.clone().with_tool_choice(choice));
        assert_eq!((warnings.len(), warnings[0].kind), (1, WarningKind::Tool));
    }
    let mut params = Params::default();
    (params.parallel_tool_calls, params.strict_tools) = (Some(false), Some(true));
    let (_, warnings) = said(&base.clone().with_params(params.clone()));
    assert_eq!(subjects(&warnings), ["parallel_tool_calls", "strict_tools"]);

    let wanted = OutputSchema::new("answer", json!({"$schema": "x", "type": "object"}));
    let (body, warnings) = said(&base.clone().with_output(wanted.clone()));
    assert_eq!((body.get("format"), warnings[0].kind), (None, WarningKind::Schema));
    let silent = base.with_output(wanted.clone()).with_tool_choice(ToolChoice::None).with_params(params);
    let (body, warnings) = said(&silent);
    assert_eq!((body.get("tools"), &body["format"], warnings.len()), (None, &json!({"type": "object"}), 0));
    assert_eq!(said(&request("q").with_output(OutputFormat::Json)).0["format"], "json");
}

#[test]
fn thinking_is_yes_or_no_or_a_degree() {
    use Effort as E;
    for (model, effort, budget, think, warnings) in [
        ("qwen3:4b", Some(E::None), None, Some(json!(false)), 0),
        ("qwen3:4b", Some(E::Medium), None, Some(json!(true)), 0),
        ("qwen3:4b", Some(E::High), None, Some(json!(true)), 1),
        ("qwen3:4b", None, Some(0), Some(json!(false)), 0),
        ("qwen3:4b", None, Some(9_000), Some(json!(true)), 1),
        ("gpt-oss:20b", Some(E::Minimal), None, Some(json!("low")), 0),
        ("gpt-oss:20b", Some(E::Max), None, Some(json!("high")), 0),
        ("gpt-oss:20b", None, Some(9_000), Some(json!("medium")), 1),
        ("gpt-oss:20b", None, None, None, 0),
    ] {
        let mut wanted = ReasoningParams::default();
        (wanted.effort, wanted.budget) = (effort, budget);
        let mut params = Params::default();
        params.reasoning = Some(wanted);
        let (body, told) = said(&request(model).with_params(params));
        assert_eq!(
            (body.get("think"), told.len()),
            (think.as_ref(), warnings),
            "{model} {effort:?} {budget:?}"
        );
    }
    let mut params = Params::default();
    params.reasoning = Some(E::High.into());
    let mut profile = Profile::default();
    profile.reasoning = Some(false);
    let (body, warnings) = said(&request("m").with_params(params).with_profile(profile));
    assert_eq!((body.get("think"), subjects(&warnings)), (None, vec!["reasoning"]));
}

fn call(id: &str) -> ToolCall {
    ToolCall::new(id, "look", Arguments::parse(r#"{ "x": 1.0 }"#).unwrap())
}

#[test]
fn replies_and_results_come_back() {
    let (one, two) = (call("own"), call("ollama-call-1"));
    let results = Message::tool([ToolResult::text(&one, "1"), ToolResult::error(&two, "no")]);
    let asked = vec![
        Part::Reasoning(Reasoning::new("secret", Some(Signature::new("other", "sig")))),
        Part::Reasoning(Reasoning::new("hm", None)),
        Part::Text("I look.".into()),
        Part::ToolCall(one),
        Part::ToolCall(two),
    ];
    let body =
        encode(&Request::new("m", [Message::new(Role::Assistant, asked), results].into_iter().collect()));
    let text = String::from_utf8(body).unwrap();
    let tail = text.split_once(r#""messages":"#).unwrap().1;
    assert_eq!(
        tail,
        concat!(
            r#"[{"role":"assistant","content":"I look.","thinking":"hm","tool_calls":["#,
            r#"{"id":"own","function":{"name":"look","arguments":{ "x": 1.0 }}},"#,
            r#"{"function":{"name":"look","arguments":{ "x": 1.0 }}}]},"#,
            r#"{"role":"tool","content":"1","tool_name":"look","tool_call_id":"own"},"#,
            r#"{"role":"tool","content":"no","tool_name":"look"}]}"#
        )
    );
    let thinking = Message::new(Role::Assistant, vec![Part::Reasoning(Reasoning::new("hm", None))]);
    assert_eq!(messages([thinking, Message::user("go")]), json!([{"role": "user", "content": "go"}]));
}

#[test]
fn attack_40_files_are_shown_or_named() {
    let url = Media::new("image/png", MediaSource::Url("https://h/i".into()));
    let file = Media::new("image/png", MediaSource::Url("file:///etc/x".into()));
    let pdf = Media::new("application/pdf", MediaSource::Base64("aGk=".into()));
    let broken = Media::new("image/png", MediaSource::Base64("no base64".into()));
    let mut seen = Message::user("See");
    for media in [png(), url, file, pdf, broken] {
        seen = seen.with(Part::Media(media));
    }
    let request = Request::new("m", [seen].into_iter().collect());
    let (body, warnings) = said(&request);
    let text = "See\n[image/png: left out, this service does not fetch files from an address]\n\
                [image/png: left out, only http and https addresses are passed on]\n\
                [application/pdf: left out, this service cannot be shown such a file]\n\
                [image/png: left out, its base64 text is broken]";
    assert_eq!(body["messages"][0], json!({"role": "user", "content": text, "images": ["aGk="]}));
    assert_eq!(warnings.len(), 4);
    let mut profile = Profile::default();
    profile.vision = Some(false);
    let (body, warnings) = said(&request.with_profile(profile));
    assert!(!body.to_string().contains("aGk="));
    assert_eq!(warnings.len(), 5);
}

#[test]
fn cm19_media_of_tools_follows_in_a_message_of_the_user() {
    let one = call("a");
    let taken = vec![Content::Text("taken".into()), Content::Media(png())];
    let results = [ToolResult::new(&one, taken, false), ToolResult::text(&call("b"), "ok")];
    assert_eq!(
        messages([Message::tool(results)]),
        json!([
            {"role": "tool", "content": "taken\n[image/png: see the next message of the user]", "tool_name": "look", "tool_call_id": "a"},
            {"role": "tool", "content": "ok", "tool_name": "look", "tool_call_id": "b"},
            {"role": "user", "content": "image/png returned by the tool `look`", "images": ["aGk="]},
        ])
    );
}

#[test]
fn prefix_of_a_request_is_the_request_before_it() {
    let mut all = vec![Message::system("Be good.")];
    for turn in 0..4 {
        let call = call(&format!("c{turn}"));
        let result = ToolResult::new(&call, vec![Content::Media(png())], false);
        all.push(Message::user(format!("question {turn}")).with(Part::Media(png())));
        all.push(Message::new(Role::Assistant, vec![Part::Text("I look.".into()), Part::ToolCall(call)]));
        all.push(Message::tool([result]));
        all.push(Message::assistant("So it is."));
    }
    let all: Vec<_> = all.into_iter().map(Arc::new).collect();
    let request = |messages: &[Arc<Message>]| {
        Request::new("m", messages.iter().cloned().collect()).with_instructions("sys").with_tools([look()])
    };
    let mut before: Vec<u8> = Vec::new();
    for n in 1..=all.len() {
        let body = encode(&request(&all[..n]));
        serde_json::from_slice::<Value>(&body).unwrap();
        let open = body.strip_suffix(b"]}").unwrap();
        assert!(open.starts_with(&before), "request {n} does not begin with the one before it");
        before = open.to_vec();
    }
    for message in &all {
        message.encoded("ollama", |_| panic!("encoded a second time"));
    }
}

#[test]
fn a_server_on_this_machine_is_the_default_and_debug_shows_no_secret() {
    let server = Ollama::builder().build().unwrap();
    assert_eq!((server.base_url().as_str(), server.name()), ("http://127.0.0.1:11434/", "ollama"));
    assert_eq!(server.model("q").profile().documents, Some(false));
    let builder = || Ollama::builder().base_url("https://h.example").api_key("very-secret");
    let shown = format!("{:?} {:?}", builder(), builder().build().unwrap());
    assert!(!shown.contains("secret"), "{shown}");
    assert!(Ollama::builder().base_url("http://h.example").api_key("k").build().is_err());
}
