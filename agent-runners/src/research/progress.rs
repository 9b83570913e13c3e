//! The record of a research: its tasks as they begin and end.

use entourage_core::{
    Result, SessionId,
    event::{Record, weigh_plain},
    run::Outcome,
};
use serde::{Deserialize, Serialize};

use super::ResearchTask;

/// A task of a research began or ended, as a recorded value of the research's session.
///
/// The newest one tells the progress. Those with an outcome are the results, whose order is that of
/// [`number`](ResearchProgress::number).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ResearchProgress {
    /// Number of the task, from 1.
    pub number: usize,
    /// The task.
    pub task: ResearchTask,
    /// The session in which it is worked on.
    pub child: SessionId,
    /// Outcome of the task; `None` when it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Number of all tasks.
    pub total: usize,
    /// Number of tasks that ended.
    pub done: usize,
    /// Number of tasks that are worked on or wait for a slot.
    pub active: usize,
}

impl Record for ResearchProgress {
    const KIND: &'static str = "research.progress";

    fn summary(&self) -> String {
        let Self { number, total, done, active, .. } = self;
        let status = self.outcome.as_ref().map_or_else(|| "began".to_owned(), |it| it.status.to_string());
        format!("task {number} {status}; {done} of {total} done, {active} active")
    }

    fn weigh(&self) -> Result<usize> {
        weigh_plain(self)
    }
}
