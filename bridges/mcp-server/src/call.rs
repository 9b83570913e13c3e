//! One call of a client as a run: an agent without a model, which performs the call and ends.

use async_trait::async_trait;
use entourage_core::{
    Result,
    agent::{Agent, AgentPart},
    bound::{VALUE, WORD, check, shortened},
    message::Content,
    permission::Scope,
    run::{Outcome, Pause, RunContext, Status, Task},
    tool::Tools,
};
use rmcp::model::CallToolResult;
use serde_json::Value;

use crate::offer;

/// Longest name of a tool, as `Tools` admits them. A longer one names none.
const NAME: usize = 64;

/// A call as the client made it. Equal calls ask the same question.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) arguments: Value,
}

impl Call {
    /// Returns an error result for a call that could not be stored.
    pub(crate) fn check(&self) -> Result<(), CallToolResult> {
        if self.name.chars().count() > NAME {
            let name = shortened(&self.name, NAME);
            return Err(offer::failure(format!(
                "no tool is named `{name}`; list the tools, and call one of them"
            )));
        }
        check(&self.arguments, VALUE)
            .map(drop)
            .map_err(|flaw| offer::failure(flaw.refused("the call's arguments").to_string()))
    }

    /// Returns the prompt of its run: what a list of sessions shows. The record of the call has all of its arguments.
    pub(crate) fn prompt(&self) -> String {
        shortened(&format!("{} {}", self.name, self.arguments), WORD).into_owned()
    }
}

/// Performs one call through its run, and ends with what it came to.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) name: String,
    pub(crate) call: Call,
    pub(crate) tools: Tools,
    pub(crate) scope: Scope,
}

#[async_trait]
impl Agent for Caller {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        "Performs a call of a client, and has no model."
    }

    fn parts(&self) -> Vec<AgentPart> {
        vec![AgentPart::Tools(self.tools.clone())]
    }

    async fn run(&self, _: Task, cx: &RunContext) -> Result<Outcome> {
        let Call { name, arguments } = &self.call;
        let result = cx.narrowed(&self.scope).call_tool(&self.tools, name, arguments).await?;
        // The record of the call has the whole result.
        let text: Vec<_> = result.content.iter().map(Content::as_text).collect();
        Ok(Outcome::completed(shortened(&text.join("\n"), WORD)))
    }
}

/// Returns the result of a call whose run ended without one.
pub(crate) fn without_result(outcome: &Result<Outcome>) -> CallToolResult {
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => return offer::failure(error.message()),
    };
    offer::failure(match &outcome.status {
        Status::Paused(pause) => paused(pause),
        Status::Cancelled => "the call was cancelled".to_owned(),
        Status::Failed(error) => error.message.clone(),
        Status::Completed => "the call ended without a result".to_owned(),
        other => format!("the call ended without a result: {other}"),
    })
}

fn paused(pause: &Pause) -> String {
    let again = "make the same call again afterwards: it then continues";
    match pause {
        Pause::Approval(id) | Pause::Deadline { approval: id, .. } => {
            format!(
                "the call did not run yet: somebody has to decide about it, by the approval {id}; {again}"
            )
        }
        Pause::Signal { name, .. } => format!("the call waits for the signal `{name}`; {again}"),
        Pause::Call(id) => format!("the call waits for an answer from outside, for the call {id}; {again}"),
        Pause::Asked => format!("somebody asked the call to pause; {again}"),
        other => format!("the call is paused: {other}; {again}"),
    }
}
