use entourage_core::{
    ErrorKind, Usage,
    message::Part,
    provider::{Delta, FinishReason, WarningKind},
};
use serde_json::json;

use super::{super::GeminiDecoder, deltas, parts, reply, stream};

fn finish(body: &str) -> (FinishReason, Option<String>) {
    let (reply, errors) = reply(body);
    assert!(errors.is_empty(), "{errors:?}");
    (reply.finish.reason, reply.finish.raw.map(Into::into))
}

#[test]
fn text_thoughts_and_usage_add_up() {
    let body = concat!(
        "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"hm\",\"thought\":true}]},\"index\":0}],\"responseId\":\"r\",",
        "\"modelVersion\":\"m\",\"usageMetadata\":{\"promptTokenCount\":9,\"thoughtsTokenCount\":3}}\r\n\r\n",
        "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hél\"},{\"text\":\"lo\"}]},\"index\":0},",
        "{\"content\":{\"parts\":[{\"text\":\"other\"}]},\"index\":1}]}\r\n\r\n",
        "data: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":9,\"candidatesTokenCount\":2,",
        "\"thoughtsTokenCount\":4,\"cachedContentTokenCount\":5}}\r\n\r\n",
    );
    let (reply, errors) = reply(body);
    assert!(errors.is_empty());
    let mut usage = Usage::new(9, 6);
    usage.reasoning = Some(4);
    usage.cache_read = Some(5);
    assert_eq!(reply.usage, usage);
    assert_eq!((reply.info.id.as_deref(), reply.info.model.as_deref()), (Some("r"), Some("m")));
    assert_eq!((reply.finish.reason, reply.finish.raw.as_deref()), (FinishReason::Stop, Some("STOP")));
    let message = reply.into_message();
    assert_eq!(message.text(), "Héllo");
    assert!(matches!(&message.parts()[0], Part::Reasoning(thought) if thought.text == "hm"));
}

