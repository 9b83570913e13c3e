//! JSON values in the text of a reply: bare, in a code block, or among other words.

use entourage_runtime::{reply::repair_json, schema::doubled};
use serde::de::IgnoredAny;
use serde_json::{Deserializer, Value};

/// Maximum of values taken from one text.
const MOST: usize = 16;
/// Maximum of opening brackets tried in one text.
const TRIES: usize = 1_000;
/// Maximum of bytes wasted on failed tries, in lengths of the text. A value that never ends is read to the end of the
/// text from each bracket.
const READINGS: usize = 8;
/// Bytes of a text short enough to be read once for each try.
const SHORT: usize = 16 << 10;

/// Values in a text, the likeliest first: the whole text, else those in code blocks and among the words. Numbers and
/// words are values only when they are the whole text or a whole block.
pub(super) fn values(text: &str) -> Vec<Value> {
    let text = without_thoughts(text).trim();
    if let Some(value) = whole(text) {
        return vec![value];
    }
    let mut values: Vec<_> = blocks(text).filter_map(whole).take(MOST).collect();
    scan(text, &mut values, text.len().saturating_mul(READINGS).max(SHORT * TRIES));
    if values.is_empty() {
        // The end of the only value may be missing.
        let begin = text.find(['{', '[']).and_then(|at| text.get(at..)).and_then(whole);
        values.extend(begin);
    }
    values
}

/// The value that is the whole text, or its one code block, without any other word.
pub(super) fn only_value(text: &str) -> Option<Value> {
    let text = without_thoughts(text).trim();
    let block = || text.strip_prefix("```")?.strip_suffix("```").filter(|inner| !inner.contains("```"));
    whole(text).or_else(|| block().and_then(|_| blocks(text).find_map(whole)))
}

/// Strips a leading `<think>` section: a draft in it is not the answer.
fn without_thoughts(text: &str) -> &str {
    let thoughts = text.trim_start().strip_prefix("<think>");
    thoughts.and_then(|rest| rest.split_once("</think>")).map_or(text, |(_, answer)| answer)
}

/// The first field that an object in a text has twice, in words. Of more objects than can be values, the first count.
pub(super) fn given_twice(text: &str) -> Option<String> {
    let text = without_thoughts(text).trim();
    // As a rule the text is the one object, and is read from its first bracket alone.
    if text.starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok() {
        return doubled(text);
    }
    text.match_indices('{').take(MOST).find_map(|(at, _)| text.get(at..).and_then(doubled))
}

fn whole(text: &str) -> Option<Value> {
    let parse = |text: &str| serde_json::from_str(text).ok();
    parse(text).or_else(|| parse(&repair_json(text)?))
}

/// Contents of the code blocks, without the language's name.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    let fenced = text.split("```").skip(1).step_by(2);
    fenced.map(|block| {
        let (first, rest) = block.split_once('\n').unwrap_or(("", block));
        if first.contains(['{', '[', '"']) { block.trim() } else { rest.trim() }
    })
}

/// Adds the complete top-level objects and arrays in the text. Returns the number of bytes read in vain: less than
/// `most` plus the cost of the last failed try.
fn scan(text: &str, values: &mut Vec<Value>, most: usize) -> usize {
    let (mut at, mut wasted) = (0_usize, 0_usize);
    for _ in 0..TRIES {
        if values.len() >= MOST || wasted >= most {
            break;
        }
        let rest = text.get(at..).unwrap_or("");
        let Some(begin) = rest.find(['{', '[']) else { break };
        at = at.saturating_add(begin);
        let rest = rest.get(begin..).unwrap_or("");
        let mut reader = Deserializer::from_str(rest).into_iter::<Value>();
        let step = match reader.next() {
            Some(Ok(value)) => {
                if !values.contains(&value) {
                    values.push(value);
                }
                reader.byte_offset()
            }
            Some(Err(error)) => {
                wasted = wasted.saturating_add(read_before(&error, rest));
                1
            }
            None => 1,
        };
        at = at.saturating_add(step.max(1));
    }
    wasted
}

