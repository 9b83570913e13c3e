//! Token counts, converted from the wire's fields to their meaning in the core.

use entourage_core::{Money, Usage};

use super::wire::WireUsage;

/// The wire's own figures so far. Each later figure replaces the earlier one: the last event of a stream often has the
/// output only, and sometimes revises the input.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    uncached: Option<u64>,
    read: Option<u64>,
    written: Option<u64>,
    output: Option<u64>,
    thinking: Option<u64>,
    cost: Option<Money>,
}

impl Tally {
    pub(super) fn take(&mut self, wire: &WireUsage) {
        self.uncached = wire.input_tokens.0.or(self.uncached);
        self.read = wire.cache_read_input_tokens.0.or(self.read);
        self.written = wire.cache_creation_input_tokens.0.or(self.written);
        self.output = wire.output_tokens.0.or(self.output);
        let details = wire.output_tokens_details.0.as_ref();
        self.thinking = details.and_then(|details| details.thinking_tokens.0).or(self.thinking);
        self.cost = wire.cost.0.or(self.cost);
    }

    /// Converts to a usage. The wire's input excludes tokens that the cache read and wrote; its output includes
    /// reasoning.
    pub(super) fn usage(&self) -> Usage {
        let cached = self.read.unwrap_or(0).saturating_add(self.written.unwrap_or(0));
        let mut usage = Usage::default();
        usage.input = self.uncached.map(|uncached| uncached.saturating_add(cached));
        usage.output = self.output;
        usage.cache_read = self.read;
        usage.cache_write = self.written;
        usage.reasoning = self.thinking;
        usage.cost = self.cost;
        usage
    }
}
