//! The form of an answer from outside, recorded by the agent that asks, so that a wrong answer is refused where it is
//! given, also by a process that does not know the agent.

use entourage_core::{
    Error, ErrorKind, Result,
    event::{Kept, Record},
    message::ToolResult,
    session::SessionState,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::schema::{doubled, problems};

/// Record of the form that the results of a run's handed out calls of one tool must have. The agent records it before
/// it makes the call. `Session::answer` refuses any other result, and the call stays open.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AnswerForm {
    /// Name of the tool.
    pub tool: Box<str>,
    /// JSON Schema of a result's text, which is one JSON value.
    pub schema: Value,
}

impl AnswerForm {
    /// Creates the record.
    pub fn new(tool: impl Into<Box<str>>, schema: Value) -> Self {
        Self { tool: tool.into(), schema }
    }

    /// Checks the result of a call of the open run, if a form was recorded for it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] with the problems; an error for a record that cannot be read.
    pub(super) fn check(state: &SessionState, result: &ToolResult) -> Result<()> {
        for kept in state.kept().iter().rev() {
            let Kept::Value(value) = kept else { break };
            if let Some(form) = value.get::<Self>()?
                && *form.tool == *result.name
            {
                return form.fits(result);
            }
        }
        Ok(())
    }

    fn fits(&self, result: &ToolResult) -> Result<()> {
        let refused = |problem: &str| {
            let text = format!(
                "the answer does not have the form that was asked for: {problem}; the call still waits for one that does"
            );
            Err(Error::new(ErrorKind::InvalidInput, text))
        };
        if result.is_error {
            return refused("it is an error");
        }
        let text = result.to_text();
        if let Some(problem) = doubled(&text) {
            return refused(&problem);
        }
        match serde_json::from_str::<Value>(&text) {
            Err(error) => refused(&format!("it is no JSON value ({error})")),
            Ok(value) => problems(&self.schema, &value).map_or(Ok(()), |problems| refused(&problems)),
        }
    }
}

impl Record for AnswerForm {
    const KIND: &'static str = "external.answer_form";
    const KEPT: bool = true;

    fn summary(&self) -> String {
        format!("answers to `{}` have a form", self.tool)
    }
}
