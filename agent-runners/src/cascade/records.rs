//! Records of a cascade's run. Its resume follows from them alone, and so do statistics in SQL.

use std::sync::Arc;

use entourage_core::{
    Money, Result, RunId, SessionId, Usage,
    event::{Record, weigh_plain},
    run::{Outcome, Status},
};
use serde::{Deserialize, Serialize};

use crate::team::TaskType;

/// Namespace of the records of cascades.
pub(super) const NAMESPACE: &str = "cascade";

/// An attempt of a [`Cascade`](crate::Cascade) began, or the check of its answer by an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CascadeStarted {
    /// Number of the attempt in this run, from 1.
    pub attempt: u32,
    /// Place of its agent in the cascade, from 1 for the cheapest one.
    pub step: u32,
    /// Name of the agent that works, or that checks.
    pub agent: Arc<str>,
    /// The session of that agent.
    pub child: SessionId,
    /// Type of the task, if the cascade knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskType>,
    /// True for a check.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub check: bool,
}

impl Record for CascadeStarted {
    const KIND: &'static str = "cascade.started";

    fn summary(&self) -> String {
        let what = if self.check { "checks the answer of attempt" } else { "begins attempt" };
        format!("{} {what} {}", self.agent, self.attempt)
    }

    fn child(&self) -> Option<(&SessionId, Option<RunId>)> {
        Some((&self.child, None))
    }

    /// Ids and names are always short.
    fn weigh(&self) -> Result<usize> {
        Ok(0)
    }
}

/// An attempt of a [`Cascade`](crate::Cascade) ended, and its answer was accepted or refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CascadeStep {
    /// Number of the attempt in this run, from 1.
    pub attempt: u32,
    /// Place of its agent in the cascade, from 1 for the cheapest one.
    pub step: u32,
    /// Name of the agent that worked.
    pub agent: Arc<str>,
    /// The session in which it worked.
    pub child: SessionId,
    /// Type of the task, if the cascade knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskType>,
    /// Outcome of the agent's run.
    pub outcome: Outcome,
    /// Reason why its answer is not the cascade's; `None` for an accepted one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Status with which the cascade ends after this attempt; `None` when it goes on with the next agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Status>,
    /// Tokens of the model calls of the agent and of all agents below it, as far as services reported them. Those of a
    /// check are not among them.
    #[serde(default, skip_serializing_if = "Usage::is_unknown")]
    pub usage: Usage,
    /// Cost of these calls; `None` means unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
}

impl Record for CascadeStep {
    const KIND: &'static str = "cascade.step";

    fn summary(&self) -> String {
        let goes_on = if self.ended.is_none() { ", and goes on" } else { "" };
        match &self.refused {
            Some(reason) => format!("attempt {} by {} refused{goes_on}: {reason}", self.attempt, self.agent),
            None => format!("attempt {} by {} accepted", self.attempt, self.agent),
        }
    }

    fn weigh(&self) -> Result<usize> {
        weigh_plain(self)
    }
}
