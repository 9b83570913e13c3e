//! The plan of a team: what a lead answers with, and what is recorded of it.

use std::sync::Arc;

use entourage_core::{
    Result,
    event::{Record, weigh_plain},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TaskType;

/// A lead's plan: items of work, or the answer where nobody needs to work.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "A plan: the answer itself, or the items of work and what each comes after.")]
pub(super) struct TeamPlan {
    /// The answer, if you can give it at once; there are no items then.
    #[serde(default)]
    pub(super) answer: Option<String>,
    /// The items of work. Those that do not come after each other are done at the same time.
    #[serde(default)]
    pub(super) items: Vec<PlannedItem>,
}

/// An item as the lead writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "One item of work.")]
pub(super) struct PlannedItem {
    /// Its name, such as "backend": 1 to 64 letters, digits, `_`, `-` and `.`, no spaces.
    pub(super) id: String,
    /// What is to be done. Whoever does it sees this, and the results of the items that it comes after.
    pub(super) task: String,
    /// Its type.
    #[serde(rename = "type")]
    pub(super) kind: TaskType,
    /// The ids of the items whose results it needs.
    #[serde(default)]
    pub(super) after: Vec<String>,
    /// The member that must do it; leave it out to let whoever fits and is free do it.
    #[serde(default)]
    pub(super) member: Option<String>,
    /// About how many seconds it will take, if that is known.
    #[serde(default)]
    pub(super) expected_seconds: Option<u32>,
}

/// The plan of a team's run was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TeamPlanned {
    /// The items, in the order of the plan.
    pub items: Vec<TeamItem>,
}

/// An item of a team's plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TeamItem {
    /// Its id.
    pub id: Arc<str>,
    /// What is to be done.
    pub task: Arc<str>,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: TaskType,
    /// The items whose results it needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Arc<str>>,
    /// The members that may do it, by size: whoever of the first list is free first begins, and a failed attempt goes
    /// to the next list.
    pub members: Vec<Vec<Arc<str>>>,
    /// About how many seconds it will take, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_seconds: Option<u32>,
}

impl Record for TeamPlanned {
    const KIND: &'static str = "team.planned";

    fn summary(&self) -> String {
        let ids: Vec<_> = self.items.iter().map(|item| &*item.id).collect();
        format!("plans {}", ids.join(", "))
    }

    fn weigh(&self) -> Result<usize> {
        weigh_plain(self)
    }
}
