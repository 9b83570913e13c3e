//! Events and bodies, and their deltas.

use entourage_core::{
    ErrorKind, Money, Result, Usage,
    message::{Message, Opaque, Part, Reasoning, Signature},
    provider::{Delta, Finish, FinishReason, Request},
};
use entourage_runtime::reply::Assembler;
use serde_json::{Value, json};

use super::{AnthropicMessagesDecoder, body};
use crate::anthropic_messages::NAME;

fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Result<Delta>> {
    let mut decoder = AnthropicMessagesDecoder::new();
    for piece in pieces {
        decoder.push(piece);
    }
    decoder.finish();
    std::iter::from_fn(|| decoder.pop()).collect()
}

fn stream(events: &[Value]) -> String {
    let mut out = String::new();
    for event in events {
        out += &format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    }
    out
}

fn good(events: &[Value]) -> Vec<Delta> {
    decode([stream(events).as_bytes()]).into_iter().map(Result::unwrap).collect()
}

fn message(deltas: &[Delta]) -> Message {
    let mut assembler = Assembler::default();
    for delta in deltas {
        assembler.push(delta).unwrap();
    }
    assembler.finish().unwrap().into_message()
}

fn start(index: u64, block: impl Into<Value>) -> Value {
    let block = block.into();
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn more(index: u64, kind: &str, field: &str, value: impl Into<Value>) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": {"type": kind, field: value.into()}})
}

fn stop(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn end(reason: &str) -> [Value; 2] {
    [
        json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 9}}),
        json!({"type": "message_stop"}),
    ]
}

/// A reply with every kind of block.
fn everything() -> Vec<Value> {
    let mut events = vec![
        json!({"type": "message_start", "message": {"id": "msg_1", "model": "m-1", "content": [],
               "usage": {"input_tokens": 10, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2, "output_tokens": 1}}}),
        json!({"type": "ping"}),
        start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        more(0, "thinking_delta", "thinking", "Hm."),
        more(0, "signature_delta", "signature", "sig="),
        stop(0),
        start(1, json!({"type": "redacted_thinking", "data": "sealed"})),
        stop(1),
        start(2, json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})),
        more(2, "input_json_delta", "partial_json", ""),
        more(2, "input_json_delta", "partial_json", "{\"query\": "),
        more(2, "input_json_delta", "partial_json", "\"ü\"}"),
        stop(2),
        start(
            3,
            json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"encrypted_content": "E"}]}),
        ),
        stop(3),
        start(4, json!({"type": "text", "text": "So: "})),
        stop(4),
        start(5, json!({"type": "text", "text": "", "citations": []})),
        more(5, "text_delta", "text", "it is "),
        more(5, "citations_delta", "citation", json!({"url": "https://h"})),
        more(5, "text_delta", "text", "so."),
        stop(5),
        start(
            6,
            json!({"type": "tool_use", "id": "t", "name": "f", "input": {}, "caller": {"type": "direct"}}),
        ),
        more(6, "input_json_delta", "partial_json", ""),
        stop(6),
        start(
            7,
            json!({"type": "tool_use", "id": "u", "name": "g", "input": {}, "caller": {"type": "code", "tool_id": "s"}}),
        ),
        more(7, "input_json_delta", "partial_json", "{\"a\":"),
        more(7, "input_json_delta", "partial_json", " 1}"),
        stop(7),
        start(8, json!({"type": "compaction", "content": null})),
        more(8, "compaction_delta", "content", "Summary."),
        stop(8),
    ];
    events.extend(end("tool_use"));
    events
}

