//! Approvers: the questions that they are asked, and their decisions.

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{
    Digest, Result, RunId, SessionId,
    base::ApprovalId,
    message::{Arguments, ToolCall},
    spec::Footprint,
};

/// A question to an approver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ApprovalRequest {
    /// Id of the question.
    pub id: ApprovalId,
    /// The session that asks; for a child, its own.
    pub session: SessionId,
    /// The run that asks.
    pub run: RunId,
    /// The agent that asks: names from the root down, joined by `/`.
    pub agent: String,
    /// Name of the tool.
    pub tool: String,
    /// The arguments exactly as they will be used.
    pub arguments: Arguments,
    /// Paths, hosts and command that the call touches.
    pub footprint: Footprint,
    /// The rule that asks.
    pub rule: String,
    /// Digest of tool, schema, arguments and footprint, which the answer is bound to.
    pub digest: Digest,
}

impl ApprovalRequest {
    /// Creates the question whether `call` may run. `digest` binds the answer to what was asked.
    #[must_use]
    pub fn new(
        id: ApprovalId,
        (session, run, agent): (&SessionId, RunId, &str),
        call: &ToolCall,
        footprint: Footprint,
        rule: &str,
        digest: Digest,
    ) -> Self {
        Self {
            id,
            session: session.clone(),
            run,
            agent: agent.to_owned(),
            tool: call.name.to_string(),
            arguments: call.arguments.clone(),
            footprint,
            rule: rule.to_owned(),
            digest,
        }
    }
}

/// An approver's answer. It holds no name: the person who decided is not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Allows this call, once.
    Allow,
    /// Refuses the call; the turn ends.
    Deny,
    /// Leaves it open: the run ends as paused, and a later process may decide and resume it.
    Later,
}

/// Person or program that is asked before a call that the rules do not settle. There is no default.
///
/// # Contract
/// An error or a panic is a refusal. The future is dropped when the run is cancelled, which is not a refusal.
#[async_trait]
pub trait Approver: Send + Sync + fmt::Debug {
    /// Decides about one call.
    async fn decide(&self, request: &ApprovalRequest) -> Result<Decision>;
}
