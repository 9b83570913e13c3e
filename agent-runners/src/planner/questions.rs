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

/// Most messages that a request has, with questions about it and their answers: of more, the first and the newest.
const ASKED: usize = 20;

/// Number of the first messages: what the user wanted, and the first questions about it.
const FIRST: usize = 2;

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

/// The request of a run.
#[derive(Debug, PartialEq)]
pub(super) struct Request {
    /// Its text.
    pub(super) text: String,
    /// Number of messages from the one that it began with to the prompt of the run: 0 if it begins with that.
    pub(super) since: usize,
}

/// Returns the request of a run. One that answers questions begins with the request that these were about, and has the
/// answers to them: the run of an answer may have ended without one of its own.
pub(super) fn request(history: &History, prompt: &Message) -> Request {
    let mut texts = vec![prompt.text()];
    let all = history.iter().enumerate();
    let mut before: Vec<(usize, &Arc<Message>)> =
        all.filter(|(_, message)| matches!(message.role(), Role::User | Role::Assistant)).collect();
    let is_user = |last: &mut (usize, &Arc<Message>)| last.1.role() == Role::User;
    let Some((place, _)) = before.pop_if(is_user) else {
        return Request { text: texts.concat(), since: 0 };
    };
    let mut first = place;
    loop {
        let mut told = Vec::new();
        while let Some(message) = before.pop_if(is_user) {
            told.push(message);
        }
        match before.pop_if(|(_, last)| is_asking(last)) {
            Some((at, asks)) => {
                texts.extend(told.iter().map(|(_, message)| message.text()));
                texts.push(asks.text());
                first = at;
            }
            // A prompt before that was another request.
            None => {
                if let Some((at, message)) = told.first().filter(|_| texts.len() > 1) {
                    texts.push(message.text());
                    first = *at;
                }
                break;
            }
        }
    }
    texts.reverse();
    let left_out = texts.len().saturating_sub(ASKED);
    if left_out > 0 {
        let newest = texts.split_off(FIRST.saturating_add(left_out));
        texts.truncate(FIRST);
        texts.push(format!("[… {left_out} messages about this are left out]"));
        texts.extend(newest);
    }
    Request { text: texts.join("\n\n"), since: place.saturating_sub(first) }
}

/// True if the text of a [`request`] is that of an earlier one with more questions or answers. Of very many, some are
/// left out: the places at which both began tell more.
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

    /// A conversation of a request and so many rounds of questions, each answered so often, after another request.
    fn rounds(rounds: usize, answers: usize) -> (History, Message) {
        let mut said = vec![Message::user("Other."), Message::assistant("Done."), Message::user("Do it.")];
        for round in 0..rounds {
            said.push(Message::assistant(asking(&[format!("Which {round}?")])));
            said.extend((0..answers).map(|answer| Message::user(format!("This {round} {answer}."))));
        }
        let prompt = said.last().unwrap().clone();
        (said.into_iter().collect(), prompt)
    }

    #[test]
    fn bo13_a_request_is_bounded_and_keeps_its_first_and_its_newest_messages() {
        for (count, answers) in (0..40).flat_map(|count| [(count, 1), (count, 3), (count, 30)]) {
            let (history, prompt) = rounds(count, answers);
            let Request { text, since } = request(&history, &prompt);
            let all = count * (1 + answers);
            assert_eq!(since, all, "{count} {answers}");
            let left_out = (1 + all).saturating_sub(ASKED);
            let mark = format!("{left_out} messages about this are left out");
            assert_eq!(text.contains(&mark), left_out > 0, "{text}");
            assert_eq!(text.split("\n\n").count(), (1 + all).min(ASKED + 1), "{text}");
            assert!(text.starts_with("Do it.") && text.ends_with(&prompt.text()), "{text}");
            assert_eq!(count > 0, goes_on(&text, "Do it."), "{text}");
        }
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