#[test]
fn every_kind_of_block_is_read() {
    let deltas = good(&everything());
    let usage: Vec<_> = deltas
        .iter()
        .filter_map(|delta| match delta {
            Delta::Usage(usage) => Some(**usage),
            _ => None,
        })
        .collect();
    let mut expected = Usage::new(17, 1);
    (expected.cache_read, expected.cache_write) = (Some(5), Some(2));
    let mut last = expected;
    last.output = Some(9);
    assert_eq!(usage, [expected, last]);
    assert_eq!(deltas.last(), Some(&Delta::finish(Finish::from_wire(FinishReason::ToolCalls, "tool_use"))));
    let signature = |data: &str, item: Option<Value>| {
        let mut signature = Signature::new(NAME, data);
        signature.item = item;
        Some(signature)
    };
    let message = message(&deltas);
    let opaque = |block: Value| Part::Opaque(Opaque::new(NAME, block));
    let parts = message.parts();
    assert_eq!(
        parts[..6],
        [
            Part::Reasoning(Reasoning::new("Hm.", signature("sig=", None))),
            Part::Reasoning(Reasoning::new(
                "",
                signature("sealed", Some(json!({"type": "redacted_thinking"})))
            )),
            opaque(
                json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "ü"}})
            ),
            opaque(
                json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"encrypted_content": "E"}]})
            ),
            Part::Text("So: it is so.".into()),
            opaque(json!({"type": "text", "text": "it is so.", "citations": [{"url": "https://h"}]})),
        ]
    );
    let caller = json!({"type": "tool_use", "caller": {"type": "code", "tool_id": "s"}});
    assert_eq!(parts[7], Part::Reasoning(Reasoning::new("", signature("", Some(caller)))));
    assert_eq!(parts[9], opaque(json!({"type": "compaction", "content": "Summary."})));
    let calls: Vec<_> = message.tool_calls().map(|call| (&*call.id, call.arguments.as_str())).collect();
    assert_eq!(calls, [("t", "{}"), ("u", "{\"a\": 1}")]);
}

#[test]
fn cuts_anywhere_change_nothing() {
    let body = stream(&everything()).replace('\n', "\r\n");
    let whole = format!("{:?}", decode([body.as_bytes()]));
    assert_eq!(format!("{:?}", decode(body.as_bytes().chunks(1))), whole);
    for place in 0..body.len() {
        let (one, two) = body.as_bytes().split_at(place);
        assert_eq!(format!("{:?}", decode([one, two])), whole, "cut at {place}");
    }
}

#[test]
fn a_whole_body_says_the_same_as_a_stream() {
    let body = json!({"type": "message", "id": "msg_1", "model": "m-1", "stop_reason": "tool_use",
        "usage": {"input_tokens": 1, "output_tokens": 3, "output_tokens_details": {"thinking_tokens": 2}, "cost": 0.00025},
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "sig="},
            {"type": "text", "text": "Cited.", "citations": [{"url": "u"}]},
            {"type": "text", "text": "Plain.", "citations": null},
            {"type": "tool_use", "id": "t", "name": "f", "input": {"b": 1, "a": 2.0}},
            {"type": "mcp_tool_result", "content": [1]}]});
    let text = body.to_string().replace("{\"a\":2.0,\"b\":1}", "{ \"b\": 1, \"a\": 2.0 }");
    let deltas: Vec<_> = decode([text.as_bytes()]).into_iter().map(Result::unwrap).collect();
    let Some(Delta::Usage(usage)) = deltas.iter().find(|delta| matches!(delta, Delta::Usage(_))) else {
        panic!()
    };
    assert_eq!((usage.reasoning, usage.cost), (Some(2), Some(Money::from_pico(250_000_000))));
    let message = message(&deltas);
    assert_eq!(message.text(), "Cited.Plain.");
    assert_eq!(message.parts().len(), 6);
    assert_eq!(message.tool_calls().next().unwrap().arguments.as_str(), "{ \"b\": 1, \"a\": 2.0 }");
}

#[test]
fn reasons_have_their_meaning_and_keep_their_word() {
    for (raw, reason) in [
        ("end_turn", FinishReason::Stop),
        ("stop_sequence", FinishReason::Stop),
        ("tool_use", FinishReason::ToolCalls),
        ("max_tokens", FinishReason::Length),
        ("model_context_window_exceeded", FinishReason::Length),
        ("refusal", FinishReason::Refusal),
        ("pause_turn", FinishReason::Other),
        ("brand_new", FinishReason::Other),
    ] {
        assert_eq!(good(&end(raw)).last(), Some(&Delta::finish(Finish::from_wire(reason, raw))));
    }
    let refused = json!({"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": {"explanation": "No."}}});
    assert_eq!(good(&[refused])[0], Delta::Refusal("No.".into()));
}

