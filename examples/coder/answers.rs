//! The answers that the agent waits for: to its plan, and to its questions.

use std::{io, io::IsTerminal};

use entourage::{
    message::ToolCall,
    prelude::*,
    session::Waiting,
    tool::{Question, QuestionKind},
};
use serde_json::Value;

use crate::desk::Terminal;

/// Asks the person at the terminal for all that the session waits for. Returns false if something is left.
pub(crate) async fn give(session: &Session, terminal: &Terminal) -> Result<bool> {
    for pending in session.pending().await? {
        let Waiting::Call { id, call } = &pending.waits_for else { continue };
        if !io::stdin().is_terminal() {
            terminal.say("nobody is here to ask, so the run waits; go on with --resume on a terminal");
            return Ok(false);
        }
        let answer =
            if &*call.name == "question" { answers(call, terminal) } else { verdict(call, terminal) };
        match answer {
            Some(answer) => session.answer(id, answer).await?,
            None => return Ok(false),
        };
    }
    Ok(true)
}

/// The person's word on a plan.
fn verdict(call: &ToolCall, terminal: &Terminal) -> Option<ToolOutput> {
    let arguments = call.arguments.to_value();
    let plan = arguments.get("plan").and_then(Value::as_str).unwrap_or_default();
    terminal.say(plan);
    for (step, number) in arguments.get("steps").and_then(Value::as_array).into_iter().flatten().zip(1..) {
        terminal.say(&format!("{number}. {}", step.as_str().unwrap_or_default()));
    }
    let answer = terminal.ask("carry this out? [y]es, [n]o, or what to change: ")?;
    Some(match answer.as_str() {
        "y" => ToolOutput::text("The user approved the plan."),
        "n" => ToolOutput::error("the user does not want this").stopping(),
        changes => ToolOutput::error(changes),
    })
}

/// The person's answers, a line for each question.
fn answers(call: &ToolCall, terminal: &Terminal) -> Option<ToolOutput> {
    let questions = Question::all(call.arguments.as_str());
    let lines = questions.iter().zip(1..).map(|(question, number)| {
        let hint = match question.kind {
            QuestionKind::YesNo => " (yes or no)".to_owned(),
            QuestionKind::Single => format!(" (one of: {})", question.options.join(", ")),
            QuestionKind::Multi => format!(" (any of: {})", question.options.join(", ")),
            QuestionKind::Text => String::new(),
        };
        let answer = terminal.ask(&format!("{}{hint}: ", question.text))?;
        Some(format!("{number}. {answer}\n"))
    });
    lines.collect::<Option<String>>().map(ToolOutput::text)
}
