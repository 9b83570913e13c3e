//! What a store keeps about a session beside its events.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::Lease;
use crate::{Money, RunId, SessionId, Timestamp, Usage};

/// What never changes about a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionRecord {
    /// Its id.
    pub id: SessionId,
    /// The session that started it; `None` for a root.
    pub parent: Option<SessionId>,
    /// What it is for: `"user"` for a root, otherwise the role below its parent, such as `"child"`.
    pub role: Arc<str>,
    /// When it was created.
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

/// What changes with each batch of events: the fold that lists are made of. Computed by core, replaced as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionHead {
    /// Number of the newest event; 0 for none.
    pub seq: u64,
    /// Whether a run is under way.
    pub status: SessionStatus,
    /// The run that is under way or paused.
    pub run: Option<RunId>,
    /// The agent that ran last.
    pub agent: Arc<str>,
    /// The first prompt, cut to 80 characters, until something better names the session.
    pub title: Arc<str>,
    /// Messages in the conversation.
    pub messages: u64,
    /// Tokens of this session's own model calls.
    /// Its own `cost` is `None`: see `cost`.
    pub usage: Usage,
    /// Cost of this session's own model calls; `None` when the cost of any is unknown.
    pub cost: Option<Money>,
    /// Number of the newest [`Event::Checkpoint`](crate::event::Event::Checkpoint), from which on reading is enough; 0
    /// for none.
    #[serde(default)]
    pub checkpoint: u64,
    /// When the newest event happened.
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

/// Whether a run is under way in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    /// No run, or the last one ended.
    Idle,
    /// A run is under way, or a process died during one.
    Running,
    /// A run waits for somebody.
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

    /// The status of this name.
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
    /// What never changes.
    pub record: SessionRecord,
    /// What does.
    pub head: SessionHead,
    /// Who runs an agent in it, or did last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
}

impl SessionInfo {
    /// A session that nobody has a lease of.
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
