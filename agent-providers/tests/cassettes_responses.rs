//! Recorded replies of services that speak responses, each cut in many places, written in the form that
//! `compare_cassettes.py` judges to the file named by `CASSETTES_OUT`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic, in its helpers too")]

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use entourage_core::{
    message::{Message, Part, Role},
    provider::{Assembler, Delta, FinishReason, Request},
};
use entourage_providers::openai_responses::{Decoder, encode};
use serde_json::{Value, json};

#[derive(Debug, Default, PartialEq)]
struct Decoded {
    line: Value,
    parts: Vec<Part>,
    finishes: usize,
}

fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
    let mut decoder = Decoder::new();
    let mut all = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        all.extend(std::iter::from_fn(|| decoder.pop()));
    }
    decoder.finish();
    all.extend(std::iter::from_fn(|| decoder.pop()));
    let mut calls: Vec<(u32, String, String)> = Vec::new();
    let (mut errors, mut finish, mut finishes) = (String::new(), None, 0);
    let mut assembler = Assembler::default();
    for item in all {
        let delta = match item {
            Ok(delta) => delta,
            Err(error) => {
                errors += error.message();
                continue;
            }
        };
        assembler.push(&delta).unwrap();
        match delta {
            Delta::ToolCallStart(call) => calls.push((call.index, call.name.to_string(), String::new())),
            Delta::ToolCallArguments { index, text } => {
                calls.iter_mut().find(|call| call.0 == index).unwrap().2 += &text;
            }
            Delta::Finish(end) => {
                finishes += 1;
                finish = end.raw;
            }
            _ => {}
        }
    }
    let usage = {
        let done = assembler.abort(FinishReason::Other);
        let usage = done.usage;
        (usage, done.into_message())
    };
    let (usage, message) = usage;
    let (mut text, mut reasoning, mut refusal, mut signatures) =
        (String::new(), String::new(), String::new(), Vec::new());
    for part in message.parts() {
        match part {
            Part::Text(said) => text += said,
            Part::Refusal(said) => refusal += said,
            Part::Reasoning(said) => {
                reasoning += &said.text;
                signatures.extend(
                    said.signature.as_ref().map(|one| one.data.clone()).filter(|data| !data.is_empty()),
                );
            }
            _ => {}
        }
    }
    let parsed =
        |text: &str| serde_json::from_str(if text.is_empty() { "{}" } else { text }).unwrap_or(Value::Null);
    let calls: Vec<_> =
        calls.iter().map(|(_, name, text)| json!({"name": name, "arguments": parsed(text)})).collect();
    let error = (!errors.is_empty()).then(|| json!({"status": 200, "message": errors}));
    let line = json!({
        "text": text, "reasoning": reasoning, "refusal": refusal, "tool_calls": calls, "signatures": signatures,
        "finish": finish, "error": error,
        "usage": {"input": usage.input, "output": usage.output, "cache_read": usage.cache_read,
                  "cache_write": usage.cache_write, "reasoning": usage.reasoning},
    });
    Decoded { line, parts: message.parts().to_vec(), finishes }
}

/// Numbers that look random and are the same in every run.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

fn cuts_agree(body: &[u8], whole: &Decoded) -> (usize, bool) {
    let mut seeded = Seeded(body.len() as u64);
    let most = (1_000_000 / body.len().max(1)).clamp(10, 100);
    let places: BTreeSet<_> = (0..most).map(|_| seeded.below(body.len().max(1))).collect();
    let mut same = decode(body.chunks(1)) == *whole;
    for place in &places {
        same &= decode([&body[..*place], &body[*place..]]) == *whole;
    }
    (places.len() + 1, same)
}

fn folder() -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/cassettes");
    std::env::var_os("CASSETTES_DIR").map_or(beside, PathBuf::from).join("openai-responses")
}

#[test]
fn recorded_replies_are_the_same_wherever_they_are_cut() {
    let Ok(files) = fs::read_dir(folder()) else {
        println!("SKIPPED: no recordings at {}; set CASSETTES_DIR", folder().display());
        return;
    };
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    let (mut report, mut out) = (String::new(), String::new());
    for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "json")) {
        let sequence: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        for (i, one) in sequence["interactions"].as_array().unwrap().iter().enumerate() {
            let mut line = if one["protocol"] == json!("openai-responses") {
                let status = u16::try_from(one["response"]["status"].as_u64().unwrap()).unwrap();
                let body = one["response"]["body"].as_str().unwrap().as_bytes();
                if status >= 400 {
                    let message = Decoder::refusal(status, body).message().to_owned();
                    json!({"error": {"status": status, "message": message}})
                } else {
                    let got = decode([body]);
                    let (cuts, same) = cuts_agree(body, &got);
                    if !same || got.finishes > 1 {
                        writeln!(report, "{}[{i}]: same {same}, {} finishes", sequence["id"], got.finishes)
                            .unwrap();
                    }
                    let mut line = got.line;
                    line["cuts"] = json!(cuts);
                    line["same"] = json!(same);
                    line
                }
            } else {
                json!({"skip": "another wire"})
            };
            line["id"] = sequence["id"].clone();
            line["i"] = json!(i);
            writeln!(out, "{line}").unwrap();
        }
    }
    if let Some(path) = std::env::var_os("CASSETTES_OUT") {
        fs::write(path, out).unwrap();
    }
    assert!(report.is_empty(), "{report}");
}

