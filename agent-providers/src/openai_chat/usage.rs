//! Token counts, converted from each service's fields to one meaning.

use entourage_core::Usage;

use super::wire::WireUsage;

/// Converts to a usage. Input includes cached tokens and output includes reasoning, wherever the service counts them.
pub(super) fn usage(wire: &WireUsage) -> Usage {
    let prompt = wire.prompt_tokens_details.0.as_ref();
    let completion = wire.completion_tokens_details.0.as_ref();
    let reasoning = completion.and_then(|details| details.reasoning_tokens.0).or(wire.reasoning_tokens.0);
    let mut usage = Usage::default();
    usage.input = wire.prompt_tokens.0;
    usage.output = wire.completion_tokens.0;
    usage.reasoning = reasoning;
    usage.cost = wire.cost.0;
    usage.cache_read = prompt
        .and_then(|details| details.cached_tokens.0)
        .or(wire.prompt_cache_hit_tokens.0)
        .or(wire.cache_read_input_tokens.0)
        .or(wire.cached_tokens.0);
    usage.cache_write =
        prompt.and_then(|details| details.cache_write_tokens.0).or(wire.cache_creation_input_tokens.0);
    // Some services count reasoning in addition to the completion; only their total shows it.
    if let (Some(input), Some(output), Some(thought), Some(total)) =
        (usage.input, usage.output, reasoning, wire.total_tokens.0)
        && thought > 0
        && input.checked_add(output).and_then(|sum| sum.checked_add(thought)) == Some(total)
    {
        usage.output = output.checked_add(thought);
    }
    usage
}
