//! Typed answers of a model within a check: each call is recorded, with the template of its instructions.

use std::sync::Arc;

use entourage_core::{
    Error, ErrorKind, Result,
    context::Instructions,
    message::{History, Message},
    provider::Model,
    run::{Effect, ModelCall, Observation, RunContext},
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::typed::{Generate, Generated, Generation};

/// A model's typed answer to whether something is done.
pub(super) trait Ruling: DeserializeOwned + JsonSchema {
    /// Name of the field that holds the yes or no.
    const FIELD: &'static str;

    /// True when the answer is yes.
    fn grants(&self) -> bool;
}

/// Asks a model for a ruling. `None` for a yes that is not the whole reply: one among other words may be quoted or
/// taken back by them. Likewise for a yes in a reply with more than one answer (several values, or one with both
/// answers).
///
/// # Errors
/// Those of [`value`].
pub(super) async fn ruling<T: Ruling>(
    cx: &RunContext,
    model: &Model,
    question: Question,
    instructions: &Instructions,
) -> Result<Option<T>> {
    let made = value::<T>(cx, model, question, instructions).await?;
    Ok((!made.value.grants() || is_whole(&made.message) && answers_once(&made.message, T::FIELD))
        .then_some(made.value))
}

/// A question to a model, with the context to answer it.
pub(super) struct Question {
    whole: Generate,
    less: Option<Generate>,
}

impl Question {
    /// Creates a question at the end of a conversation that is needed to answer it.
    pub(super) fn within(conversation: Generate) -> Self {
        Self { whole: conversation, less: None }
    }

    /// Creates a question that is the newest message of the context's conversation and holds everything needed. The
    /// earlier messages help, and are left out when they are too long for the model.
    pub(super) fn whole(cx: &RunContext, newest: Arc<Message>) -> Self {
        let history = cx.history();
        let less = (history.len() > 1).then(|| History::from_iter([newest]).into());
        Self { whole: history.into(), less }
    }
}

/// Generates a value like [`RunContext::generate`], under `instructions` whose template is recorded.
///
/// # Errors
/// Those of [`RunContext::generate`].
pub(super) async fn value<T>(
    cx: &RunContext,
    model: &Model,
    question: Question,
    instructions: &Instructions,
) -> Result<Generated<T>>
where
    T: DeserializeOwned + JsonSchema,
{
    let Question { whole, less } = question;
    match (generate(cx, model, whole, instructions).await, less) {
        (Err(error), Some(less)) if error.kind() == ErrorKind::ContextOverflow => {
            generate(cx, model, less, instructions).await
        }
        (generated, _) => generated,
    }
}

async fn generate<T>(
    cx: &RunContext,
    model: &Model,
    ask: Generate,
    instructions: &Instructions,
) -> Result<Generated<T>>
where
    T: DeserializeOwned + JsonSchema,
{
    let (text, template) = instructions.clone().into_parts();
    let mut generation = Generation::new(model, ask.with_instructions(text))?;
    loop {
        let offered = generation.tools().clone();
        let mut call = ModelCall::new(model.clone(), generation.request(), offered);
        call.template.clone_from(&template);
        let Observation::Model(reply) = cx.perform(Effect::Model(Box::new(call))).await? else {
            return Err(Error::new(ErrorKind::Internal, "a model call gave no reply"));
        };
        let (usage, cost) = (reply.usage + reply.wasted, reply.cost);
        if let Some(made) = generation.read(&reply.message, reply.finish.reason, usage, cost)? {
            return Ok(made);
        }
    }
}

/// Returns the text after the reasoning of a model that thinks aloud. Unterminated reasoning is no answer.
pub(super) fn said(answer: &str) -> &str {
    let answer = answer.trim();
    match answer.rsplit_once("</think>") {
        Some((_, said)) => said.trim(),
        None if answer.starts_with("<think>") => "",
        None => answer,
    }
}

/// True when a call holds the answer, or when the text is one object and nothing else, bare or in a code block.
fn is_whole(reply: &Message) -> bool {
    if reply.tool_calls().next().is_some() {
        return true;
    }
    let text = reply.text();
    let text = said(&text);
    let block = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    let object = match block {
        Some(block) => block.trim_start_matches(char::is_alphanumeric).trim(),
        None => text,
    };
    object.starts_with('{') && object.ends_with('}') && !object.contains("```")
}

/// True when the field occurs once in the reply. Without any quoted occurrence, bare words count: some models omit the
/// quotes.
fn answers_once(reply: &Message, field: &str) -> bool {
    let text = reply.text();
    let calls = reply.tool_calls().map(|call| call.arguments.as_str());
    let (mut quoted, mut words) = (0, 0);
    for piece in std::iter::once(said(&text)).chain(calls) {
        for quote in ['"', '\''] {
            quoted += piece.matches(&format!("{quote}{field}{quote}")).count();
        }
        words += piece.matches(field).count();
    }
    if quoted == 0 { words == 1 } else { quoted == 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entourage_core::message::{Arguments, Part, Role, ToolCall};

    fn calls<const N: usize>(texts: [&str; N]) -> Message {
        let arguments = |text| serde_json::from_str::<Arguments>(text).unwrap();
        let calls = texts.map(|text| Part::ToolCall(ToolCall::new("c", "Ruling", arguments(text))));
        Message::new(Role::Assistant, calls.into())
    }

    #[test]
    fn cw01_a_reply_with_more_than_one_answer_answers_nothing() {
        let yes = r#"{"done": true, "reason": "\"done\": yes, it is done"}"#;
        let no = r#"{"done": false, "reason": "x"}"#;
        for (text, once) in [
            (yes.to_owned(), true),
            (format!("Here it is:\n```json\n{yes}\n```"), true),
            (format!("<think>{no}, or {yes}?</think>{yes}"), true),
            ("{done: true, reason: 'seen'}".to_owned(), true),
            ("{'done': true, 'reason': 'seen'}".to_owned(), true),
            (format!("{yes} {no}"), false),
            (format!("{no}\n{yes}"), false),
            (format!("{yes} {yes}"), false),
            (r#"{"done": false, "done": true, "reason": "x"}"#.to_owned(), false),
            (r#"{"done": true, 'done': false}"#.to_owned(), false),
            ("{done: true} or {done: false}".to_owned(), false),
            (format!("<think>{yes}"), false),
        ] {
            assert_eq!(answers_once(&Message::assistant(&*text), "done"), once, "{text}");
        }
        for (text, whole) in [
            (yes.to_owned(), true),
            (format!("\n{yes}\n"), true),
            (format!("```json\n{yes}\n```"), true),
            (format!("<think>{no}, or {yes}?</think>{yes}"), true),
            (format!("I do not approve. An approval would read {yes}."), false),
            (format!("The account says:\n```json\n{yes}\n```"), false),
            (format!("```json\n{yes}\n```\nThat would be a yes."), false),
            (format!("{yes} is what they claim"), false),
        ] {
            assert_eq!(is_whole(&Message::assistant(&*text)), whole, "{text}");
        }
        assert!(is_whole(&calls([yes]).with(Part::Text("I looked.".to_owned()))));
        assert!(answers_once(&calls([yes]), "done"));
        assert!(!answers_once(&calls([yes, no]), "done"));
        assert!(!answers_once(&calls([yes]).with(Part::Text(no.to_owned())), "done"));
    }
}
