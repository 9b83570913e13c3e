//! Temporary: this wire's recordings alone, until `cassettes.rs` reads those of all wires.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may panic, in its helpers too")]

use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path};

use entourage_core::message::Part;
use entourage_core::provider::{Assembler, Delta};
use entourage_providers::ollama::Decoder;
use serde_json::{Value, json};

const PROTOCOL: &str = "ollama";

fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Value {
    let mut decoder = Decoder::new();
    let mut all = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        all.extend(std::iter::from_fn(|| decoder.pop()));
    }
    decoder.finish();
    all.extend(std::iter::from_fn(|| decoder.pop()));
    let mut assembler = Assembler::default();
    let (mut calls, mut errors) = (Vec::<(u32, String, String)>::new(), Vec::new());
    for item in all {
        let delta = match item {
            Ok(delta) => delta,
            Err(error) => {
                errors.push(error.message().to_owned());
                continue;
            }
        };
        assembler.push(&delta).unwrap();
        match delta {
            Delta::ToolCallStart(call) => calls.push((call.index, call.name.to_string(), String::new())),
            Delta::ToolCallArguments { index, text } => {
                calls.iter_mut().find(|call| call.0 == index).unwrap().2 += &text;
            }
            _ => {}
        }
    }
    let finished = assembler.is_finished();
    let reply = if finished {
        assembler.finish().unwrap()
    } else {
        assembler.abort(entourage_core::provider::FinishReason::Other)
    };
    let (finish, usage) = (reply.finish.raw.clone(), reply.usage);
    let message = reply.into_message();
    let (mut text, mut reasoning, mut refusal, mut signatures) =
        (String::new(), String::new(), String::new(), vec![]);
    for part in message.parts() {
        match part {
            Part::Text(piece) => text += piece,
            Part::Refusal(piece) => refusal += piece,
            Part::Reasoning(piece) => {
                reasoning += &piece.text;
                signatures.extend(piece.signature.iter().map(|s| s.data.clone()).filter(|s| !s.is_empty()));
            }
            _ => {}
        }
    }
    let calls: Vec<_> = calls
        .iter()
        .map(|(_, name, text)| {
            let arguments: Option<Value> =
                serde_json::from_str(if text.is_empty() { "{}" } else { text }).ok();
            json!({"name": name, "arguments": arguments})
        })
        .collect();
    let error = errors.concat();
    json!({
        "text": text, "reasoning": reasoning, "refusal": refusal, "tool_calls": calls, "signatures": signatures,
        "finish": finish, "error": (!error.is_empty()).then(|| json!({"status": 200, "message": error})),
        "usage": {"input": usage.input, "output": usage.output, "cache_read": usage.cache_read,
                  "cache_write": usage.cache_write, "reasoning": usage.reasoning},
        "finished": finished, "parts": serde_json::to_value(&message).unwrap(),
    })
}

struct Seeded(u64);

impl Seeded {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

fn cuts_agree(body: &[u8], whole: &Value) -> (usize, bool) {
    let mut seeded = Seeded(body.len() as u64);
    let most = (2_000_000 / body.len().max(1)).clamp(20, 200);
    let places: BTreeSet<_> = (0..most).map(|_| seeded.below(body.len().max(1))).collect();
    let mut same = decode(body.chunks(1)) == *whole;
    for place in &places {
        same &= decode([&body[..*place], &body[*place..]]) == *whole;
    }
    (places.len() + 1, same)
}

#[test]
fn recorded_replies_are_read_as_they_are_known() {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/cassettes");
    let folder = std::env::var_os("CASSETTES_DIR").map_or(beside, Into::into).join(PROTOCOL);
    let Ok(files) = fs::read_dir(&folder) else {
        println!("SKIPPED: no recordings at {}; set CASSETTES_DIR", folder.display());
        return;
    };
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    let mut out = String::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "json")) {
        let sequence: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        for (i, one) in sequence["interactions"].as_array().unwrap().iter().enumerate() {
            let mut line = json!({});
            if one["protocol"].as_str().is_some_and(|protocol| protocol != PROTOCOL) {
                line["skip"] = json!("another protocol");
            } else {
                let body = one["response"]["body"].as_str().unwrap().as_bytes();
                let status = u16::try_from(one["response"]["status"].as_u64().unwrap()).unwrap();
                if status >= 400 {
                    let error = Decoder::refusal(status, body);
                    line["error"] = json!({"status": status, "message": error.message()});
                } else {
                    line = decode([body]);
                    let (cuts, same) = cuts_agree(body, &line);
                    line["cuts"] = json!(cuts);
                    line["same"] = json!(same);
                    assert!(same, "{}[{i}]: cutting the body changes the result", file.display());
                    assert_eq!(line["finished"], json!(true), "{}[{i}]: no finish", file.display());
                }
            }
            line["id"] = sequence["id"].clone();
            line["i"] = json!(i);
            writeln!(out, "{line}").unwrap();
        }
    }
    if let Some(path) = std::env::var_os("CASSETTES_OUT") {
        fs::write(path, out).unwrap();
    }
}
