//! The tool with which a checker calls a task complete, the only way to do so (CW04).

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::json;

use crate::tool::{Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec};

/// The tool's name.
pub(crate) const TASK_COMPLETE: &str = "task_complete";

/// `task_complete`: its success ends the checker's turn, and calls after it in the same message are not run.
#[derive(Debug)]
pub(super) struct TaskComplete {
    spec: ToolSpec,
}

#[derive(Deserialize)]
struct Claim {
    summary: String,
}

impl TaskComplete {
    pub(super) fn new() -> Self {
        let description = "Call the task complete. Do this only after you have seen for yourself that all that was asked is \
            done: it ends the task at once.";
        let schema = json!({
            "type": "object",
            "properties": {
                "summary": {
                    "type": "string",
                    "description": "What was done, and how you know that it is done. Must not be empty."
                }
            },
            "required": ["summary"]
        });
        Self {
            spec: ToolSpec::new(TASK_COMPLETE, description, schema).with_repeat(Repeat::Idempotent).alone(),
        }
    }
}

#[async_trait]
impl Tool for TaskComplete {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, input: ToolInput, _: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let Claim { summary } = input.parse()?;
        if summary.trim().is_empty() {
            return Err(ToolError::tell("the summary is empty; say what was done and how you know that"));
        }
        Ok(ToolOutput::text("The task is complete.").stopping())
    }
}
