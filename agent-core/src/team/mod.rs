//! What agents that work together share. No I/O.

mod todo;
mod todo_tool;

pub use todo::{Todo, TodoStatus};
pub use todo_tool::TodoTool;