#[test]
fn a_stream_without_its_end_gets_no_finish() {
    let finished = |events: &[Value]| good(events).iter().any(|delta| matches!(delta, Delta::Finish(_)));
    let all = everything();
    for n in 0..all.len() {
        assert_eq!(finished(&all[..n]), n + 1 == all.len(), "{n} events");
    }
    // The end mark without a reason still is an end.
    assert!(finished(&[json!({"type": "message_stop"})]));
}

#[test]
fn errors_inside_a_stream_are_errors() {
    let mut events = everything();
    events.truncate(4);
    events.push(json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}, "request_id": "req_1"}));
    let all = decode([stream(&events).as_bytes()]);
    let error = all.last().unwrap().as_ref().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert!(error.message().contains("Overloaded"), "{error}");
    assert!(error.context().any(|(name, value)| (name, value) == ("request", "req_1")));
    assert!(!all.iter().any(|item| matches!(item, Ok(Delta::Finish(_)))));
    // Without the event's name, and as a whole body.
    for text in [
        "data: {\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"slow\"}}\n\n",
        "{\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"slow\"}}",
    ] {
        let all = decode([text.as_bytes()]);
        assert_eq!((all.len(), all[0].as_ref().unwrap_err().kind()), (1, ErrorKind::RateLimited));
    }
    for text in ["{\"choices\":[]}", "[]", "data: {oops\n\n", "{\"type\":"] {
        assert_eq!(decode([text.as_bytes()])[0].as_ref().unwrap_err().kind(), ErrorKind::Protocol, "{text}");
    }
    let refused = AnthropicMessagesDecoder::refusal(
        529,
        br#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
    );
    assert_eq!(refused.kind(), ErrorKind::Overloaded);
}

#[test]
fn other_servers_habits_are_forgiven() {
    let deltas = good(&[
        json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "No start."}}),
        start(0, json!({"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}})),
        start(0, json!({"type": "tool_use", "id": "u", "name": "g", "input": {"a": 1}})),
        more(0, "input_json_delta", "partial_json", "{}"),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"input_tokens": -5, "output_tokens": "many"}}),
        json!({"type": "something_new", "x": 1}),
        json!({"type": "content_block_start", "index": 3, "content_block": "odd"}),
        json!({"type": "content_block_delta", "index": 3, "delta": {"type": "new_delta"}}),
        json!({"type": "content_block_delta", "index": 3, "delta": {"type": "newer_delta"}}),
    ]);
    assert!(!deltas.iter().any(|delta| matches!(delta, Delta::Usage(_))));
    let warned = deltas.iter().filter(|delta| matches!(delta, Delta::Warning(_))).count();
    assert_eq!(warned, 1);
    let message = message(&deltas);
    assert_eq!(message.text(), "No start.");
    let calls: Vec<_> = message.tool_calls().map(|call| (&*call.name, call.arguments.as_str())).collect();
    assert_eq!(calls, [("f", "{\"a\":1}"), ("g", "{}")]);
    let done = decode([
        &b"data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\ndata: [DONE]\n\n"[..],
    ]);
    assert_eq!(done.len(), 1);
}

#[test]
fn attack_46_replies_without_bounds_end_in_an_error() {
    let mut decoder = AnthropicMessagesDecoder::new();
    let piece = "x".repeat(1 << 20);
    decoder.push(stream(&[start(0, json!({"type": "server_tool_use", "id": "s", "input": {}}))]).as_bytes());
    let event = stream(&[more(0, "input_json_delta", "partial_json", piece)]);
    let error = (0..80).find_map(|_| {
        decoder.push(event.as_bytes());
        std::iter::from_fn(|| decoder.pop()).find_map(Result::err)
    });
    assert_eq!(error.unwrap().kind(), ErrorKind::TooLarge);

    let open: Vec<_> = (0..1_100).map(|n| start(n, json!({"type": "text", "text": ""}))).collect();
    let all = decode([stream(&open).as_bytes()]);
    assert_eq!(all.iter().filter_map(|item| item.as_ref().err()).next().unwrap().kind(), ErrorKind::TooLarge);

    let calls: Vec<_> = (0..10_001)
        .map(|n| start(0, json!({"type": "tool_use", "id": n.to_string(), "name": "f"})))
        .collect();
    let all = decode([stream(&calls).as_bytes()]);
    assert_eq!(all.iter().filter_map(|item| item.as_ref().err()).count(), 1);

    // Arguments of a call are not kept here, only passed on.
    let deep = "[".repeat(100_000);
    let all = good(&[
        start(0, json!({"type": "tool_use", "id": "t", "name": "f", "input": {}})),
        more(0, "input_json_delta", "partial_json", deep.as_str()),
    ]);
    assert_eq!(all.len(), 2);
    let all = good(&[
        start(0, json!({"type": "mcp_tool_use", "input": {}})),
        more(0, "input_json_delta", "partial_json", deep),
        stop(0),
    ]);
    assert!(matches!(&all[..], [Delta::Warning(_), Delta::Opaque(_)]));
}

