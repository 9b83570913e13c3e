//! Recorded replies of the messages protocol, each cut in many places, and their replay in the request that followed.
//!
//! The recordings lie outside the repository: `CASSETTES_DIR`, else `../shared/cassettes` beside the workspace. With
//! `CASSETTES_ANTHROPIC_OUT=file` the results are also written in the form that `compare_cassettes.py` judges.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic, in its helpers too")]

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use entourage_core::{
    Usage,
    message::{Message, Part},
    provider::{Assembler, Delta, FinishReason, Request},
};
use entourage_providers::anthropic_messages::{Decoder, NAME, encode};
use serde_json::{Value, json};

/// Everything that a reply came to.
#[derive(Debug, Default, PartialEq)]
struct Decoded {
    deltas: Vec<Delta>,
    text: String,
    reasoning: String,
    refusal: String,
    calls: Vec<(String, Option<Value>)>,
    signatures: Vec<String>,
    usage: Usage,
    finish: Option<String>,
    errors: Vec<String>,
    message: Option<Message>,
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
    let mut decoded = Decoded::default();
    let mut assembler = Assembler::default();
    let mut calls: Vec<(u32, String, String)> = Vec::new();
    for item in all {
        let delta = match item {
            Ok(delta) => delta,
            Err(error) => {
                decoded.errors.push(error.message().to_owned());
                continue;
            }
        };
        assembler.push(&delta).unwrap();
        match &delta {
            Delta::Text(text) => decoded.text += text,
            Delta::Reasoning(text) => decoded.reasoning += text,
            Delta::Refusal(text) => decoded.refusal += text,
            Delta::ToolCallStart(call) => calls.push((call.index, call.name.to_string(), String::new())),
            Delta::ToolCallArguments { index, text } => {
                calls.iter_mut().find(|call| call.0 == *index).unwrap().2 += text;
            }
            Delta::Usage(usage) => decoded.usage.merge(**usage),
            Delta::Finish(finish) => decoded.finish = finish.raw.as_deref().map(str::to_owned),
            Delta::Warning(warning) => decoded.errors.push(format!("warning: {}", warning.text)),
            _ => {}
        }
        decoded.deltas.push(delta);
    }
    let parsed = |text: &str| serde_json::from_str(if text.is_empty() { "{}" } else { text }).ok();
    decoded.calls = calls.into_iter().map(|(_, name, text)| (name, parsed(&text))).collect();
    let message = assembler.abort(FinishReason::Other).into_message();
    for part in message.parts() {
        if let Part::Reasoning(reasoning) = part
            && let Some(signature) =
                reasoning.signature.as_deref().filter(|signature| !signature.data.is_empty())
        {
            decoded.signatures.push(signature.data.clone());
        }
    }
    decoded.message = Some(message);
    decoded
}

fn cuts_agree(body: &[u8], whole: &Decoded) -> (usize, bool) {
    let every = if body.len() < 6_000 { 1 } else { body.len() / 500 };
    let places: BTreeSet<_> = (0..body.len()).step_by(every).collect();
    let mut same = decode(body.chunks(1)) == *whole && decode(body.chunks(7)) == *whole;
    for place in &places {
        same &= decode([&body[..*place], &body[*place..]]) == *whole;
    }
    (places.len() + 2, same)
}

