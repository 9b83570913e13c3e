//! The reminder of an empty todo list.

use entourage_core::{event::Event, message::Message, run::RunContext};

const REMINDER: &str = "<reminder>The list of what is to be done is empty. If this takes three steps or more, keep one \
    with the tool `todos`; otherwise go on without. Do not mention this reminder.</reminder>";

/// Reminds the model of an empty list, once per run and in root sessions only. `recorded` holds the events that the run
/// stored before it was interrupted.
pub(super) fn of_todos(cx: &RunContext, recorded: &[Event]) {
    let told = |event: &Event| matches!(event, Event::MessageAdded(it) if it.queued.is_none());
    if cx.parent().is_some() || recorded.iter().any(told) || !cx.todos().is_empty() {
        return;
    }
    // A run that is over has no model call to remind: its first effect is refused.
    drop(cx.remind(Message::user(REMINDER)));
}
