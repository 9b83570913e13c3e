//! The todo list of a session, which cooperating agents share.

pub use crate::base::{Todo, TodoStatus};
