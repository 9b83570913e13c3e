//! The tool `reply`, by which an executor says what its message is, and the reading of its turn.

use std::sync::Arc;

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind, Result,
    event::plain_line,
    message::Message,
    provider::FinishReason,
    run::{Outcome, Status, StopReason},
    tool::{Access, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec},
};
use serde::Deserialize;
use serde_json::json;

use super::{
    ConversationLimits,
    execution::EXECUTOR,
    guard::{calls_in, too_many},
    message::{StepMessageKind, by_marker, kind_of},
};
use crate::{
    autonomy::answered,
    cut::cut,
    finality::{failed_task, is_final_record},
};

/// Name of the tool.
pub(super) const REPLY: &str = "reply";

/// Most characters of a message: a service may ignore the output that it was given.
const LONGEST: usize = 32_000;

/// The tool `reply`: a call ends the executor's turn.
pub(super) struct Reply(ToolSpec);

#[derive(Deserialize)]
struct Arguments {
    #[serde(rename = "type")]
    kind: String,
    text: String,
}

impl Reply {
    pub(super) fn new() -> Self {
        let description = "Replies to the planner and ends your turn. `question` asks it for what you need to know, \
                           `progress` and `partial` tell how far you are, `complete` gives the result, `error` says why \
                           you cannot do the step.";
        let schema = json!({
            "type": "object",
            "properties": {
                "type": { "type": "string", "enum": ["question", "progress", "partial", "complete", "error"] },
                "text": { "type": "string" },
            },
            "required": ["type", "text"],
        });
        let spec = ToolSpec::new(REPLY, description, schema).with_access(Access::NONE);
        Self(spec.with_repeat(Repeat::Idempotent).alone().of_run())
    }
}

#[async_trait]
impl Tool for Reply {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, input: ToolInput, _: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let Arguments { kind, text } = input.parse()?;
        if kind_of(&kind).is_none() {
            let text = "the type of a reply is question, progress, partial, complete or error";
            return Err(ToolError::tell(text));
        }
        if text.trim().is_empty() {
            return Err(ToolError::tell("the reply has no text; say what it is about"));
        }
        Ok(ToolOutput::text("The planner has it.").stopping())
    }
}

/// What an executor said in a turn.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Said {
    pub(super) kind: StepMessageKind,
    pub(super) text: String,
    /// Results of tools other than `reply`.
    pub(super) tool_calls: u32,
    /// The reason for which the turn was stopped, if nobody may try again.
    pub(super) stopped: Option<Box<StopReason>>,
}

/// Reads the turn of an executor from its outcome and messages.
///
/// # Errors
/// The error of a run that must stay open.
pub(super) fn said(outcome: &Outcome, work: &[Arc<Message>], limits: &ConversationLimits) -> Result<Said> {
    let asked = work.iter().map(calls_in).fold(0, u32::saturating_add);
    let results = work.iter().flat_map(|message| message.tool_results());
    let tool_calls = results.filter(|result| *result.name != *REPLY).count();
    let mut stopped = final_stop(EXECUTOR, &outcome.status);
    let (kind, text) = match &outcome.status {
        Status::Completed => match replied(work) {
            Some(replied) => replied,
            None => marked(&outcome.text),
        },
        // A result that is longer than one reply goes on in the next turn.
        Status::Stopped(StopReason::Reply(FinishReason::Length)) if !outcome.text.trim().is_empty() => {
            marked(&outcome.text)
        }
        // A layer stopped the turn.
        Status::Stopped(StopReason::Denied(_)) if asked > limits.tool_calls => {
            stopped = None;
            (StepMessageKind::Error, too_many(limits.tool_calls))
        }
        Status::Cancelled => {
            let text = format!("a turn of the executor took longer than {:?}", limits.turn_time);
            (StepMessageKind::Error, text)
        }
        Status::Failed(error) if error.kind == ErrorKind::Diverged => return Err(error.to_error()),
        Status::Failed(error) => (StepMessageKind::Error, plain_line(&error.message)),
        Status::Paused(pause) => return Err(Error::paused(pause.clone())),
        status => (StepMessageKind::Error, format!("the executor was {status}")),
    };
    let (text, tool_calls) = (cut(&text, LONGEST), u32::try_from(tool_calls).unwrap_or(u32::MAX));
    Ok(Said { kind, text, tool_calls, stopped })
}

/// Returns the reason for which the run of an agent was stopped or failed, if nobody may try again.
pub(super) fn final_stop(agent: &str, status: &Status) -> Option<Box<StopReason>> {
    match status {
        Status::Stopped(reason) => Some(reason.clone()).filter(StopReason::is_final).map(Box::new),
        Status::Failed(error) if is_final_record(error) => {
            let (cancelled, skipped) = Default::default();
            let failed = Box::from([failed_task(agent, error)]);
            let failed = || Box::new(StopReason::Tasks { failed, cancelled, skipped });
            Some(error.stopped.clone().filter(|reason| reason.is_final()).unwrap_or_else(failed))
        }
        _ => None,
    }
}

fn marked(text: &str) -> (StepMessageKind, String) {
    let (kind, text) = by_marker(text);
    (kind, text.to_owned())
}

