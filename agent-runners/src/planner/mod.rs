//! A planner with executors: a strong model plans, cheap models that only look work on the steps, and the planner
//! answers from what they found.
//!
//! Pure: `strategy` (answer, work or plan), `plan` (steps and their problems), `questions` (answers that
//! ask the user), `talk` (the next message between planner and executor), `past` and `before` (what earlier
//! runs did), `budget` (tokens by part), `report` (results and figures). `run`, `execution` and `conversation`
//! drive: they call, record and wait, and decide nothing else. It must not touch files or the web: the tools are the
//! program's.
//!
//! # Records
//! | what happened | record |
//! |---|---|
//! | a strategy was chosen, a plan made or ended, the user is asked | [`PlannerProgress`], in the planner's session |
//! | a step began, and its executor with it | [`NodeStarted`](crate::graph::NodeStarted), in the plan's session |
//! | a message between planner and executor | [`StepMessage`], in the step's session |
//! | a step ended, with its result, tokens and time | [`NodeFinished`](crate::graph::NodeFinished) |
//! | the answer, the use, an error | the events of every run |
//!
//! [`StepExecution::of`] folds these events into one row for each step. [`VIEWS`] are relations over them for plain
//! SQL.

mod before;
mod budget;
mod builder;
mod conversation;
mod execution;
mod guard;
mod limits;
mod message;
mod past;
mod plan;
mod progress;
mod prompts;
mod questions;
mod reply;
mod report;
mod run;
mod strategy;
mod talk;

pub use budget::PartBudgets;
pub use builder::{Planner, PlannerBuilder};
pub use limits::ConversationLimits;
pub use message::{StepMessage, StepMessageKind};
pub use plan::PlannedStep;
pub use progress::PlannerProgress;
pub(crate) use prompts::prompts;
pub use report::{StepExecution, StepReport, StepStatus};
pub use strategy::PlannerStrategy;

use crate::{SqlViews, sql_views::sql_views};

/// Views over the records of planners: `planner_plans`, `planner_steps`, `planner_executions`, `planner_conversations`,
/// `planner_messages` and `planner_agents`.
pub const VIEWS: SqlViews =
    sql_views!("planner", 2, ["plans", "steps", "executions", "conversations", "messages", "agents"]);
