//! The texts of compaction: the request for a summary, and the message that replaces the older ones.

use std::fmt::Write;

use entourage_core::{
    context::Instructions,
    message::{Message, Part, Role},
    team::{Todo, TodoStatus},
};

/// Version of the prompt; raised whenever its words change.
const VERSION: u32 = 1;

const ASK: &str = "\
The conversation so far is about to be replaced by a summary, since it grows too long. Write that summary now. Whoever \
goes on, most likely you, will see nothing else of it, so leave out nothing that the work needs, and repeat nothing that \
it does not. Call no tool, address nobody, and write these five sections:

## State
What was asked, in the user's own terms; what is done, what is under way, what is left.
## Files and changes
Each file or other thing that was read, made or changed and still matters: its path, what changed, and why.
## Technical context
Decisions and their reasons, commands that work, findings, errors and their remedies, limits, names and figures to keep.
## Strategy
The approach that is being followed, what else was tried and why it was dropped.
## Exact next steps
The next actions in order, so precise that somebody who knows only this summary can take them.";

const HEADER: &str = "[Earlier messages were replaced by this summary of them.]";

const GO_ON: &str = "The earlier part was cut for length; go on with this task:";

/// The prompt that asks for a summary; a program may replace it.
pub(crate) fn built_in() -> Instructions {
    Instructions::built_in("entourage/summary", VERSION, ASK)
}

/// The prompt with what it is given besides.
pub(crate) fn instruction(prompt: &str, todos: &[Todo], focus: Option<&str>) -> String {
    let mut text = prompt.to_owned();
    if let Some(focus) = focus {
        let _ = write!(text, "\n\nGive special care to this: {focus}");
    }
    if !todos.is_empty() {
        let _ = write!(
            text,
            "\n\nThis is the list of what is to be done:\n{}\nRepeat it in the summary with each status as it is, and \
             add the advice to restore it first, with the tool for such lists.",
            list(todos)
        );
    }
    text
}

/// The message that replaces the older ones: the summary, the todo list if items are open, and `goal` word for word:
/// the task under way, when its own message is no longer shown.
pub(crate) fn summary_message(summary: &str, todos: &[Todo], goal: Option<&Message>) -> Message {
    let mut text = format!("{HEADER}\n\n{}", summary.trim());
    let open = todos.iter().any(|todo| matches!(todo.status, TodoStatus::Pending | TodoStatus::InProgress));
    if open {
        let _ = write!(text, "\n\nTo be done:\n{}", list(todos));
    }
    let Some(goal) = goal else { return Message::user(text) };
    let _ = write!(text, "\n\n{GO_ON}\n\n");
    let mut parts = vec![Part::Text(text)];
    parts.extend(goal.parts().iter().cloned());
    Message::new(Role::User, parts)
}

fn list(todos: &[Todo]) -> String {
    let lines = todos.iter().map(|todo| {
        let status = match todo.status {
            TodoStatus::Pending => "pending",
            TodoStatus::InProgress => "in progress",
            TodoStatus::Completed => "completed",
            TodoStatus::Cancelled => "cancelled",
            _ => "open",
        };
        format!("- [{status}] {}\n", todo.content)
    });
    lines.collect()
}
