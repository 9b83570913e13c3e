//! Teams: a lead plans, members of different sizes work, and the lead answers for all.
//!
//! `task_type` chooses a size for a task, `assign` members for the items of a plan, and `performance` learns from what
//! came of it: all pure. `run` drives; the items run as a [`TaskGraph`](crate::graph::TaskGraph), which keeps them.

mod assign;
mod builder;
mod lead;
mod mail;
mod member;
mod performance;
mod plan;
mod report;
mod run;
mod standard;
mod task_type;

pub use builder::{Team, TeamBuilder};
pub use mail::{MessageKind, TeamMessage};
pub use member::{IntoMember, Member};
pub use performance::Performance;
pub use plan::{TeamItem, TeamPlanned};
pub use report::{MemberReport, MemberStatus, TeamReport};
pub use task_type::TaskType;

use crate::{SqlViews, sql_views::sql_views};

/// Views over the records of teams: `team_attempts`, `team_items`, `team_messages` and `team_changes`.
pub const VIEWS: SqlViews = sql_views!("team", 4, ["attempts", "items", "messages", "changes"]);

pub(crate) use lead::built_in as lead_prompt;
pub(crate) use standard::prompts as member_prompts;