/// Returns the newest reply that the tool took.
fn replied(work: &[Arc<Message>]) -> Option<(StepMessageKind, String)> {
    let mut taken = answered(work).filter(|(call, result)| *call.name == *REPLY && !result.is_error);
    let arguments = serde_json::from_value(taken.next_back()?.0.arguments.to_value()).ok();
    let Arguments { kind, text } = arguments?;
    Some((kind_of(&kind)?, text.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use entourage_core::message::{Arguments, Part, Role, ToolCall, ToolResult};

    use super::{
        StepMessageKind::{Error, PartialResult, ProgressUpdate, Question, TaskComplete},
        *,
    };

    fn limits() -> ConversationLimits {
        ConversationLimits::default()
    }

    fn turn(kind: &str, refused: bool) -> Vec<Arc<Message>> {
        let call = |name: &str, arguments| ToolCall::new("c", name, Arguments::from(&arguments));
        let look = call("view", json!({}));
        let reply = call(REPLY, json!({"type": kind, "text": " It is there. "}));
        let result = if refused { ToolResult::error(&reply, "no") } else { ToolResult::text(&reply, "ok") };
        let asks = |call: &ToolCall| Message::new(Role::Assistant, vec![Part::ToolCall(call.clone())]);
        let seen = Message::tool([ToolResult::text(&look, "a tree")]);
        [asks(&look), seen, asks(&reply), Message::tool([result])].map(Arc::new).into()
    }

    #[test]
    fn bo08_the_tool_reply_decides_before_any_word() {
        let outcome = Outcome::completed("error: I think");
        for (word, kind) in [
            ("question", Question),
            ("progress", ProgressUpdate),
            ("partial", PartialResult),
            ("complete", TaskComplete),
            ("error", Error),
        ] {
            let said = said(&outcome, &turn(word, false), &limits()).unwrap();
            assert_eq!((said.kind, said.text.as_str(), said.tool_calls), (kind, "It is there.", 1));
        }
        assert_eq!(
            said(&outcome, &turn("complete", true), &limits()).unwrap().kind,
            Error,
            "the text's own marker"
        );
    }

    #[test]
    fn bo07_a_turn_that_was_cut_short_is_an_error_with_its_reason() {
        let of = |status, text: &str| {
            let mut outcome = Outcome::new(status);
            outcome.text = text.to_owned();
            let said = said(&outcome, &[], &limits()).unwrap();
            (said.kind, said.text)
        };
        assert!(of(Status::Cancelled, "x").1.ends_with("took longer than 60s"));
        assert_eq!(
            of(Status::Stopped(StopReason::Reply(FinishReason::Length)), "half"),
            (PartialResult, "half".into())
        );
        let (kind, reason) = of(Status::Stopped(StopReason::Steps(3)), "half");
        assert!(kind == Error && reason.contains("3"), "{reason}");
        let failed = Status::of(&entourage_core::Error::new(ErrorKind::Overloaded, "too\nbusy"));
        assert_eq!(of(failed, "").0, Error);
        assert_eq!(of(Status::Completed, &"ü".repeat(40_000)).1.chars().count(), LONGEST);
        let diverged = Status::of(&entourage_core::Error::new(ErrorKind::Diverged, "other"));
        assert!(said(&Outcome::new(diverged), &[], &limits()).is_err());
    }

    #[test]
    fn bo05_a_refusal_and_a_bound_of_the_run_are_final_and_no_limit_of_the_turn_is() {
        let stopped = |status: &Status, work: &[Arc<Message>]| {
            said(&Outcome::new(status.clone()), work, &limits().with_tool_calls(1)).unwrap().stopped
        };
        let denied = Status::Stopped(StopReason::Denied("view".to_owned()));
        assert_eq!(stopped(&denied, &[]).as_deref(), Some(&StopReason::Denied("view".to_owned())));
        assert_eq!(
            stopped(&denied, &[turn("complete", false), turn("complete", false)].concat()),
            None,
            "too many calls of the turn"
        );
        let late = entourage_core::Error::new(ErrorKind::Stopped, "x").with_stop_reason(StopReason::Deadline);
        assert_eq!(stopped(&Status::of(&late), &[]).as_deref(), Some(&StopReason::Deadline));
        for status in [Status::Stopped(StopReason::Steps(3)), Status::Cancelled, Status::Completed] {
            assert_eq!(stopped(&status, &[]), None, "{status}");
        }
    }

    /// A turn and an own step that failed alike are as final.
    #[test]
    fn bo05_an_error_is_as_final_in_a_turn_as_in_a_step_of_the_planners_own() {
        use entourage_core::Error;
        for (error, is_final) in [
            (Error::new(ErrorKind::PermissionDenied, "no"), true),
            (Error::new(ErrorKind::PermissionDenied, "no").during("model.stream"), false),
            (Error::new(ErrorKind::BudgetExceeded, "no"), true),
            (Error::new(ErrorKind::Authentication, "no").during("model.stream"), false),
            (Error::new(ErrorKind::Stopped, "no").with_stop_reason(StopReason::Deadline), true),
            (Error::new(ErrorKind::Stopped, "no").with_stop_reason(StopReason::Steps(1)), false),
        ] {
            let turn = said(&Outcome::new(Status::Failed(error.record())), &[], &limits()).unwrap();
            let stopped = turn.stopped.is_some_and(|reason| reason.is_final());
            assert_eq!((stopped, is_final_record(&error.record())), (is_final, is_final), "{error:?}");
        }
    }

    #[test]
    fn the_tool_that_a_model_sees_is_plain() {
        let spec = Reply::new().spec().clone();
        entourage_testkit::assert_plain_text(&format!("{}\n{}", spec.description(), spec.schema()));
    }
}
