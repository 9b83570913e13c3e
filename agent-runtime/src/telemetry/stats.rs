//! Sums over tool calls, model calls and sessions.

use std::{collections::BTreeMap, fmt};

use entourage_core::{Money, Usage, session::SessionHead};
use serde::Serialize;

use super::trace::{ModelCallTrace, ToolCallTrace};

/// Statistics of one tool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct ToolStats {
    /// Calls that have a result.
    pub calls: u64,
    /// Calls that ran. The others were refused or could not run.
    pub ran: u64,
    /// Results that are errors.
    pub errors: u64,
    /// Calls that were refused.
    pub denied: u64,
    /// Calls that began and have no result.
    pub open: u64,
    /// Time of all calls that ran, in microseconds.
    pub micros: u64,
    /// Time of the longest call, in microseconds.
    pub slowest: u64,
}

impl ToolStats {
    /// Average time of a call that ran, in microseconds. `None` when none ran.
    #[must_use]
    pub fn mean(&self) -> Option<u64> {
        self.micros.checked_div(self.ran)
    }

    pub(super) fn add(&mut self, call: &ToolCallTrace) {
        if call.completed.is_none() {
            self.open = self.open.saturating_add(1);
            return;
        }
        self.calls = self.calls.saturating_add(1);
        self.errors = self.errors.saturating_add(u64::from(call.is_error()));
        self.denied = self.denied.saturating_add(u64::from(call.denied));
        if let Some(micros) = call.micros {
            self.ran = self.ran.saturating_add(1);
            self.micros = self.micros.saturating_add(micros);
            self.slowest = self.slowest.max(micros);
        }
    }
}

/// Statistics of one model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ModelStats {
    /// Number of calls.
    pub calls: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Calls that began and have no reply.
    pub open: u64,
    /// Tokens of all attempts.
    pub usage: Usage,
    /// Cost of all calls; `None` when the cost of any is unknown, such as that of a call without a reply.
    pub cost: Option<Money>,
    /// Time of all calls, in microseconds.
    pub micros: u64,
}

impl Default for ModelStats {
    fn default() -> Self {
        Self {
            calls: 0,
            errors: 0,
            open: 0,
            usage: Usage::default(),
            cost: Some(Money::default()),
            micros: 0,
        }
    }
}

impl ModelStats {
    pub(super) fn add(&mut self, call: &ModelCallTrace) {
        self.calls = self.calls.saturating_add(1);
        if call.completed.is_none() {
            self.open = self.open.saturating_add(1);
            self.cost = None;
            return;
        }
        self.errors = self.errors.saturating_add(u64::from(call.error.is_some()));
        self.usage += call.usage;
        self.cost = self.cost.zip(call.cost).map(|(sum, cost)| sum + cost);
        self.micros = self.micros.saturating_add(call.micros.unwrap_or_default());
    }
}

/// Sums over sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Totals {
    /// Number of sessions.
    pub sessions: u64,
    /// Messages in their conversations.
    pub messages: u64,
    /// Tokens of all calls.
    pub usage: Usage,
    /// Cost of all calls; `None` when the cost of any is unknown, such as that of a call without a reply.
    pub cost: Option<Money>,
}

impl Default for Totals {
    fn default() -> Self {
        Self { sessions: 0, messages: 0, usage: Usage::default(), cost: Some(Money::default()) }
    }
}

impl fmt::Display for Totals {
    /// Sessions, tokens and cost, in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sessions, {}, ", self.sessions, self.usage)?;
        match self.cost {
            Some(cost) => write!(f, "{cost}"),
            None => f.write_str("cost unknown"),
        }
    }
}

impl Totals {
    pub(super) fn add(&mut self, head: &SessionHead, open: bool) {
        self.sessions = self.sessions.saturating_add(1);
        self.messages = self.messages.saturating_add(head.messages);
        self.usage += head.usage;
        self.cost = self.cost.zip(head.cost.filter(|_| !open)).map(|(sum, cost)| sum + cost);
    }
}

/// Statistics of a session and all sessions below it: each session's own events are counted once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct SessionStats {
    /// The session itself.
    pub own: Totals,
    /// Everything below it.
    pub descendants: Totals,
    /// Runs of the session itself that ended.
    pub runs: u64,
    /// Models of the whole tree, as `service:model`.
    pub models: BTreeMap<String, ModelStats>,
    /// Tools of the whole tree.
    pub tools: BTreeMap<String, ToolStats>,
}
