//! Recorded replies of real services, each cut in many places, against what is known of them.
//!
//! The recordings lie outside the repository: `CASSETTES_DIR`, else `../shared/cassettes` beside the workspace. With
//! `CASSETTES_OUT=file` the results are also written in the form that `compare_cassettes.py` judges.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic, in its helpers too")]

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use entourage_core::{
    Error, Usage,
    provider::{Assembler, Delta},
};
use entourage_providers::openai_chat::{Decoder, Dialect};
use serde_json::{Value, json};

/// Everything that a reply came to. `Response` and `Warning` deltas are not compared.
#[derive(Debug, Default, PartialEq)]
struct Decoded {
    text: String,
    reasoning: String,
    refusal: String,
    calls: Vec<(String, Option<Value>)>,
    signatures: Vec<String>,
    usage: Usage,
    finishes: usize,
    finish: Option<String>,
    errors: Vec<String>,
}

fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
    let mut decoder = Decoder::new(Dialect::COMMON);
    let mut all = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        all.extend(std::iter::from_fn(|| decoder.pop()));
    }
    decoder.finish();
    all.extend(std::iter::from_fn(|| decoder.pop()));
    let mut calls: Vec<(u32, String, String)> = Vec::new();
    let mut decoded = Decoded::default();
    let mut assembler = Assembler::default();
    for item in all {
        let delta = match item {
            Ok(delta) => delta,
            Err(error) => {
                decoded.errors.push(error.message().to_owned());
                continue;
            }
        };
        assembler.push(&delta).unwrap();
        match delta {
            Delta::Text(text) => decoded.text += &text,
            Delta::Reasoning(text) => decoded.reasoning += &text,
            Delta::Refusal(text) => decoded.refusal += &text,
            Delta::ReasoningSignature(signature) => decoded.signatures.push(signature.data),
            Delta::ToolCallStart(call) => calls.push((call.index, call.name.to_string(), String::new())),
            Delta::ToolCallArguments { index, text } => {
                calls.iter_mut().find(|call| call.0 == index).unwrap().2 += &text;
            }
            Delta::Usage(usage) => decoded.usage.merge(*usage),
            Delta::Finish(finish) => {
                decoded.finishes += 1;
                decoded.finish = finish.raw.map(Into::into);
            }
            _ => {}
        }
    }
    let parsed = |text: &str| serde_json::from_str(if text.is_empty() { "{}" } else { text }).ok();
    decoded.calls = calls.into_iter().map(|(_, name, arguments)| (name, parsed(&arguments))).collect();
    decoded
}

/// Numbers that look random and are the same in every run.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

/// Cuts `body` in two at up to 200 places (fewer in very long bodies), and once into single bytes.
fn cuts_agree(body: &[u8], whole: &Decoded) -> (usize, bool) {
    let mut seeded = Seeded(body.len() as u64);
    let most = (2_000_000 / body.len().max(1)).clamp(20, 200);
    let places: BTreeSet<_> = (0..most).map(|_| seeded.below(body.len().max(1))).collect();
    let mut same = decode(body.chunks(1)) == *whole;
    for place in &places {
        same &= decode([&body[..*place], &body[*place..]]) == *whole;
    }
    (places.len() + 1, same)
}

fn text<'a>(expect: &'a Value, name: &str) -> &'a str {
    expect[name].as_str().unwrap_or_default()
}

fn check(expect: &Value, status: u16, got: &Decoded, error: Option<&Error>) -> Vec<String> {
    let mut bad = Vec::new();
    let said = error.map_or(got.errors.concat(), |error| error.message().to_owned());
    if status >= 400 || !expect["error"].is_null() {
        let message = text(&expect["error"], "message");
        if said.is_empty() || !said.contains(message) {
            bad.push(format!("error {said:?} lacks {message:?}"));
        }
    } else if !said.is_empty() {
        bad.push(format!("error where there is none: {said}"));
    }
    if status >= 400 {
        return bad;
    }
    for (name, got) in [("text", &got.text), ("reasoning", &got.reasoning), ("refusal", &got.refusal)] {
        if text(expect, name) != got {
            bad.push(format!("{name}: {got:?} for {:?}", expect[name]));
        }
    }
    let list = |name: &str| expect[name].as_array().cloned().unwrap_or_default();
    let calls: Vec<_> = list("tool_calls")
        .iter()
        .map(|call| {
            (text(call, "name").to_owned(), Some(call["arguments"].clone()).filter(|value| !value.is_null()))
        })
        .collect();
    if calls != got.calls {
        bad.push(format!("calls: {:?} for {calls:?}", got.calls));
    }
    if list("signatures") != got.signatures.iter().map(|text| json!(text)).collect::<Vec<_>>() {
        bad.push(format!("signatures: {}", got.signatures.len()));
    }
    if expect["finish_reason"].as_str().filter(|reason| !reason.is_empty()) != got.finish.as_deref() {
        bad.push(format!("finish: {:?} for {:?}", got.finish, expect["finish_reason"]));
    }
    if got.finishes > 1 {
        bad.push(format!("{} finishes", got.finishes));
    }
    check_usage(&expect["usage"], &got.usage, &mut bad);
    bad
}