#[test]
fn attack_17_18_a_block_that_cannot_be_kept_ends_the_reply_and_takes_no_memory() {
    let block = |content: &str| {
        format!(
            "data: {{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{{\"type\":\"web_search_tool_result\",\"content\":{content}}}}}\n\n"
        )
    };
    let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    for (content, kind) in [
        // 3 MiB of text, which as a tree would take twenty times as much.
        (format!("[{}[]]", "[],".repeat(1 << 20)), Some(ErrorKind::TooLarge)),
        (nested(100), Some(ErrorKind::Protocol)),
        (nested(90), None),
    ] {
        let all = decode([block(&content).as_bytes()]);
        let error = all.iter().find_map(|item| item.as_ref().err());
        assert_eq!(error.map(entourage_core::Error::kind), kind, "{content:.40}");
    }
    // A model's broken input for a tool of the service is left out by itself.
    let input = format!("{{\"a\":{}}}", nested(110));
    let all = good(&[
        start(0, json!({"type": "mcp_tool_use", "input": {}})),
        more(0, "input_json_delta", "partial_json", input),
        stop(0),
    ]);
    assert!(matches!(&all[..], [Delta::Warning(_), Delta::Opaque(_)]));
}

#[test]
fn issue_15_searches_for_tools_are_kept_and_sent_back_as_they_came() {
    let search =
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "tool_search_tool_bm25", "input": {}});
    let found = json!({"type": "tool_search_tool_result", "tool_use_id": "srvtoolu_1", "content": {
        "type": "tool_search_tool_search_result",
        "tool_references": [{"type": "tool_reference", "tool_name": "get_exchange_rate"}]}});
    let mut events = vec![
        json!({"type": "message_start", "message": {"id": "msg_1", "model": "claude-sonnet-4-6", "content": []}}),
        start(0, json!({"type": "text", "text": ""})),
        more(0, "text_delta", "text", "Let me search."),
        stop(0),
        start(1, search.clone()),
        more(1, "input_json_delta", "partial_json", ""),
        more(1, "input_json_delta", "partial_json", "{\"query\": \""),
        more(1, "input_json_delta", "partial_json", "USD EUR\"}"),
        stop(1),
        start(2, found.clone()),
        stop(2),
        start(3, json!({"type": "tool_use", "id": "toolu_1", "name": "get_exchange_rate", "input": {}})),
        more(3, "input_json_delta", "partial_json", "{\"from\": \"USD\"}"),
        stop(3),
    ];
    events.extend(end("tool_use"));
    let reply = message(&good(&events));
    let calls: Vec<_> = reply.tool_calls().map(|call| &*call.name).collect();
    assert_eq!(calls, ["get_exchange_rate"], "the search is no call of the agent's");
    let history = [Message::user("Which rate?"), reply];
    let sent = body(&Request::new("claude-sonnet-4-6", history.into_iter().collect())).0;
    let mut search = search;
    search["input"] = json!({"query": "USD EUR"});
    assert_eq!(
        sent["messages"][1]["content"],
        json!([
            {"type": "text", "text": "Let me search."},
            search,
            found,
            {"type": "tool_use", "id": "toolu_1", "name": "get_exchange_rate", "input": {"from": "USD"}},
        ])
    );
}
