//! The todo list of a session.

use serde::{Deserialize, Serialize};

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Todo {
    /// What is to be done, such as "Run the tests".
    pub content: String,
    /// How far it is.
    pub status: TodoStatus,
    /// What is shown while it is being done, such as "Running the tests".
    #[serde(default)]
    pub active_form: String,
}

/// How far a thing to do is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TodoStatus {
    /// Nobody began.
    Pending,
    /// Somebody works on it.
    InProgress,
    /// It is done.
    Completed,
    /// It will not be done.
    Cancelled,
}
