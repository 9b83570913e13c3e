//! The tool `task_complete`: an agent that is given it can complete a task in no other way.

use std::sync::Arc;

use async_trait::async_trait;
use entourage_core::{
    message::{Message, Role, ToolCall, ToolResult},
    run::Outcome,
    session::SessionState,
    tool::{Access, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec},
};
use serde::Deserialize;
use serde_json::json;

use crate::{ReactAgent, TodoTool, react::Bar};

/// The tool's name.
pub(crate) const TASK_COMPLETE: &str = "task_complete";

/// Error result of a call made before any other tool was used.
const LOOK_FIRST: &str = "no tool has shown you any of the work since this report, and a report is not evidence; look for \
    yourself with your tools, and call this again once you have seen that all of it is done";

/// Result of a call, and what stands before the summary in its second line when guards changed that.
const DONE: &str = "The task is complete.";
const KEPT: &str = "\nThis is kept as its summary: ";

/// The tool `task_complete`: a successful call ends the agent's run, and later calls in the same message are not run.
#[derive(Debug)]
pub(super) struct TaskComplete {
    spec: ToolSpec,
    /// The agent that has the tool, whose guards look at the summary.
    of: Option<ReactAgent>,
    /// True when it is refused in a run in which no other tool gave a result.
    looks: bool,
}

#[derive(Deserialize)]
struct Claim {
    summary: String,
}

impl TaskComplete {
    /// Creates the tool of an agent.
    pub(super) fn of(agent: &ReactAgent) -> Self {
        Self { of: Some(agent.clone()).filter(ReactAgent::is_guarded), ..Self::new() }
    }

    fn new() -> Self {
        let description = "Call the task complete. Do this only after you have seen for yourself that all that was asked is \
            done: it ends the task at once.";
        let schema = json!({
            "type": "object",
            "properties": {
                "summary": {
                    "type": "string",
                    "description": "What was done, and how you know that it is done. Must not be empty."
                }
            },
            "required": ["summary"]
        });
        let spec = ToolSpec::new(TASK_COMPLETE, description, schema).with_access(Access::NONE);
        Self { spec: spec.with_repeat(Repeat::Idempotent).alone().of_run(), of: None, looks: false }
    }

    /// Returns the same tool, refused in a run in which no other tool gave a result.
    pub(super) fn after_a_look(self) -> Self {
        Self { looks: true, ..self }
    }
}

#[async_trait]
impl Tool for TaskComplete {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let Claim { summary } = input.parse()?;
        if summary.trim().is_empty() {
            return Err(ToolError::tell("the summary is empty; say what was done and how you know that"));
        }
        if self.looks && !cx.run().read(has_looked) {
            return Err(ToolError::tell(LOOK_FIRST));
        }
        let Some(agent) = &self.of else { return Ok(ToolOutput::text(DONE).stopping()) };
        match agent.passed(summary.clone(), cx.run()) {
            Ok(passed) if passed == summary => Ok(ToolOutput::text(DONE).stopping()),
            Ok(passed) => Ok(ToolOutput::text([DONE, KEPT, &passed].concat()).stopping()),
            Err(Bar::Refused(reason)) => Err(ToolError::tell(format!("the summary was refused: {reason}"))),
            Err(Bar::Stopped(reason)) => Ok(ToolOutput::error(reason).stopping()),
        }
    }
}

/// True when a tool that shows part of the work succeeded in the open run so far.
fn has_looked(state: &SessionState) -> bool {
    let work = state.work();
    let before = work.iter().flat_map(|message| message.tool_results());
    before.chain(state.open_results()).any(|result| !result.is_error && is_look(&result.name))
}

/// True when a tool of this name shows its caller part of the work.
pub(super) fn is_look(tool: &str) -> bool {
    tool != TASK_COMPLETE && tool != TodoTool::NAME
}

/// Yields the calls of a run that have a result, with their results.
pub(crate) fn answered(work: &[Arc<Message>]) -> impl DoubleEndedIterator<Item = (&ToolCall, &ToolResult)> {
    let pairs = work.iter().zip(work.iter().skip(1)).filter(|(_, next)| next.role() == Role::Tool);
    let calls = pairs.map(|(asked, next)| asked.tool_calls().zip(next.tool_results()).collect::<Vec<_>>());
    calls.flatten()
}

/// Returns the summary with which the agent called the task complete, as its guards left it; `None` when it did not, or
/// when its run was cut short.
pub(super) fn claim(outcome: &Outcome, work: &[Arc<Message>]) -> Option<String> {
    if !outcome.is_completed() {
        return None;
    }
    let (call, result) =
        answered(work).find(|(call, result)| *call.name == *TASK_COMPLETE && !result.is_error)?;
    if let Some((_, kept)) = result.to_text().split_once(KEPT) {
        return Some(kept.trim().to_owned());
    }
    let arguments = call.arguments.to_value();
    Some(arguments.get("summary").and_then(|it| it.as_str()).unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use entourage_core::{
        message::{Arguments, Part},
        provider::FinishReason,
        run::{Status, StopReason},
    };

    #[test]
    fn the_tool_that_a_model_sees_is_plain() {
        let spec = TaskComplete::new().spec().clone();
        entourage_testkit::assert_plain_text(&format!("{}\n{}", spec.description(), spec.schema()));
    }

    #[test]
    fn cw04_a_claim_counts_in_a_turn_that_came_to_its_end_and_with_a_result_that_is_no_error() {
        let arguments = Arguments::from(&json!({"summary": " I saw it. "}));
        let call = ToolCall::new("c", TASK_COMPLETE, arguments);
        let asked = Message::new(Role::Assistant, vec![Part::ToolCall(call.clone())]);
        let turn = |result| [asked.clone(), Message::tool([result])].map(Arc::new);
        let done = turn(ToolResult::text(&call, "The task is complete."));
        let refused = turn(ToolResult::error(&call, "the summary is empty"));
        let said = Some("I saw it.".to_owned());
        assert_eq!(claim(&Outcome::new(Status::Completed), &done), said);
        assert_eq!(claim(&Outcome::new(Status::Completed), &refused), None);
        assert_eq!(claim(&Outcome::new(Status::Completed), &done[..1]), None, "it has no result");
        for reason in
            [StopReason::Steps(3), StopReason::LoopDetected, StopReason::Reply(FinishReason::Length)]
        {
            assert_eq!(claim(&Outcome::new(Status::Stopped(reason)), &done), None);
        }
    }
}
