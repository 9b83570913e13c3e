//! Repair of a model's tool calls to calls that can be stored and replayed. Pure; never runs anything.

use std::{collections::HashSet, sync::Arc};

use entourage_core::{
    bound,
    message::{Arguments, Part, ToolCall},
    provider::RawCall,
};

/// Gives each call of one message a unique, non-empty id of at most 4 KiB: each id is stored several times.
pub(super) fn make_ids_unique(parts: &mut [Part]) {
    let calls = |part: &Part| matches!(part, Part::ToolCall(_));
    let is_none = |id: &str| id.is_empty() || id.len() > bound::ID;
    let lacking = parts.iter().any(|part| matches!(part, Part::ToolCall(call) if is_none(&call.id)));
    if !lacking && parts.iter().filter(|part| calls(part)).count() < 2 {
        return;
    }
    let mut seen: HashSet<Arc<str>> = HashSet::new();
    for (place, part) in parts.iter_mut().enumerate() {
        let Part::ToolCall(call) = part else { continue };
        if is_none(&call.id) || seen.contains(&call.id) {
            let mut made = format!("call_{place}");
            while seen.contains(made.as_str()) {
                made.push('_');
            }
            call.id = made.into();
        }
        seen.insert(Arc::clone(&call.id));
    }
}

/// Turns a raw call into one that can be stored and replayed.
///
/// Arguments that are not a JSON object are repaired by [`repair_json`]. If that fails, the call keeps `{}` and
/// `malformed` holds an excerpt of the text. A name that services would refuse on replay is made acceptable. A call
/// with a name longer than a tool's may be is malformed, since the first characters of its name may be another tool's.
pub(crate) fn parsed_call(raw: RawCall) -> ToolCall {
    let long = raw.name.len() > LONGEST_NAME;
    let name = acceptable_name(raw.name);
    if long {
        let mut call = ToolCall::new(raw.id, name, Arguments::empty());
        call.malformed = Some(format!("no tool has a name of more than {LONGEST_NAME} characters"));
        return call;
    }
    let problem = match Arguments::parse(&raw.arguments) {
        Ok(arguments) => return ToolCall::new(raw.id, name, arguments),
        Err(problem) => problem,
    };
    if let Some(arguments) = repair_json(&raw.arguments).and_then(|text| Arguments::parse(text).ok()) {
        return ToolCall::new(raw.id, name, arguments);
    }
    let shown: String = raw.arguments.chars().take(1_000).collect();
    let mut call = ToolCall::new(raw.id, name, Arguments::empty());
    call.malformed = Some(format!("{}; what came: {shown}", problem.message()));
    call
}

/// Maximum length of a tool's name, in bytes.
const LONGEST_NAME: usize = 64;

fn acceptable_name(name: Arc<str>) -> Arc<str> {
    let safe = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(safe) {
        return name;
    }
    let name: String = name.chars().take(LONGEST_NAME).map(|c| if safe(c) { c } else { '_' }).collect();
    if name.is_empty() { "unnamed".into() } else { name.into() }
}

/// Repairs JSON in ways that cannot change its meaning: removes a code fence around it and commas before a closing
/// bracket, escapes raw control characters in strings, and adds closing brackets that are missing at the end.
///
/// Returns `None` if there is nothing to repair, or if the text ends inside a string, a number or a word: the rest is
/// unknown, and a guess could run a tool on half a path.
#[must_use]
pub fn repair_json(text: &str) -> Option<String> {
    let inner = unfence(text.trim());
    let mut out = String::with_capacity(inner.len() + 4);
    let mut open = Vec::new();
    let mut in_string = false;
    let mut escaped = false;
    for c in inner.chars() {
        if in_string {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => in_string = false,
                c if c.is_control() => {
                    out.push_str(&format!("\\u{:04x}", u32::from(c)));
                    continue;
                }
                _ => {}
            }
            out.push(c);
            continue;
        }
        match c {
            '"' => in_string = true,
            '{' => open.push('}'),
            '[' => open.push(']'),
            '}' | ']' => {
                drop_trailing_comma(&mut out);
                if open.pop() != Some(c) {
                    return None;
                }
            }
            _ => {}
        }
        out.push(c);
    }
    // Text after a quote or a bracket is complete; a number or a word may be cut off.
    let complete = out.trim_end().ends_with(['"', '}', ']', '{', '[', ',']);
    if in_string || !complete {
        return None;
    }
    drop_trailing_comma(&mut out);
    while let Some(bracket) = open.pop() {
        out.push(bracket);
    }
    (out != text).then_some(out)
}

fn unfence(text: &str) -> &str {
    let Some(rest) = text.strip_prefix("```") else { return text };
    let body = rest.split_once('\n').map_or(rest, |(_, body)| body);
    body.trim_end().strip_suffix("```").unwrap_or(body).trim()
}

