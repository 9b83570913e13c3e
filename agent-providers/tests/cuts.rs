//! Bodies with every oddity that services are known for: they decode the same at every cut, and to the right deltas.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic, in its helpers too")]

use entourage_core::{
    ErrorKind, Result,
    provider::{CallStart, Delta, FinishReason},
};
use entourage_providers::openai_chat::{Dialect, OpenAiChatDecoder};
use entourage_runtime::reply::Assembler;
use proptest::prelude::*;

fn drain(decoder: &mut OpenAiChatDecoder) -> impl Iterator<Item = Result<Delta>> {
    std::iter::from_fn(|| decoder.pop())
}

fn decode_as<'a>(dialect: Dialect, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Result<Delta>> {
    let mut decoder = OpenAiChatDecoder::new(dialect);
    let mut all = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        all.extend(drain(&mut decoder));
    }
    decoder.finish();
    all.extend(drain(&mut decoder));
    all
}

fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Result<Delta>> {
    decode_as(Dialect::COMMON, pieces)
}

/// The items with errors as kind and text, so that they can be compared.
fn comparable(items: Vec<Result<Delta>>) -> Vec<Result<Delta, (ErrorKind, String)>> {
    items.into_iter().map(|item| item.map_err(|error| (error.kind(), error.to_string()))).collect()
}

fn sse(datas: &[&str]) -> String {
    datas.iter().map(|data| format!("data: {data}\n\n")).collect()
}

/// A chunk with one choice that has this delta.
fn delta(fields: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{{fields}}}}}]}}"#)
}

fn finish(reason: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}"#)
}

/// The decoded form of a body: text, reasoning, calls, reason, errors.
#[derive(Debug, Default, PartialEq)]
struct Sum {
    text: String,
    reasoning: String,
    calls: Vec<(String, String, String)>,
    finish: Option<FinishReason>,
    errors: Vec<ErrorKind>,
}

fn sum(items: Vec<Result<Delta>>) -> Sum {
    let mut sum = Sum::default();
    let mut indexes = Vec::new();
    for item in items {
        match item {
            Ok(Delta::Text(text)) => sum.text += &text,
            Ok(Delta::Reasoning(text)) => sum.reasoning += &text,
            Ok(Delta::ToolCallStart(call)) => {
                let CallStart { index, id, name, .. } = *call;
                indexes.push(index);
                sum.calls.push((id.to_string(), name.to_string(), String::new()));
            }
            Ok(Delta::ToolCallArguments { index, text }) => {
                sum.calls[indexes.iter().position(|known| *known == index).unwrap()].2 += &text;
            }
            Ok(Delta::Finish(finish)) => {
                assert!(sum.finish.replace(finish.reason).is_none(), "one finish only");
            }
            Ok(_) => {}
            Err(error) => sum.errors.push(error.kind()),
        }
    }
    sum
}

fn read(body: &str) -> Sum {
    sum(decode([body.as_bytes()]))
}

fn call(id: &str, name: &str, arguments: &str) -> (String, String, String) {
    (id.into(), name.into(), arguments.into())
}

