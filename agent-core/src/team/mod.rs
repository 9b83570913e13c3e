//! State that cooperating agents share: the todo list of a session. No I/O.

mod list;
mod todo_tool;

pub use crate::base::{Todo, TodoStatus};
pub use todo_tool::TodoTool;
