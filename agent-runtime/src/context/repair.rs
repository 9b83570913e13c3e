//! Repair of foreign histories, so that every service accepts them.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use entourage_core::message::{History, Message, Part, Role, ToolResult};

/// Repairs a history: drops results without a call, answers calls without a result with an error result, and leaves
/// out messages without content. A valid history is returned unchanged and shared.
///
/// The sessions of this library are valid by construction; this is for histories that a program brings along.
#[must_use]
pub fn repair(history: &History) -> History {
    let mut repaired = History::default();
    let mut open: Option<Arc<Message>> = None;
    let mut results: Results = HashMap::new();
    for message in history {
        if message.role() == Role::Tool {
            collect(message, open.as_deref(), &mut results);
            continue;
        }
        if !message.has_content() {
            continue;
        }
        close(&mut repaired, &mut open, &mut results);
        let clean = without_stray_parts(message);
        if !clean.has_content() {
            continue;
        }
        if clean.tool_calls().next().is_some() {
            open = Some(Arc::clone(&clean));
        }
        repaired.push(clean);
    }
    close(&mut repaired, &mut open, &mut results);
    repaired
}

/// Results by the id of their call. A message may hold any number of calls, and each is looked up once.
type Results = HashMap<Arc<str>, Arc<ToolResult>>;

/// Takes the first result for each id. A result without a call is never looked up.
fn collect(message: &Message, open: Option<&Message>, results: &mut Results) {
    if open.is_none() {
        return;
    }
    for part in message.parts() {
        let Part::ToolResult(result) = part else { continue };
        results.entry(Arc::clone(&result.call)).or_insert_with(|| Arc::clone(result));
    }
}

fn close(repaired: &mut History, open: &mut Option<Arc<Message>>, results: &mut Results) {
    let Some(open) = open.take() else { return };
    let found = std::mem::take(results);
    let answer = |call: &entourage_core::message::ToolCall| {
        let known = found.get(&call.id).cloned();
        known.unwrap_or_else(|| Arc::new(ToolResult::error(call, "no result was recorded for this call")))
    };
    repaired.push(Message::tool(open.tool_calls().map(answer)));
}

/// The message without misplaced parts: calls belong to assistants and results to tool messages; ids within a message
/// are unique.
fn without_stray_parts(message: &Arc<Message>) -> Arc<Message> {
    let mut ids = HashSet::new();
    let keep = |part: &Part, ids: &mut HashSet<Arc<str>>| match part {
        Part::ToolCall(call) => message.role() == Role::Assistant && ids.insert(call.id.clone()),
        Part::ToolResult(_) => false,
        _ => true,
    };
    if message.parts().iter().all(|part| keep(part, &mut ids)) {
        return Arc::clone(message);
    }
    ids.clear();
    let kept = message.parts().iter().filter(|part| keep(part, &mut ids)).cloned().collect();
    Arc::new(Message::new(message.role(), kept))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use entourage_core::message::{Arguments, ToolCall};

    fn call(id: u8) -> Part {
        Part::ToolCall(ToolCall::new(id.to_string(), "t", Arguments::empty()))
    }

    fn result(id: u8) -> Part {
        Part::ToolResult(Arc::new(ToolResult::text(
            &ToolCall::new(id.to_string(), "t", Arguments::empty()),
            "ok",
        )))
    }

    fn any_message() -> impl Strategy<Value = Message> {
        let part = prop_oneof![
            "[a-z]{0,3}".prop_map(Part::Text),
            (0u8..4).prop_map(call),
            (0u8..4).prop_map(result),
        ];
        let role = prop_oneof![Just(Role::User), Just(Role::Assistant), Just(Role::Tool), Just(Role::System)];
        (role, prop::collection::vec(part, 0..5)).prop_map(|(role, parts)| Message::new(role, parts))
    }

    proptest! {
        /// Every call is followed by exactly one result, whatever comes in, and repair is idempotent.
        #[test]
        fn cm15_every_call_is_followed_by_one_result(messages in prop::collection::vec(any_message(), 0..12)) {
            let history: History = messages.into_iter().collect();
            let repaired = repair(&history);
            let list: Vec<_> = repaired.iter().collect();
            for (place, message) in list.iter().enumerate() {
                prop_assert!(message.has_content());
                let calls: Vec<_> = message.tool_calls().map(|c| c.id.clone()).collect();
                let answers: Vec<_> = list.get(place + 1).into_iter().flat_map(|m| m.tool_results()).map(|r| r.call.clone()).collect();
                if message.role() == Role::Tool {
                    prop_assert!(place > 0 && list[place - 1].tool_calls().next().is_some());
                } else {
                    prop_assert_eq!(message.tool_results().count(), 0);
                    prop_assert_eq!(calls, answers);
                }
            }
            prop_assert_eq!(repair(&repaired), repaired);
        }
    }
}
