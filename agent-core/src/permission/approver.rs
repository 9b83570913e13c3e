//! Approvers: the questions that they are asked, and their decisions.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{
    Digest, Result, RunId, SessionId, Timestamp,
    base::{ApprovalId, setters},
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
    /// Digest of tool, schema and what a lasting grant covers, which [`Decision::AllowSession`] is bound to. `None` in
    /// older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Digest>,
    /// Extent of a lasting grant beside the tool: subjects, and `src/` for the files in a directory; all calls of the
    /// tool if it names nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub covers: Vec<String>,
    /// Effect that the call would have, if its tool can say: see [`Tool::preview`](crate::tool::Tool::preview).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
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
            grant: None,
            covers: Vec::new(),
            preview: None,
        }
    }

    setters! {
        /// Sets the digest that a lasting grant is bound to.
        with_grant(grant: Digest) => Some(grant);
        /// Sets what a lasting grant covers.
        with_covers(covers: Vec<String>) => covers;
        /// Sets what the call would do.
        with_preview(preview: Option<String>) => preview;
    }
}

/// An approver's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Decision {
    /// Allows this call, once.
    Allow,
    /// Allows this call, and in the same session each later call of the tool with the same schema and the same
    /// footprint; of a tool that [changes files](crate::tool::ToolSpec::changing_files), with files of the same
    /// directories. For a tool whose footprints name nothing, these are all of its calls. No other session is allowed
    /// anything, one below or forked from this one included.
    AllowSession,
    /// Allows such calls in every session whose runtime has the same keeper of grants. Where none keeps it, an answer
    /// from outside is refused, and an approver's is taken as [`Decision::AllowSession`].
    AllowAlways,
    /// Runs the call with these arguments instead, once. They are checked against the tool's schema, and judged by the
    /// scope and the rules; only a rule that asks is answered by this. The model is told of them.
    Edit(Arguments),
    /// Refuses the call; the turn ends.
    Deny,
    /// Refuses the call for a reason, which the model is told. With `go_on` the run continues; without, the turn ends.
    Refuse {
        /// The reason.
        reason: String,
        /// True if the run continues.
        go_on: bool,
    },
    /// Does not run the call, and asks the model a question back; the run continues.
    Ask(String),
    /// Leaves it open: the run ends as paused, and a later process may decide and resume it.
    Later,
    /// Leaves it open until a time. From then on, a run that is resumed or recovered takes the call as allowed once, or
    /// as denied. Until then it is as [`Decision::Later`].
    Until {
        /// The time.
        at: Timestamp,
        /// True if the call is then allowed.
        allow: bool,
    },
}

impl Decision {
    /// Refuses a call for a reason, which the model is told; the run continues.
    pub fn refuse(reason: impl Into<String>) -> Self {
        Self::Refuse { reason: reason.into(), go_on: true }
    }

    /// Runs the call with these arguments instead, a JSON object.
    ///
    /// # Errors
    /// Those of [`Arguments::parse`].
    pub fn edit(arguments: &serde_json::Value) -> Result<Self> {
        Arguments::parse(arguments.to_string()).map(Self::Edit)
    }

    /// Names who decided. The name is stored.
    pub fn by(self, name: impl Into<Arc<str>>) -> Answer {
        Answer { decision: self, by: Some(name.into()) }
    }

    /// True if the question is still open after it.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Later | Self::Until { .. })
    }

    /// Returns the decision that holds at `now`: that of a deadline which has passed, or this one.
    pub fn at(&self, now: Timestamp) -> Self {
        match self {
            Self::Until { at, allow: true } if *at <= now => Self::Allow,
            Self::Until { at, .. } if *at <= now => Self::Deny,
            other => other.clone(),
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "allowed",
            Self::AllowSession => "allowed for the session",
            Self::AllowAlways => "allowed always",
            Self::Edit(_) => "allowed with other arguments",
            Self::Deny | Self::Refuse { go_on: false, .. } => "denied",
            Self::Refuse { .. } => "refused",
            Self::Ask(_) => "answered by a question",
            Self::Later => "put off",
            Self::Until { .. } => "put off until a time",
        })
    }
}

/// A decision, with the name of who decided, if it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// The decision.
    pub decision: Decision,
    /// The name, as the program knows it; not checked.
    pub by: Option<Arc<str>>,
}

impl From<Decision> for Answer {
    fn from(decision: Decision) -> Self {
        Self { decision, by: None }
    }
}

/// Person or program that is asked before a call that the rules do not settle. There is no default.
///
/// # Contract
/// - An error or a panic is a refusal; the model is told that the approver failed, and the record keeps its text.
/// - The calls of one step are asked about together, and so are those of other sessions: `decide` is called again
///   before an earlier question is answered. An approver that shows one question at a time queues them itself.
/// - The future is dropped when the run is cancelled or ends otherwise, which is not a refusal.
/// - Its time counts in a run's deadline, and in no other time limit of the agents that it is asked about. For a
///   question of an MCP server it counts in all of them.
#[async_trait]
pub trait Approver: Send + Sync + fmt::Debug {
    /// Decides about one call.
    async fn decide(&self, request: &ApprovalRequest) -> Result<Decision>;

    /// Returns the name that its decisions are stored under; `None` by default.
    fn name(&self) -> Option<Arc<str>> {
        None
    }
}

#[async_trait]
impl<A: Approver + ?Sized> Approver for Arc<A> {
    async fn decide(&self, request: &ApprovalRequest) -> Result<Decision> {
        (**self).decide(request).await
    }
    fn name(&self) -> Option<Arc<str>> {
        (**self).name()
    }
}

/// Keeper of the calls that approvers allowed always ([`Decision::AllowAlways`](super::Decision::AllowAlways)).
///
/// A grant is a digest of the tool, its schema, and what the call touches, so it is void once one of them changes.
/// Scope and rules come first: a grant answers a rule that asks, and never one that denies. Keep the grants of each
/// project apart, since the paths of a call are relative.
#[async_trait]
pub trait Grants: fmt::Debug + Send + Sync {
    /// True if calls with this [`ApprovalRequest::grant`] are allowed. Called when such a call is about to start, so it
    /// must be quick. What cannot be read holds nothing.
    fn holds(&self, grant: Digest) -> bool;

    /// Keeps what the answer to this question allows, for this process and others. Keeping it again changes nothing.
    ///
    /// # Errors
    /// The keeper's. An approver's answer then holds for its session, one from outside for its call alone.
    async fn keep(&self, question: &ApprovalRequest, by: Option<&str>) -> Result<()>;
}
