//! The record of a planner: its strategy, its plans, and the questions to the user.

use entourage_core::{
    Result,
    event::{Record, plain_line, weigh_plain},
};
use serde::{Deserialize, Serialize};

use super::{PlannedStep, PlannerStrategy, StepReport, StepStatus};

/// Most bytes of a plan that is kept without a look at it.
const PLAIN: usize = 64 * 1024;

/// A decision of a planner, as a recorded value of its session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PlannerProgress {
    /// The request was classified.
    Analyzed {
        /// The strategy, as the counts left it.
        strategy: PlannerStrategy,
        /// The model's reason; empty if the words of the request decided.
        reasoning: String,
        /// Number of operations that the model estimated.
        operations: u32,
        /// True if the words of the request decided, since no model did.
        by_words: bool,
    },
    /// A plan was made.
    PlanCreated {
        /// Number of the plan in this run, from 1: a later one replaces what an earlier one left undone.
        round: u32,
        /// Its steps.
        steps: Vec<PlannedStep>,
    },
    /// A plan ended.
    PlanEnded {
        /// Number of the plan.
        round: u32,
        /// Completed, or failed because a step that is not optional was not done.
        status: StepStatus,
        /// Its steps with their results, in the order of the plan.
        steps: Vec<StepReport>,
    },
    /// The run ends with questions to the user.
    UserAsked {
        /// The questions.
        questions: Vec<String>,
    },
}

impl Record for PlannerProgress {
    const KIND: &'static str = "planner.progress";

    fn summary(&self) -> String {
        plain_line(&match self {
            Self::Analyzed { strategy, reasoning, by_words: false, .. } => format!("{strategy}: {reasoning}"),
            Self::Analyzed { strategy, .. } => format!("{strategy}, by the words of the request"),
            Self::PlanCreated { round, steps } => format!("plan {round} has {} steps", steps.len()),
            Self::PlanEnded { round, status, steps } => {
                let done = steps.iter().filter(|step| step.status == StepStatus::Completed).count();
                format!("plan {round} {status}, {done} of {} steps done", steps.len())
            }
            Self::UserAsked { questions } => format!("asks the user: {}", questions.join(" ")),
        })
    }

    /// A plan of this size is read back as it is, and no bound is near.
    fn weigh(&self) -> Result<usize> {
        let bytes = match self {
            Self::PlanCreated { steps, .. } => steps.iter().map(PlannedStep::bytes).sum(),
            Self::PlanEnded { steps, .. } => steps.iter().map(StepReport::bytes).sum(),
            Self::Analyzed { .. } | Self::UserAsked { .. } => return weigh_plain(self),
        };
        if bytes <= PLAIN { Ok(bytes) } else { weigh_plain(self) }
    }
}
