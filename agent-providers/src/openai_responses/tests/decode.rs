use entourage_core::{
    ErrorKind, Money, Result, Usage,
    message::{Opaque, Signature},
    provider::{Delta, Finish, FinishReason, ResponseInfo},
};
use entourage_runtime::reply::Assembler;
use serde_json::{Value, json};

use super::{
    super::{NAME, OpenAiResponsesDecoder},
    searched,
};

fn pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Result<Delta>> {
    let mut decoder = OpenAiResponsesDecoder::new();
    let mut all = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        all.extend(std::iter::from_fn(|| decoder.pop()));
    }
    decoder.finish();
    all.extend(std::iter::from_fn(|| decoder.pop()));
    all
}

fn stream(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

fn deltas(events: &[Value]) -> Vec<Delta> {
    pieces([stream(events).as_bytes()]).into_iter().map(Result::unwrap).collect()
}

fn whole(body: &Value) -> Vec<Delta> {
    pieces([body.to_string().as_bytes()]).into_iter().map(Result::unwrap).collect()
}

fn completed() -> Value {
    json!({"type": "response.completed", "response": {"status": "completed"}})
}

fn finish(reason: FinishReason, raw: &str) -> Delta {
    Delta::finish(Finish::from_wire(reason, raw))
}

fn said(kind: &str, index: u64, delta: &str) -> Value {
    json!({"type": format!("response.{kind}.delta"), "output_index": index, "delta": delta})
}

fn signature(data: &str, item: Value) -> Delta {
    Delta::signature(Signature::new(NAME, data).with_item(item))
}

/// A stream with an item of every kind.
fn everything() -> Vec<Value> {
    let reasoning =
        json!({"type": "reasoning", "id": "rs", "encrypted_content": "gA", "summary": [{"text": "Hm, é."}]});
    vec![
        json!({"type": "response.created", "response": {"id": "r1", "model": "m1", "status": "in_progress"}}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": "rs", "encrypted_content": "early"}}),
        said("reasoning_summary_text", 0, "Hm, "),
        said("reasoning_summary_text", 0, "é."),
        json!({"type": "response.output_item.done", "output_index": 0, "item": reasoning}),
        json!({"type": "response.output_item.added", "output_index": 1, "item": {"type": "message", "phase": "commentary", "content": []}}),
        said("output_text", 1, "I "),
        said("output_text", 1, "look."),
        json!({"type": "response.output_text.done", "output_index": 1, "text": "I look."}),
        json!({"type": "response.output_item.done", "output_index": 1, "item": {"type": "message", "phase": "commentary", "content": [{"type": "output_text", "text": "I look."}]}}),
        json!({"type": "response.output_item.added", "output_index": 2, "item": {"type": "function_call", "call_id": "c1", "name": "f", "namespace": "n", "arguments": ""}}),
        json!({"type": "response.output_item.added", "output_index": 3, "item": {"type": "function_call", "call_id": "c2", "name": "g", "arguments": ""}}),
        said("function_call_arguments", 3, "{}"),
        said("function_call_arguments", 2, "{\"a\":"),
        said("function_call_arguments", 2, "1}"),
        json!({"type": "response.function_call_arguments.done", "output_index": 2, "arguments": "{\"a\":1}"}),
        json!({"type": "response.output_item.done", "output_index": 2, "item": {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"a\":1}"}}),
        json!({"type": "response.output_item.done", "output_index": 4, "item": {"type": "web_search_call", "id": "ws"}}),
        json!({"type": "response.completed", "response": {"id": "r1", "model": "m1", "status": "completed", "output": [],
               "usage": {"input_tokens": 9, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
                         "output_tokens_details": {"reasoning_tokens": 3}, "cost": 4.05e-5}}}),
    ]
}

#[test]
fn everything_that_a_reply_says_is_read_once() {
    let mut usage = Usage::new(9, 5);
    (usage.cache_read, usage.cache_write, usage.reasoning) = (Some(4), Some(2), Some(3));
    usage.cost = Some(Money::from_pico(40_500_000));
    let search = json!({"type": "web_search_call", "id": "ws"});
    assert_eq!(
        deltas(&everything()),
        [
            Delta::Response(Box::new(ResponseInfo::new(Some("r1".into()), Some("m1".into())))),
            Delta::Reasoning("Hm, ".into()),
            Delta::Reasoning("é.".into()),
            signature("gA", json!({"type": "reasoning", "id": "rs", "summary": [{"text": "Hm, é."}]})),
            signature("", json!({"type": "message", "phase": "commentary"})),
            Delta::text("I "),
            Delta::text("look."),
            signature("", json!({"type": "function_call", "namespace": "n"})),
            Delta::tool_call(0, "c1", "f"),
            Delta::tool_call(1, "c2", "g"),
            Delta::arguments(1, "{}"),
            Delta::arguments(0, "{\"a\":"),
            Delta::arguments(0, "1}"),
            Delta::Opaque(Box::new(Opaque::new(NAME, search))),
            Delta::Usage(Box::new(usage)),
            finish(FinishReason::ToolCalls, "completed"),
        ]
    );
}

#[test]
fn cuts_never_change_the_deltas() {
    let events = stream(&everything());
    let body = json!({"object": "response", "id": "r", "status": "completed", "output": [
        {"type": "message", "content": [{"type": "output_text", "text": "é"}]}]})
    .to_string();
    for body in [events.as_bytes(), body.as_bytes()] {
        let text = |all: Vec<Result<Delta>>| format!("{all:?}");
        let expected = text(pieces([body]));
        for cut in 0..=body.len() {
            assert_eq!(text(pieces([&body[..cut], &body[cut..]])), expected, "cut at {cut}");
        }
        assert_eq!(text(pieces(body.chunks(1))), expected);
    }
}

#[test]
fn what_was_not_streamed_is_taken_from_what_repeats_it() {
    let text = json!({"type": "message", "content": [{"type": "output_text", "text": "Hello"}]});
    let ends = |output: Value| json!({"type": "response.completed", "response": {"status": "completed", "output": output}});
    for events in [
        vec![said("output_text", 0, "Hello"), completed()],
        vec![json!({"type": "response.output_text.delta", "delta": "Hello"}), completed()],
        vec![
            json!({"type": "response.output_text.done", "output_index": 0, "content_index": 1, "text": "Hello"}),
            completed(),
        ],
        vec![json!({"type": "response.output_item.done", "output_index": 0, "item": text}), completed()],
        vec![json!({"type": "response.output_item.done", "item": text}), ends(json!([text]))],
        vec![ends(json!([text]))],
        vec![
            json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": []}}),
            ends(json!([text])),
        ],
        vec![said("output_text", 0, "Hello"), ends(json!([text]))],
    ] {
        assert_eq!(
            deltas(&events),
            [Delta::text("Hello"), finish(FinishReason::Stop, "completed")],
            "{events:?}"
        );
    }
    let call = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"a\":1}"});
    let wanted = [
        Delta::tool_call(0, "c", "f"),
        Delta::arguments(0, "{\"a\":1}"),
        finish(FinishReason::ToolCalls, "completed"),
    ];
    for events in [
        vec![json!({"type": "response.output_item.done", "output_index": 0, "item": call}), completed()],
        vec![
            said("function_call_arguments", 0, "{\"a\":1}"),
            json!({"type": "response.output_item.done", "output_index": 0, "item": call}),
            completed(),
        ],
        vec![
            json!({"type": "response.output_item.added", "item": {"type": "function_call", "id": "i", "call_id": "c", "name": "f"}}),
            json!({"type": "response.function_call_arguments.done", "item_id": "i", "arguments": "{\"a\":1}"}),
            completed(),
        ],
    ] {
        assert_eq!(deltas(&events), wanted, "{events:?}");
    }
}

