//! Running sums over replies. Nothing here decides anything; it only counts.

use entourage_core::{Usage, bound::value, provider::Delta};

/// Bytes of output that `delta` shows; 0 for a delta without output.
pub(crate) fn visible_bytes(delta: &Delta) -> usize {
    match delta {
        Delta::Text(text)
        | Delta::Reasoning(text)
        | Delta::Refusal(text)
        | Delta::ToolCallArguments { text, .. } => text.len(),
        Delta::ReasoningSignature(signature) => signature.data.len().max(1),
        Delta::ToolCallStart(call) => call.name.len().max(1),
        Delta::Opaque(block) => value(&block.data),
        _ => 0,
    }
}

/// Usage of one call so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    usage: Usage,
    wasted: Usage,
    /// Bytes of output, failed attempts included.
    pub(crate) bytes: usize,
    /// True once the current attempt showed output.
    pub(crate) visible: bool,
    /// True once the reply is complete.
    pub(crate) finished: bool,
}

impl Tally {
    pub(crate) fn push(&mut self, delta: &Delta) {
        match delta {
            Delta::Usage(usage) => self.usage.merge(usage.plausible()),
            Delta::Restart(_) => {
                self.wasted += std::mem::take(&mut self.usage);
                self.visible = false;
            }
            Delta::Finish(_) => self.finished = true,
            other => {
                let bytes = visible_bytes(other);
                self.bytes = self.bytes.saturating_add(bytes);
                self.visible |= bytes > 0;
            }
        }
    }

    /// Usage of the current attempt, as far as the service reported it.
    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// Usage of all attempts, as far as the service reported it.
    pub(crate) fn total(&self) -> Usage {
        self.wasted + self.usage
    }
}