/// Without cache marks, absent values, what says the default, and the typographic quotes and dashes that recorders
/// replaced in one of the two.
fn plain(value: &Value) -> Value {
    match value {
        Value::Array(all) => all.iter().map(plain).collect(),
        Value::Object(fields) => fields
            .iter()
            .filter(|(key, value)| {
                !matches!(key.as_str(), "cache_control")
                    && !value.is_null()
                    && **value != json!([])
                    && !(*key == "caller" && value["type"] == "direct")
            })
            .map(|(key, value)| (key.clone(), plain(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::String(text) => {
            text.replace(['‘', '’'], "'").replace(['“', '”'], "\"").replace(['–', '—'], "-").into()
        }
        other => other.clone(),
    }
}

/// What the recorded client sent back of a reply that we would not send in the same order. Clients leave blocks out,
/// and some make up calls of their own.
fn replayed(message: &Message, next: &Value) -> Vec<Value> {
    let history = [Message::user("x"), message.clone()].into_iter().collect();
    let body: Value = serde_json::from_slice(&encode(&Request::new("m", history))).unwrap();
    let ours = plain(&body["messages"][1]["content"]);
    let ours = ours.as_array().map(Vec::as_slice).unwrap_or_default();
    let last = next["messages"].as_array().unwrap().iter().rfind(|message| message["role"] == "assistant");
    let theirs = match last.map(|message| plain(&message["content"])) {
        Some(Value::String(text)) => vec![json!({"type": "text", "text": text})],
        Some(Value::Array(all)) => all,
        _ => Vec::new(),
    };
    let known = |id: &Value| ours.iter().any(|block| block["id"] == *id);
    let mut rest = ours.iter();
    theirs
        .into_iter()
        .filter(|block| block["type"] != "tool_use" || known(&block["id"]))
        .filter(|block| !rest.any(|ours| ours == block))
        .collect()
}

fn folder() -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/cassettes");
    std::env::var_os("CASSETTES_DIR").map_or(beside, PathBuf::from).join(NAME)
}

#[test]
fn recorded_replies_give_the_same_at_every_cut() {
    let Ok(files) = fs::read_dir(folder()) else {
        println!("SKIPPED: no recordings at {}; set CASSETTES_DIR", folder().display());
        return;
    };
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    let (mut report, mut out, mut interactions, mut replays) = (String::new(), String::new(), 0, 0);
    for file in &files {
        let sequence: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        let all = sequence["interactions"].as_array().unwrap();
        for (i, one) in all.iter().enumerate() {
            let id = &sequence["id"];
            if one["protocol"] != NAME {
                writeln!(out, "{}", json!({"id": id, "i": i, "skip": "another protocol"})).unwrap();
                continue;
            }
            let status = u16::try_from(one["response"]["status"].as_u64().unwrap()).unwrap();
            let body = one["response"]["body"].as_str().unwrap().as_bytes();
            let refusal = (status >= 400).then(|| Decoder::refusal(status, body));
            let got = if refusal.is_some() { Decoded::default() } else { decode([body]) };
            let (cuts, same) = if refusal.is_some() { (0, true) } else { cuts_agree(body, &got) };
            if !same {
                writeln!(report, "{id}[{i}]: cutting the body changes the result").unwrap();
            }
            let message = refusal.map_or(got.errors.concat(), |error| error.message().to_owned());
            let error = (!message.is_empty()).then(|| json!({"status": status, "message": message}));
            let calls: Vec<_> = got
                .calls
                .iter()
                .map(|(name, arguments)| json!({"name": name, "arguments": arguments}))
                .collect();
            let usage = got.usage;
            writeln!(
                out,
                "{}",
                json!({
                    "id": id, "i": i, "cuts": cuts, "same": same, "text": got.text, "reasoning": got.reasoning,
                    "refusal": got.refusal, "tool_calls": calls, "signatures": got.signatures, "finish": got.finish,
                    "error": error,
                    "usage": {"input": usage.input, "output": usage.output, "cache_read": usage.cache_read,
                              "cache_write": usage.cache_write, "reasoning": usage.reasoning},
                })
            )
            .unwrap();
            if let (Some(message), Some(next)) = (&got.message, all.get(i + 1))
                && next["protocol"] == NAME
                && next["request"]["body"]["messages"].as_array().map_or(0, Vec::len)
                    > one["request"]["body"]["messages"].as_array().map_or(0, Vec::len)
            {
                replays += 1;
                for block in replayed(message, &next["request"]["body"]) {
                    writeln!(report, "{id}[{i}]: not replayed: {block}").unwrap();
                }
            }
            interactions += 1;
        }
    }
    if let Some(path) = std::env::var_os("CASSETTES_ANTHROPIC_OUT") {
        fs::write(path, out).unwrap();
    }
    println!("{} sequences, {interactions} interactions, {replays} replays", files.len());
    assert!(interactions > 0, "{} holds no recordings", folder().display());
    assert!(report.is_empty(), "{report}");
}
