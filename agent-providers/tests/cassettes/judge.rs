//! Compares a reply with its known form, as `compare_cassettes.py` does. That program judges; this one only finds
//! skips that are no longer needed.

use serde_json::{Value, json};

/// Differences of `got`, a line without its id, from the known form.
pub(crate) fn differences(protocol: &str, expect: &Value, status: u16, got: &Value) -> Vec<String> {
    let mut bad = Vec::new();
    let (known, error) = (&expect["error"], &got["error"]);
    if status >= 400 || truthy(known) {
        let message = error["message"].as_str().unwrap_or_default();
        if error.is_null() {
            bad.push(format!("an error was not reported: {known}"));
        } else if status >= 400 && error["status"] != json!(status) {
            bad.push(format!("error status {} for {status}", error["status"]));
        } else if let Some(wanted) = known["message"].as_str()
            && !message.contains(wanted)
        {
            bad.push(format!("error message {message:?} lacks {wanted:?}"));
        }
        if status >= 400 {
            return bad;
        }
    } else if !error.is_null() {
        return vec![format!("error where there is none: {error}")];
    }
    for name in ["text", "reasoning", "refusal"] {
        let (wanted, said) = (text(&expect[name]), text(&got[name]));
        if wanted != said {
            bad.push(format!("{name}: {said:?} for {wanted:?}"));
        }
    }
    if calls(&expect["tool_calls"]) != calls(&got["tool_calls"]) {
        bad.push(format!("tool calls: {} for {}", got["tool_calls"], expect["tool_calls"]));
    }
    if list(&expect["signatures"]) != list(&got["signatures"]) {
        bad.push("other signatures".to_owned());
    }
    usage(protocol, &expect["usage"], &got["usage"], &mut bad);
    if text(&expect["finish_reason"]) != text(&got["finish"]) {
        bad.push(format!("finish: {} for {}", got["finish"], expect["finish_reason"]));
    }
    bad
}

fn truthy(value: &Value) -> bool {
    !value.is_null() && value.as_object().is_none_or(|fields| !fields.is_empty())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn calls(value: &Value) -> Vec<(&Value, &Value)> {
    list(value).iter().map(|call| (&call["name"], &call["arguments"])).collect()
}

/// Compares usage. The known numbers are the service's own; ours count cached tokens as input and reasoning as output.
fn usage(protocol: &str, known: &Value, got: &Value, bad: &mut Vec<String>) {
    let known = |name: &str| known[name].as_u64();
    let (mut input, output) = (known("input_tokens"), known("output_tokens"));
    let (read, write) = (known("cache_read_tokens"), known("cache_write_tokens"));
    let reasoning = known("reasoning_tokens");
    if protocol == "anthropic-messages" {
        input = input.map(|input| input + read.unwrap_or(0) + write.unwrap_or(0));
    }
    let mut outputs = vec![output];
    if protocol == "gemini" {
        outputs = vec![output.map(|output| output + reasoning.unwrap_or(0))];
    } else if protocol == "openai-chat" {
        outputs.push(output.map(|output| output + reasoning.unwrap_or(0)));
    }
    let or_none =
        |figure: Option<u64>| if figure.unwrap_or(0) == 0 { vec![None, Some(0)] } else { vec![figure] };
    for (name, wanted) in [
        ("input", vec![input]),
        ("output", outputs),
        ("cache_read", or_none(read)),
        ("cache_write", or_none(write)),
        ("reasoning", or_none(reasoning)),
    ] {
        if !wanted.contains(&got[name].as_u64()) {
            bad.push(format!("usage {name}: {} for {wanted:?}", got[name]));
        }
    }
}
