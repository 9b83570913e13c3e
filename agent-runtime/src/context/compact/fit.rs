//! Cuts a conversation to the window of the model that summarises it.

use std::sync::Arc;

use entourage_core::{
    context::estimate_tokens,
    message::{Content, History, Message, Part, Role},
};

/// Bytes kept of a tool result that is cut.
const RESULT: usize = 400;

/// Bytes kept of any other text that is cut.
const TEXT: usize = 2_000;

/// The conversation in at most `most` estimated tokens. Tool results are cut first, from the oldest on, then other
/// texts. At last the oldest messages are left out, and a note that names `goal` takes their place. A call and its
/// results go together. `None` when nothing would be left.
pub(crate) fn fitted(history: &History, most: u64, goal: Option<&Message>) -> Option<History> {
    if history.is_empty() {
        return None;
    }
    let mut messages: Vec<(Arc<Message>, u64)> =
        history.iter().map(|message| (Arc::clone(message), estimate_tokens(message))).collect();
    let mut total = messages.iter().map(|(_, tokens)| *tokens).fold(0, u64::saturating_add);
    if total <= most {
        return Some(history.clone());
    }
    for cut in [cut_results, cut_texts] {
        for (message, tokens) in &mut messages {
            if total <= most {
                break;
            }
            if let Some(shorter) = cut(message) {
                let left = estimate_tokens(&shorter);
                total = total.saturating_sub(tokens.saturating_sub(left));
                (*message, *tokens) = (Arc::new(shorter), left);
            }
        }
    }
    if total <= most {
        return Some(messages.into_iter().map(|(message, _)| message).collect());
    }
    let note = Message::user(note(goal));
    total = total.saturating_add(estimate_tokens(&note));
    let mut left = messages.into_iter().peekable();
    // Whole units only: a result leaves with its call.
    while total > most || left.peek().is_some_and(|(message, _)| message.role() == Role::Tool) {
        let (_, tokens) = left.next()?;
        total = total.saturating_sub(tokens);
    }
    left.peek()?;
    Some(std::iter::once(Arc::new(note)).chain(left.map(|(message, _)| message)).collect())
}

fn note(goal: Option<&Message>) -> String {
    let left_out = "[The beginning of this conversation is left out here, since it is too long.]";
    match goal.and_then(Message::first_text) {
        Some(goal) => {
            format!("{left_out}\nThe task under way:\n{}", middle_cut(goal, TEXT).as_deref().unwrap_or(goal))
        }
        None => left_out.to_owned(),
    }
}

fn cut_results(message: &Arc<Message>) -> Option<Message> {
    cut_parts(message, |part| match part {
        Part::ToolResult(result) => {
            let mut changed = false;
            let content = result.content.iter().map(|piece| match piece {
                Content::Text(text) => match middle_cut(text, RESULT) {
                    Some(shorter) => {
                        changed = true;
                        Content::Text(shorter)
                    }
                    None => piece.clone(),
                },
                _ => piece.clone(),
            });
            let content = content.collect();
            let mut shorter = (**result).clone();
            shorter.content = content;
            changed.then(|| Part::ToolResult(Arc::new(shorter)))
        }
        _ => None,
    })
}

fn cut_texts(message: &Arc<Message>) -> Option<Message> {
    cut_parts(message, |part| match part {
        Part::Text(text) => middle_cut(text, TEXT).map(Part::Text),
        Part::Refusal(text) => middle_cut(text, TEXT).map(Part::Refusal),
        // Reasoning is signed as a whole: it stays as it is or goes.
        Part::Reasoning(_) => Some(Part::Text(String::new())),
        _ => None,
    })
}

/// The message with parts replaced by `cut`. `None` when no part changes, or none is left.
fn cut_parts(message: &Message, mut cut: impl FnMut(&Part) -> Option<Part>) -> Option<Message> {
    let mut changed = false;
    let mut parts = Vec::with_capacity(message.parts().len());
    for part in message.parts() {
        match cut(part) {
            Some(shorter) => {
                changed = true;
                if !matches!(&shorter, Part::Text(text) if text.is_empty()) {
                    parts.push(shorter);
                }
            }
            None => parts.push(part.clone()),
        }
    }
    // A message without parts is none.
    (changed && !parts.is_empty()).then(|| Message::new(message.role(), parts))
}

/// Beginning and end of `text`, together `most` bytes. `None` when `text` is less than 100 bytes longer than that.
fn middle_cut(text: &str, most: usize) -> Option<String> {
    let over = text.len().saturating_sub(most);
    if over < 100 {
        return None;
    }
    let (first, rest) = text.split_at(text.floor_char_boundary(most / 2));
    let last = rest.split_at(rest.ceil_char_boundary(rest.len().saturating_sub(most / 2))).1;
    Some(format!("{first}\n[… {} bytes left out …]\n{last}", text.len() - first.len() - last.len()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use entourage_core::message::{Arguments, ToolCall, ToolResult};

    fn looked(output: &str) -> [Message; 2] {
        let call = ToolCall::new("1", "look", Arguments::from(&json!({})));
        let result = ToolResult::text(&call, output);
        [Message::new(Role::Assistant, vec![Part::ToolCall(call)]), Message::tool([result])]
    }

    #[test]
    fn oldest_outputs_go_before_words_and_words_before_messages() {
        let prompt = "é".repeat(2_000);
        let mut history: History = [Message::user(prompt.as_str())].into_iter().collect();
        history.extend(looked(&"a".repeat(8_000)));
        history.extend(looked(&"b".repeat(8_000)));
        history.push(Message::assistant("Found."));
        let shown = |most| {
            let input = fitted(&history, most, history.get(0).map(|goal| &**goal)).unwrap();
            input
                .iter()
                .map(|message| {
                    let results: String = message.tool_results().map(ToolResult::to_text).collect();
                    format!("{}{results}", message.text())
                })
                .collect::<Vec<_>>()
        };
        let all = shown(6_000);
        assert_eq!((all[0].as_str(), all[2].len(), all[4].len()), (prompt.as_str(), 8_000, 8_000));
        let one = shown(3_500);
        assert!(one[2].contains("7600 bytes left out") && one[4].len() == 8_000, "{one:?}");
        let both = shown(1_500);
        assert!(both[0] == prompt && both[4].contains("left out"), "{both:?}");
        let words = shown(800);
        assert!(words[0].contains("2000 bytes left out") && words[0].starts_with('é'), "{words:?}");
        let late = shown(700);
        assert!(late[0].contains("too long") && late[0].contains("task under way:\nééé"), "{late:?}");
        assert_eq!(late.last().unwrap(), "Found.");
        assert_eq!(fitted(&history, 100, history.get(0).map(|goal| &**goal)), None);
        assert_eq!(fitted(&History::default(), 100, None), None);
    }
}