#[test]
fn an_array_of_chunks_and_a_single_body_are_read_too() {
    let chunk = |text: &str, more: &str| {
        format!("{{\n  \"candidates\": [{{{}{more}}}]\n}}", parts(&format!(r#"{{"text":"{text}"}}"#)))
    };
    let end = r#","finishReason":"STOP""#;
    let array = format!("[{}\n,\r\n{}]", chunk("a", ""), chunk("b", end));
    for (body, text) in [(array.as_str(), "ab"), (&chunk("c", end), "c")] {
        let (reply, errors) = reply(body);
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(reply.finish.reason, FinishReason::Stop);
        assert_eq!(reply.into_message().text(), text);
    }
    let (cut, errors) = reply(array.strip_suffix(']').unwrap());
    assert_eq!((cut.finish.reason, errors.len()), (FinishReason::Cancelled, 1));
    let error = r#"[{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}]"#;
    assert!(reply(error).1[0].contains("busy"));
}

#[test]
fn calls_without_ids_and_arguments_are_calls() {
    let calls = r#"{"functionCall":{"name":"a","args":{"x": 1}}},{"functionCall":{"name":"b","id":"own"}},{"functionCall":{"name":"c","args":null}}"#;
    let (reply, errors) = reply(&stream(&[&format!(r#"{},"finishReason":"STOP""#, parts(calls))]));
    assert!(errors.is_empty());
    assert_eq!((reply.finish.reason, reply.finish.raw.as_deref()), (FinishReason::ToolCalls, Some("STOP")));
    let message = reply.into_message();
    let calls: Vec<_> =
        message.tool_calls().map(|call| (&*call.id, &*call.name, call.arguments.as_str())).collect();
    assert_eq!(
        calls,
        [("gemini-call-0", "a", r#"{"x": 1}"#), ("own", "b", "{}"), ("gemini-call-2", "c", "{}")]
    );
}

#[test]
fn reasons_are_mapped_and_the_own_word_kept() {
    let call = parts(r#"{"functionCall":{"name":"a"}}"#);
    let said = parts(r#"{"text":"x"}"#);
    for (content, raw, reason) in [
        (&said, "MAX_TOKENS", FinishReason::Length),
        (&call, "MAX_TOKENS", FinishReason::Length),
        (&said, "SAFETY", FinishReason::ContentFilter),
        (&said, "MODEL_ARMOR", FinishReason::ContentFilter),
        (&call, "UNEXPECTED_TOOL_CALL", FinishReason::ToolCalls),
        (&said, "UNEXPECTED_TOOL_CALL", FinishReason::Error),
        (&said, "MALFORMED_FUNCTION_CALL", FinishReason::Error),
        (&said, "NEW", FinishReason::Other),
    ] {
        let body = stream(&[&format!(r#"{content},"finishReason":"{raw}""#)]);
        assert_eq!(finish(&body), (reason, Some(raw.to_owned())), "{raw}");
    }
    // More may come after a reason; the last one counts. Contents may have no parts.
    let body = stream(&[
        r#""content":{"role":"model"},"finishReason":"STOP""#,
        &said,
        r#""content":{},"finishReason":"MAX_TOKENS""#,
    ]);
    let (reply, _) = reply(&body);
    assert_eq!(reply.finish.reason, FinishReason::Length);
    assert_eq!(reply.into_message().text(), "x");
    let odd = stream(&[r#""finishReason":"SAFETY","finishMessage":"too hot""#]);
    let (reply, _) = super::reply(&odd);
    assert_eq!((reply.warnings.len(), reply.warnings[0].kind), (1, WarningKind::Reply));
    assert!(reply.warnings[0].text.contains("too hot"));
}

#[test]
fn a_blocked_prompt_ends_as_filtered() {
    let blocked = r#"{"promptFeedback":{"blockReason":"SAFETY","blockReasonMessage":"no"},"usageMetadata":{"promptTokenCount":3}}"#;
    for body in [blocked.to_owned(), format!("[{blocked}]"), format!("data: {blocked}\r\n\r\n")] {
        let (reply, errors) = reply(&body);
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!((reply.finish.reason, &reply.finish.raw), (FinishReason::ContentFilter, &None));
        assert!(reply.warnings[0].text.contains("SAFETY: no"), "{:?}", reply.warnings);
        assert_eq!(reply.usage.input, Some(3));
    }
}

#[test]
fn errors_are_reported_wherever_they_come() {
    let late = format!(
        "{}data: {{\"error\":{{\"code\":429,\"message\":\"slow\",\"status\":\"RESOURCE_EXHAUSTED\"}}}}\n\n",
        stream(&[&parts(r#"{"text":"x"}"#)])
    );
    let all = deltas([late.as_bytes()]);
    let error = all.iter().find_map(|item| item.as_ref().err()).unwrap();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert!(!all.iter().any(|item| matches!(item, Ok(Delta::Finish(_)))));
    for (body, kind) in [
        ("data: {broken\n\n", ErrorKind::Protocol),
        ("{}", ErrorKind::Protocol),
        ("[]", ErrorKind::Protocol),
        (r#"{"object":"list"}"#, ErrorKind::Protocol),
        ("<html>", ErrorKind::Protocol),
        (r#"{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}"#, ErrorKind::Overloaded),
    ] {
        let all = deltas([body.as_bytes()]);
        assert_eq!(all.len(), 1, "{body}: {all:?}");
        assert_eq!(all[0].as_ref().unwrap_err().kind(), kind, "{body}");
    }
    let info = r#"{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"7s"}"#;
    let body = format!(
        r#"[{{"error":{{"code":429,"message":"q","status":"RESOURCE_EXHAUSTED","details":[{info}]}}}}]"#
    );
    let error = GeminiDecoder::refusal(429, body.as_bytes());
    assert_eq!((error.kind(), error.retry_after().unwrap().as_secs()), (ErrorKind::RateLimited, 7));
}

#[test]
fn a_stream_without_a_reason_was_cut_off() {
    let body = stream(&[&parts(r#"{"text":"x"}"#)]);
    let mut decoder = GeminiDecoder::new();
    decoder.push(body.as_bytes());
    assert!(!decoder.has_finish());
    decoder.finish();
    assert!(!decoder.is_done());
    let mut done = GeminiDecoder::new();
    done.push(stream(&[r#""finishReason":"STOP""#]).as_bytes());
    assert_eq!((done.has_finish(), done.is_done()), (true, false));
    done.finish();
    done.push(b"data: {broken\n\n");
    assert!(done.is_done());
    assert_eq!(std::iter::from_fn(|| done.pop()).count(), 1);
    let mut marked = GeminiDecoder::new();
    marked.push(format!("{body}data: [DONE]\n\n").as_bytes());
    assert!(marked.is_done());
}

#[test]
fn attack_46_wrong_types_and_wild_numbers_are_survived() {
    for candidate in [
        r#""content":[],"finishReason":"STOP""#,
        r#""content":{"parts":{"text":7}},"finishReason":"STOP""#,
        r#""content":{"parts":[null,3,"x",[],{"text":null},{"thought":"yes"},{"functionCall":null}]},"finishReason":"STOP""#,
        r#""content":{"parts":[{"functionCall":{"name":7,"args":"text"}}]},"finishReason":"STOP""#,
        r#""index":-1,"content":{"parts":[{"text":"a"}]},"finishReason":"STOP""#,
    ] {
        let (reply, errors) = reply(&stream(&[candidate]));
        assert!(errors.is_empty(), "{candidate}: {errors:?}");
        assert!(reply.finish.raw.is_some(), "{candidate}");
    }
    let usage = |usage: &str| {
        let body =
            format!("{}data: {{\"usageMetadata\":{usage}}}\n\n", stream(&[r#""finishReason":"STOP""#]));
        reply(&body).0.usage
    };
    let wild = usage(
        r#"{"promptTokenCount":-5,"candidatesTokenCount":18446744073709551615,"thoughtsTokenCount":2}"#,
    );
    assert_eq!((wild.input, wild.output, wild.reasoning), (None, None, Some(2)));
    assert!(usage(r#"{"promptTokenCount":"many"}"#).is_unknown());
    assert_eq!(usage("[]"), Usage::default());
}

#[test]
fn attack_46_huge_arguments_and_deep_nesting_are_bounded() {
    let big = format!(r#"{{"functionCall":{{"name":"a","args":{{"x":"{}"}}}}}}"#, "y".repeat(50 << 20));
    let body = stream(&[&parts(&big)]);
    let all = deltas(body.as_bytes().chunks(1 << 20));
    assert_eq!(all.len(), 1, "nothing but the error");
    assert_eq!(all[0].as_ref().unwrap_err().kind(), ErrorKind::TooLarge);
    let deep = format!(r#"{{"rest":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    let all = deltas([stream(&[&parts(&deep)]).as_bytes()]);
    assert_eq!(all[0].as_ref().unwrap_err().kind(), ErrorKind::Protocol);
    let blob = format!(r#"{{"inlineData":{{"mimeType":"a/b","data":"{}"}}}}"#, "A".repeat(10 << 20));
    let flood = stream(&[parts(&blob).as_str(); 7]);
    let kinds: Vec<_> =
        deltas([flood.as_bytes()]).iter().map(|item| item.as_ref().err().map(|error| error.kind())).collect();
    assert_eq!(kinds, [None, None, None, None, None, None, Some(ErrorKind::TooLarge)]);
}

#[test]
fn what_only_the_service_understands_is_kept() {
    let code = r#"{"executableCode":{"language":"PYTHON","code":"1"}},{"codeExecutionResult":{"outcome":"OUTCOME_OK"}}"#;
    let (reply, _) = reply(&stream(&[&format!(r#"{},"finishReason":"STOP""#, parts(code))]));
    let blocks: Vec<_> = reply
        .into_message()
        .parts()
        .iter()
        .map(|part| match part {
            Part::Opaque(block) => (*block.data).clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        blocks,
        [
            json!({"executableCode": {"language": "PYTHON", "code": "1"}}),
            json!({"codeExecutionResult": {"outcome": "OUTCOME_OK"}})
        ]
    );
}
