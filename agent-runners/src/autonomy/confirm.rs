//! L2: the executor is asked once more, in its own conversation, whether the task is done.

use std::sync::Arc;

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    agent::{Agent, AgentPart},
    context::Instructions,
    message::Message,
    provider::{ModelSlot, Profile},
    run::{Outcome, RunContext, Task},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Player, Verdict,
    ask::{self, Question, Ruling, said},
    check::{Asked, Check},
};
use crate::typed::{Generate, NoValue, Strategy};

/// The question; the same each time.
const QUESTION: &str = "Is all of it done, as it was asked? Look back at the request and at what you did, and do no \
    further work now. Begin your answer with the word yes or no. After no, say what is left to do; after yes, say in one \
    sentence how you know.";

/// Feedback to the executor when its answer was neither yes nor no.
const UNCLEAR: &str = "Your answer did not say whether it is done. Go on with what is left of the request; when \
    nothing is, say so.";

/// Feedback to the executor when it answered no and nothing else.
const BARE_NO: &str = "You said that it is not done. Go on with what is left.";

/// Words that retract a leading yes.
const HEDGES: &[&str] = &[
    "but",
    "except",
    "although",
    "though",
    "however",
    "unless",
    "until",
    "almost",
    "nearly",
    "mostly",
    "partly",
    "partially",
    "hardly",
    "barely",
    "maybe",
    "perhaps",
    "probably",
];

/// Words that retract it in the same clause only.
const CONDITIONS: &[&str] = &["no", "not", "or", "if", "once", "when", "as"];

/// Characters that end a clause.
const CLAUSE_ENDS: &[char] = &['.', '!', ':', ';', '\n'];

/// A check that asks the executor itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Confirm;

impl Check for Confirm {
    fn role(&self) -> &'static str {
        "executor"
    }

    fn agent(&self, executor: &Player) -> Arc<dyn Agent> {
        // Any other agent answers in words.
        let Some(executor) = executor.react() else { return executor.agent() };
        let model = executor.model().clone();
        match strategy(model.model().profile()) {
            None => Arc::new(executor.speaking()),
            Some(strategy) => {
                let instructions = executor.instructions();
                Arc::new(Structured { name: executor.name().into(), model, instructions, strategy })
            }
        }
    }

    fn prompt(&self, _: &Asked, _: &str) -> Message {
        Message::user(QUESTION)
    }

    fn read(&self, _: &Asked, outcome: &Outcome, _: &[Arc<Message>]) -> Verdict {
        if outcome.is_completed() { verdict(&outcome.text) } else { Verdict::rejected(UNCLEAR) }
    }

    fn needs_summary(&self) -> bool {
        false
    }
}

/// Returns the way to get a typed answer from the model; `None` when no way is known: it then answers in words.
fn strategy(profile: &Profile) -> Option<Strategy> {
    match (profile.tools, profile.structured_output) {
        // Some services refuse a conversation with tool calls and no tools.
        (Some(true), _) => Some(Strategy::Tool),
        (_, Some(true)) => Some(Strategy::Native),
        _ => None,
    }
}

/// The executor's own statement about its task.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(description = "Whether the task is done.")]
struct Confirmation {
    /// Whether all of it is done, as it was asked.
    done: bool,
    /// How you know; when it is not done, what is left to do.
    reason: String,
}

impl Ruling for Confirmation {
    const FIELD: &'static str = "done";

    fn grants(&self) -> bool {
        self.done
    }
}

/// The executor's model, constrained to a typed answer.
#[derive(Debug)]
struct Structured {
    name: Box<str>,
    model: ModelSlot,
    instructions: Instructions,
    strategy: Strategy,
}

#[async_trait]
impl Agent for Structured {
    fn name(&self) -> &str {
        &self.name
    }

    fn parts(&self) -> Vec<AgentPart> {
        vec![AgentPart::Model(self.model.clone())]
    }

    async fn run(&self, _: Task, cx: &RunContext) -> Result<Outcome> {
        let model = self.model.model();
        let question = Question::within(Generate::from(cx.history()).with_strategy(self.strategy));
        match ask::ruling::<Confirmation>(cx, &model, question, &self.instructions).await {
            Ok(Some(Confirmation { done, reason })) => {
                let word = if done { "Yes." } else { "No." };
                Ok(Outcome::completed(format!("{word} {}", reason.trim()).trim_end()))
            }
            Err(error) if !is_no_answer(&error) => Err(error),
            Ok(None) | Err(_) => Ok(Outcome::completed("I cannot say.")),
        }
    }
}

/// True when the model replied without answering the question. A conversation that is too long for it counts as that
/// too: the executor compacts it when it continues.
fn is_no_answer(error: &Error) -> bool {
    error.kind() == ErrorKind::ContextOverflow || NoValue::of(error).is_some()
}

/// Reads an answer in words by its first word. An answer that is no plain yes is a rejection.
fn verdict(answer: &str) -> Verdict {
    let answer = said(answer);
    let (first, next) = opening(answer);
    match first.as_str() {
        "yes" if is_taken_back(answer) => Verdict::rejected(UNCLEAR),
        "yes" if !HEDGES.contains(&&*next) && !CONDITIONS.contains(&&*opening(clause(answer)).1) => {
            Verdict::accepted(rest(answer, "yes"))
        }
        "no" => match rest(answer, "no") {
            "" => Verdict::rejected(BARE_NO),
            left => Verdict::rejected(left),
        },
        _ => Verdict::rejected(UNCLEAR),
    }
}

