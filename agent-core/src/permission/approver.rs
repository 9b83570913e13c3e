//! Who is asked.

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{Result, RunId, SessionId, digest::Digest, message::Arguments, tool::Footprint};

/// Names one question to an approver: the call's place, and a digest of its run, tool, schema, effective arguments and
/// footprint. A call that has come to touch something else is another question.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ApprovalId(String);

impl ApprovalId {
    /// The question `asked` about a call of `run`, when that names its calls: a later session of the same id asks others.
    pub(crate) fn new(
        session: &SessionId,
        run: Option<RunId>,
        seq: u64,
        index: usize,
        asked: Digest,
    ) -> Self {
        let Some(run) = run else { return Self(format!("{session}.{seq}$${index}")) };
        let asked = asked.to_string();
        // As much of the digest as no two questions share but by chance.
        let of = [b"question".as_slice(), &run.as_u128().to_be_bytes(), asked.as_bytes()];
        let question = Digest::of(of).to_string();
        let question = question.get(..16).unwrap_or(&question);
        Self(format!("{session}.{seq}$${index}-{question}"))
    }

    /// The session that asks; `None` for an id that is none.
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

/// What an approver is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ApprovalRequest {
    /// Names the question.
    pub id: ApprovalId,
    /// The session that asks; of a child, its own.
    pub session: SessionId,
    /// The run that asks.
    pub run: RunId,
    /// Who asks: names of the agents from the root down, joined by `/`.
    pub agent: String,
    /// The tool.
    pub tool: String,
    /// The arguments exactly as they will be used.
    pub arguments: Arguments,
    /// What the call touches.
    pub footprint: Footprint,
    /// The rule that asks.
    pub rule: String,
    /// Binds the answer to tool, schema and arguments.
    pub digest: Digest,
}

/// An approver's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// This call may run, once.
    Allow,
    /// It may not; the turn ends.
    Deny,
    /// Not now: the run ends as paused, and a later process may decide and resume it.
    Later,
}

/// Whoever is asked before a call that the rules do not settle. There is no default.
///
/// # Contract
/// An error or a panic is a refusal. The future is dropped when the run is cancelled; that is no refusal.
#[async_trait]
pub trait Approver: Send + Sync + fmt::Debug {
    /// Decides about one call.
    async fn decide(&self, request: &ApprovalRequest) -> Result<Decision>;
}

/// Allows everything that the scope admits and the rules ask for.
#[derive(Debug, Clone, Copy, Default)]
pub struct AllowAll;

#[async_trait]
impl Approver for AllowAll {
    async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
        Ok(Decision::Allow)
    }
}

/// Refuses everything that the rules ask for.
#[derive(Debug, Clone, Copy, Default)]
pub struct DenyAll;

#[async_trait]
impl Approver for DenyAll {
    async fn decide(&self, _: &ApprovalRequest) -> Result<Decision> {
        Ok(Decision::Deny)
    }
}