/// Approximate number of bytes of `text` read before `error`.
fn read_before(error: &serde_json::Error, text: &str) -> usize {
    let lines = text.split_inclusive('\n').take(error.line().saturating_sub(1));
    lines.map(str::len).fold(error.column(), usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_found_bare_fenced_and_among_words() {
        for (text, found) in [
            ("{\"a\": 1}", vec![json!({"a": 1})]),
            (" 42\n", vec![json!(42)]),
            ("\"x\"", vec![json!("x")]),
            ("null", vec![json!(null)]),
            ("```json\n{\"a\": 1}\n```", vec![json!({"a": 1})]),
            ("```json\n42\n```", vec![json!(42)]),
            ("Here:\n```json\n[1,\n 2]\n```\nDone.", vec![json!([1, 2])]),
            ("Here: ```{\"a\": 1}``` is it.", vec![json!({"a": 1})]),
            ("```\n\"a\"\n```\nor\n```\n\"b\"\n```", vec![json!("a"), json!("b")]),
            ("It is {\"a\": {\"b\": []}}, I think.", vec![json!({"a": {"b": []}})]),
            ("See [1]: {\"a\": 1}", vec![json!([1]), json!({"a": 1})]),
            ("{braces} and {\"a\": \"}\"}", vec![json!({"a": "}"})]),
            ("{\"a\": 1,}", vec![json!({"a": 1})]),
            ("{\"a\": [\"x\"", vec![json!({"a": ["x"]})]),
            ("Sure: {\"a\": [{}]", vec![json!([{}])]),
            ("Sure: {\"a\": \"x\"", vec![json!({"a": "x"})]),
            ("<think>{\"a\": 0}?</think>\n{\"a\": 1}", vec![json!({"a": 1})]),
            ("{\"a\": \"<think></think>\"}", vec![json!({"a": "<think></think>"})]),
            ("The answer is 42.", vec![]),
            ("{\"path\": \"/ho", vec![]),
            ("{\"n\": 12", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(values(text), found, "{text}");
        }
    }

    #[test]
    fn attack_08_a_field_that_is_given_twice_is_found_bare_fenced_and_among_words() {
        for text in [
            "{\"a\": 1, \"a\": 2}",
            "```json\n{\"a\": 1, \"a\": 2}\n```",
            "It is [{\"b\": 1}, {\"b\": {}, \"a\": 1, \"a\": 2}], I think.",
        ] {
            assert!(given_twice(text).unwrap().contains("`a` is given twice"), "{text}");
        }
        for text in ["<think>{\"a\": 1, \"a\": 2}</think>{\"a\": 2}", "{\"a\": 1} or {\"a\": 1}", "{a, a}"] {
            assert_eq!(given_twice(text), None, "{text}");
        }
        assert_eq!(given_twice(&"{\"a\":".repeat(1 << 18)), None);
    }

    #[test]
    fn attack_a_text_of_brackets_takes_no_time() {
        for text in
            ["[".repeat(1 << 20), "{\"a\":".repeat(1 << 18), "[\"".repeat(1 << 19), "[1,".repeat(1 << 19)]
        {
            assert_eq!(values(&text), Vec::<Value>::new());
        }
    }

    #[test]
    fn attack_22_what_never_ends_is_read_a_few_times_whatever_its_length() {
        // Each of the brackets begins a list that goes on to the end of the text.
        let lists = |items: usize| "[".repeat(127) + &"1,\n".repeat(items);
        for items in [20_000, 80_000] {
            let text = lists(items);
            let mut values = Vec::new();
            let read = scan(&text, &mut values, text.len() * READINGS);
            assert!(read <= text.len() * (READINGS + 1), "{read} bytes of {}", text.len());
            assert_eq!(values, Vec::<Value>::new());
        }
        // A short text is searched to its end.
        let text = lists(1_000) + "no: {\"a\": 1}";
        assert_eq!(values(&text), vec![json!({"a": 1})]);
    }

    proptest! {
        #[test]
        fn any_value_is_found_again(n in any::<i64>(), word in "\\PC{0,20}", before in "[a-z .]{0,9}", after in "[a-z .\n]{0,9}") {
            let value = json!({"n": n, "w": word, "l": [n, [word]]});
            prop_assert_eq!(values(&format!("{before}{value}{after}")), vec![value]);
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,60}|[\\[\\]{}\",:0-9a-z `\n\\\\é]{0,60}") {
            values(&text);
        }
    }
}
