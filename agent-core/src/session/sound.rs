//! Soundness of conversations: messages are made sound before they join, and an unsound stored state is refused. Pure.

use std::{borrow::Cow, sync::Arc};

use super::open::OpenStep;
use crate::message::{History, Message, Part, Role};

/// A message that is not the model's, without calls and results. `None` if nothing is left.
pub(super) fn said(message: &Arc<Message>) -> Option<Cow<'_, Arc<Message>>> {
    let role = if message.role() == Role::Tool { Role::User } else { message.role() };
    without(message, role, |part| matches!(part, Part::ToolCall(_) | Part::ToolResult(_)))
}

/// A reply of the model, without results. `None` if nothing is left.
pub(super) fn replied(message: &Arc<Message>) -> Option<Cow<'_, Arc<Message>>> {
    without(message, Role::Assistant, |part| matches!(part, Part::ToolResult(_)))
}

fn without(message: &Arc<Message>, role: Role, stray: fn(&Part) -> bool) -> Option<Cow<'_, Arc<Message>>> {
    let message = if message.role() == role && !message.parts().iter().any(stray) {
        Cow::Borrowed(message)
    } else {
        let parts = message.parts().iter().filter(|part| !stray(part)).cloned().collect();
        Cow::Owned(Arc::new(Message::new(role, parts)))
    };
    message.has_content().then_some(message)
}

/// Number of newest messages to keep when `kept` are asked for. One more if the cut would part results from their
/// calls.
pub(super) fn tail(history: &History, kept: u64) -> usize {
    let kept = usize::try_from(kept).unwrap_or(usize::MAX).min(history.len());
    let begins = |kept: usize| history.get(history.len().saturating_sub(kept));
    if begins(kept).is_some_and(|first| kept > 0 && first.role() == Role::Tool) { kept + 1 } else { kept }
}

/// The flaw of a stored conversation, if it has one.
pub(super) fn flaw(history: &History, step: Option<&OpenStep>) -> Option<&'static str> {
    let mut asked: Option<&Message> = None;
    for message in history {
        let answers = message.role() == Role::Tool;
        if answers != asked.is_some() {
            return Some("calls and results do not alternate");
        }
        if answers && !asked.is_some_and(|asked| answered(asked, message)) {
            return Some("results do not answer the calls before them");
        }
        if !answers && message.tool_results().next().is_some() {
            return Some("a tool result is outside a tool message");
        }
        if message.parts().is_empty() {
            return Some("a message is empty");
        }
        asked = Some(&**message).filter(|message| !answers && message.tool_calls().next().is_some());
    }
    match (asked, step) {
        (None, None) => None,
        (Some(asked), Some(step)) if *asked == *step.message && step.is_open() => None,
        _ => Some("the open calls are not in the newest message"),
    }
}

fn answered(asked: &Message, answers: &Message) -> bool {
    answers.parts().iter().all(|part| matches!(part, Part::ToolResult(_)))
        && asked.tool_calls().map(|call| &call.id).eq(answers.tool_results().map(|result| &result.call))
}
