//! Questions to the user as the answer of a planner, which the next prompt answers. Pure.
//!
//! The form of the whole text decides if an answer asks: no other answer of a planner has it.

use std::sync::Arc;

use entourage_core::{
    event::plain_line,
    message::{History, Message, Role},
};

/// Most questions to the user.
pub(super) const QUESTIONS: usize = 5;

/// First line of an answer that asks.
const ASKS: &str = "Before I begin, I need to know:";

/// Begin of each line after it.
const ITEM: &str = "- ";

/// First line of an answer that does not ask, and would have that form.
const ANSWERS: &str = "The answer:";

/// Most messages that a request has, with questions about it and their answers.
const ASKED: usize = 20;

/// Returns questions as an answer.
pub(super) fn asking(questions: &[String]) -> String {
    questions
        .iter()
        .fold(ASKS.to_owned(), |text, question| [&text, "\n", ITEM, &plain_line(question)].concat())
}

/// Returns an answer that asks nothing, in another form than questions have.
pub(super) fn answering(text: String) -> String {
    if asks(&text) { [ANSWERS, "\n\n", &text].concat() } else { text }
}

/// True for a text in the form of [`asking`], from its first line to its last.
fn asks(text: &str) -> bool {
    let mut lines = text.trim().lines();
    let begins = lines.next() == Some(ASKS);
    let questions: Vec<_> = lines.take(QUESTIONS.saturating_add(1)).collect();
    let is_question =
        |line: &&str| line.strip_prefix(ITEM).is_some_and(|question| !question.trim().is_empty());
    begins && (1..=QUESTIONS).contains(&questions.len()) && questions.iter().all(is_question)
}

fn is_asking(message: &Message) -> bool {
    message.role() == Role::Assistant && asks(&message.text())
}

/// True if the run before ended with questions to the user.
pub(super) fn asked_before(history: &History) -> bool {
    history.iter().filter(|message| message.role() != Role::User).last().is_some_and(|said| is_asking(said))
}

/// Returns the text of a request. One that answers questions begins with the request that these were about, and has
/// all answers to them: the run of an answer may have ended without one of its own.
pub(super) fn request(history: &History, prompt: &Message) -> String {
    let mut texts = vec![prompt.text()];
    let said = history.iter().filter(|message| matches!(message.role(), Role::User | Role::Assistant));
    let mut before: Vec<_> = said.collect();
    let is_user = |last: &mut &Arc<Message>| last.role() == Role::User;
    if before.pop_if(is_user).is_none() {
        return texts.concat();
    }
    loop {
        let mut told = Vec::new();
        while let Some(message) = before.pop_if(is_user) {
            told.push(message.text());
        }
        match before.pop_if(|last| is_asking(last)) {
            Some(asks) if texts.len() < ASKED => {
                texts.extend(told);
                texts.push(asks.text());
            }
            // A prompt before that was another request.
            _ => {
                let asked = texts.len() > 1;
                texts.extend(told.into_iter().take(1).filter(|_| asked));
                break;
            }
        }
    }
    texts.reverse();
    texts.join("\n\n")
}

/// True if a [`request`] is an earlier one with more questions or answers.
pub(super) fn goes_on(request: &str, earlier: &str) -> bool {
    let asks = ["\n\n", ASKS].concat();
    let more = request.strip_prefix(earlier).filter(|more| more.starts_with("\n\n"));
    more.is_some_and(|more| more.starts_with(&asks) || earlier.contains(&asks))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn after(answer: &str) -> bool {
        asked_before(
            &[Message::user("Do it."), Message::assistant(answer), Message::user("So.")]
                .into_iter()
                .collect(),
        )
    }

    #[test]
    fn bo13_an_answer_that_merely_begins_like_questions_is_none() {
        let questions = ["Which\none?".to_owned(), "When?".to_owned()];
        let asked = asking(&questions);
        assert_eq!(asked, "Before I begin, I need to know:\n- Which one?\n- When?");
        assert!(after(&asked));
        for answer in [
            ASKS.to_owned(),
            format!("{ASKS} nothing."),
            format!("{ASKS}\nall of it. It is in a.rs."),
            format!("{ASKS}\n- "),
            format!("{ASKS}\n- Which?\n\nIt is in a.rs."),
            asking(&vec!["Which?".to_owned(); QUESTIONS + 1]),
            format!("So: {asked}"),
            answering(asked.clone()),
        ] {
            assert!(!after(&answer), "{answer}");
        }
        assert!(answering(asked.clone()).ends_with(&asked));
    }

    proptest! {
        #[test]
        fn bo13_only_questions_ask(questions in prop::collection::vec("[a-z][ -~\\n\\u{1b}\\u{202e}]{0,9}", 1..=QUESTIONS), answer in ".{0,40}") {
            let asked = asking(&questions);
            prop_assert!(after(&asked));
            for text in [asked, answer] {
                prop_assert!(!after(&answering(text)));
            }
        }
    }
}
