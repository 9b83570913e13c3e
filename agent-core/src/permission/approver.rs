//! Approvers: the questions that they are asked, and their decisions.

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{Digest, Result, RunId, SessionId, base::ApprovalId, message::Arguments, spec::Footprint};

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

/// Approver that allows every call it is asked about.
#[derive(Debug, Clone, Copy, Default)]
pub struct AllowAll;

#[async_trait]
impl Approver for AllowAll {
    async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
        Ok(Decision::Allow)
    }
}

/// Approver that refuses every call it is asked about.
#[derive(Debug, Clone, Copy, Default)]
pub struct DenyAll;

#[async_trait]
impl Approver for DenyAll {
    async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
        Ok(Decision::Deny)
    }
}