/// What an item of an assistant's turn says, without what clients differ in: ids, status, annotations, nulls.
fn said(item: &Value) -> Option<Value> {
    let text = |content: &Value| match content {
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        other => other.as_str().unwrap_or_default().to_owned(),
    };
    match (item["type"].as_str(), item["role"].as_str()) {
        (None | Some("message"), Some("assistant")) => {
            let text = text(&item["content"]);
            (!text.is_empty()).then(|| json!(["message", text, item["phase"]]))
        }
        (Some("function_call"), _) => {
            let arguments: Value =
                serde_json::from_str(item["arguments"].as_str().unwrap()).unwrap_or_default();
            Some(json!(["call", item["call_id"], item["name"], arguments, item["namespace"]]))
        }
        (Some("reasoning"), _) => {
            let open = text(&item["content"]);
            let sealed = item["encrypted_content"].as_str().unwrap_or_default();
            (!open.is_empty() || !sealed.is_empty()).then(|| json!(["reasoning", sealed, open]))
        }
        (Some("function_call_output" | "message"), _) | (None, _) => None,
        (Some(_), _) => Some(item.clone()),
    }
}

/// Recorded clients that sent a reply again in another way than ours, and how.
const CLIENTS_DIFFER: &[(&str, &str)] = &[
    ("azure-openai-azure-gpt-5-mini-thinking-c93072", "it left the encrypted reasoning out"),
    ("azure-openai-thinking-streaming-0d33b2", "it left the encrypted reasoning out"),
    (
        "bedrock-mantle-test-reused-tool-call-ids-stream-7a95c1",
        "it put the response's id before ids of calls",
    ),
    (
        "openai-test-openai-native-tool-search-gpt-5-6-4f012f",
        "it made a search of its own form of the service's",
    ),
    (
        "openai-test-openai-native-tool-search-streaming-693a05",
        "it made a search of its own form of the service's",
    ),
    (
        "openai-test-openai-responses-phase-streamed-on-part-start-7a30be",
        "the recording replaced curly quotation marks",
    ),
    (
        "openai-test-openai-responses-thinking-with-code-execution-tool-5a4110",
        "it left the outputs of the code out",
    ),
];

#[test]
fn replies_are_sent_again_as_recorded_clients_did() {
    let Ok(files) = fs::read_dir(folder()) else { return };
    let (mut report, mut matched) = (String::new(), 0);
    for file in files
        .map(|file| file.unwrap().path())
        .filter(|file| file.extension().is_some_and(|end| end == "json"))
    {
        let sequence: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        for pair in sequence["interactions"].as_array().unwrap().windows(2) {
            let ours = pair[0]["protocol"] == json!("openai-responses")
                && pair[0]["response"]["status"] == json!(200);
            let Some(sent) = pair[1]["request"]["body"]["input"].as_array().filter(|_| ours) else {
                continue;
            };
            let sent: Vec<_> = sent.iter().filter_map(said).collect();
            let got = decode([pair[0]["response"]["body"].as_str().unwrap().as_bytes()]);
            let message = Message::new(Role::Assistant, got.parts);
            let body: Value =
                serde_json::from_slice(&encode(&Request::new("m", [message].into_iter().collect()))).unwrap();
            let again: Vec<_> = body["input"].as_array().unwrap().iter().filter_map(said).collect();
            // Another conversation, or one that the client continued by the id of the reply.
            if !again.iter().any(|item| sent.contains(item)) {
                continue;
            }
            for item in again {
                if sent.contains(&item) {
                    matched += 1;
                } else if !CLIENTS_DIFFER.iter().any(|(id, _)| sequence["id"] == json!(id)) {
                    writeln!(report, "{}: {item}\n   {sent:?}", sequence["id"]).unwrap();
                }
            }
        }
    }
    assert!(report.is_empty(), "{matched} items match\n{report}");
    assert!(matched > 80, "only {matched} items match");
}
