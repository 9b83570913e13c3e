//! Old tool results, replaced by notes of their sizes. Pure.

use std::sync::Arc;

use crate::message::{Content, Message, Part, ToolResult};

/// The message with each tool result of at least `least` bytes of text replaced by a note of its size.
pub fn cleared(message: &Arc<Message>, least: u64) -> Arc<Message> {
    let size = |result: &ToolResult| result.content.iter().map(size_of).fold(0, u64::saturating_add);
    if message.tool_results().all(|result| size(result) < least) {
        return Arc::clone(message);
    }
    let part = |part: &Part| match part {
        Part::ToolResult(result) if size(result) >= least => {
            let note = format!(
                "[{} bytes, cleared to save room; call the tool again if you need them]",
                size(result)
            );
            let mut result = (**result).clone();
            result.content = vec![Content::Text(note)];
            Part::ToolResult(Arc::new(result))
        }
        other => other.clone(),
    };
    Arc::new(Message::new(message.role(), message.parts().iter().map(part).collect()))
}

fn size_of(content: &Content) -> u64 {
    match content {
        Content::Text(text) => u64::try_from(text.len()).unwrap_or(u64::MAX),
        // The size of a file is not known; it never counts as small.
        Content::Media(_) => 1 << 16,
    }
}
