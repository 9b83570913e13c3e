//! The agent that watches a running graph and steps in: what it is told, and what it may do.

use std::{
    fmt::{self, Write as _},
    sync::Arc,
};

use entourage_core::{Result, RunId, agent::Agent, run::Task};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Change, GraphReport, NodeEnd, PlanTask, SkipAs, section};

/// Most times that a supervisor is asked in one run.
pub(crate) const ROUNDS: u32 = 5;

/// An agent that is asked whenever a node has failed for good, and changes the graph while it runs on.
#[derive(Clone)]
pub(crate) struct Supervisor {
    /// Its answers are [`Interventions`].
    pub(crate) agent: Arc<dyn Agent>,
    /// Role of its session.
    pub(crate) role: &'static str,
    pub(crate) ask: Ask,
}

pub(crate) type Ask = Arc<dyn Fn(&News) -> Result<Task> + Send + Sync>;

/// What a supervisor is asked about.
#[derive(Debug)]
pub(crate) struct News {
    /// The graph at this moment.
    pub(crate) report: GraphReport,
    /// Nodes that failed for good since it was asked before.
    pub(crate) failed: Vec<Arc<str>>,
    /// The run in which it is asked.
    pub(crate) run: RunId,
    /// Steps of its last answer that were refused, with the reasons.
    pub(crate) refused: Vec<String>,
}

impl Supervisor {
    pub(crate) fn new(agent: Arc<dyn Agent>, role: &'static str, ask: Ask) -> Self {
        Self { agent, role, ask }
    }
}

impl News {
    /// Returns the state of the graph, and what happened, in words for a model.
    pub(crate) fn text(&self) -> String {
        let mut text = "The work stands like this:\n".to_owned();
        for node in &self.report.nodes {
            // Writing to a string cannot fail.
            let _ = write!(text, "\n- `{}`: {}", node.id, node.state());
            if let Some(agent) = node.agent.as_ref().filter(|_| node.attempts > 0) {
                let _ = write!(text, ", `{agent}`, attempt {}", node.attempts);
            }
        }
        text.push('\n');
        for id in &self.failed {
            let end = self.report.node(id).and_then(|node| node.end.as_ref());
            if let Some(NodeEnd::Failed(error)) = end {
                let _ = write!(text, "\n\n`{id}` failed:");
                section(&mut text, "failure", &format!(" of=\"{id}\""), &error.message);
            }
        }
        for refused in &self.refused {
            let _ = write!(text, "\n\nOf the steps that you took before, this one was refused: {refused}");
        }
        text
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor").field("agent", &self.agent.name()).finish_non_exhaustive()
    }
}

/// The answer of an agent that watches a graph: the steps that it takes, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "The steps to take now; none to let the work go on as it is.")]
#[non_exhaustive]
pub struct Interventions {
    /// The steps. One that cannot be taken is told, and the others are taken.
    pub steps: Vec<Intervention>,
}

/// One step of an agent that watches a graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "do")]
#[schemars(description = "One step.")]
#[non_exhaustive]
pub enum Intervention {
    /// Gives up a task that is not done, or failed. Those after it go on without its result.
    Skip {
        /// Id of the task.
        task: String,
    },
    /// Gives up a task that is not done, and those that need it.
    Drop {
        /// Id of the task.
        task: String,
    },
    /// Tries a task again that failed or was given up.
    Retry {
        /// Id of the task.
        task: String,
    },
    /// Gives a task that is not done, or failed, to somebody else, who starts over.
    Reassign {
        /// Id of the task.
        task: String,
        /// Name of whoever does it from now on.
        to: String,
    },
    /// Adds a task. It may come after tasks that are over.
    Add {
        /// The new task.
        task: PlanTask,
    },
}

impl Intervention {
    /// Returns the change of the graph, if there is one to make: `blocks` tells of a node whether nothing that needs it
    /// is begun.
    pub(crate) fn change(&self, blocks: impl Fn(&str) -> bool) -> Option<Change> {
        let node = |task: &str| Arc::<str>::from(task);
        Some(match self {
            Self::Skip { task } => Change::Skip { node: node(task), dependents: SkipAs::Satisfied },
            Self::Drop { task } if blocks(task) => return None,
            Self::Drop { task } => Change::Skip { node: node(task), dependents: SkipAs::Blocked },
            Self::Retry { task } => Change::Retry { node: node(task) },
            Self::Reassign { task, to } => Change::Reassign { node: node(task), agent: node(to) },
            Self::Add { task } => task.change(),
        })
    }
}

impl Interventions {
    /// Most steps of one answer.
    pub const MOST: usize = 50;

    /// Says what is wrong with the answer by itself, in words for a model.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.steps.len() {
            count if count > Self::MOST => {
                Err(format!("{count} steps are too many; take at most {}", Self::MOST))
            }
            _ => Ok(()),
        }
    }
}
