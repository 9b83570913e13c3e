//! Columns that a store keeps for a session beside its events.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::Lease;
use crate::{Money, RunId, SessionId, Timestamp, Usage};

/// Immutable facts about a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionRecord {
    /// Id of the session.
    pub id: SessionId,
    /// The session that started it; `None` for a root.
    pub parent: Option<SessionId>,
    /// Role of the session: `"user"` for a root, otherwise its role below its parent, such as `"child"`.
    pub role: Arc<str>,
    /// Time of creation.
    pub created: Timestamp,
}

impl SessionRecord {
    /// A root session.
    #[must_use]
    pub fn root(id: SessionId, created: Timestamp) -> Self {
        Self { id, parent: None, role: "user".into(), created }
    }

    /// A session below `parent`.
    #[must_use]
    pub fn child(id: SessionId, parent: SessionId, role: impl Into<Arc<str>>, created: Timestamp) -> Self {
        Self { id, parent: Some(parent), role: role.into(), created }
    }
}

/// Mutable facts about a session, for lists. Computed by core with each batch of events, and replaced as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionHead {
    /// Number of the newest event; 0 for none.
    pub seq: u64,
    /// Status of the session.
    pub status: SessionStatus,
    /// The active or paused run.
    pub run: Option<RunId>,
    /// The agent that ran last.
    pub agent: Arc<str>,
    /// Title; until one is given, the first prompt cut to 80 characters.
    pub title: Arc<str>,
    /// Number of messages in the conversation.
    pub messages: u64,
    /// Tokens of this session's own model calls. `usage.cost` is `None`; the cost is in `cost`.
    pub usage: Usage,
    /// Cost of this session's own model calls; `None` when the cost of any is unknown, as that of a call that has begun
    /// and not ended: it may be in flight, or its process may have died.
    pub cost: Option<Money>,
    /// Number of the newest [`Event::Checkpoint`](crate::event::Event::Checkpoint), from which reading can begin; 0 for
    /// none.
    #[serde(default)]
    pub checkpoint: u64,
    /// Time of the newest event.
    pub updated: Timestamp,
}

impl Default for SessionHead {
    fn default() -> Self {
        Self {
            seq: 0,
            status: SessionStatus::Idle,
            run: None,
            agent: Arc::default(),
            title: Arc::default(),
            messages: 0,
            usage: Usage::default(),
            cost: Some(Money::default()),
            checkpoint: 0,
            updated: Timestamp::default(),
        }
    }
}

/// Status of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    /// No active run and no queued prompt.
    Idle,
    /// A run is active or prompts are queued, also if their process died.
    Running,
    /// A run is paused.
    Paused,
}

impl SessionStatus {
    /// The stable name, as stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Running => "running",
            Self::Paused => "paused",
        }
    }

    /// The status with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Idle, Self::Running, Self::Paused].into_iter().find(|status| status.as_str() == name)
    }
}

impl fmt::Display for SessionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A session as lists show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Immutable facts.
    pub record: SessionRecord,
    /// Mutable facts.
    pub head: SessionHead,
    /// Lease of the process that runs an agent in it, or last did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
}

impl SessionInfo {
    /// A session without a lease.
    #[must_use]
    pub fn new(record: SessionRecord, head: SessionHead) -> Self {
        Self { record, head, lease: None }
    }

    /// The same with this lease.
    #[must_use]
    pub fn leased(mut self, lease: Option<Lease>) -> Self {
        self.lease = lease;
        self
    }
}
