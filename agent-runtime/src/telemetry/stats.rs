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
    /// Cost of the calls whose cost is known: the calls cost at least this.
    pub known_cost: Money,
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
            known_cost: Money::default(),
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
        self.known_cost += call.cost.unwrap_or_default();
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
    /// Time of these runs from their beginning to their end, waits for people included, in microseconds.
    pub micros: u64,
    /// Models of the whole tree, as `service:model`.
    pub models: BTreeMap<String, ModelStats>,
    /// Tools of the whole tree.
    pub tools: BTreeMap<String, ToolStats>,
}

impl SessionStats {
    /// Tokens of the whole tree.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.own.usage + self.descendants.usage
    }

    /// Cost of the whole tree. `None` if that of a call is unknown: its model has no price, or it has no reply, since
    /// its process died in it, and what it cost is then never known. [`SessionStats::known_cost`] is the least that it
    /// was.
    #[must_use]
    pub fn cost(&self) -> Option<Money> {
        self.own.cost.zip(self.descendants.cost).map(|(own, below)| own + below)
    }

    /// Cost of the calls in the whole tree whose cost is known.
    #[must_use]
    pub fn known_cost(&self) -> Money {
        self.models.values().fold(Money::default(), |sum, model| sum + model.known_cost)
    }

    /// Number of model calls in the whole tree.
    #[must_use]
    pub fn model_calls(&self) -> u64 {
        self.models.values().fold(0, |sum, model| sum.saturating_add(model.calls))
    }

    /// Number of tool calls in the whole tree, those without a result included.
    #[must_use]
    pub fn tool_calls(&self) -> u64 {
        self.tools.values().fold(0, |sum, tool| sum.saturating_add(tool.calls).saturating_add(tool.open))
    }
}

impl fmt::Display for SessionStats {
    /// Calls, tokens, cost and time, in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (models, tools, usage) = (self.model_calls(), self.tool_calls(), self.usage());
        write!(f, "{models} model calls, {tools} tool calls, {usage}, ")?;
        match self.cost() {
            Some(cost) => write!(f, "{cost}")?,
            None => write!(f, "at least {}", self.known_cost())?,
        }
        write!(f, ", {} ms", self.micros / 1_000)
    }
}
