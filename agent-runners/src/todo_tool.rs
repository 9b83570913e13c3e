//! The tool with which agents keep the todo list of their session.

use async_trait::async_trait;
use entourage_core::{
    team::{Todo, TodoStatus},
    tool::{Access, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec, schema_of},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Longest list, in items.
const MOST: usize = 200;

/// The arguments: the whole list, each time.
#[derive(Debug, Deserialize, JsonSchema)]
struct NewList {
    /// The whole list. What is not in it is gone.
    todos: Vec<Todo>,
}

/// Replaces the todo list of the session.
///
/// Agents that share a list ([`entourage_core::run::Spawn::sharing_todos`]) see each other's changes at once. The list
/// is part of the session: it is restored with it, and a summary of a long conversation includes it.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use entourage_runners::{ReactAgent, TodoTool};
/// use entourage_runtime::Runtime;
/// use entourage_testkit::ScriptedProvider;
/// use serde_json::json;
///
/// let todo = json!({"content": "Run the tests", "status": "pending", "active_form": "Running the tests"});
/// let todos = json!({"todos": [todo]});
/// let provider = ScriptedProvider::new().call("todos", todos).text("Planned.");
/// let agent = ReactAgent::builder("planner", provider.model()).tool(TodoTool::new()).build().unwrap();
/// let session = Runtime::in_memory().session();
/// session.start(&agent, "Plan it").outcome().await.unwrap();
/// assert_eq!(session.state().await.unwrap().todos()[0].content, "Run the tests");
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct TodoTool {
    spec: ToolSpec,
}

impl TodoTool {
    /// Name of the tool.
    pub const NAME: &'static str = "todos";

    /// The tool, called `todos`.
    #[must_use]
    pub fn new() -> Self {
        let description = "Keep a list of what is to be done, for work of three steps or more. Send the whole list each \
            time; what you leave out is gone. Have one thing in progress at a time, and mark it as completed as soon as \
            it is.";
        Self {
            spec: ToolSpec::new(Self::NAME, description, schema_of::<NewList>())
                .with_access(Access::NONE)
                .with_repeat(Repeat::Idempotent)
                .of_run(),
        }
    }
}

impl Default for TodoTool {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Tool for TodoTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, input: ToolInput, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let NewList { todos } = input.parse()?;
        if todos.len() > MOST {
            return Err(ToolError::tell(format!("a list has at most {MOST} items; combine related ones")));
        }
        if todos.iter().any(|todo| todo.content.trim().is_empty()) {
            return Err(ToolError::tell("the content of an item must not be empty; describe the item"));
        }
        let before = cx.run().todos();
        cx.run().set_todos(todos.clone()).await.map_err(ToolError::Fatal)?;
        let entered = |status| entered(&before, &todos, status);
        let metadata = json!({
            "is_new": before.is_empty(),
            "todos": todos,
            "just_completed": entered(TodoStatus::Completed),
            "just_started": entered(TodoStatus::InProgress),
        });
        Ok(ToolOutput::text(counts(&todos)).with_metadata(metadata))
    }
}

/// Contents of the items that have `status` after the change and did not before. Items are told apart by content.
fn entered<'a>(before: &[Todo], after: &'a [Todo], status: TodoStatus) -> Vec<&'a str> {
    let was = |content: &str| before.iter().any(|todo| todo.content == content && todo.status == status);
    let now = after.iter().filter(|todo| todo.status == status);
    now.map(|todo| todo.content.as_str()).filter(|content| !was(content)).collect()
}

fn counts(todos: &[Todo]) -> String {
    let count = |status| todos.iter().filter(|todo| todo.status == status).count();
    let named = [
        (TodoStatus::Pending, "pending"),
        (TodoStatus::InProgress, "in progress"),
        (TodoStatus::Completed, "completed"),
        (TodoStatus::Cancelled, "cancelled"),
    ];
    let counted = named.map(|(status, name)| format!("{} {name}", count(status)));
    format!("The list has {} things: {}.", todos.len(), counted.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_that_a_model_sees_is_plain() {
        entourage_testkit::assert_plain_text(&schema_of::<NewList>().to_string());
        entourage_testkit::assert_plain_text(TodoTool::new().spec().description());
    }
}