fn bodies() -> Vec<String> {
    let first =
        r#"{"id":"r1","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#;
    let hello = delta(r#""content":"Gr\u00fc\u00df \"dich\" \ud83d\ude00 ""#);
    let world = delta(r#""content":"Wélt 🦀""#);
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}"#;
    let start_a = delta(
        r#""tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"one","arguments":""}}]"#,
    );
    let start_b = delta(
        r#""tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"two","arguments":"{\"y\":"}}]"#,
    );
    let more_a = delta(r#""tool_calls":[{"index":0,"function":{"arguments":"{\"x\":\"é\"}"}}]"#);
    let more_b = delta(r#""tool_calls":[{"index":1,"function":{"arguments":"2}"}}]"#);
    let thought = delta(r#""reasoning_content":"hm 🤔","reasoning":"hm 🤔""#);
    let error = r#"{"error":{"code":502,"message":"upstream güne"}}"#;
    let text = sse(&[first, &hello, &world, &finish("stop"), usage, "[DONE]"]);
    let tools = sse(&[first, &start_a, &start_b, &more_a, &more_b, &finish("tool_calls"), usage, "[DONE]"]);
    vec![
        text.clone(),
        text.replace('\n', "\r\n"),
        text.replace('\n', "\r"),
        format!("\u{feff}{text}"),
        format!("   \n\n{}", text.replace("data: ", ": OPENROUTER PROCESSING\n\ndata:")),
        text.trim_end().to_owned(),
        text.replace("data: [DONE]\n\n", ""),
        tools.clone(),
        tools.replace("\n\n", "\n: ping\n\n"),
        sse(&[first, &thought, &hello, &finish("length")]),
        sse(&[first, &hello, &finish("length"), error, "[DONE]"]),
        format!("{}event: error\ndata: {error}\n\n", sse(&[first, &hello])),
        sse(&[first, &hello, "{broken"]),
        sse(&[first, &hello]),
        r#"  {"id":"r","model":"m","choices":[{"message":{"content":"whole ü"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}"#
            .to_owned(),
        r#"{"error":{"message":"nö","code":401}}"#.to_owned(),
        "<html>\n</html>".to_owned(),
        String::new(),
    ]
}

#[test]
fn a_body_cut_at_every_byte_decodes_the_same() {
    for body in bodies() {
        let body = body.as_bytes();
        let whole = comparable(decode([body]));
        assert_eq!(comparable(decode(body.chunks(1))), whole);
        for place in 0..=body.len() {
            let (head, tail) = body.split_at(place);
            assert_eq!(
                comparable(decode([head, tail])),
                whole,
                "cut at {place}: {}",
                String::from_utf8_lossy(head)
            );
        }
    }
}

#[test]
fn bodies_come_to_what_they_mean() {
    let said =
        Sum {
            text: "Grüß \"dich\" 😀 Wélt 🦀".into(), finish: Some(FinishReason::Stop), ..Sum::default()
        };
    let called = Sum {
        calls: vec![call("a", "one", "{\"x\":\"é\"}"), call("b", "two", "{\"y\":2}")],
        finish: Some(FinishReason::ToolCalls),
        ..Sum::default()
    };
    let start = "Grüß \"dich\" 😀 ".to_owned();
    let sums: Vec<_> = bodies().iter().map(|body| read(body)).collect();
    for sum in &sums[..7] {
        assert_eq!(*sum, said);
    }
    assert_eq!(sums[7], called);
    assert_eq!(sums[8], called);
    assert_eq!((sums[9].reasoning.as_str(), sums[9].finish), ("hm 🤔", Some(FinishReason::Length)));
    assert_eq!(
        (&sums[10].errors, &sums[11].errors),
        (&vec![ErrorKind::Overloaded], &vec![ErrorKind::Overloaded])
    );
    assert_eq!(sums[12].errors, [ErrorKind::Protocol]);
    assert_eq!(sums[13], Sum { text: start, ..Sum::default() });
    assert_eq!((sums[14].text.as_str(), sums[14].finish), ("whole ü", Some(FinishReason::Stop)));
    assert_eq!(
        (&sums[15].errors, &sums[16].errors),
        (&vec![ErrorKind::Authentication], &vec![ErrorKind::Protocol])
    );
    assert_eq!(sums[17], Sum::default());
}

#[test]
fn usage_comes_wherever_services_put_it_and_follows_or_precedes_one_finish() {
    let items = decode([bodies()[0].as_bytes()]);
    let usages: Vec<_> = items.iter().filter(|item| matches!(item, Ok(Delta::Usage(_)))).collect();
    assert_eq!(usages.len(), 1);
    let mut assembler = Assembler::default();
    items.into_iter().for_each(|item| assembler.push(&item.unwrap()).unwrap());
    let reply = assembler.finish().unwrap();
    assert_eq!((reply.usage.input, reply.usage.output), (Some(7), Some(3)));
    assert_eq!((reply.info.id.as_deref(), reply.info.model.as_deref()), (Some("r1"), Some("m")));

    let last = |data: &str| {
        let items = decode([sse(&[&delta(r#""content":"x""#), data, "[DONE]"]).as_bytes()]);
        items.into_iter().rev().find_map(|item| match item {
            Ok(Delta::Usage(usage)) => Some(*usage),
            _ => None,
        })
    };
    let groq =
        last(r#"{"choices":[],"x_groq":{"usage":{"prompt_tokens":1,"completion_tokens":2}}}"#).unwrap();
    assert_eq!((groq.input, groq.output), (Some(1), Some(2)));
    // A total that holds reasoning beside the completion: output counts both.
    let beside = last(
        r#"{"usage":{"prompt_tokens":10,"completion_tokens":2,"total_tokens":17,"completion_tokens_details":{"reasoning_tokens":5}}}"#,
    );
    assert_eq!(beside.map(|usage| (usage.output, usage.reasoning)), Some((Some(7), Some(5))));
    assert_eq!(
        last(r#"{"usage":{"prompt_tokens":-1,"completion_tokens":"many","total_tokens":1e300}}"#),
        None
    );
    assert_eq!(last(r#"{"usage":{"prompt_tokens":12.0}}"#).and_then(|usage| usage.input), Some(12));
}

#[test]
fn calls_are_told_apart_however_services_number_them() {
    let calls = |entries: &[&str]| {
        let chunks: Vec<_> =
            entries.iter().map(|entry| delta(&format!(r#""tool_calls":[{entry}]"#))).collect();
        let mut datas: Vec<_> = chunks.iter().map(String::as_str).collect();
        datas.push("[DONE]");
        read(&sse(&datas)).calls
    };
    let two = [call("a", "f", "{}"), call("b", "g", "{}")];
    // Whole calls without index.
    assert_eq!(
        calls(&[
            r#"{"id":"a","function":{"name":"f","arguments":"{}"}}"#,
            r#"{"id":"b","function":{"name":"g","arguments":"{}"}}"#
        ]),
        two
    );
    // Index 0 for each, new ids.
    assert_eq!(
        calls(&[
            r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}"#,
            r#"{"index":0,"id":"b","function":{"name":"g","arguments":"{"}}"#,
            r#"{"index":0,"function":{"arguments":"}"}}"#,
        ]),
        two
    );
    // Index 0 for each, no ids at all.
    assert_eq!(
        calls(&[
            r#"{"index":0,"function":{"name":"f","arguments":"{}"}}"#,
            r#"{"index":0,"function":{"name":"g","arguments":"{}"}}"#,
        ]),
        [call("", "f", "{}"), call("", "g", "{}")]
    );
    // No index, no id on continuations.
    assert_eq!(
        calls(&[
            r#"{"id":"a","function":{"name":"f","arguments":"{\"x\""}}"#,
            r#"{"function":{"arguments":":1}"}}"#
        ]),
        [call("a", "f", "{\"x\":1}")]
    );
    // The name repeated with each piece, an id that changes without one.
    assert_eq!(
        calls(&[
            r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}"#,
            r#"{"index":0,"id":"a","function":{"name":"f","arguments":"}"}}"#,
        ]),
        [call("a", "f", "{}")]
    );
    assert_eq!(
        calls(&[
            r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}"#,
            r#"{"index":0,"id":"z","function":{"arguments":"}"}}"#,
        ]),
        [call("a", "f", "{}")]
    );
    // Arguments before the name; arguments as an object; a name that never comes.
    assert_eq!(
        calls(&[
            r#"{"index":0,"id":"a","function":{"arguments":"{"}}"#,
            r#"{"index":0,"function":{"name":"f","arguments":"}"}}"#
        ]),
        [call("a", "f", "{}")]
    );
    assert_eq!(
        calls(&[r#"{"id":"a","function":{"name":"f","arguments":{"x":1}}}"#]),
        [call("a", "f", "{\"x\":1}")]
    );
    assert_eq!(calls(&[r#"{"index":0,"id":"a","function":{"arguments":"{}"}}"#]), [call("a", "", "{}")]);
    let legacy = sse(&[
        &delta(r#""function_call":{"name":"f","arguments":""}"#),
        &delta(r#""function_call":{"arguments":"{}"}"#),
    ]);
    assert_eq!(
        read(&(legacy + &sse(&[&finish("function_call")]))),
        Sum { calls: vec![call("", "f", "{}")], finish: Some(FinishReason::ToolCalls), ..Sum::default() }
    );
}

#[test]
fn the_end_is_told_once_and_never_made_up() {
    let text = delta(r#""content":"x""#);
    let tool = delta(r#""tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]"#);
    let end = |datas: &[&str]| read(&sse(datas)).finish;
    assert_eq!(end(&[&text]), None);
    assert_eq!(end(&[&text, "[DONE]"]), Some(FinishReason::Stop));
    assert_eq!(end(&[&tool, "[DONE]"]), Some(FinishReason::ToolCalls));
    assert_eq!(end(&["[DONE]"]), None);
    assert_eq!(end(&[&text, &finish("")]), None);
    assert_eq!(end(&[&text, &finish("")]), None);
    assert_eq!(end(&[&text, &finish("stop"), &finish("stop"), "[DONE]", "[DONE]"]), Some(FinishReason::Stop));
    assert_eq!(end(&[&text, &finish("content_filter")]), Some(FinishReason::ContentFilter));
    assert_eq!(end(&[&text, &finish("made_up")]), Some(FinishReason::Other));
    assert_eq!(end(&[&tool, &finish("stop")]), Some(FinishReason::ToolCalls));
    let mut dialect = Dialect::default();
    dialect.stop_means_tool_calls = false;
    let body = |datas: &[&str]| sum(decode_as(dialect, [sse(datas).as_bytes()])).finish;
    assert_eq!(body(&[&tool, &finish("stop")]), Some(FinishReason::Stop));
    assert_eq!(body(&[&text, &finish("stop")]), Some(FinishReason::Stop));
}

#[test]
fn odd_content_is_read_and_odd_types_count_as_absent() {
    let mistral = delta(
        r#""content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"yes"},{"type":"reference"}]"#,
    );
    let both = delta(r#""reasoning":"a","thinking":"a","reasoning_content":"""#);
    let wrong = r#"{"id":7,"model":[],"choices":[{"index":0,"delta":{"content":5,"tool_calls":"x","reasoning":{}}},null],"usage":"no","error":null}"#;
    let other_choice =
        r#"{"choices":[{"index":1,"delta":{"content":"no"}},{"index":0,"delta":{"content":"!"}}]}"#;
    let got = read(&sse(&[&mistral, &both, wrong, other_choice, r#"{"error":{},"choices":{}}"#, "[DONE]"]));
    assert_eq!((got.text.as_str(), got.reasoning.as_str(), got.errors.len()), ("yes!", "hma", 0));
}

#[test]
fn broken_utf8_costs_a_character_not_the_reply() {
    let mut body = sse(&[&delta(r#""content":"a?b""#), &finish("stop")]).into_bytes();
    let at = body.iter().position(|byte| *byte == b'?').unwrap();
    body[at] = 0xff;
    assert_eq!(sum(decode([&body[..]])).text, "a\u{fffd}b");
}

/// Bounds, no panic, typed errors.
#[test]
fn attack_46_floods_and_nonsense_end_in_typed_errors() {
    let deep = format!(r#""content":{}1{}"#, r#"[{"thinking":"#.repeat(9_000), "}]".repeat(9_000));
    let deep = delta(&deep);
    assert_eq!(read(&sse(&[&deep])).errors, [ErrorKind::Protocol]);
    let entry = r#"{"function":{"name":"f","arguments":"{}"}},"#.repeat(10_001);
    let many = delta(&format!(r#""tool_calls":[{}]"#, entry.trim_end_matches(',')));
    assert_eq!(read(&sse(&[&many])).errors, [ErrorKind::TooLarge]);
    let mut decoder = OpenAiChatDecoder::new(Dialect::COMMON);
    decoder.push(b"{");
    (0..17).for_each(|_| decoder.push(&vec![b' '; 1 << 20]));
    decoder.finish();
    let errors: Vec<_> = drain(&mut decoder).map(|item| item.unwrap_err().kind()).collect();
    assert_eq!(errors, [ErrorKind::TooLarge]);
}

proptest! {
    #[test]
    fn random_cuts_never_change_the_result(which in 0usize..18, cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12)) {
        let body = bodies().swap_remove(which).into_bytes();
        let mut places: Vec<_> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        places.extend([0, body.len()]);
        places.sort_unstable();
        let pieces = places.windows(2).map(|pair| &body[pair[0]..pair[1]]);
        prop_assert_eq!(comparable(decode(pieces)), comparable(decode([&body[..]])));
    }

    #[test]
    fn random_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..400), place in 0usize..400) {
        let place = place.min(body.len());
        let cut = comparable(decode([&body[..place], &body[place..]]));
        prop_assert_eq!(cut, comparable(decode([&body[..]])));
    }

    #[test]
    fn damaged_bodies_never_panic_and_finish_at_most_once(
        which in 0usize..18,
        damage in prop::collection::vec((0usize..2_000, any::<u8>()), 1..8),
    ) {
        let mut body = bodies().swap_remove(which).into_bytes();
        for (place, byte) in damage {
            if let Some(spot) = body.get_mut(place) {
                *spot = byte;
            }
        }
        let items = decode([&body[..]]);
        let finishes = items.iter().filter(|item| matches!(item, Ok(Delta::Finish(_)))).count();
        prop_assert!(finishes <= 1);
        prop_assert_eq!(comparable(decode(body.chunks(3))), comparable(items));
    }
}
