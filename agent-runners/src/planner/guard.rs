//! The limits on the tools of one turn of an executor, and of the conversation that it sends.

use std::sync::Arc;

use async_trait::async_trait;
use entourage_core::{
    Result,
    message::Message,
    run::RunContext,
    session::SessionState,
    tool::{LayerVerdict, ToolLayer, ToolSpec},
};
use serde_json::Value;

use super::{budget::fitted, limits::ConversationLimits, reply::REPLY};
use crate::react::{Prepare, Prepared, Step};

/// Bounds the tool calls of a turn, and the retries of a tool that fails.
#[derive(Debug, Clone, Copy)]
pub(super) struct TurnLimits {
    calls: u32,
    retries: u32,
}

impl From<&ConversationLimits> for TurnLimits {
    fn from(limits: &ConversationLimits) -> Self {
        Self { calls: limits.tool_calls, retries: limits.tool_retries }
    }
}

#[async_trait]
impl ToolLayer for TurnLimits {
    async fn before(&self, spec: &ToolSpec, _: &mut Value, cx: &RunContext) -> Result<LayerVerdict> {
        let (asked, failed) = cx.read(|state| used(state, spec.name()));
        // None of them runs, and the turn ends as failed.
        if asked > self.calls {
            return Ok(LayerVerdict::Stop(too_many(self.calls)));
        }
        if failed > self.retries {
            let text = format!(
                "`{}` failed {failed} times in this turn; do without it, or reply with an error",
                spec.name()
            );
            return Ok(LayerVerdict::Refuse(text));
        }
        Ok(LayerVerdict::Pass)
    }
}

/// Returns the reason of a turn with more tool calls than it may have.
pub(super) fn too_many(most: u32) -> String {
    format!("the executor asked for more than {most} tool calls in one turn")
}

/// Returns the calls that the open run asked for, and the failures of this tool in it.
fn used(state: &SessionState, tool: &str) -> (u32, u32) {
    let work = state.work();
    let open = state.step().map(|step| &step.message);
    let asked = work.iter().chain(open.filter(|open| work.last().is_none_or(|last| last != *open)));
    let asked = asked.map(calls_in).fold(0, u32::saturating_add);
    let results = work.iter().flat_map(|message| message.tool_results()).chain(state.open_results());
    let failed = results.filter(|result| result.is_error && *result.name == *tool).count();
    (asked, u32::try_from(failed).unwrap_or(u32::MAX))
}

/// Returns the number of calls in a message, those of `reply` not among them.
pub(super) fn calls_in(message: &Arc<Message>) -> u32 {
    let calls = message.tool_calls().filter(|call| *call.name != *REPLY).count();
    u32::try_from(calls).unwrap_or(u32::MAX)
}

/// Leaves out the oldest exchanges of a conversation that is over its budget.
#[derive(Debug, Clone, Copy)]
pub(super) struct Within {
    pub(super) tokens: usize,
    /// True if the first message stays, which is the assignment.
    pub(super) keeps_first: bool,
}

impl Prepare for Within {
    fn prepare(&self, _: &Step, plan: &mut Prepared) {
        if let Some(fitted) = fitted(&plan.messages, self.tokens, self.keeps_first) {
            plan.messages = fitted;
        }
    }
}