fn check_usage(expect: &Value, got: &Usage, bad: &mut Vec<String>) {
    let wanted = |name: &str| expect[name].as_u64();
    // Absent and zero are the same here, and some services count reasoning beside the output.
    let exact = [("input_tokens", got.input)];
    let or_zero = [
        ("cache_read_tokens", got.cache_read),
        ("cache_write_tokens", got.cache_write),
        ("reasoning_tokens", got.reasoning),
    ];
    for (name, got) in exact {
        if wanted(name) != got {
            bad.push(format!("{name}: {got:?} for {:?}", wanted(name)));
        }
    }
    for (name, got) in or_zero {
        if wanted(name).unwrap_or(0) != got.unwrap_or(0) {
            bad.push(format!("{name}: {got:?} for {:?}", wanted(name)));
        }
    }
    let output = wanted("output_tokens");
    let with_reasoning = output.map(|output| output + wanted("reasoning_tokens").unwrap_or(0));
    if got.output != output && got.output != with_reasoning {
        bad.push(format!("output: {:?} for {output:?}", got.output));
    }
}

/// A line for `compare_cassettes.py`.
fn line(
    id: &Value,
    i: usize,
    got: &Decoded,
    cuts: (usize, bool),
    status: u16,
    error: Option<&Error>,
) -> Value {
    let usage = got.usage;
    let message = error.map(|error| error.message().to_owned()).or_else(|| Some(got.errors.concat()));
    let error =
        message.filter(|text| !text.is_empty()).map(|text| json!({"status": status, "message": text}));
    let calls: Vec<_> = got
        .calls
        .iter()
        .map(|(name, arguments)| json!({"name": (!name.is_empty()).then_some(name), "arguments": arguments}))
        .collect();
    json!({
        "id": id, "i": i, "cuts": cuts.0, "same": cuts.1, "text": got.text, "reasoning": got.reasoning,
        "refusal": got.refusal, "tool_calls": calls, "signatures": got.signatures, "finish": got.finish, "error": error,
        "usage": {"input": usage.input, "output": usage.output, "cache_read": usage.cache_read,
                  "cache_write": usage.cache_write, "reasoning": usage.reasoning},
    })
}

fn folder() -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/cassettes");
    std::env::var_os("CASSETTES_DIR").map_or(beside, PathBuf::from).join("openai-chat")
}

#[test]
fn recorded_replies_are_read_as_they_are_known() {
    let Ok(files) = fs::read_dir(folder()) else {
        println!("SKIPPED: no recordings at {}; set CASSETTES_DIR", folder().display());
        return;
    };
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    let (mut report, mut out, mut interactions, mut tried) = (String::new(), String::new(), 0, 0);
    for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "json")) {
        let sequence: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        for (i, one) in sequence["interactions"].as_array().unwrap().iter().enumerate() {
            let response = &one["response"];
            assert_ne!(
                response["base64"],
                json!(true),
                "{}: binary bodies are not handled here",
                file.display()
            );
            let status = u16::try_from(response["status"].as_u64().unwrap()).unwrap();
            let body = response["body"].as_str().unwrap().as_bytes();
            let refusal = (status >= 400).then(|| Decoder::refusal(status, body));
            let got = if refusal.is_some() { Decoded::default() } else { decode([body]) };
            let cuts = if refusal.is_some() { (0, true) } else { cuts_agree(body, &got) };
            let mut bad = check(&one["expect"], status, &got, refusal.as_ref());
            if !cuts.1 {
                bad.push("cutting the body changes the result".to_owned());
            }
            if !bad.is_empty() {
                writeln!(report, "{}[{i}]: {}", sequence["id"], bad.join("; ")).unwrap();
            }
            writeln!(out, "{}", line(&sequence["id"], i, &got, cuts, status, refusal.as_ref())).unwrap();
            interactions += 1;
            tried += cuts.0;
        }
    }
    if let Some(path) = std::env::var_os("CASSETTES_OUT") {
        fs::write(path, out).unwrap();
    }
    println!("{} sequences, {interactions} interactions, {tried} cuts", files.len());
    assert!(interactions > 0, "{} holds no recordings", folder().display());
    assert!(report.is_empty(), "{report}");
}
