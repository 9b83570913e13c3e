//! JSON values in the text of a reply: bare, in a code block, or among other words.

use serde_json::{Deserializer, Value};

use crate::tool::repair_json;

/// Values that are looked at in one text.
const MOST: usize = 16;
/// Brackets at which a value may begin that are tried in one text.
const TRIES: usize = 1_000;

/// The values in a text, the likeliest first: the whole text, else those in code blocks, else those among the words.
/// Numbers and words are values only when nothing stands around them.
pub(super) fn values(text: &str) -> Vec<Value> {
    let text = without_thoughts(text).trim();
    if let Some(value) = whole(text) {
        return vec![value];
    }
    let mut values: Vec<_> = blocks(text).filter_map(whole).take(MOST).collect();
    scan(text, &mut values);
    if values.is_empty() {
        // The end of the only value may be missing.
        let begin = text.find(['{', '[']).and_then(|at| text.get(at..)).and_then(whole);
        values.extend(begin);
    }
    values
}

/// Some models think aloud before they answer, and a draft is no answer.
fn without_thoughts(text: &str) -> &str {
    let thoughts = text.trim_start().strip_prefix("<think>");
    thoughts.and_then(|rest| rest.split_once("</think>")).map_or(text, |(_, answer)| answer)
}

fn whole(text: &str) -> Option<Value> {
    let parse = |text: &str| serde_json::from_str(text).ok();
    parse(text).or_else(|| parse(&repair_json(text)?))
}

/// What stands between two code fences, without the language's name.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    let fenced = text.split("```").skip(1).step_by(2);
    fenced.map(|block| {
        let (first, rest) = block.split_once('\n').unwrap_or(("", block));
        if first.contains(['{', '[', '"']) { block.trim() } else { rest.trim() }
    })
}

/// Adds the complete objects and arrays that stand in the text, none from within another.
fn scan(text: &str, values: &mut Vec<Value>) {
    let mut at = 0_usize;
    for _ in 0..TRIES {
        if values.len() >= MOST {
            return;
        }
        let rest = text.get(at..).unwrap_or("");
        let Some(begin) = rest.find(['{', '[']) else { return };
        at = at.saturating_add(begin);
        let mut reader = Deserializer::from_str(rest.get(begin..).unwrap_or("")).into_iter::<Value>();
        let step = match reader.next() {
            Some(Ok(value)) => {
                if !values.contains(&value) {
                    values.push(value);
                }
                reader.byte_offset()
            }
            _ => 1,
        };
        at = at.saturating_add(step.max(1));
    }
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
    fn attack_a_text_of_brackets_takes_no_time() {
        for text in
            ["[".repeat(1 << 20), "{\"a\":".repeat(1 << 18), "[\"".repeat(1 << 19), "[1,".repeat(1 << 19)]
        {
            assert_eq!(values(&text), Vec::<Value>::new());
        }
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
