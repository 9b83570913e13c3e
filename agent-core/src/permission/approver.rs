//! Approvers: the questions that they are asked, and their decisions.

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{Digest, Result, RunId, SessionId, message::Arguments, tool::Footprint};

/// Id of one question to an approver: the call's place, and a digest of its run, tool, schema, effective arguments and
/// footprint. A call whose footprint changed is another question.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ApprovalId(String);

impl ApprovalId {
    /// Id of the question `asked`, a digest, about one call. With `run`, a later session of the same id has other
    /// questions; `None` for a run of an older version.
    pub(crate) fn new(
        session: &SessionId,
        run: Option<RunId>,
        seq: u64,
        index: usize,
        asked: Digest,
    ) -> Self {
        let Some(run) = run else { return Self(format!("{session}.{seq}$${index}")) };
        let asked = asked.to_string();
        // So many digits that two questions share them only by chance.
        let of = [b"question".as_slice(), &run.as_u128().to_be_bytes(), asked.as_bytes()];
        let question = Digest::of(of).to_string();
        let question = question.get(..16).unwrap_or(&question);
        Self(format!("{session}.{seq}$${index}-{question}"))
    }

    /// The session that asks; `None` for text that is not such an id.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        let (place, _) = self.0.rsplit_once("$$")?;
        let (session, _) = place.rsplit_once('.')?;
        SessionId::new(session).ok()
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ApprovalId {
    fn from(id: &str) -> Self {
        Self(id.to_owned())
    }
}

impl fmt::Display for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

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