#[test]
fn a_whole_body_is_read_like_a_stream() {
    let body = json!({"object": "response", "id": "r", "model": "m", "status": "completed", "error": null, "output": [
        {"type": "reasoning", "id": "rs", "summary": [{"text": "a"}, {"text": "b"}], "content": [{"text": "c"}]},
        {"type": "message", "content": [{"type": "refusal", "refusal": "No."}]},
        {"type": "custom_tool_call", "call_id": "c", "name": "calc", "input": "4 + 4"}]});
    let item = json!({"type": "reasoning", "id": "rs", "summary": [{"text": "a"}, {"text": "b"}], "content": [{"text": "c"}]});
    assert_eq!(
        whole(&body)[1..],
        [
            Delta::Reasoning("a".into()),
            Delta::Reasoning("b".into()),
            Delta::Reasoning("c".into()),
            signature("", item),
            Delta::Refusal("No.".into()),
            Delta::tool_call(0, "c", "calc"),
            Delta::arguments(0, "\"4 + 4\""),
            finish(FinishReason::ToolCalls, "completed"),
        ]
    );
}

#[test]
fn every_end_has_its_reason() {
    let body = |status: &str, why: Value, output: Value| {
        let body =
            json!({"object": "response", "status": status, "incomplete_details": why, "output": output});
        whole(&body).pop().unwrap()
    };
    let refusal = json!([{"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}]);
    for (status, why, output, reason) in [
        ("completed", Value::Null, json!([]), FinishReason::Stop),
        ("completed", Value::Null, refusal, FinishReason::Refusal),
        ("incomplete", json!({"reason": "max_output_tokens"}), json!([]), FinishReason::Length),
        ("incomplete", json!({"reason": "content_filter"}), json!([]), FinishReason::ContentFilter),
        ("incomplete", Value::Null, json!([]), FinishReason::Other),
        ("queued", Value::Null, json!([]), FinishReason::Other),
        ("cancelled", Value::Null, json!([]), FinishReason::Other),
    ] {
        assert_eq!(body(status, why, output), finish(reason, status));
    }
    let incomplete = json!({"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}});
    assert_eq!(deltas(&[incomplete]), [finish(FinishReason::Length, "incomplete")]);
}

#[test]
fn failures_are_errors_wherever_they_come() {
    let error = json!({"code": "rate_limit_exceeded", "message": "slow down"});
    let refused = json!({"error": {"message": "slow down", "type": "rate_limit_error"}}).to_string();
    for body in [
        stream(&[json!({"type": "response.failed", "response": {"status": "failed", "error": error}})]),
        stream(&[
            json!({"type": "error", "code": "rate_limit_exceeded", "message": "slow down", "param": null}),
        ]),
        stream(&[json!({"type": "error", "error": error})]),
        stream(&[json!({"error": error})]),
        format!("event: error\ndata: {error}\n\n"),
        json!({"object": "response", "status": "failed", "error": error, "output": []}).to_string(),
        refused,
    ] {
        let all = pieces([body.as_bytes()]);
        let [Err(error)] = all.as_slice() else { panic!("{body}: {all:?}") };
        assert_eq!(
            (error.kind(), error.message().contains("slow down")),
            (ErrorKind::RateLimited, true),
            "{body}: {error:?}"
        );
    }
    for body in ["{\"choices\":[]}", "data: {no json}\n\n", "<html></html>"] {
        let all = pieces([body.as_bytes()]);
        let [Err(error)] = all.as_slice() else { panic!("{body}: {all:?}") };
        assert_eq!(error.kind(), ErrorKind::Protocol, "{body}");
    }
}

#[test]
fn a_stream_without_its_end_gets_no_finish() {
    let cut = deltas(&[said("output_text", 0, "Hel")]);
    assert_eq!(cut, [Delta::text("Hel")]);
    let marked = format!("{}data: [DONE]\n\n", stream(&[said("output_text", 0, "Hel")]));
    let all: Vec<_> = pieces([marked.as_bytes()]).into_iter().map(Result::unwrap).collect();
    assert_eq!(all, [Delta::text("Hel"), Delta::finish(FinishReason::Stop)]);
    let after =
        format!("{}data: [DONE]\n\n{}", stream(&[completed()]), stream(&[said("output_text", 0, "more")]));
    assert_eq!(pieces([after.as_bytes()]).len(), 1);
    assert!(pieces([&b"data: [DONE]\n\n"[..]]).is_empty());
}

#[test]
fn reasoning_that_ends_late_is_signed_only_with_a_seal() {
    let done = |sealed: Option<&str>| json!({"type": "response.output_item.done", "output_index": 0, "item": {"type": "reasoning", "encrypted_content": sealed}});
    let events = |sealed| {
        vec![said("reasoning_text", 0, "Hm"), said("output_text", 1, "4"), done(sealed), completed()]
    };
    let signed = |all: Vec<Delta>| {
        all.into_iter().filter(|delta| matches!(delta, Delta::ReasoningSignature(_))).count()
    };
    assert_eq!(signed(deltas(&events(None))), 0);
    assert_eq!(signed(deltas(&events(Some("gA")))), 1);
}

#[test]
fn attack_46_odd_and_huge_replies_stay_bounded() {
    let odd = [
        json!({"type": "response.output_text.delta", "output_index": -1, "delta": 7}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": "no item"}),
        json!({"type": "response.output_item.done", "output_index": 0}),
        json!({"type": ["response"], "item": []}),
        json!([]),
        json!({"type": "response.completed", "response": {"status": "completed", "output": "none",
               "usage": {"input_tokens": -5, "output_tokens": 1e300, "input_tokens_details": [], "cost": -1}}}),
    ];
    assert_eq!(deltas(&odd), [finish(FinishReason::Stop, "completed")]);

    let many: Vec<_> = (0..10_001).map(|n| said("output_text", n, "x")).collect();
    let all = pieces([stream(&many).as_bytes()]);
    assert_eq!(all.last().unwrap().as_ref().unwrap_err().kind(), ErrorKind::TooLarge);

    let big = "x".repeat(1 << 20);
    let piece = stream(&[said("function_call_arguments", 0, &big)]);
    let mut decoder = OpenAiResponsesDecoder::new();
    let refused = (0..50).find_map(|_| {
        decoder.push(piece.as_bytes());
        decoder.pop()
    });
    assert_eq!(refused.unwrap().unwrap_err().kind(), ErrorKind::TooLarge);

    let mut assembler = Assembler::default();
    let call = json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "function_call", "call_id": "c", "name": "f"}});
    let body = [stream(&[call]), piece.repeat(9)].concat();
    let result: Result<()> =
        pieces([body.as_bytes()]).into_iter().try_for_each(|delta| assembler.push(&delta?));
    assert_eq!(result.unwrap_err().kind(), ErrorKind::TooLarge);
}

#[test]
fn issue_15_searches_for_tools_are_kept() {
    let [search, found] = searched();
    let added = |index: u64, item: &Value| json!({"type": "response.output_item.added", "output_index": index, "item": item});
    let done = |index: u64, item: &Value| json!({"type": "response.output_item.done", "output_index": index, "item": item});
    let call = json!({"type": "function_call", "call_id": "c1", "name": "rate", "namespace": "rate", "arguments": "{}"});
    let events = [
        added(0, &json!({"type": "tool_search_call", "id": "tsc_1", "status": "in_progress"})),
        done(0, &search),
        added(1, &found),
        done(1, &found),
        added(2, &call),
        done(2, &call),
        completed(),
    ];
    assert_eq!(
        deltas(&events)[..4],
        [
            Delta::Opaque(Box::new(Opaque::new(NAME, search))),
            Delta::Opaque(Box::new(Opaque::new(NAME, found))),
            signature("", json!({"type": "function_call", "namespace": "rate"})),
            Delta::tool_call(0, "c1", "rate"),
        ]
    );
}
