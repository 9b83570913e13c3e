//! The answers that a run waits for: to its plan, and to its questions.

use entourage_core::{Result, message::ToolCall, permission::Approver, tool::ToolOutput};
use entourage_runners::{Question, QuestionKind};
use entourage_runtime::{Session, Waiting};
use serde_json::Value;

use crate::{Terminal, Turn, desk::NOBODY, shown};

impl Terminal {
    /// Asks the person for all that the session waits for: approvals that were put off, the verdict on a plan, answers
    /// to the tool `question`, and the result of any other call that was handed out.
    ///
    /// Returns false if something is left: nobody is there, input ended, or the person pressed Ctrl-C.
    ///
    /// # Errors
    /// Those of [`Session::pending`], [`Session::answer`] and [`Session::decide`].
    pub async fn answer(&self, session: &Session) -> Result<bool> {
        for pending in session.pending().await? {
            match &pending.waits_for {
                Waiting::Resume => {}
                Waiting::Approval(request) => {
                    let decision = self.decide(request).await?;
                    if decision.is_open() {
                        return Ok(false);
                    }
                    session.decide(&request.id, decision).await?;
                }
                Waiting::Call { id, call } => {
                    if !self.has_person() {
                        self.say(NOBODY);
                        return Ok(false);
                    }
                    let Some(answer) = self.turn().await.result(call).await else { return Ok(false) };
                    session.answer(id, answer).await?;
                }
                // A signal, which is not the person's to send.
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}

impl Turn<'_> {
    /// The person's result of a call.
    async fn result(&mut self, call: &ToolCall) -> Option<ToolOutput> {
        match &*call.name {
            "question" => self.replies(call).await,
            "present_plan" => self.verdict(call).await,
            name => {
                let arguments = call.arguments.to_value().to_string();
                self.say(&format!("{} {}", shown::name(name), shown::asked(&arguments)));
                self.ask("the result: ").await.map(ToolOutput::text)
            }
        }
    }

    /// The verdict on a plan.
    async fn verdict(&mut self, call: &ToolCall) -> Option<ToolOutput> {
        let arguments = call.arguments.to_value();
        let plan = arguments.get("plan").and_then(Value::as_str).unwrap_or_default();
        self.say(&shown::indented(plan));
        for (step, number) in arguments.get("steps").and_then(Value::as_array).into_iter().flatten().zip(1..)
        {
            self.say(&format!("{number}. {}", shown::asked(step.as_str().unwrap_or_default())));
        }
        let question = "carry this out? [y]es, [n]o, or what to change: ";
        let mut answer = self.ask(question).await?;
        while answer.is_empty() {
            answer = self.ask(question).await?;
        }
        Some(match shown::chosen(&answer, &["yes", "no"]) {
            Some("yes") => ToolOutput::text("The user approved the plan."),
            Some(_) => ToolOutput::error("the user does not want this").stopping(),
            None => ToolOutput::error(answer),
        })
    }

    /// The answers to questions, a line for each.
    async fn replies(&mut self, call: &ToolCall) -> Option<ToolOutput> {
        let mut lines = String::new();
        for (question, number) in Question::all(call.arguments.as_str()).iter().zip(1..) {
            let options = question.options.iter().map(|option| shown::asked(option)).collect::<Vec<_>>();
            let options = options.join(", ");
            let hint = match question.kind {
                QuestionKind::YesNo => " (yes or no)".to_owned(),
                QuestionKind::Single => format!(" (one of: {options})"),
                QuestionKind::Multi => format!(" (any of: {options})"),
                QuestionKind::Text => String::new(),
            };
            let answer = self.ask(&format!("{}{hint}: ", shown::asked(&question.text))).await?;
            lines.push_str(&format!("{number}. {answer}\n"));
        }
        Some(ToolOutput::text(lines))
    }
}