/// True when a question mark follows the leading yes, or a later sentence is a bare no.
fn is_taken_back(answer: &str) -> bool {
    let first =
        answer.find(|c: char| !c.is_alphanumeric() && !matches!(c, '*' | '"' | '_' | '`' | ' ' | '\n'));
    let asks = first.and_then(|at| answer.get(at..)).is_some_and(|rest| rest.starts_with('?'));
    let bare = |clause: &str| {
        let word = clause.trim_matches(|c: char| !c.is_alphanumeric());
        word.eq_ignore_ascii_case("no") || word.eq_ignore_ascii_case("not")
    };
    asks || answer.split(CLAUSE_ENDS).skip(1).any(bare)
}

/// Returns the first two words of a text, in lower case; an `and` between them is skipped.
fn opening(text: &str) -> (String, String) {
    let words = text.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
    let mut words = words.filter(|word| !word.is_empty());
    let first = words.next().unwrap_or_default();
    (first, words.find(|word| word != "and").unwrap_or_default())
}

fn clause(text: &str) -> &str {
    text.split(CLAUSE_ENDS).next().unwrap_or_default()
}

/// Returns the text after the leading word, without the punctuation between.
fn rest<'a>(answer: &'a str, word: &str) -> &'a str {
    let from_word = answer.trim_start_matches(|c: char| !c.is_alphanumeric());
    let after = from_word.get(word.len()..).unwrap_or_default();
    after.trim_start_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '`' | '(' | '<' | '[')).trim_end()
}

#[cfg(test)]
mod tests {
    use entourage_core::tool::schema_of;
    use entourage_testkit::assert_plain_text;

    use super::*;
    use entourage_core::{
        provider::FinishReason,
        run::{Status, StopReason},
    };

    #[test]
    fn cw02_answers_in_words_are_read_by_their_first_word_and_what_is_unclear_is_not_done() {
        for (answer, done, reason) in [
            ("yes", true, ""),
            ("Yes.", true, ""),
            ("YES, all tests pass.", true, "all tests pass."),
            ("Yes: `cargo test` is green", true, "`cargo test` is green"),
            ("Yes and all tests pass", true, "and all tests pass"),
            ("**Yes** — I ran it twice.", true, "I ran it twice."),
            ("\"yes\"", true, ""),
            ("\n\n  yes\nIt builds.", true, "It builds."),
            ("<think>no, or yes?</think>Yes. Done.", true, "Done."),
            ("Yes. No test fails.", true, "No test fails."),
            ("Yes!\nIf you want I can add docs.", true, "If you want I can add docs."),
            ("No. The tests are missing.", false, "The tests are missing."),
            ("no", false, BARE_NO),
            ("- No -", false, BARE_NO),
            ("NO: the login fails (403)", false, "the login fails (403)"),
            ("No, nothing is left to do.", false, "nothing is left to do."),
            ("Yes, but the tests fail.", false, UNCLEAR),
            ("Yes. But the tests fail.", false, UNCLEAR),
            ("Yes and no.", false, UNCLEAR),
            ("Yes/no: I am not sure.", false, UNCLEAR),
            ("yes, once the tests pass", false, UNCLEAR),
            ("Yes, if you ask me", false, UNCLEAR),
            ("Yes. No.", false, UNCLEAR),
            ("Yes? Hardly.", false, UNCLEAR),
            ("**Yes**? Who knows.", false, UNCLEAR),
            ("Yes — although nothing works", false, UNCLEAR),
            ("Yes. Is anything left? Nothing.", true, "Is anything left? Nothing."),
            ("Yes, almost.", false, UNCLEAR),
            ("Yesterday it was.", false, UNCLEAR),
            ("Nothing is left: yes.", false, UNCLEAR),
            ("It is done.", false, UNCLEAR),
            ("Done!", false, UNCLEAR),
            ("I think so, yes.", false, UNCLEAR),
            ("true", false, UNCLEAR),
            ("{\"done\": true}", false, UNCLEAR),
            ("<think>yes", false, UNCLEAR),
            ("y", false, UNCLEAR),
            ("¡yés!", false, UNCLEAR),
            ("ﬀ🦀", false, UNCLEAR),
            ("", false, UNCLEAR),
            ("…", false, UNCLEAR),
        ] {
            let read = verdict(answer);
            assert_eq!((read.accepted, read.reason.as_str()), (done, reason), "{answer:?}");
        }
    }

    #[test]
    fn cw02_structured_output_is_used_where_the_model_supports_it() {
        let facts = |tools, structured_output| {
            let mut facts = Profile::default();
            (facts.tools, facts.structured_output) = (tools, structured_output);
            facts
        };
        for (tools, structured, expected) in [
            (Some(true), Some(true), Some(Strategy::Tool)),
            (Some(true), None, Some(Strategy::Tool)),
            (Some(false), Some(true), Some(Strategy::Native)),
            (None, Some(true), Some(Strategy::Native)),
            (Some(false), Some(false), None),
            (None, None, None),
        ] {
            assert_eq!(strategy(&facts(tools, structured)), expected, "{tools:?} {structured:?}");
        }
    }

    #[test]
    fn cw02_a_yes_of_a_turn_that_was_cut_short_is_none() {
        let asked = Asked {
            request: Arc::new(Message::user("Plant.")),
            said: Vec::new(),
            iteration: 1,
            criteria: None,
        };
        let cut = Status::Stopped(StopReason::Reply(FinishReason::Length));
        for (status, accepted) in [(Status::Completed, true), (cut, false)] {
            let mut outcome = Outcome::new(status);
            outcome.text = "Yes, all of it".to_owned();
            assert_eq!(Confirm.read(&asked, &outcome, &[]).accepted, accepted, "{outcome}");
        }
    }

    #[test]
    fn the_schema_that_a_model_sees_is_plain() {
        assert_plain_text(&schema_of::<Confirmation>().to_string());
    }
}