fn drop_trailing_comma(out: &mut String) {
    let kept = out.trim_end().len();
    if out.get(..kept).is_some_and(|text| text.ends_with(',')) {
        out.truncate(kept.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use entourage_core::message::{Message, Role};

    fn raw(id: &str, name: &str, arguments: &str) -> RawCall {
        RawCall::new(id, name, arguments)
    }

    #[test]
    fn repair_changes_only_what_cannot_change_the_meaning() {
        for (broken, mended) in [
            ("```json\n{\"a\": 1}\n```", Some("{\"a\": 1}")),
            ("{\"a\": 1,}", Some("{\"a\": 1}")),
            ("{\"a\": [1, 2, ] }", Some("{\"a\": [1, 2] }")),
            ("{\"a\": \"x\"", Some("{\"a\": \"x\"}")),
            ("{\"a\": {\"b\": []", Some("{\"a\": {\"b\": []}}")),
            ("{\"a\": \"line\nbreak\"}", Some("{\"a\": \"line\\u000abreak\"}")),
            ("{\"path\": \"/ho", None),
            ("{\"n\": 12", None),
            ("{\"b\": tru", None),
            ("{\"a\": 1}", None),
            ("{]", None),
            ("rm -rf", None),
        ] {
            assert_eq!(repair_json(broken).as_deref(), mended, "{broken}");
        }
    }

    #[test]
    fn attack_46_ids_are_unique_and_names_storable() {
        let mut parts: Vec<_> = [("", "a"), ("x", "b c\u{202e}"), ("x", ""), ("call_0", "d")]
            .into_iter()
            .map(|(id, name)| Part::ToolCall(parsed_call(raw(id, name, ""))))
            .collect();
        make_ids_unique(&mut parts);
        let message = Message::new(Role::Assistant, parts);
        let calls: Vec<_> = message.tool_calls().collect();
        let unique: HashSet<_> = calls.iter().map(|call| &call.id).collect();
        assert_eq!(unique.len(), 4, "{calls:?}");
        assert_eq!(&*calls[1].name, "b_c_");
        assert_eq!(&*calls[2].name, "unnamed");
    }

    #[test]
    fn overlong_ids_and_names_are_bounded() {
        let (long, kept) = ("x".repeat(bound::ID + 1), "y".repeat(bound::ID));
        let mut parts: Vec<_> = [(&*long, "a"), (&*kept, "b"), (&*long, "c")]
            .into_iter()
            .map(|(id, name)| Part::ToolCall(parsed_call(raw(id, name, ""))))
            .collect();
        make_ids_unique(&mut parts);
        let message = Message::new(Role::Assistant, parts);
        let ids: Vec<&str> = message.tool_calls().map(|call| &*call.id).collect();
        assert_eq!(ids, ["call_0", &*kept, "call_2"]);

        // The first 64 characters are those of a tool that may exist.
        let call = parsed_call(raw("1", &"t".repeat(65), "{}"));
        assert_eq!(&*call.name, "t".repeat(64));
        assert!(call.malformed.is_some());
        assert_eq!(parsed_call(raw("1", &"t".repeat(64), "{}")).malformed, None);
    }

    #[test]
    fn arguments_that_no_store_gives_back_are_malformed() {
        let nested = |levels: usize| format!("{{\"a\":{}1{}}}", "[".repeat(levels), "]".repeat(levels));
        for text in [&nested(100), &nested(126), "{\"a\":1e-200000}", "{\"a\":1e400}", "{\"a\":\"\\ud800\"}"]
        {
            let call = parsed_call(raw("1", "t", text));
            assert!(call.malformed.is_some() && call.arguments.as_str() == "{}", "{text}");
        }
        let large = format!("{{\"a\":[{}0]}}", "[],".repeat(1 << 20));
        assert!(parsed_call(raw("1", "t", &large)).malformed.is_some());
        let spaced = parsed_call(raw("1", "t", "\n {\"a\" : 1}\t"));
        assert_eq!(spaced.arguments.as_str(), "{\"a\" : 1}");
        let back: Arguments =
            serde_json::from_str(&serde_json::to_string(&spaced.arguments).unwrap()).unwrap();
        assert_eq!(back, spaced.arguments);
    }

    #[test]
    fn attack_46_deep_and_foreign_json_is_malformed_not_run() {
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(400), "]".repeat(400));
        for text in [deep.as_str(), "[1]", "\"x\"", "NaN", "{\"a\": NaN}", "{\"a\": 1e}"] {
            let call = parsed_call(raw("1", "t", text));
            assert!(call.malformed.is_some(), "{text}");
            assert_eq!(call.arguments.as_str(), "{}");
        }
    }

    proptest! {
        #[test]
        fn repair_never_panics_and_never_touches_valid_json(text in "\\PC{0,60}|[\\[\\]{}\",:0-9a-z \\\\\n]{0,40}") {
            let repaired = repair_json(&text);
            if serde_json::from_str::<Value>(&text).is_ok() {
                // Blank space around valid JSON may go, nothing else.
                let same = repaired.is_none_or(|r| serde_json::from_str::<Value>(&r).unwrap() == serde_json::from_str::<Value>(&text).unwrap());
                prop_assert!(same);
            }
        }
    }
}
