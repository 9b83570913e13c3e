//! Session titles: the request to a model, and the title made from its answer. Pure.

use entourage_core::{context::Instructions, event::plain_line};

/// The longest title, in characters.
const MOST: usize = 50;

/// Title used when every model failed.
pub(crate) const UNTITLED: &str = "Untitled session";

/// Output tokens of a title, for models that do not reason.
pub(crate) const MAX_OUTPUT: u64 = 40;

/// Version of the instructions; raised whenever their words change.
const VERSION: u32 = 1;

const INSTRUCTIONS: &str = "You name conversations. Answer with a title for the conversation that the \
    user's message begins, and with nothing else: in the user's language, at most 50 characters, one line, without \
    quotation marks and without colons. Never answer the message itself.";

/// Instructions of the model that writes a title; a program may replace them.
pub(crate) fn built_in() -> Instructions {
    Instructions::built_in("entourage/title", VERSION, INSTRUCTIONS)
}

/// The request for a title: the prompt as it is, and an empty thought, which stops models from thinking aloud.
pub(crate) fn question(prompt: &str) -> String {
    format!(
        "Give a title for the conversation that begins with this message:\n\n{prompt}\n\n<think>\n\n</think>"
    )
}

/// A model's answer as a title. An empty answer becomes the beginning of the prompt.
pub(crate) fn title(answer: &str, prompt: &str) -> String {
    let said = plain_line(&without_thoughts(answer));
    let said = said.trim_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '“' | '”'));
    if said.is_empty() { shortened(&plain_line(prompt)) } else { shortened(said) }
}

/// The text without blocks of thought and without unpaired tags.
fn without_thoughts(text: &str) -> String {
    const TAGS: [(&str, &str); 2] = [("<think>", "</think>"), ("<thinking>", "</thinking>")];
    let mut text = text.to_owned();
    for (open, close) in TAGS {
        text = without_blocks(&text, open, close);
        // Text before a lone closing tag is a thought too.
        if let Some((_, after)) = text.rsplit_once(close) {
            text = after.to_owned();
        }
        text = text.replace(open, "");
    }
    text
}

/// The text without the parts between two tags, in one pass: a model may write any number of them.
fn without_blocks(text: &str, open: &str, close: &str) -> String {
    let (mut kept, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, block)) = rest.split_once(open) {
        let Some((_, after)) = block.split_once(close) else { break };
        kept.push_str(before);
        rest = after;
    }
    kept + rest
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    let kept: String = text.chars().take(MOST.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ct01_an_answer_becomes_one_line_without_thoughts() {
        let long = "word ".repeat(30);
        for (answer, expected) in [
            ("Fix the parser", "Fix the parser"),
            ("  Fix\nthe\r\n parser \n", "Fix the parser"),
            ("<think>they want a title</think>Fix the parser", "Fix the parser"),
            ("<think>a</think>Fix <think>b</think>the parser", "Fix the parser"),
            ("thinking aloud</think>\nFix the parser", "Fix the parser"),
            ("<think>Fix the parser", "Fix the parser"),
            ("<thinking>hm</thinking>\"Fix the parser\"", "Fix the parser"),
            ("Fix\u{7}\u{1b}[31m the parser", "Fix [31m the parser"),
            ("", "Please mend it"),
            ("<think>only thoughts</think>", "Please mend it"),
            (" \" \" ", "Please mend it"),
            (&*long, "word word word word word word word word word word…"),
        ] {
            assert_eq!(title(answer, "Please\nmend it"), expected, "{answer:?}");
        }
        assert_eq!(title("", &"é".repeat(80)), format!("{}…", "é".repeat(49)));
        assert_eq!(title(&"é".repeat(50), "p"), "é".repeat(50));
    }

    #[test]
    fn attack_22_an_answer_of_many_thoughts_is_read_once() {
        // Copying the answer for each thought would copy 20 GB.
        let many = "<think>a</think>".repeat(50_000);
        assert_eq!(title(&format!("{many}Fix the parser"), "p"), "Fix the parser");
        assert_eq!(title(&format!("{}Fix", "<think>".repeat(50_000)), "p"), "Fix");
    }

    proptest! {
        #[test]
        fn ct01_whatever_is_answered_the_title_is_one_short_line(answer in "(<think>|</think>|<thinking>|\\PC|\n){0,80}", prompt in "\\PC{1,90}") {
            let title = title(&answer, &prompt);
            prop_assert!(title.chars().count() <= MOST);
            prop_assert!(!title.contains(['\n', '\r', '\t']));
            prop_assert!(!title.contains("<think>") && !title.contains("</think>"));
        }
    }
}
