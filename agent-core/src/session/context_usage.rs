//! The fill level of a session's context.

use serde::{Deserialize, Serialize};

use crate::{
    Usage,
    message::{Message, estimate_tokens},
};

/// Fill level of the context in the newest step of a conversation.
///
/// These are the sizes of one step, not sums: they show how near the conversation is to the model's window.
/// [`SessionHead::usage`](crate::session::SessionHead::usage) has the tokens used in total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ContextUsage {
    /// Tokens of the prompt, cached ones included.
    pub input: u64,
    /// Tokens of the reply, reasoning included.
    pub output: u64,
    /// True if the service left a figure out, or reported 0, so that it was estimated from the conversation. An
    /// estimate includes neither the instructions nor the tools of the request.
    pub estimated: bool,
}

impl ContextUsage {
    /// Tokens of prompt and reply together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }

    /// A context that no service has counted: both figures are estimates.
    pub(crate) fn of(input: u64, output: u64) -> Self {
        Self { input, output, estimated: true }
    }

    /// The context after a step that answered `reply` to a conversation of about `prompt` tokens. A figure of 0 counts
    /// as missing: every prompt has tokens.
    pub(crate) fn after(usage: &Usage, prompt: u64, reply: &Message) -> Self {
        let counted = |figure: Option<u64>| figure.filter(|tokens| *tokens > 0);
        let (input, output) = (counted(usage.input), counted(usage.output));
        let said = output.unwrap_or_else(|| estimate_tokens(reply));
        // An empty reply takes no tokens; that is not a guess.
        let estimated = input.is_none() || output.is_none() && said > 0;
        Self { input: input.unwrap_or(prompt), output: said, estimated }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cc03_a_figure_of_zero_is_none() {
        let reply = Message::assistant("12345");
        let after = |usage| ContextUsage::after(&usage, 50, &reply);
        let figures = |input, output, estimated| ContextUsage { input, output, estimated };
        assert_eq!(after(Usage::new(100, 10)), figures(100, 10, false));
        assert_eq!(after(Usage::new(100, 0)), figures(100, 2, true));
        assert_eq!(after(Usage::new(0, 0)), figures(50, 2, true));
        assert_eq!(after(Usage::default()), figures(50, 2, true));
        let silent = ContextUsage::after(&Usage::new(100, 0), 50, &Message::assistant(""));
        assert_eq!((silent, silent.total()), (figures(100, 0, false), 100));
    }
}
